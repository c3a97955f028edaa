"""What the network is like, from what probes between its nodes measured."""

from .measurements import Measurement, ProbeKind, ProbeRound
from .probing import ProbeBudget, Probing, Remaining

__all__ = ["Measurement", "ProbeBudget", "ProbeKind", "ProbeRound", "Probing", "Remaining"]
