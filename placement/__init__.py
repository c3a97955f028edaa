"""Placement: a pure library that maps parallel computation graphs onto clusters."""

from .accelerators import CATALOG, Accelerator
from .cluster import Cluster, CrossRail, Node, NodeState, Tier
from .constraints import AtMost, Balanced, Constraints, Pin, Segments, Together
from .cost import Estimator, StepEstimate, estimate
from .ctg import (
    CTG,
    build_ctg,
    device_id,
    domain_tree_of,
    nic_id,
    switch_id,
    to_graphml,
    to_node_link,
)
from .domains import Domain, DomainTree
from .drawing.drawing_fabric import draw_fabric
from .drawing.drawing_placement import draw_placement, spine_crossings
from .errors import Infeasible, InvalidInput, Problem
from .evaluate import Evaluation, Evaluator, GroupTraffic, evaluate
from .explain import Obstacle, Source, explain_infeasible, explain_traffic
from .fabrics import clos_8_rail, dual_plane, fat_tree, nvl_domains
from .jobs.parts import rank_parts
from .models import CapturedModel, Model, capture
from .occupancy import occupied
from .pcg import PCG, Algorithm, Group, Kind, Op, Requirement
from .place import place
from .placement import Placement
from .planning import Limits, Plan, PlannedStrategy, plan
from .repair import Repair, repair
from .strategies.cluster_rules import Finding, check
from .strategies.demands import StrategyDemand, strategy_demands
from .strategies.loads import StageLoad, stage_flops, stage_loads
from .strategies.order import mesh_order
from .strategies.parts import stage_parameters
from .strategies.rules import broken_rules
from .timed.link_time import CommunicationTime, communication_time
from .transformer_pcg import build_pcg
from .warm_up import warm_up
from .workload import Parallelism, Workload
from .workload_file import load_workload, save_workload

__all__ = [
    "CATALOG",
    "CTG",
    "PCG",
    "Accelerator",
    "Algorithm",
    "AtMost",
    "Balanced",
    "CapturedModel",
    "Cluster",
    "CommunicationTime",
    "Constraints",
    "CrossRail",
    "Domain",
    "DomainTree",
    "Estimator",
    "Evaluation",
    "Evaluator",
    "Finding",
    "Group",
    "GroupTraffic",
    "Infeasible",
    "InvalidInput",
    "Kind",
    "Limits",
    "Model",
    "Node",
    "NodeState",
    "Obstacle",
    "Op",
    "Parallelism",
    "Pin",
    "Placement",
    "Plan",
    "PlannedStrategy",
    "Problem",
    "Repair",
    "Requirement",
    "Segments",
    "Source",
    "StageLoad",
    "StepEstimate",
    "StrategyDemand",
    "Tier",
    "Together",
    "Workload",
    "broken_rules",
    "build_ctg",
    "build_pcg",
    "capture",
    "check",
    "clos_8_rail",
    "communication_time",
    "device_id",
    "domain_tree_of",
    "draw_fabric",
    "draw_placement",
    "dual_plane",
    "estimate",
    "evaluate",
    "explain_infeasible",
    "explain_traffic",
    "fat_tree",
    "load_workload",
    "mesh_order",
    "nic_id",
    "nvl_domains",
    "occupied",
    "place",
    "plan",
    "rank_parts",
    "repair",
    "save_workload",
    "spine_crossings",
    "stage_flops",
    "stage_loads",
    "stage_parameters",
    "strategy_demands",
    "switch_id",
    "to_graphml",
    "to_node_link",
    "warm_up",
]
