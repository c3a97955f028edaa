"""Tables over what one domain holds: columns of a chain by units, and the domains together."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean


def linked(table: Floats, link: float) -> Floats:
    """`[end, units, h]`: least over g of `table[end, units, g] - link * min(g, h)`."""
    least = np.empty_like(table)
    _linked(table, link, least)
    return least


def grown(table: Floats, link: float, cost: Floats) -> Floats:
    """The table of columns with one class more, `[end, units, h]`, h units of which cost `cost`."""
    least, more = np.empty_like(table), np.empty_like(table)
    _linked(table, link, least)
    _grown(least, cost, more, FAR)
    return more


def together(least: Floats, rooms: Ints, total: int) -> Floats:
    """`[domain, units]`: least cost of so many units in this and all later domains.

    least: what so many units in one domain cost. One row more than domains: none are left.
    """
    after = np.empty((len(rooms) + 1, total + 1))
    _together(least, rooms, after, FAR)
    return after


FAR = 1e15
"""A cost that nothing has."""


@lean
def _linked(table: Floats, link: float, least: Floats) -> None:
    ends, units, tall = table.shape
    for e in range(ends):
        for u in range(units):
            best = np.inf
            for h in range(tall - 1, -1, -1):
                here = table[e, u, h]
                best = here if here < best else best
                # From the tallest down: where the other class has as many or more here.
                least[e, u, h] = best - link * h
            best = np.inf
            for h in range(tall):
                here = table[e, u, h] - link * h
                best = here if here < best else best
                if best < least[e, u, h]:
                    least[e, u, h] = best


@lean
def _grown(least: Floats, cost: Floats, more: Floats, far: float) -> None:
    ends, units, tall = least.shape
    for e in range(ends):
        for u in range(units):
            for h in range(tall):
                value = far
                if h <= u:
                    value = min(far, least[e, u - h, h] + cost[h])
                more[e, u, h] = value


@lean
def _together(least: Floats, rooms: Ints, after: Floats, far: float) -> None:
    domains, total = len(rooms), after.shape[1] - 1
    for t in range(total + 1):
        after[domains, t] = far
    after[domains, 0] = 0.0
    reach = 0
    for j in range(domains - 1, -1, -1):
        now, later = after[j], after[j + 1]
        for t in range(total + 1):
            now[t] = far
        for u in range(min(rooms[j], total) + 1):
            here = least[u]
            for t in range(min(reach, total - u) + 1):
                value = later[t] + here
                old = now[t + u]
                now[t + u] = value if value < old else old
        reach = min(total, reach + rooms[j])
