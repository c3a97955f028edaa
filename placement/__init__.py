"""Placement: a pure library that maps parallel computation graphs onto clusters."""

from .accelerators import CATALOG, Accelerator
from .cluster import Cluster, CrossRail, Node, NodeState, Tier
from .errors import Infeasible, InvalidInput, Problem
from .evaluate import Evaluation, Evaluator, GroupTraffic, evaluate
from .pcg import PCG, Algorithm, Group, Op, Requirement
from .placement import Placement

__all__ = [
    "CATALOG",
    "PCG",
    "Accelerator",
    "Algorithm",
    "Cluster",
    "CrossRail",
    "Evaluation",
    "Evaluator",
    "Group",
    "GroupTraffic",
    "Infeasible",
    "InvalidInput",
    "Node",
    "NodeState",
    "Op",
    "Placement",
    "Problem",
    "Requirement",
    "Tier",
    "evaluate",
]
