"""What a job of some hundred units costs at least, by classes of units that nets join."""

from __future__ import annotations

import numpy as np

from .bound import SAFETY
from .budget import Budget
from .exact_counts import MOST_UNITS, best_spread
from .index import Demand, Fabric, Ints
from .structure import ways_to_class
from .unit_classes import class_order, counts_of_classes
from .units import UnitGraph, contract, gather_heaviest, mixed_kinds, unit_graph

_SHARE = 0.4
"""Part of the whole limit that the bound may take at most."""
_ROUNDING = 1e-11
"""Relative allowance for rounding where sums are exact."""


def class_bound(fabric: Fabric, demand: Demand, slots: Ints, known: float, budget: Budget) -> float:
    """Bytes across the outermost boundary that no placement goes below; 0 where none is known.

    slots: some placement; known: its bytes. Unlike the bounds of atoms and blocks this leans on no
    set that might better be split.
    """
    graph, unit_of = _surely_whole(fabric, demand)
    size = demand.ranks // graph.units
    free = np.bincount(fabric.slot_domain[-1])
    domains = np.flatnonzero(free >= size)
    if not 2 <= graph.units <= MOST_UNITS or len(domains) < 2:
        return 0.0
    rooms = free[domains] // size
    best = 0.0
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
        proved = best_spread(problem, found, work)
        if proved is not None:
            bound = proved.bound + constant - _ROUNDING * (abs(proved.bound) + constant)
            best = max(best, min(bound, known))
        if best < known * (1 - SAFETY):
            budget.charge(work)
    return best


def _surely_whole(fabric: Fabric, demand: Demand) -> tuple[UnitGraph, Ints]:
    """Sets of ranks that some best placement does not split, and the set of each rank."""
    free = np.bincount(fabric.slot_node)
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
