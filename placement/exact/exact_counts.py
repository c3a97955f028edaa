"""The best spread of few units over domains, proved: priced columns, enumerated and combined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from ..spread.counts import Counts
from .column_model import MOST_COLUMNS, best_columns
from .column_tables import FAR, grown, linked, together
from .count_sums import MOST_KEPT, States, Words, fitting_pairs

MOST_UNITS = 256
"""Units up to which a problem is solved to the end."""
_MOST_COLUMNS = 40_000
"""Columns of one domain that may be left within the gap."""
_MOST_STATES = 300_000
"""Different sums of columns that are kept at a time."""
_PAIRS_PER_WORK = 400_000_000
"""Pairs of a sum and a column that count as one unit of work."""
_KEPT_PAIRS = 100
"""How many pairs that are dropped one that is kept counts as."""
_ENTRIES_PER_WORK = 120_000_000
"""Table entries of a step of prices that count as one unit of work."""
_STEP_WORK = 2e-4
"""Work of a step of prices besides its entries."""
_PATIENCE = 5
_SUMS_SHARE = 0.15
"""Part of the work left for sums, where a model is to follow that may take the rest."""
_SLACK = 1e-10
"""Costs that differ by less, relative to the dearest single step, are equal."""


@dataclass(frozen=True)
class Proved:
    """A spread, and a number that no spread costs less than: its own cost where it is the best."""

    spread: Ints
    bound: float


def best_spread(problem: Counts, found: Ints, work: float, enough: float = np.inf) -> Proved | None:
    """The cheapest spread of all, from a good one, as far as `work` units of work go.

    enough: a bound to be content with, where that is less than what the spread costs.

    A column is what one domain holds of every class. Prices on units and on touched classes, by
    subgradient steps as in `bound.spread_bound`, say of every column how much it costs more than
    the best bound allows. Only columns within the gap to `found` are written down, and joined
    domain by domain; of sums that meet the cheapest is kept, and those beyond the gap are dropped.
    So what is left at the end is the best spread, or proof that `found` is. Where there are too
    many sums, CP-SAT chooses among the columns (see `column_model`). None where the problem is too
    large or has kinds.
    """
    total = int(problem.height.sum())
    if total > MOST_UNITS or problem.kind_room.shape[1] or problem.domains < 2:
        return None
    best = problem.bytes_of(found)
    step = max(np.abs(np.diff(problem.cost, axis=1)).max(initial=0.0), np.abs(problem.link).max())
    if step == 0.0:
        return Proved(found, best)
    return _Solving(problem, float(step)).solved(found, work, enough)


@dataclass(frozen=True)
class _Prices:
    """Prices of the units of each class, and of how often a class counts as touched; see `bound`.

    value: the bound at these prices. spread: columns that attain it.
    """

    units: Floats
    touched: Floats
    value: float
    spread: Ints


class _Solving:
    """One problem, its costs divided by the dearest single step; domains by rising room."""

    def __init__(self, problem: Counts, step: float) -> None:
        self._problem, self._step = problem, step
        self._height = problem.height
        self._total = int(problem.height.sum())
        usable = np.flatnonzero(problem.room > 0)
        self._domain = usable[np.argsort(problem.room[usable], kind="stable")]
        self._rooms = np.minimum(problem.room[self._domain], self._total)
        self._most = int(self._rooms.max())
        tall = int(problem.height.max()) + 1
        self._cost = problem.cost[:, :tall] / step
        self._touched = np.zeros_like(self._cost)
        self._touched[:, 1:] = 1.0
        for p, height in enumerate(problem.height.tolist()):
            self._cost[p, height + 1 :] = FAR
            self._touched[p, height] = 2.0
        self._link = problem.link / step
        heights = np.arange(tall)
        self._joined = np.minimum(heights[:, None], heights[None, :]).astype(np.float64)
        self._closed = bool(problem.link[-1] > 0)

    def solved(self, found: Ints, work: float, enough: float) -> Proved:
        best = self._bytes_of(found)
        slack = _SLACK * max(1.0, abs(best))
        target = min(best, enough / self._step + slack)
        prices, done = self._priced(target, work / 2)
        if prices.value >= target - slack:
            return Proved(found, min(prices.value, best) * self._step)
        return self._cheaper(prices, found, target - slack, work - done)

    def _priced(self, target: float, work: float) -> tuple[_Prices, float]:
        """The best prices found, and the work it took."""
        classes, tall = self._cost.shape
        ends = tall if self._closed else 1
        entries = classes * ends * (self._most + 1) * tall
        each = _STEP_WORK + entries / _ENTRIES_PER_WORK
        steps = max(8, int(work / each))
        flat = np.zeros(classes)
        one = np.maximum(0.0, self._cost[:, min(1, tall - 1)])
        one[one >= FAR] = 0.0
        trials = [self._at(flat, part * one) for part in (0.0, 0.5, 0.9)]
        top = now = max(trials, key=lambda p: p.value)
        theta, fails = 1.0, 0
        high = float(tall - 1)
        for taken in range(steps):
            if top.value >= target - _SLACK:
                return top, each * (taken + 3)
            short = (self._height - now.spread.sum(axis=1)) / high
            rows = np.arange(classes)[:, None]
            missing = 2.0 - self._touched[rows, now.spread].sum(axis=1)
            missing[(now.touched <= 0) & (missing < 0)] = 0.0
            size = float((short**2).sum() + (missing**2).sum())
            if size == 0.0:
                break
            length = theta * max(target - now.value, 1e-9) / size
            units = now.units + length * short / high
            units -= float((units * self._height).sum() / self._total)
            now = self._at(units, np.maximum(0.0, now.touched + length * missing))
            if now.value > top.value:
                top, fails = now, 0
                continue
            fails += 1
            if fails >= _PATIENCE:
                theta, fails, now = theta / 2, 0, top
                if theta < 1e-3:
                    break
        return top, each * (taken + 4)

    def _forward(self, cost: Floats) -> list[Floats]:
        """By class: `[first, units, last]`, least cost of a column so far; see `_closed`."""
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

    def _closing(self, table: Floats) -> Floats:
        """A last table with the link from the last class back to the first."""
        return table - self._link[-1] * self._joined[:, None, :] if self._closed else table

    def _at(self, units: Floats, touched: Floats) -> _Prices:
        heights = np.arange(self._cost.shape[1])
        cost = self._cost - units[:, None] * heights - touched[:, None] * self._touched
        tables = self._forward(cost)
        closed = self._closing(tables[-1])
        least = closed.min(axis=(0, 2))
        after = self._knapsack(least)
        value = float(after[0][self._total])
        columns: dict[int, Ints] = {}
        spread = np.zeros((len(cost), len(self._rooms)), dtype=np.int64)
        left = self._total
        for j, room in enumerate(self._rooms.tolist()):
            u = np.arange(min(room, left) + 1)
            used = int(np.argmin(least[u] + after[j + 1][left - u]))
            if used not in columns:
                columns[used] = self._traced(tables, closed, used)
            spread[:, j] = columns[used]
            left -= used
        value += float((units * self._height).sum() + 2 * touched.sum())
        return _Prices(units, touched, value, spread)

    def _knapsack(self, least: Floats) -> Floats:
        """By domain: `[units]`, least cost of so many units in this and all later domains."""
        return together(least, self._rooms, self._total)

    def _traced(self, tables: list[Floats], closed: Floats, used: int) -> Ints:
        first, h = divmod(int(np.argmin(closed[:, used, :])), closed.shape[2])
        column = np.zeros(len(tables), dtype=np.int64)
        column[-1] = h
        for p in range(len(tables) - 1, 0, -1):
            used -= h
            h = int(np.argmin(tables[p - 1][first, used] - self._link[p - 1] * self._joined[:, h]))
            column[p - 1] = h
        return column

    def _cheaper(self, prices: _Prices, found: Ints, limit: float, work: float) -> Proved:
        """The cheapest spread below `limit`, or `found`, and what none costs less than."""
        step = self._step
        heights = np.arange(self._cost.shape[1])
        cost = self._cost - prices.units[:, None] * heights
        cost -= prices.touched[:, None] * self._touched
        constant = float((prices.units * self._height).sum() + 2 * prices.touched.sum())
        least = self._closing(self._forward(cost)[-1]).min(axis=(0, 2))
        after = self._knapsack(least)
        within = self._columns(cost, self._rest(least, after), limit - constant)
        if within is None:
            return Proved(found, prices.value * step)
        few = len(within[0]) <= MOST_COLUMNS
        share = work * _SUMS_SHARE if few else work
        other = self._joined_up(*within, after, limit - constant, share)
        bound = self._bytes_of(other) if other is not None and other.size else limit
        if other is None:
            if not few:
                return Proved(found, prices.value * step)
            other, bound = self._modelled(within[0], work - share)
            bound = min(limit, max(prices.value, bound))
        # Prices on touches count too little where a class is touched more often than it must be.
        if other is None or not other.size or self._bytes_of(other) > limit:
            return Proved(found, min(bound, limit) * step)
        return Proved(other, bound * step)

    def _modelled(self, columns: Ints, work: float) -> tuple[Ints | None, float]:
        """The best choice of columns that CP-SAT finds, and what none costs less than."""
        classes = np.arange(columns.shape[1])
        touched = self._touched[classes, columns].astype(np.int64)
        chosen = best_columns(
            columns, self._paid(columns), touched, self._height, self._rooms, work
        )
        if chosen.spread is None:
            return None, chosen.bound
        spread = np.zeros((len(self._height), self._problem.domains), dtype=np.int64)
        spread[:, self._domain] = chosen.spread
        return spread, chosen.bound

    def _bytes_of(self, spread: Ints) -> float:
        return self._problem.bytes_of(spread) / self._step

    def _rest(self, least: Floats, after: Floats) -> Floats:
        """`[units]`: least cost of all other domains beside one that holds so many."""
        rest = np.full(self._most + 1, FAR)
        before = together(least, self._rooms[::-1].copy(), self._total)[::-1]
        for j, room in enumerate(self._rooms.tolist()):
            for u in range(room + 1):
                left = self._total - u
                found = (before[j, : left + 1] + after[j + 1, left::-1]).min()
                rest[u] = min(rest[u], found)
        return rest

    def _columns(self, cost: Floats, rest: Floats, limit: float) -> tuple[Ints, Floats] | None:
        """All columns within the limit `[column, class]`, with their priced costs."""
        classes, tall = cost.shape
        # By class, backwards: least cost of what follows it, all other domains included.
        following = np.broadcast_to(rest[None, :, None], (1, self._most + 1, tall))
        if self._closed:
            following = rest[None, :, None] - self._link[-1] * self._joined[:, None, :]
        tables = [following]
        units = np.arange(self._most + 1)[:, None] + np.arange(tall)[None, :]
        inside, to = units <= self._most, np.minimum(units, self._most)
        for p in range(classes - 1, 0, -1):
            onward = np.where(inside, tables[-1][:, to, np.arange(tall)[None, :]], FAR) + cost[p]
            tables.append(linked(onward, float(self._link[p - 1])))
        tables.reverse()
        first = np.arange(min(tall, self._most + 1))
        rows, used, priced = first[:, None], first, cost[0, first]
        for p in range(classes):
            if p > 0:
                near = rows[:, -1]
                more = cost[p][None, :] - self._link[p - 1] * self._joined[near]
                priced = (priced[:, None] + more).ravel()
                used = (used[:, None] + np.arange(tall)[None, :]).ravel()
                rows = np.repeat(rows, tall, axis=0)
                rows = np.column_stack([rows, np.tile(np.arange(tall), len(rows) // tall)])
            fits = used <= self._most
            ends = rows[:, 0] if self._closed else np.zeros(len(rows), dtype=np.int64)
            hope = priced + tables[p][ends, np.minimum(used, self._most), rows[:, -1]]
            kept = np.flatnonzero(fits & (hope <= limit))
            if len(kept) > _MOST_COLUMNS:
                return None
            rows, used, priced = rows[kept], used[kept], priced[kept]
        if self._closed:
            priced = priced - self._link[-1] * self._joined[rows[:, 0], rows[:, -1]]
        return rows, priced

    def _paid(self, columns: Ints) -> Floats:
        """What columns cost without prices."""
        classes = np.arange(columns.shape[1])
        alone = self._cost[classes, columns].sum(axis=1)
        joined = np.minimum(columns, np.roll(columns, -1, axis=1)) @ self._link
        paid: Floats = alone - joined
        return paid

    def _joined_up(
        self, columns: Ints, priced: Floats, after: Floats, limit: float, work: float
    ) -> Ints | None:
        """The cheapest sum of a column a domain that is all units; as `_cheaper` says."""
        words = Words.of(self._height)
        code = words.codes(columns)
        used = columns.sum(axis=1)
        order = np.argsort(priced, kind="stable")
        code, used, priced, columns = code[:, order], used[order], priced[order], columns[order]
        paid = self._paid(columns)
        sums = np.zeros((words.count, 1), dtype=np.uint64)
        so_far, true, units = np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64)
        layers: list[tuple[Ints, Ints]] = []
        pairs_left = work * _PAIRS_PER_WORK
        for j, room in enumerate(self._rooms.tolist()):
            able = np.flatnonzero(used <= room)
            loosest = float(after[j + 1].min())
            reach = np.searchsorted(priced[able], limit - so_far - loosest, side="right")
            pairs_left -= float(reach.sum()) + len(so_far)
            if pairs_left < 0:
                return None
            origin, column = fitting_pairs(
                States(sums, so_far, units),
                States(code[:, able], priced[able], used[able]),
                reach,
                words,
                after[j + 1],
                limit,
            )
            pairs_left -= len(origin) * _KEPT_PAIRS
            if len(origin) >= MOST_KEPT:
                return None
            column = able[column]
            true = true[origin] + paid[column]
            so_far, units = so_far[origin] + priced[column], units[origin] + used[column]
            sums = sums[:, origin] + code[:, column]
            by_sum = np.lexsort((true, *sums))
            fresh = np.append(True, (np.diff(sums[:, by_sum]) != 0).any(axis=0))[: len(by_sum)]
            first = by_sum[fresh]
            if len(first) > _MOST_STATES:
                return None
            sums, so_far, units, true = sums[:, first], so_far[first], units[first], true[first]
            layers.append((origin[first], column[first]))
        ends = np.flatnonzero((sums == words.goal[:, None]).all(axis=0))
        if not len(ends):
            return np.zeros((0, 0), dtype=np.int64)
        state = int(ends[0])
        spread = np.zeros((len(self._height), self._problem.domains), dtype=np.int64)
        for j in range(len(layers) - 1, -1, -1):
            origin, column = layers[j]
            spread[:, self._domain[j]] = columns[column[state]]
            state = int(origin[state])
        return spread
