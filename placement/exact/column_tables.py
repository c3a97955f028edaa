"""Tables over what one domain holds: columns of a chain by units, and the domains together."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean


def grown(table: Floats, link: float, cost: Floats) -> Floats:
    """The table of columns with one class more, `[end, units, h]`, h units of which cost `cost`."""
    least, more = np.empty_like(table), np.empty_like(table)
    _linked(table, link, least)
    _grown(least, cost, more, FAR)
    return more


def followed(table: Floats, link: float, cost: Floats) -> Floats:
    """`[end, units, h]`: least cost of what follows a class that has h units of so many so far.

    table: the same of the next class, which has g units at `cost[g]`. link: saved for each of
    min(g, h).
    """
    onward, least = np.empty_like(table), np.empty_like(table)
    _onward(table, cost, onward, FAR)
    _linked(onward, link, least)
    return least


def listed(
    tables: Floats, cost: Floats, link: Floats, limit: float, most: int
) -> tuple[Ints, Floats]:
    """Columns `[column, class]` that with what follows stay within a limit, and their costs.

    tables: by class, of what follows it; of more than one end where the chain is closed, whose
    last link is not in the costs. Where there are more than `most` columns the first so many and
    one more.
    """
    classes = len(cost)
    rows, priced = np.empty((most + 1, classes), dtype=np.int64), np.empty(most + 1)
    height, sums = np.empty(classes, dtype=np.int64), np.empty(classes)
    units = np.empty(classes, dtype=np.int64)
    found = _listed(tables, cost, link, limit, rows, priced, height, sums, units)
    return rows[:found].copy(), priced[:found].copy()


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


@lean
def _onward(table: Floats, cost: Floats, onward: Floats, far: float) -> None:
    ends, units, tall = table.shape
    for e in range(ends):
        for u in range(units):
            for g in range(tall):
                onward[e, u, g] = cost[g] + (table[e, u + g, g] if u + g < units else far)


@lean
def _listed(
    tables: Floats,
    cost: Floats,
    link: Floats,
    limit: float,
    rows: Ints,
    priced: Floats,
    height: Ints,
    sums: Floats,
    units: Ints,
) -> int:
    classes, ends, room, tall = tables.shape
    found, p = 0, 0
    height[0] = -1
    while p >= 0:
        height[p] += 1
        h = height[p]
        used = h
        if p > 0:
            used += units[p - 1]
        if h >= tall or used >= room:
            p -= 1
            continue
        so_far = cost[p, h]
        if p > 0:
            # In this order, so that equal columns have equal costs wherever they are met.
            so_far = sums[p - 1] + (cost[p, h] - link[p - 1] * min(height[p - 1], h))
        end = height[0] if ends > 1 else 0
        if so_far + tables[p, end, used, h] > limit:
            continue
        sums[p], units[p] = so_far, used
        if p + 1 < classes:
            p += 1
            height[p] = -1
            continue
        for q in range(classes):
            rows[found, q] = height[q]
        priced[found] = so_far
        found += 1
        if found == len(rows):
            return found
    return found
