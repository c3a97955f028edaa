"""Placing jobs too large for the exact model: gather, spread, bound, then go inwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..bounds.bound import SAFETY
from ..bounds.class_bound import class_bound
from ..bounds.general_bound import general_bound
from ..bounds.granules import next_cost
from ..bounds.part_bound import bound_by_parts
from ..bounds.unit_bound import unit_bound
from ..division.arrange import divide
from ..division.irregular import bytes_by_level, place_irregular
from ..division.local import Local
from ..exact.exact_units import MOST_UNITS, outermost_exactly
from ..exact.few_units import MOST_PARTED_RANKS
from ..loops.budget import Budget
from ..spread.chain_jobs import place_chains
from ..spread.room import Room
from .cuts import cut_bytes, fewer, fewer_bytes
from .gather import Gathered, gather
from .index import Demand, Fabric, Ints
from .slots_on import slots_on
from .units import unit_graph

_SINGLE_SHARE = 0.2
"""Part of the limit for placing a job of few ranks that is not proved best as one without chains,
and one on partly taken nodes rank by rank."""
_LEFT_OUT = 0.05
"""Bytes that chains leave out, to those they take, from which they are not trusted alone.

Links that close a chain do not count."""
_APART_SHARE = 0.4
"""Part of the limit for placing such a job, or a large one again, as one without chains."""
_MOST_INSIDE = 256
"""Atoms up to which a job that is proved best at the spine is placed so too, for the tiers inside.
"""
_FIRST_WAY_SHARE = 0.6
"""Part of the work for the first of two ways to make blocks."""
_NEAR = 1.02
"""Bytes over the bound up to which no other way is tried."""
_UNIT_SHARE = 0.3
"""Part of the limit for a bound by single ranks, where atoms hold together less than firmly."""
_LOOSE = 1.05
"""Bytes over the bound from which another bound is tried."""


def found_by_search(
    fabric: Fabric,
    demand: Demand,
    budget: Budget,
    seed: int,
    gathered: Gathered | None = None,
) -> tuple[Ints, float, str]:
    """Slots, a proven lower bound on the bytes across the outermost boundary, and how found.

    gathered: what `gather` says of the job, where it is known.
    """
    gathered = gathered or gather(fabric, demand)
    if gathered.others and demand.ranks > MOST_PARTED_RANKS:
        return _best_way(fabric, demand, budget, seed, gathered)
    room = Room.of(fabric, gathered.atom)
    node = np.full(gathered.atoms.units, -1, dtype=np.int64)
    bound = 0.0
    chains = gathered.chains
    small, left_out = demand.ranks <= MOST_PARTED_RANKS, False
    if chains is not None:
        bound = place_chains(fabric, gathered, chains, room, budget, seed, node)
        method = "counts"
        closing = chains.around * min(chains.height[0], chains.height[-1])
        left_out = chains.left_out_bytes - closing > _LEFT_OUT * chains.link_constant
        work = budget.time_limit_s * _APART_SHARE
        work = work if small else max(budget.left, work)
        if left_out and _better_apart(fabric, gathered, room, budget, work, seed, node):
            method = "multilevel"
    else:
        place_irregular(fabric, gathered.atoms, room, budget, seed, node)
        method = "multilevel"
    slots = slots_on(fabric, gathered.atom_of, node)
    cost = float(cut_bytes(fabric, demand, slots)[-1])
    if bound > 0.0 and gathered.atom_grip >= 1.0:
        bound = next_cost(gathered.atoms, bound, cost)
    if cost > bound * (1 + SAFETY) and gathered.atom_grip < 1.0:
        work = budget.time_limit_s * _UNIT_SHARE
        bound = max(bound, unit_bound(fabric, demand, gathered, cost, work))
    proved = cost <= bound * (1 + SAFETY)
    again = _crosses_inside(fabric, gathered, demand, slots) if proved else small
    if chains is not None and again and not left_out:
        work = budget.time_limit_s * (_SINGLE_SHARE if small else _APART_SHARE)
        if _better_apart(fabric, gathered, room, budget, work, seed, node):
            method = "multilevel"
            slots = slots_on(fabric, gathered.atom_of, node)
            cost = float(cut_bytes(fabric, demand, slots)[-1])
    if small and (np.bincount(fabric.slot_node) % gathered.atom).any():
        apart = _rank_by_rank(fabric, demand, budget, seed)
        if fewer_bytes(fabric, demand, apart, slots):
            slots, method = apart, "multilevel"
    cost = float(cut_bytes(fabric, demand, slots)[-1])
    if cost > bound * (1 + SAFETY) and small:
        parted = bound_by_parts(fabric, demand, cost, bound, budget, seed)
        bound = max(bound, parted.bound_bytes)
        if parted.slots is not None and fewer_bytes(fabric, demand, parted.slots, slots):
            slots, method = parted.slots, "parts"
            cost = float(cut_bytes(fabric, demand, slots)[-1])
    if cost > bound * (1 + SAFETY):
        classes = class_bound(fabric, demand, slots, cost, budget, seed)
        bound = max(bound, classes.bound_bytes)
        if classes.slots is not None and fewer_bytes(fabric, demand, classes.slots, slots):
            slots, method = classes.slots, "classes"
        cost = float(cut_bytes(fabric, demand, slots)[-1])
    if cost > bound * (1 + SAFETY):
        bound = max(bound, _proved_by_units(fabric, gathered, room, budget, bound, seed, node))
        by_units = slots_on(fabric, gathered.atom_of, node)
        if fewer_bytes(fabric, demand, by_units, slots):
            slots, method = by_units, "multilevel"
            cost = float(cut_bytes(fabric, demand, slots)[-1])
    if cost > bound * _LOOSE:
        bound = max(bound, general_bound(fabric, gathered, cost, budget, seed))
    return slots, bound, method


def _best_way(
    fabric: Fabric, demand: Demand, budget: Budget, seed: int, gathered: Gathered
) -> tuple[Ints, float, str]:
    """As `found_by_search`, the best of all ways to make blocks of the atoms; any bound counts."""
    ways = [replace(gathered, others=()), *gathered.others]
    best: tuple[Ints, float, str] | None = None
    for left in range(len(ways), 0, -1):
        share = budget.left * (1.0 if left == 1 else _FIRST_WAY_SHARE)
        own = Budget(share)
        slots, bound, method = found_by_search(fabric, demand, own, seed, ways[-left])
        budget.charge(share - own.left)
        if best is not None:
            bound = max(bound, best[1])
            if not fewer_bytes(fabric, demand, slots, best[0]):
                slots, _, method = best
        best = slots, bound, method
        if float(cut_bytes(fabric, demand, slots)[-1]) <= bound * _NEAR:
            break
    assert best is not None
    return best


def _crosses_inside(fabric: Fabric, gathered: Gathered, demand: Demand, slots: Ints) -> bool:
    """Whether few atoms have more to say across the second tier than across the outermost."""
    if fabric.levels < 2 or gathered.atoms.units > _MOST_INSIDE:
        return False
    crossing = cut_bytes(fabric, demand, slots)
    return bool(crossing[-2] > crossing[-1] * (1 + SAFETY))


def _better_apart(
    fabric: Fabric,
    gathered: Gathered,
    room: Room,
    budget: Budget,
    work: float,
    seed: int,
    node: Ints,
) -> bool:
    """Whether placing the atoms of a job as if they made no chains is better; fills `node`."""
    tried = np.full(gathered.atoms.units, -1, dtype=np.int64)
    own = Budget(work)
    place_irregular(fabric, gathered.atoms, room, own, seed, tried)
    # A large job's bound has its own share, whatever the search took.
    if len(gathered.atom_of) <= MOST_PARTED_RANKS:
        budget.charge(work - own.left)
    found, before = (bytes_by_level(fabric, gathered.atoms, each) for each in (tried, node))
    if not fewer(found, before):
        return False
    node[:] = tried
    return True


def _proved_by_units(
    fabric: Fabric,
    gathered: Gathered,
    room: Room,
    budget: Budget,
    bound: float,
    seed: int,
    node: Ints,
) -> float:
    """A bound from the exact model on atoms, where they are few; improves `node` if it can."""
    graph = gathered.atoms
    if graph.units > MOST_UNITS:
        return 0.0
    top = fabric.domain[-1][node]
    local = Local.of(graph, np.arange(graph.units), room.room[-1], room.kind_room[-1][:, :0])
    # Up to a constant; what all units in one domain would cost is that constant.
    together = local.bytes_of(np.zeros(graph.units, dtype=np.int64))
    cost = local.bytes_of(top) - together
    free = np.bincount(fabric.slot_domain[-1], minlength=len(room.room[-1])) // gathered.atom
    if cost <= bound * (1 + SAFETY) or (free != room.room[-1]).any():
        return 0.0
    found = outermost_exactly(fabric, graph, free, top, budget)
    if found is None:
        return 0.0
    if local.bytes_of(found.domain) - together < cost * (1 - SAFETY):
        for domain in np.unique(found.domain).tolist():
            units = np.flatnonzero(found.domain == domain)
            moves = 100 * len(units)
            divide(graph, room, fabric.levels - 1, domain, units, 1, moves, seed, node)
    return gathered.floor(found.bound_bytes)


def _rank_by_rank(fabric: Fabric, demand: Demand, budget: Budget, seed: int) -> Ints:
    """Slots when nothing is kept together: where nodes have devices left that no atom fits."""
    node = np.full(demand.ranks, -1, dtype=np.int64)
    work = budget.time_limit_s * _SINGLE_SHARE
    own = Budget(work)
    place_irregular(fabric, unit_graph(demand), Room.of(fabric, 1), own, seed, node)
    budget.charge(work - own.left)
    return slots_on(fabric, np.arange(demand.ranks), node)
