"""A lower bound for one chain of equal classes, by how much of its pipeline crosses."""

from __future__ import annotations

import heapq

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean
from ..spread.counts import Counts
from .bound import SAFETY

KNAPSACK_STEPS_PER_WORK = 20_000_000_000
"""Knapsack steps counted as one unit of work."""
_SLOPES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Parts of a link's weight charged to the shapes; the rest is charged by the range of g."""
_FAR = 1e300


def shape_bound(problem: Counts, constant: float, found: float, work: float) -> float:
    """A number no spread costs less than, `constant` added; 0 where the job is of another kind.

    Let every class have D units, and let g be the links that cross (for each consecutive pair of
    classes, those that no domain holds; all pairs have one weight). Going along the chain, a domain
    j takes up s_j units that do not continue from the class before, and these add up to D + g. No
    class has more than s_i units in domain i, so domain j holds at least D - (D + g - s_j) =
    s_j - g of every class: where s_j > g, it is touched by all of them. The bound is the least
    over g; ranges of g are bounded together and halved where they are lowest. Within a range each
    domain takes the cheapest shape for its units (f whole classes, r parts, s), and a knapsack adds
    up to all units. That every class is whole in one domain or in parts in two is priced.

    In a closed chain with links of weight v from the last class to the first, w elsewhere, the
    units that a domain takes up are counted going round: s_j or more where it has none of some
    class, maybe none where it has some of all. With v of every link counted so, and w - v along the
    open chain, a shape costs (w - v) * s if it is of all classes, else w * s.

    `found`: the cost of a known spread, so that larger g need not be looked at.
    """
    height = int(problem.height[0])
    pipe = float(problem.link[:-1].max(initial=0.0))
    even = (problem.height == height).all() and (problem.link[:-1] == pipe).all()
    part = problem.cost[:, 1:height]
    ring = float(part.min()) if part.size else 0.0
    whole = problem.cost[:, height]
    if not even or pipe <= 0 or ring < 0 or (whole != 0).any() or height < 2:
        return 0.0
    around = float(problem.link[-1])
    linked = pipe * height * (problem.classes - 1) + around * height
    if abs(constant - linked) > SAFETY * abs(constant):
        return 0.0
    around = min(around, pipe)
    total = int(problem.height.sum())
    rooms = np.minimum(problem.room, total)
    step = float(total) * float(rooms.max()) * len(rooms) / KNAPSACK_STEPS_PER_WORK
    steps = int(work / step)

    def least(low: int, high: int) -> float:
        best = 0.0
        for price in prices:
            for slope in (pipe * part for part in _SLOPES):
                units = _cheapest(
                    rooms, problem.classes, height, high, ring, slope, 0.0, price, total
                )
                crossing = (pipe - slope) * low
                value = units - slope * height + crossing + 2 * price * problem.classes
                best = max(best, value)
        return best

    most = int(found / pipe)
    prices = [0.0, 0.5 * ring, 0.9 * ring]
    if steps < 16:
        return 0.0
    free = height if around > 0 else most
    trials = [
        _cheapest(rooms, problem.classes, height, free, ring, pipe, around, price, total)
        + 2 * price * problem.classes
        for price in prices
    ]
    if around > 0:
        return min(found, max(trials) - (pipe - around) * height) * (1 - SAFETY)
    prices = [prices[int(np.argmax(trials))]]
    steps -= 8
    queue = [(least(0, most), 0, most)]
    while steps > 10:
        value, low, high = heapq.heappop(queue)
        if low == high or value >= found * (1 - SAFETY):
            heapq.heappush(queue, (value, low, high))
            break
        middle = (low + high) // 2
        heapq.heappush(queue, (max(value, least(low, middle)), low, middle))
        heapq.heappush(queue, (max(value, least(middle + 1, high)), middle + 1, high))
        steps -= 10
    return min(found, queue[0][0]) * (1 - SAFETY)


def _cheapest(
    rooms: Ints,
    classes: int,
    height: int,
    crossing: int,
    ring: float,
    slope: float,
    around: float,
    price: float,
    total: int,
) -> float:
    """Least of `ring * r + slope * s - price * (r + 2 f)` over shapes that hold `total` units.

    Shapes of all classes pay `slope - around` for each of s.
    """
    shapes = np.full(int(rooms.max()) + 1, _FAR)
    sums = np.full((2, total + 1), _FAR)
    return _least(rooms, classes, height, crossing, ring, slope, around, price, shapes, sums)


@lean
def _least(
    rooms: Ints,
    classes: int,
    height: int,
    crossing: int,
    ring: float,
    slope: float,
    around: float,
    price: float,
    shapes: Floats,
    sums: Floats,
) -> float:
    largest, total = len(shapes) - 1, sums.shape[1] - 1
    # Cheapest shape by the most units it holds, before the room cuts it.
    shapes[0] = 0.0
    for s in range(1, height + 1):
        fewest = 1 if s <= crossing else classes
        tall = min(s, height - 1)
        whole = classes if s == height else 0
        for f in range(whole + 1):
            if f * height > largest:
                break
            for r in range(max(0, fewest - f), classes - f + 1):
                each = slope - around if f + r == classes else slope
                value = ring * r + each * s - price * (r + 2 * f)
                holds = min(largest, f * height + r * tall)
                if value < shapes[holds]:
                    shapes[holds] = value
    for n in range(largest - 1, -1, -1):
        if shapes[n + 1] < shapes[n]:
            shapes[n] = shapes[n + 1]
    now, after = sums[0], sums[1]
    now[0] = 0.0
    reach = 0
    left = 0
    for j in range(len(rooms)):
        left += rooms[j]
    for j in range(len(rooms)):
        left -= rooms[j]
        for t in range(total + 1):
            after[t] = _FAR
        for t in range(max(0, total - left - rooms[j]), min(reach, total) + 1):
            if now[t] >= _FAR / 2:
                continue
            for u in range(max(0, total - left - t), min(rooms[j], total - t) + 1):
                value = now[t] + shapes[u]
                if value < after[t + u]:
                    after[t + u] = value
        now, after = after, now
        reach += rooms[j]
    return float(now[total])
