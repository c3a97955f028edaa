"""Planning: which split of a model over a cluster takes least time, where, and why not others."""

from .limits import Limits
from .plan import plan
from .planned import Plan, PlannedStrategy, RuleOfThumb, Run

__all__ = ["Limits", "Plan", "PlannedStrategy", "RuleOfThumb", "Run", "plan"]
