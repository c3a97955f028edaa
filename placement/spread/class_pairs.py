"""The best way for two classes to share the places they hold together, in all domains at once."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import inner, lean

ROW_CELLS_PER_WORK = 1_500_000_000
"""Table cells counted as one unit of work."""
_PAIR_CELLS = 128
"""Cells that looking at two classes counts for besides its table."""
_FAR = 1e300


@inner
def _gains(
    spread: Ints, cost: Floats, link: Floats, p: int, q: int, j: int, held: int, gain: Floats
) -> None:
    """Fill `gain[y]` with the cost in domain j when y of `held` places are p's and the rest q's.

    q is past the last class where the rest stays empty.
    """
    classes = spread.shape[0]
    most = min(held, len(gain) - 1)
    whole = cost.shape[1] - 1
    empty = q == classes
    for y in range(most + 1):
        gain[y] = cost[p, y]
    closing = link[classes - 1]
    if p > 0:
        other = spread[p - 1, j]
        if other > 0:
            for y in range(1, most + 1):
                gain[y] -= link[p - 1] * min(y, other)
    if closing > 0.0 and (p == 0 or p == classes - 1) and not (p == 0 and q == classes - 1):
        other = spread[classes - 1 - p, j]
        for y in range(1, most + 1):
            gain[y] -= closing * min(y, other)
    if q == p + 1 and not empty:
        for y in range(1, most + 1):
            gain[y] -= link[p] * min(y, held - y)
    elif p + 1 < classes:
        other = spread[p + 1, j]
        if other > 0:
            for y in range(1, most + 1):
                gain[y] -= link[p] * min(y, other)
    if empty:
        return
    before = spread[q - 1, j] if q > p + 1 else 0
    following = spread[q + 1, j] if q + 1 < classes else 0
    last = spread[0, j] if closing > 0.0 and q == classes - 1 and p > 0 else 0
    for y in range(most + 1):
        rest = held - y
        if rest > whole:
            gain[y] = _FAR
            continue
        gain[y] += cost[q, rest]
        if last > 0:
            gain[y] -= closing * min(rest, last)
        elif closing > 0.0 and p == 0 and q == classes - 1:
            gain[y] -= closing * min(y, rest)
        if before > 0:
            gain[y] -= link[q - 1] * min(rest, before)
        if following > 0:
            gain[y] -= link[q] * min(rest, following)


@inner
def _share_rows(
    spread: Ints,
    cost: Floats,
    link: Floats,
    free: Ints,
    p: int,
    q: int,
    order: Ints,
    span: Ints,
    gain: Floats,
    least: Floats,
) -> tuple[float, int]:
    """Divide the places of p and q (p < q; past the last: the free ones) at least cost.

    Exact: a table over the domains of units of p placed so far. Returns the change of cost and the
    cells of the table. `order` to `least` are work space, a row for each domain.
    """
    classes, domains = spread.shape
    empty = q == classes
    height = 0
    count = 0
    rest = 0
    for j in range(domains):
        height += spread[p, j]
        held = spread[p, j] + (free[j] if empty else spread[q, j])
        if held == 0:
            continue
        rest += held
        # Small ones first, so that the table stays short for long.
        i = count
        while i > 0:
            k = order[i - 1]
            if spread[p, k] + (free[k] if empty else spread[q, k]) <= held:
                break
            order[i] = k
            i -= 1
        order[i] = j
        count += 1
    before = 0.0
    hope = 0.0
    for i in range(count):
        j = order[i]
        held = spread[p, j] + (free[j] if empty else spread[q, j])
        _gains(spread, cost, link, p, q, j, held, gain[i])
        before += gain[i, spread[p, j]]
        best = _FAR
        for y in range(min(held, height) + 1):
            best = min(best, gain[i, y])
        hope += best
    cells = _PAIR_CELLS + 8 * domains
    if hope >= before - 1e-9:
        return 0.0, cells
    least[0, 0] = 0.0
    span[0, 0], span[0, 1] = 0, 0
    for i in range(count):
        j = order[i]
        held = spread[p, j] + (free[j] if empty else spread[q, j])
        rest -= held
        top = min(held, height)
        now, after, part = least[i], least[i + 1], gain[i]
        low, high = span[i, 0], span[i, 1]
        next_low = max(0, height - rest)
        next_high = min(height, high + top)
        for t in range(next_low, next_high + 1):
            after[t] = _FAR
        for y in range(top + 1):
            here = part[y]
            if here >= _FAR:
                continue
            first = max(low, next_low - y)
            last = min(high, next_high - y)
            # No branch and a stride of one: compilers make vector instructions of this loop.
            for t in range(first, last + 1):
                value = now[t] + here
                old = after[t + y]
                after[t + y] = value if value < old else old
        cells += (top + 1) * (high - low + 1)
        span[i + 1, 0], span[i + 1, 1] = next_low, next_high
    change = least[count, height] - before
    if not change < -1e-9:
        return 0.0, cells
    t = height
    for i in range(count - 1, -1, -1):
        j = order[i]
        held = spread[p, j] + (free[j] if empty else spread[q, j])
        y = max(0, t - span[i, 1])
        while least[i, t - y] + gain[i, y] > least[i + 1, t]:
            y += 1
        spread[p, j] = y
        if empty:
            free[j] = held - y
        else:
            spread[q, j] = held - y
        t -= y
    return change, cells


def share_classes(
    spread: Ints,
    cost: Floats,
    link: Floats,
    room: Ints,
    order: Ints,
    changed: Ints,
    sweeps: int,
    most_cells: int,
) -> tuple[float, int]:
    """Let every two classes of `order` share best, again until none gains.

    The number past the last class stands for the places that stay empty. Only pairs with a class
    marked in `changed`, or changed meanwhile, are looked at, and none once `most_cells` table cells
    are done. Returns the change of cost and the table cells it took. What kinds need is left out.
    """
    domains = spread.shape[1]
    height = int(spread.sum(axis=1).max())
    return _share_all(
        spread,
        cost,
        link,
        room - spread.sum(axis=0),
        order,
        changed.copy(),
        np.empty(len(spread) + 1, dtype=np.int64),
        sweeps,
        most_cells,
        np.empty(domains, dtype=np.int64),
        np.empty((domains + 1, 2), dtype=np.int64),
        np.empty((domains, height + 1)),
        np.empty((domains + 1, height + 1)),
    )


@lean
def _share_all(
    spread: Ints,
    cost: Floats,
    link: Floats,
    free: Ints,
    order: Ints,
    before: Ints,
    mark: Ints,
    sweeps: int,
    most_cells: int,
    work_order: Ints,
    span: Ints,
    gain: Floats,
    least: Floats,
) -> tuple[float, int]:
    classes = spread.shape[0]
    total = 0.0
    cells = 0
    for _ in range(sweeps):
        gained = False
        for p in range(classes + 1):
            mark[p] = 0
        for i in range(len(order)):
            for k in range(i + 1, len(order)):
                p, q = min(order[i], order[k]), max(order[i], order[k])
                if before[p] + before[q] + mark[p] + mark[q] == 0:
                    continue
                if cells >= most_cells:
                    return total, cells
                change, here = _share_rows(
                    spread, cost, link, free, p, q, work_order, span, gain, least
                )
                cells += here
                if change < 0.0:
                    total += change
                    gained = True
                    mark[p] = 1
                    mark[q] = 1
        for p in range(classes + 1):
            before[p] = mark[p]
        if not gained:
            break
    return total, cells
