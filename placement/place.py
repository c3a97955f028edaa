"""Placing a job: the one function that users of the solver call."""

from __future__ import annotations

from . import exact_rails
from .budget import Budget
from .cluster import Cluster
from .cuts import fewer_bytes
from .evaluate import evaluate
from .exact import ExactResult, place_exactly
from .feasibility import check_feasible
from .index import Demand, Fabric
from .packing import pack_in_order
from .pcg import PCG
from .placement import Placement


def place(pcg: PCG, cluster: Cluster, time_limit_s: float = 1.0, seed: int = 0) -> Placement:
    """Map every rank to a free device with as few bytes as possible, spine first, then inwards.

    Never worse than packing the ranks in order. The same arguments give the same placement, unless
    the machine is too slow to do the counted work within `time_limit_s`. Raises Infeasible, with
    what is short and where, when there are not enough free devices.
    """
    budget = Budget(time_limit_s)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    check_feasible(pcg, fabric, demand)
    start = pack_in_order(fabric, demand)
    if fabric.rail is None:
        result = place_exactly(fabric, demand, start, budget)
    elif exact_rails.fits(fabric, demand):
        result = exact_rails.place_exactly_on_rails(fabric, demand, start, budget)
    else:
        result = ExactResult(start, 0, 0.0)
    slots = result.slots if fewer_bytes(fabric, demand, result.slots, start) else start
    devices = fabric.devices(slots)
    traffic = evaluate(pcg, cluster, devices).traffic_bytes
    proved = result.proved_levels > 0
    bound = traffic[cluster.spine] if proved else min(result.bound_bytes, traffic[cluster.spine])
    return Placement(devices, traffic, bound, proved, "exact" if proved else "search")
