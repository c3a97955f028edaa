"""The cheapest columns, one a domain, that together use all units of all classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean
from ..spread.counts import Counts

FAR = 1e300
"""What cannot be costs so much."""
CELLS_PER_WORK = 450_000_000
"""Table cells counted as one unit of work."""


class JointColumns:
    """Columns of a chain of classes, open or closed, one for each domain, within its room.

    A column is what one domain holds of every class. That all columns together hold as many units
    as all classes have is kept; how many they hold of each class is not. tall: the most units of a
    class that a domain can hold. Costs are divided by `scale`.
    """

    def __init__(self, problem: Counts, scale: float = 1.0) -> None:
        self.height = problem.height
        self.total = int(problem.height.sum())
        self.rooms = np.minimum(problem.room, self.total)
        self.largest = int(self.rooms.max(initial=0))
        self.tall = min(int(problem.height.max(initial=0)), self.largest)
        self.cost = problem.cost[:, : self.tall + 1] / scale
        self.cost[np.arange(self.tall + 1) > problem.height[:, None]] = FAR
        self.link = problem.link / scale
        self._closed = bool(problem.link[-1] > 0)

    @property
    def work(self) -> float:
        """Work of one search for the cheapest."""
        cells = (self.largest + 1) * (self.tall + 1) * len(self.height)
        cells *= self.tall + 1 if self._closed else 1
        # The knapsack leaves no more room unused in any domain than is spare in all of them.
        spare = int(self.rooms.sum()) - self.total + 1
        unused = np.minimum(self.rooms + 1, spare).astype(np.float64)
        knapsack = (self.total + min(self.total, spare) * unused).sum()
        return float(cells + knapsack) / CELLS_PER_WORK

    def touched(self) -> Floats:
        """`[class, units]`: 1 for a part of a class in a domain, 2 for all of it."""
        units = np.arange(self.tall + 1)
        return np.where(units == self.height[:, None], 2.0, (units > 0) * 1.0)

    def paid(self, spread: Ints) -> float:
        """What columns `[class, domain]` cost."""
        alone = self.cost[np.arange(len(spread))[:, None], spread].sum()
        joined = np.minimum(spread, np.roll(spread, -1, axis=0)).sum(axis=1)
        return float(alone - (joined * self.link).sum())

    def cheapest(self, prices: Floats) -> tuple[float, Ints]:
        """The least that all columns cost over the prices of what they hold, and such columns.

        prices: `[class, units]` in a domain. The columns are `[class, domain]`.
        """
        classes, domains = len(self.height), len(self.rooms)
        cost = self.cost - prices
        # In a closed chain the last class follows the first, so the column of every height of the
        # first is looked for by itself.
        firsts = np.arange(self.tall + 1) if self._closed else np.array([-1])
        shape = len(firsts), self.largest + 1
        came = np.zeros((len(firsts), classes, self.largest + 1, self.tall + 1), dtype=np.int16)
        tops = np.zeros(shape, dtype=np.int64)
        tables = np.full(shape, FAR)
        least = np.empty((2, self.largest + 1, self.tall + 1))
        falling, falling_at = np.empty(self.tall + 2), np.empty(self.tall + 2, dtype=np.int64)
        for k, first in enumerate(firsts.tolist()):
            fixed = cost if first < 0 else self._from_first(cost, first)
            _column_table(
                fixed,
                self.link,
                self.largest,
                self.tall,
                came[k],
                tables[k],
                tops[k],
                least,
                falling,
                falling_at,
            )
        which = np.argmin(tables, axis=0)
        table = np.ascontiguousarray(np.take_along_axis(tables, which[None], axis=0)[0])
        joined = np.full((domains + 1, self.total + 1), FAR)
        spread = np.zeros((classes, domains), dtype=np.int64)
        return _joined(self.rooms, self.total, came, table, which, tops, joined, spread), spread

    def _from_first(self, cost: Floats, first: int) -> Floats:
        """Costs of a closed chain's classes where a domain holds so many units of the first."""
        fixed = cost.copy()
        fixed[0] = FAR
        fixed[0, first] = cost[0, first]
        fixed[-1] -= self.link[-1] * np.minimum(first, np.arange(self.tall + 1))
        return fixed


@lean
def _joined(
    rooms: Ints,
    total: int,
    came: npt.NDArray[np.int16],
    table: Floats,
    which: Ints,
    tops: Ints,
    joined: Floats,
    spread: Ints,
) -> float:
    """Least cost of columns with `total` units from a table of columns; fills `spread`.

    which: by units of a column, in which of `came` and `tops` it is.
    """
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
    if joined[domains, total] >= FAR:
        return FAR
    t = total
    for j in range(domains - 1, -1, -1):
        u = max(0, rooms[j] - spare)
        while joined[j, t - u] + table[u] > joined[j + 1, t]:
            u += 1
        t -= u
        w = which[u]
        h = int(tops[w, u])
        for p in range(classes - 1, -1, -1):
            spread[p, j] = h
            if p > 0:
                before = int(came[w, p, u, h])
                u -= h
                h = before
    return float(joined[domains, total])


@lean
def _column_table(
    cost: Floats,
    link: Floats,
    room: int,
    tall: int,
    came: npt.NDArray[np.int16],
    table: Floats,
    tops: Ints,
    least: Floats,
    falling: Floats,
    falling_at: Ints,
) -> None:
    """Fill `table[u]` with the least cost of a column of u units, and its last height."""
    classes = cost.shape[0]
    now, after = 0, 1
    for u in range(room + 1):
        for h in range(tall + 1):
            least[now, u, h] = FAR
    for h in range(tall + 1):
        least[now, h, h] = cost[0, h]
    reach = tall
    for p in range(1, classes):
        for u in range(room + 1):
            for h in range(tall + 1):
                least[after, u, h] = FAR
        weight = link[p - 1]
        for u in range(min(reach, room) + 1):
            top = min(tall, u)
            falling[top + 1] = FAR
            falling_at[top + 1] = 0
            for h in range(top, -1, -1):
                if least[now, u, h] < falling[h + 1]:
                    falling[h] = least[now, u, h]
                    falling_at[h] = h
                else:
                    falling[h] = falling[h + 1]
                    falling_at[h] = falling_at[h + 1]
            if falling[0] >= FAR / 2:
                continue
            rising = FAR
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
                if best < FAR / 2:
                    least[after, u + h, h] = best + cost[p, h]
                    came[p, u + h, h] = at
        now, after = after, now
        reach += tall
    for u in range(room + 1):
        best = FAR
        for h in range(min(tall, u) + 1):
            if least[now, u, h] < best:
                best = least[now, u, h]
                tops[u] = h
        table[u] = best
