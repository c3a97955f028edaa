"""The cost model: seconds and memory of a training step on a cluster, by published formulas."""

from .constants import CONSTANTS, Constants
from .estimator import Estimator, StageEstimate, estimate
from .step import StepEstimate

__all__ = ["CONSTANTS", "Constants", "Estimator", "StageEstimate", "StepEstimate", "estimate"]
