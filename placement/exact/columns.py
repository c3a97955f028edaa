"""Columns, each what one domain holds of every class: the cheapest, and all within a limit."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..jobs.index import Floats, Ints
from .column_tables import FAR, followed, grown, listed, together

_MOST_COLUMNS = 40_000
"""Columns of one domain that may be left within the limit."""


class Columns:
    """The columns of domains that together hold all units, each class at its own cost.

    cost: `[class, units]`, what a domain pays for so many units of the class. link: as in Counts,
    closed where the last is above 0. rooms: of the domains, rising. total: units to be held.
    """

    def __init__(self, cost: Floats, link: Floats, rooms: Ints, total: int) -> None:
        self._cost, self._link, self._rooms, self._total = cost, link, rooms, total
        self._most = int(rooms.max())
        heights = np.arange(cost.shape[1])
        self._joined = np.minimum(heights[:, None], heights[None, :]).astype(np.float64)
        self._closed = bool(link[-1] > 0)

    @cached_property
    def _tables(self) -> list[Floats]:
        """By class: `[first, units, last]`, least cost of a column so far; see `_closed`."""
        cost = self._cost
        tall = cost.shape[1]
        ends = tall if self._closed else 1
        now = np.full((ends, self._most + 1, tall), FAR)
        for h in range(min(tall, self._most + 1)):
            now[h if self._closed else 0, h, h] = cost[0, h]
        tables = [now]
        for p in range(1, len(cost)):
            now = grown(now, float(self._link[p - 1]), cost[p])
            tables.append(now)
        return tables

    @cached_property
    def _closing(self) -> Floats:
        """The last table with the link from the last class back to the first."""
        table = self._tables[-1]
        return table - self._link[-1] * self._joined[:, None, :] if self._closed else table

    @cached_property
    def least(self) -> Floats:
        """`[units]`: the least that a column of so many units costs; `FAR` where there is none."""
        found: Floats = self._closing.min(axis=(0, 2))
        return found

    @cached_property
    def after(self) -> Floats:
        """By domain: `[units]`, least cost of so many units in this and all later domains."""
        return together(self.least, self._rooms, self._total)

    @property
    def value(self) -> float:
        """The least that a column for every domain costs, with all units in number."""
        return float(self.after[0][self._total])

    def column(self, used: int) -> Ints:
        """The cheapest column of so many units, by class."""
        tables, closed = self._tables, self._closing
        first, h = divmod(int(np.argmin(closed[:, used, :])), closed.shape[2])
        column = np.zeros(len(tables), dtype=np.int64)
        column[-1] = h
        for p in range(len(tables) - 1, 0, -1):
            used -= h
            h = int(np.argmin(tables[p - 1][first, used] - self._link[p - 1] * self._joined[:, h]))
            column[p - 1] = h
        return column

    def cheapest(self) -> Ints:
        """`[class, domain]`: columns that together cost `value`."""
        columns: dict[int, Ints] = {}
        spread = np.zeros((len(self._cost), len(self._rooms)), dtype=np.int64)
        left = self._total
        for j, room in enumerate(self._rooms.tolist()):
            u = np.arange(min(room, left) + 1)
            used = int(np.argmin(self.least[u] + self.after[j + 1][left - u]))
            if used not in columns:
                columns[used] = self.column(used)
            spread[:, j] = columns[used]
            left -= used
        return spread

    @cached_property
    def rest(self) -> Floats:
        """`[units]`: least cost of all other domains beside one that holds so many."""
        rest = np.full(self._most + 1, FAR)
        before = together(self.least, self._rooms[::-1].copy(), self._total)[::-1]
        for j, room in enumerate(self._rooms.tolist()):
            for u in range(min(room, self._total) + 1):
                left = self._total - u
                found = (before[j, : left + 1] + self.after[j + 1, left::-1]).min()
                rest[u] = min(rest[u], found)
        return rest

    def within(self, limit: float) -> tuple[Ints, Floats] | None:
        """All columns beside which others make a sum within the limit `[column, class]`, and costs.

        None where there are too many.
        """
        cost, rest = self._cost, self.rest
        classes, tall = cost.shape
        ends = tall if self._closed else 1
        # By class, backwards: least cost of what follows it, all other domains included.
        tables = np.empty((classes, ends, self._most + 1, tall))
        tables[-1] = rest[None, :, None]
        if self._closed:
            tables[-1] -= self._link[-1] * self._joined[:, None, :]
        for p in range(classes - 1, 0, -1):
            tables[p - 1] = followed(tables[p], float(self._link[p - 1]), cost[p])
        rows, priced = listed(tables, cost, self._link, limit, _MOST_COLUMNS)
        if len(rows) > _MOST_COLUMNS:
            return None
        if self._closed:
            priced = priced - self._link[-1] * self._joined[rows[:, 0], rows[:, -1]]
        return rows, priced
