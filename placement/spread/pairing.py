"""The best way for two domains to share what they hold together, by dynamic programming."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..jobs.index import Floats, Ints
from ..loops.compiled import inner, lean
from .counts import Counts

CELLS_PER_WORK = 150_000_000
"""Table cells counted as one unit of work."""
_FAR = 1e300


def pair_cells(problem: Counts) -> int:
    """Table cells of the largest pair of domains."""
    room = int(np.minimum(problem.room, problem.height.sum()).max(initial=0))
    height = int(min(problem.height.max(initial=0), room))
    return room * height * problem.classes


@inner
def column_cost(spread: Ints, cost: Floats, link: Floats, j: int) -> float:
    """What one domain's column of a spread costs."""
    total = 0.0
    classes = spread.shape[0]
    for p in range(classes):
        total += cost[p, spread[p, j]]
        total -= link[p] * min(spread[p, j], spread[(p + 1) % classes, j])
    return total


@inner
def share_best(
    spread: Ints,
    cost: Floats,
    link: Floats,
    room: Ints,
    a: int,
    b: int,
    came: npt.NDArray[np.int16],
    least: Floats,
    queue: Ints,
    falling: Floats,
    falling_at: Ints,
) -> float:
    """Divide what domains a and b hold between them at least cost; returns the change of cost.

    Exact: a table over the classes of (units given to a so far, units of this class given to a).
    But where the chain is closed, what a and b hold of the first class stays.
    `came` `[class, room + 1, height + 1]` and the others are work space.
    """
    classes = spread.shape[0]
    total = 0
    widest = 0
    for p in range(classes):
        t = spread[p, a] + spread[p, b]
        total += t
        widest = max(widest, t)
    if total == 0:
        return 0.0
    before = column_cost(spread, cost, link, a) + column_cost(spread, cost, link, b)
    most = min(room[a], total)
    fewest = max(0, total - room[b])
    widest = min(widest, most)
    now, after = 0, 1
    t = spread[0, a] + spread[0, b]
    for u in range(min(most, t) + 1):
        for h in range(min(t, u) + 1):
            least[now, u, h] = _FAR
    closing = link[classes - 1]
    first_a, first_b = spread[0, a], spread[0, b]
    for h in range(min(t, most) + 1):
        if closing == 0.0 or h == first_a:
            least[now, h, h] = cost[0, h] + cost[0, t - h]
    held = t
    for p in range(1, classes):
        t_before = t
        t = spread[p, a] + spread[p, b]
        weight = link[p - 1]
        shift = t_before - t
        # Only what the next class will read is cleared; the rest holds what was there before.
        tall = min(t, widest)
        for u in range(max(0, held + t - room[b]), min(most, held + t) + 1):
            for h in range(min(tall, u) + 1):
                least[after, u, h] = _FAR
        low_u = max(0, held - room[b])
        for u in range(low_u, min(most, held) + 1):
            top = min(t_before, min(u, widest))
            # falling[h]: least of (table + weight * h') over h' >= h.
            falling[top + 1] = _FAR
            falling_at[top + 1] = 0
            for h in range(top, -1, -1):
                value = least[now, u, h] + weight * h
                if value < falling[h + 1]:
                    falling[h] = value
                    falling_at[h] = h
                else:
                    falling[h] = falling[h + 1]
                    falling_at[h] = falling_at[h + 1]
            if falling[0] >= _FAR:
                continue
            rising = _FAR
            rising_at = 0
            up_to = 0
            head, tail, pushed = 0, 0, 0
            for h in range(min(t, most - u) + 1):
                low = h if shift >= 0 else h + shift
                high = h + shift if shift >= 0 else h
                best = _FAR
                at = 0
                start = max(high, 0)
                if start <= top:
                    best = falling[start] - weight * (h + t_before)
                    at = falling_at[start]
                while up_to <= low and up_to <= top:
                    value = least[now, u, up_to] - weight * up_to
                    if value < rising:
                        rising = value
                        rising_at = up_to
                    up_to += 1
                if low >= 0 and rising < _FAR:
                    value = rising + weight * (h - t)
                    if value < best:
                        best = value
                        at = rising_at
                if high - low > 1:
                    # Sliding minimum of the table over the open interval (low, high).
                    if pushed <= low:
                        pushed = max(pushed, low + 1)
                    while pushed < high and pushed <= top:
                        value = least[now, u, pushed]
                        while tail > head and least[now, u, queue[tail - 1]] >= value:
                            tail -= 1
                        queue[tail] = pushed
                        tail += 1
                        pushed += 1
                    while head < tail and queue[head] <= low:
                        head += 1
                    if head < tail:
                        value = least[now, u, queue[head]] - weight * min(t, t_before)
                        if value < best:
                            best = value
                            at = queue[head]
                if best < _FAR / 2:
                    value = best + cost[p, h] + cost[p, t - h]
                    if value < least[after, u + h, h]:
                        least[after, u + h, h] = value
                        came[p, u + h, h] = at
        now, after = after, now
        held += t
    best = _FAR
    best_u, best_h = 0, 0
    for u in range(fewest, most + 1):
        for h in range(min(min(t, u), widest) + 1):
            value = least[now, u, h]
            if closing > 0.0:
                value -= closing * (min(h, first_a) + min(t - h, first_b))
            if value < best:
                best = value
                best_u, best_h = u, h
    if best >= before - 1e-9:
        return 0.0
    u, h = best_u, best_h
    for p in range(classes - 1, -1, -1):
        t = spread[p, a] + spread[p, b]
        spread[p, a] = h
        spread[p, b] = t - h
        if p > 0:
            came_from = came[p, u, h]
            u -= h
            h = came_from
    return best - before


def share_all(
    spread: Ints,
    cost: Floats,
    link: Floats,
    room: Ints,
    order: Ints,
    changed: Ints,
    sweeps: int,
    most_cells: int,
) -> tuple[float, int]:
    """Let every two domains of `order` share best, again until none gains.

    Only pairs with a domain marked in `changed`, or changed meanwhile, are looked at, and none once
    `most_cells` table cells are done. Returns the change of cost and the table cells it took.
    """
    largest = int(room.max())
    height = min(int(spread.sum(axis=1).max()), largest * 2)
    wide = min(height, largest) + 1
    return _share_all(
        spread,
        cost,
        link,
        room,
        order,
        changed.copy(),
        np.empty(len(changed), dtype=np.int64),
        sweeps,
        most_cells,
        np.zeros((len(spread), largest + 1, wide), dtype=np.int16),
        np.empty((2, largest + 1, wide)),
        np.empty(height + 2, dtype=np.int64),
        np.empty(height + 3),
        np.empty(height + 3, dtype=np.int64),
    )


@lean
def _share_all(
    spread: Ints,
    cost: Floats,
    link: Floats,
    room: Ints,
    order: Ints,
    changed: Ints,
    mark: Ints,
    sweeps: int,
    most_cells: int,
    came: npt.NDArray[np.int16],
    least: Floats,
    queue: Ints,
    falling: Floats,
    falling_at: Ints,
) -> tuple[float, int]:
    classes, domains = spread.shape
    total = 0.0
    cells = 0
    for _ in range(sweeps):
        gained = False
        for j in range(domains):
            mark[j] = 0
        for i in range(len(order)):
            for k in range(i + 1, len(order)):
                a, b = order[i], order[k]
                if room[a] > room[b]:
                    a, b = b, a
                if changed[a] == 0 and changed[b] == 0 and mark[a] == 0 and mark[b] == 0:
                    continue
                if cells >= most_cells:
                    return total, cells
                size = 0
                for p in range(classes):
                    size += min(room[a], spread[p, a] + spread[p, b])
                most = min(room[a], size)
                cells += (size + classes) * (most + 1)
                change = share_best(
                    spread, cost, link, room, a, b, came, least, queue, falling, falling_at
                )
                if change < 0.0:
                    total += change
                    gained = True
                    mark[a] = 1
                    mark[b] = 1
        for j in range(domains):
            changed[j] = mark[j]
        if not gained:
            break
    return total, cells
