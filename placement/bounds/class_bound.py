"""What a job of some hundred units costs at least, by classes of units that nets join."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..division.arrange import divide
from ..exact.exact_counts import MOST_UNITS, best_spread
from ..exact.seated_classes import seated, seating_work
from ..exact.unit_classes import class_order, counts_of_classes
from ..jobs.index import ANY_KIND, Demand, Fabric, Ints
from ..jobs.slots_on import slots_on
from ..jobs.units import UnitGraph, contract, gather_heaviest, mixed_kinds, unit_graph
from ..loops.budget import Budget
from ..spread.room import Room
from ..spread.search import search
from ..spread.structure import ways_to_class
from .bound import SAFETY

_SHARE = 0.4
"""Part of the whole limit that the bound may take at most."""
_SEARCH_SHARE = 0.1
_INNER_MOVES = 100
"""Moves a unit on walks inwards from the outermost domain."""
_ROUNDING = 1e-11
"""Relative allowance for rounding where sums are exact."""


@dataclass(frozen=True)
class ClassResult:
    """A bound on the bytes across the outermost boundary, and a placement by the spread behind it.

    slots: None where none was made, as the one that is known may well be the best.
    """

    bound_bytes: float
    slots: Ints | None


def class_bound(
    fabric: Fabric, demand: Demand, slots: Ints, known: float, budget: Budget, seed: int
) -> ClassResult:
    """What no placement goes below, 0 where nothing is known, and maybe a better placement.

    slots: some placement; known: its bytes. Unlike the bounds of atoms and blocks this leans on no
    set that might better be split.
    """
    held = np.bincount(fabric.slot_node)
    if demand.ranks > MOST_UNITS * int(held.max(initial=1)):
        return ClassResult(0.0, None)
    graph, unit_of = surely_whole(demand, held)
    size = demand.ranks // graph.units
    free = np.bincount(fabric.slot_domain[-1])
    domains = np.flatnonzero(free >= size)
    if not 2 <= graph.units <= MOST_UNITS or len(domains) < 2:
        return ClassResult(0.0, None)
    rooms = free[domains] // size
    least, cheapest = 0.0, known * (1 - SAFETY)
    better: Ints | None = None
    ways = ways_to_class(graph)
    for class_of in ways:
        problem, constant = counts_of_classes(graph, class_of, rooms)
        row = class_order(graph, class_of)[class_of]
        home = np.empty(graph.units, dtype=np.int64)
        # Where the placement splits a unit this is some spread, which serves as well if it fits.
        at = np.searchsorted(domains, fabric.slot_domain[-1][slots])
        home[unit_of] = np.minimum(at, len(domains) - 1)
        found = np.zeros((problem.classes, len(domains)), dtype=np.int64)
        np.add.at(found, (row, home), 1)
        if not problem.fits(found):
            continue
        work = min(budget.left, budget.time_limit_s * _SHARE) / len(ways)
        cheap = search(problem, [found], work * _SEARCH_SHARE, seed)
        proved = best_spread(problem, cheap, work)
        if proved is not None:
            cheap = proved.spread
            bound = proved.bound + constant - _ROUNDING * (abs(proved.bound) + constant)
            least = max(least, min(bound, known))
        if problem.bytes_of(cheap) + constant < cheapest:
            cheapest = problem.bytes_of(cheap) + constant
            better = seated(graph, row, cheap, rooms, home, seed)
            budget.charge(seating_work(graph))
        if least < known * (1 - SAFETY):
            budget.charge(work)
    if better is None:
        return ClassResult(least, None)
    return ClassResult(least, housed(fabric, graph, unit_of, domains[better], seed))


def housed(fabric: Fabric, graph: UnitGraph, unit_of: Ints, domain: Ints, seed: int) -> Ints | None:
    """Slots for ranks whose units have an outermost domain each; None where nodes lack the room."""
    room = Room.of(fabric, len(unit_of) // graph.units)
    used, count = np.unique(domain, return_counts=True)
    if (room.room[-1][used] < count).any():
        return None
    node = np.empty(graph.units, dtype=np.int64)
    for one in used.tolist():
        units = np.flatnonzero(domain == one)
        kinds = graph.kind[units][graph.kind[units] != ANY_KIND]
        if (np.bincount(kinds, minlength=len(fabric.kinds)) > room.kind_room[-1][one]).any():
            return None
        moves = _INNER_MOVES * len(units)
        divide(graph, room, fabric.levels - 1, one, units, 1, moves, seed, node)
    return slots_on(fabric, unit_of, node)


def surely_whole(demand: Demand, free: Ints) -> tuple[UnitGraph, Ints]:
    """Sets of ranks that some best placement does not split, and the set of each rank.

    free: devices of each node, or of each domain where a set may be split over its nodes.
    """
    graph, unit_of, size = unit_graph(demand), np.arange(demand.ranks), 1
    while True:
        found = gather_heaviest(graph, int(free.max(initial=1)) // size)
        if found is None or found.grip < 1.0 or mixed_kinds(graph, found.unit_of):
            return graph, unit_of
        larger = size * found.size
        if int((free // larger).sum()) * larger < demand.ranks:
            return graph, unit_of
        graph, unit_of = contract(graph, found.unit_of), found.unit_of[unit_of]
        size = larger
