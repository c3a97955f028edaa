"""Placing a job: the one function that users of the solver call."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal

from .bounds.group_bound import group_bound
from .cluster import Cluster
from .constraining.constrained import place_under
from .constraints import Constraints
from .errors import BoundAboveCost, Infeasible, InvalidInput, Problem
from .evaluate import evaluate
from .exact import exact_rails
from .exact.exact import place_exactly
from .explain import explain_infeasible
from .feasibility import check_feasible
from .jobs.cuts import cut_bytes, fewer, fewer_bytes
from .jobs.firm_groups import firm_groups
from .jobs.index import Demand, Fabric, Ints
from .jobs.kinds import place_on_same_kind
from .jobs.large import place_large
from .jobs.ordering import in_one_order
from .jobs.search_limits import check_search
from .jobs.tensor_groups import with_whole_groups
from .loops.budget import Budget
from .packing import pack_in_order
from .pcg import PCG
from .placement import Placement
from .timed.fastest import place_fastest
from .timed.node_time import node_link_seconds

MOST_EXACT_RANKS = 40
"""Jobs of at most so many ranks go to the exact model first."""
NO_BOUND = "no lower bound above 0 is known for the bytes over the spine"
"""Note on a placement whose bound says nothing."""
ROUNDING = 1e-12
"""Part of all traffic that sums of bytes may be off."""
PROOF_TOLERANCE = 1e-8
"""Relative excess over the bound that rounding explains."""


def place(
    pcg: PCG,
    cluster: Cluster,
    time_limit_s: float = 1.0,
    seed: int = 0,
    constraints: Constraints | None = None,
    objective: Literal["bytes", "time"] = "bytes",
) -> Placement:
    """Map every rank to a free device with as few bytes as possible, spine first, then inwards.

    Without constraints never worse than packing the ranks in order; with them, never worse than
    packing in order under them. The same arguments give the same placement, unless the machine is
    so slow or busy that the work counted as `time_limit_s` takes more than four times that and
    ten seconds. The order of nodes and groups in the input does not decide between placements that
    cost the same. Raises Infeasible, with what is short and where, or which constraint cannot be
    met and what can, and InvalidInput for a limit or a seed that means nothing.

    objective: with "time", the least predicted communication time instead (see `link_time`), never
    more than that of the placement by bytes, or of packing in order where that splits no
    tensor-parallel group; takes up to twice as long, as the placement by bytes comes first. Of
    constraints it knows only `split_tensor_groups`.
    """
    check_search("place", time_limit_s, seed, constraints)
    wish = constraints or Constraints()
    _check_objective(objective, wish)
    rest = wish.on_devices

    def solve(job: PCG, limit_s: float) -> Placement:
        whole = not wish.split_tensor_groups
        found = _under(job, cluster, limit_s, seed, rest, whole)
        if not whole:
            return found
        return with_whole_groups(found, job, cluster, limit_s, seed, rest, _under)

    if wish.same_kind is not None:
        on_kinds = place_on_same_kind(wish.same_kind, pcg, cluster, time_limit_s, solve)
        if on_kinds is None:
            raise _refused(pcg, cluster, wish)
        return on_kinds
    found = solve(pcg, time_limit_s)
    if objective == "bytes":
        return found
    lifted = wish.split_tensor_groups

    def again(job: PCG, where: Cluster, limit_s: float, other_seed: int) -> Placement:
        placed = _place(job, where, limit_s, other_seed, not lifted)
        if lifted:
            return placed
        return with_whole_groups(placed, job, where, limit_s, other_seed, rest, _under)

    return place_fastest(pcg, cluster, found, time_limit_s, seed, again, lifted)


def _check_objective(objective: str, wish: Constraints) -> None:
    if objective not in ("bytes", "time"):
        problem = Problem("objective", f"found {objective!r}", "use 'bytes' or 'time'")
        raise InvalidInput("place", [problem])
    if objective == "time" and not (wish.on_devices.empty and wish.same_kind is None):
        found = "'time' with constraints, which only the search by bytes knows"
        fix = "use objective='bytes', or drop the constraints and drain the nodes not to be used"
        raise InvalidInput("place", [Problem("objective", found, fix)])


def _under(
    pcg: PCG,
    cluster: Cluster,
    time_limit_s: float,
    seed: int,
    constraints: Constraints,
    whole: bool = False,
) -> Placement:
    if constraints.empty:
        return _place(pcg, cluster, time_limit_s, seed, whole)
    found = place_under(constraints, pcg, cluster, time_limit_s, seed, _place)
    if found is None:
        raise _refused(pcg, cluster, constraints)
    return found


def _refused(pcg: PCG, cluster: Cluster, constraints: Constraints) -> Infeasible:
    obstacle = explain_infeasible(pcg, cluster, constraints)
    why = obstacle or "no placement found that satisfies the constraints"
    return Infeasible(f"no placement on cluster {cluster.name!r}: {why}")


def _place(
    pcg: PCG, cluster: Cluster, time_limit_s: float, seed: int, whole: bool = False
) -> Placement:
    """whole: tensor-parallel groups may not be split, where the job and the nodes allow for it."""
    budget = Budget(time_limit_s, pcg.world_size)
    ordered_pcg, ordered_cluster = in_one_order(pcg, cluster)
    fabric = Fabric.of(ordered_cluster)
    check_feasible(pcg, fabric)
    demand = Demand.of(ordered_pcg, fabric.kinds)
    firm = firm_groups(ordered_pcg, fabric, demand) if whole else None
    if firm is None:
        found = _solved(fabric, demand, budget, seed)
    else:
        found = _solved(firm.fabric, firm.demand, budget, seed)
        found = replace(found, slots=firm.slots(found.slots))
    best, bound, method = found.slots, found.bound_bytes, found.method
    as_given = Fabric.of(cluster)
    packed = pack_in_order(as_given, demand)
    if (firm is None or firm.whole(as_given.slot_node[packed])) and fewer(
        cut_bytes(as_given, demand, packed), cut_bytes(fabric, demand, best)
    ):
        fabric, best, method = as_given, packed, "packing"
    if cluster.links:
        # Imported here because most clusters do not describe the links inside their nodes.
        from .timed.on_links import choose_on_links

        best = choose_on_links(fabric, demand, best, budget)
    devices = fabric.devices(best)
    traffic = evaluate(pcg, cluster, devices).traffic_bytes
    spine = traffic[cluster.spine]
    if bound > spine * (1 + PROOF_TOLERANCE) + ROUNDING * sum(traffic.values()):
        warnings.warn(BoundAboveCost(bound, spine), stacklevel=2)
    proved = found.proved_levels > 0 or spine <= bound * (1 + PROOF_TOLERANCE)
    notes = [] if proved or bound > 0 else [NO_BOUND]
    return Placement(
        devices,
        traffic,
        spine if proved else min(bound, spine),
        proved,
        method,
        notes,
        node_link_s=node_link_seconds(pcg, cluster, devices),
    )


@dataclass(frozen=True)
class _Solved:
    """Slots, for how many levels from the outermost they are proved best, a bound, and how found.

    bound_bytes: proven least bytes across the outermost boundary.
    """

    slots: Ints
    proved_levels: int
    bound_bytes: float
    method: str


def _solved(fabric: Fabric, demand: Demand, budget: Budget, seed: int) -> _Solved:
    best = pack_in_order(fabric, demand)
    bound = group_bound(fabric, demand)
    levels_proved, method = 0, "packing"
    if fabric.rail is not None and exact_rails.fits(fabric, demand):
        exact = exact_rails.place_exactly_on_rails(fabric, demand, best, budget)
        best, levels_proved, method = exact.slots, exact.proved_levels, "exact"
        bound = max(bound, exact.bound_bytes)
    elif fabric.rail is None and demand.ranks <= MOST_EXACT_RANKS:
        exact = place_exactly(fabric, demand, best, budget)
        best, levels_proved, method = exact.slots, exact.proved_levels, "exact"
        bound = max(bound, exact.bound_bytes)
    if levels_proved < fabric.levels:
        large = place_large(fabric, demand, budget, seed)
        bound = max(bound, large.bound_bytes)
        if fewer_bytes(fabric, demand, large.slots, best):
            best, method = large.slots, large.method
    return _Solved(best, levels_proved, bound, method)
