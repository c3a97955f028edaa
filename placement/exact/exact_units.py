"""Proving the outermost level of a job of few units: the exact model with units for ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.demand_of_units import demand_of_units
from ..jobs.index import ANY_KIND, Fabric, Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Budget
from .exact import place_exactly

MOST_UNITS = 64
MOST_CHOICES = 3000


@dataclass(frozen=True)
class OutermostResult:
    """The outermost domain of each unit, and a proven bound on the bytes between the domains."""

    domain: Ints
    bound_bytes: float


def outermost_exactly(
    fabric: Fabric, graph: UnitGraph, rooms: Ints, start: Ints, budget: Budget
) -> OutermostResult | None:
    """Spread units over outermost domains with `rooms[d]` units of room, from `start`.

    None when the job is too large for the model, or not all of its nets can be said in units.
    """
    few = graph.units <= MOST_UNITS and graph.units * int((rooms > 0).sum()) <= MOST_CHOICES
    if not few or (graph.kind != ANY_KIND).any():
        return None
    demand = demand_of_units(graph)
    if demand is None:
        return None
    domains = len(rooms)
    room = np.minimum(rooms, graph.units)
    owner = np.repeat(np.arange(domains), room)
    stand_in = Fabric(
        cluster=fabric.cluster,
        domain=np.arange(domains).reshape(1, -1),
        kind=np.zeros(domains, dtype=np.int64),
        kinds=("any",),
        slot_node=owner,
        slot_device=np.arange(len(owner)),
        ring_position=np.arange(domains),
        rail=None,
    )
    slots = np.empty(graph.units, dtype=np.int64)
    order = np.argsort(start, kind="stable")
    ranked = start[order]
    within = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    slots[order] = np.searchsorted(owner, ranked) + within
    found = place_exactly(stand_in, demand, slots, budget)
    return OutermostResult(owner[found.slots], found.bound_bytes)
