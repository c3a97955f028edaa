"""A lower bound on what any spread of classes over domains costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean
from ..spread.counts import Counts

SAFETY = 1e-9
"""Relative allowance for rounding, taken off every bound."""
CELLS_PER_WORK = 450_000_000
"""Table cells counted as one unit of work."""
_FAR = 1e300
_PATIENCE = 4


def bound_work(problem: Counts) -> float:
    """Work of one step of `spread_bound`."""
    total = int(problem.height.sum())
    largest = min(int(problem.room.max(initial=0)), total)
    height = min(int(problem.height.max(initial=0)), largest)
    cells = (largest + 1) * (height + 1) * problem.classes
    # The knapsack leaves no more room unused in any domain than is spare in all of them.
    spare = int(problem.room.sum()) - total + 1
    unused = np.minimum(problem.room + 1, spare).astype(np.float64)
    knapsack = (total + min(total, spare) * unused).sum()
    return float(cells + knapsack) / CELLS_PER_WORK


@dataclass
class _Prices:
    """Prices of what is relaxed.

    whole: for each unit of a class. parts: for how often a class counts as touched, a domain that
    holds all of it twice and one that holds a part once; every class is touched twice or more.
    """

    whole: Floats
    parts: Floats


def spread_bound(problem: Counts, found: float, work: float) -> float:
    """A number no spread can cost less than, up to the same constant as `Counts.bytes_of`.

    Lagrangian: that each class is placed completely is priced; that all classes together are, that
    each domain has one column within its room, and what a column costs, are kept exactly. Each
    domain's table (least priced cost by units used, over the chain) is joined by a knapsack over
    the domains. Any prices give a valid bound; subgradient steps towards `found`, the cost of a
    known spread, look for good ones. What kinds need is left out, which only lowers the bound.
    """
    scale = float(max(np.abs(problem.cost).max(), np.abs(problem.link).max()))
    if scale == 0.0 or problem.domains == 0:
        return 0.0
    problem, closing = problem.opened()
    found -= closing
    step_work = bound_work(problem)
    steps = int(work / step_work)
    relaxed = _Relaxed(problem, scale)
    target = found / scale
    best, prices = -np.inf, _Prices(np.zeros(problem.classes), np.zeros(problem.classes))
    share = problem.cost[:, 1] / scale if problem.cost.shape[1] > 1 else prices.parts
    for part in (0.0, 0.5, 0.9, 0.25)[: max(1, steps // 4)]:
        trial = _Prices(np.zeros(problem.classes), part * np.maximum(share, 0.0))
        value, _ = relaxed.value(trial)
        if value > best:
            best, prices = value, trial
    best = max(best, relaxed.climbed(prices, target, steps, bool(prices.parts.any())))
    return (best - SAFETY * abs(best)) * scale + closing


class _Relaxed:
    """The relaxed problem, to be evaluated at any prices; costs are divided by `scale`."""

    def __init__(self, problem: Counts, scale: float) -> None:
        self._height = problem.height
        self._total = int(problem.height.sum())
        self._tall = int(problem.height.max())
        self._cost = problem.cost / scale
        self._link = problem.link / scale
        touched = np.zeros_like(self._cost)
        touched[:, 1:] = 1.0
        for p, height in enumerate(problem.height.tolist()):
            self._cost[p, height + 1 :] = _FAR
            touched[p, height] = 2.0
        self._touched = touched
        self._rooms = np.minimum(problem.room, self._total)

    def value(self, prices: _Prices) -> tuple[float, Ints]:
        """The bound at these prices, and the columns that attain it."""
        cost = self._cost - prices.parts[:, None] * self._touched
        value, spread = _priced(
            cost, self._link, prices.whole, self._rooms, self._total, self._tall
        )
        value += float((prices.whole * self._height).sum()) + 2 * float(prices.parts.sum())
        return value, spread

    def climbed(self, start: _Prices, target: float, steps: int, parts: bool) -> float:
        """The best bound met in subgradient steps from `start`; `parts`: prices of those too."""
        best, top = -np.inf, start
        prices = start
        theta, fails = 1.0, 0
        tall = float(self._tall)
        for _ in range(steps):
            value, spread = self.value(prices)
            if value > best:
                best, top, fails = value, prices, 0
            else:
                fails += 1
                if fails >= _PATIENCE:
                    theta, fails, prices = theta / 2, 0, top
                    if theta < 1e-3:
                        break
            if best >= target - SAFETY * abs(target):
                break
            short = (self._height - spread.sum(axis=1)) / tall
            missing = 2.0 - self._touched[np.arange(len(spread))[:, None], spread].sum(axis=1)
            missing[(prices.parts <= 0) & (missing < 0)] = 0.0
            if not parts:
                missing[:] = 0.0
            size = float((short**2).sum() + (missing**2).sum())
            if size == 0.0:
                break
            step = theta * max(target - value, 1e-9 * abs(target)) / size
            whole = prices.whole + step * short / tall
            whole -= float((whole * self._height).sum() / self._total)
            prices = _Prices(whole, np.maximum(0.0, prices.parts + step * missing))
        return best


def _priced(
    cost: Floats, link: Floats, prices: Floats, rooms: Ints, total: int, height: int
) -> tuple[float, Ints]:
    """Least priced cost of a column a domain that together use `total` units, and the columns."""
    classes, domains = len(cost), len(rooms)
    largest = int(rooms.max())
    tall = min(height, largest)
    # Columns of u units are the same for every domain that has room for them: one table is enough.
    came = np.zeros((classes, largest + 1, tall + 1), dtype=np.int16)
    table = np.full(largest + 1, _FAR)
    tops = np.zeros(largest + 1, dtype=np.int64)
    least = np.empty((2, largest + 1, tall + 1))
    falling, falling_at = np.empty(tall + 2), np.empty(tall + 2, dtype=np.int64)
    _column_table(cost, link, prices, largest, tall, came, table, tops, least, falling, falling_at)
    joined = np.full((domains + 1, total + 1), _FAR)
    spread = np.zeros((classes, domains), dtype=np.int64)
    return _joined(rooms, total, came, table, tops, joined, spread), spread


@lean
def _joined(
    rooms: Ints,
    total: int,
    came: npt.NDArray[np.int16],
    table: Floats,
    tops: Ints,
    joined: Floats,
    spread: Ints,
) -> float:
    """Least priced cost of columns with `total` units from a table of columns; fills `spread`."""
    classes, domains = spread.shape
    spare = -total
    for j in range(domains):
        spare += rooms[j]
    joined[0, 0] = 0.0
    reach = 0
    for j in range(domains):
        room = rooms[j]
        fewest = max(0, room - spare)
        low = max(0, reach - spare)
        now, after = joined[j], joined[j + 1]
        for u in range(fewest, room + 1):
            here = table[u]
            # No branch and a stride of one: compilers make vector instructions of this loop.
            for t in range(low, min(reach, total - u) + 1):
                value = now[t] + here
                old = after[t + u]
                after[t + u] = value if value < old else old
        reach += room
    if joined[domains, total] >= _FAR:
        return _FAR
    t = total
    for j in range(domains - 1, -1, -1):
        u = max(0, rooms[j] - spare)
        while joined[j, t - u] + table[u] > joined[j + 1, t]:
            u += 1
        t -= u
        h = int(tops[u])
        for p in range(classes - 1, -1, -1):
            spread[p, j] = h
            if p > 0:
                before = int(came[p, u, h])
                u -= h
                h = before
    return float(joined[domains, total])


@lean
def _column_table(
    cost: Floats,
    link: Floats,
    prices: Floats,
    room: int,
    tall: int,
    came: npt.NDArray[np.int16],
    table: Floats,
    tops: Ints,
    least: Floats,
    falling: Floats,
    falling_at: Ints,
) -> None:
    """Fill `table[u]` with the least priced cost of a column of u units, and its last height."""
    classes = cost.shape[0]
    now, after = 0, 1
    for u in range(room + 1):
        for h in range(tall + 1):
            least[now, u, h] = _FAR
    for h in range(tall + 1):
        least[now, h, h] = cost[0, h] - prices[0] * h
    reach = tall
    for p in range(1, classes):
        for u in range(room + 1):
            for h in range(tall + 1):
                least[after, u, h] = _FAR
        weight = link[p - 1]
        for u in range(min(reach, room) + 1):
            top = min(tall, u)
            falling[top + 1] = _FAR
            falling_at[top + 1] = 0
            for h in range(top, -1, -1):
                if least[now, u, h] < falling[h + 1]:
                    falling[h] = least[now, u, h]
                    falling_at[h] = h
                else:
                    falling[h] = falling[h + 1]
                    falling_at[h] = falling_at[h + 1]
            if falling[0] >= _FAR / 2:
                continue
            rising = _FAR
            rising_at = 0
            for h in range(min(tall, room - u) + 1):
                if 0 < h <= top + 1:
                    value = least[now, u, h - 1] - weight * (h - 1)
                    if value < rising:
                        rising = value
                        rising_at = h - 1
                best = rising
                at = rising_at
                if h <= top and falling[h] - weight * h < best:
                    best = falling[h] - weight * h
                    at = falling_at[h]
                if best < _FAR / 2:
                    least[after, u + h, h] = best + cost[p, h] - prices[p] * h
                    came[p, u + h, h] = at
        now, after = after, now
        reach += tall
    for u in range(room + 1):
        best = _FAR
        for h in range(min(tall, u) + 1):
            if least[now, u, h] < best:
                best = least[now, u, h]
                tops[u] = h
        table[u] = best
