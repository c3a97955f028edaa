"""The best spread of few units over domains, proved: priced columns, enumerated and combined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..jobs.index import Floats, Ints
from ..spread.counts import Counts
from .column_model import MOST_COLUMNS, best_columns
from .column_tables import FAR
from .columns import Columns
from .count_sums import MOST_KEPT, States, Words, fitting_pairs

MOST_UNITS = 256
"""Units up to which a problem is solved to the end."""
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
    """A spread, and a number that no spread costs less than: its own cost where it is the best.

    work: that was done to find out.
    """

    spread: Ints
    bound: float
    work: float


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
        return Proved(found, best, 0.0)
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
        self._closed = bool(problem.link[-1] > 0)

    def solved(self, found: Ints, work: float, enough: float) -> Proved:
        best = self._bytes_of(found)
        slack = _SLACK * max(1.0, abs(best))
        target = min(best, enough / self._step + slack)
        prices, done = self._priced(target, work / 2)
        if prices.value >= target - slack:
            return Proved(found, min(prices.value, best) * self._step, done)
        cheaper = self._cheaper(prices, found, target - slack, work - done)
        return replace(cheaper, work=cheaper.work + done)

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

    def _at(self, units: Floats, touched: Floats) -> _Prices:
        heights = np.arange(self._cost.shape[1])
        cost = self._cost - units[:, None] * heights - touched[:, None] * self._touched
        columns = self._columns(cost)
        value = columns.value
        value += float((units * self._height).sum() + 2 * touched.sum())
        return _Prices(units, touched, value, columns.cheapest())

    def _columns(self, cost: Floats) -> Columns:
        return Columns(cost, self._link, self._rooms, self._total)

    def _cheaper(self, prices: _Prices, found: Ints, limit: float, work: float) -> Proved:
        """The cheapest spread below `limit`, or `found`, and what none costs less than."""
        step = self._step
        heights = np.arange(self._cost.shape[1])
        cost = self._cost - prices.units[:, None] * heights
        cost -= prices.touched[:, None] * self._touched
        constant = float((prices.units * self._height).sum() + 2 * prices.touched.sum())
        columns = self._columns(cost)
        within = columns.within(limit - constant)
        if within is None:
            return Proved(found, prices.value * step, 0.0)
        few = len(within[0]) <= MOST_COLUMNS
        share = work * _SUMS_SHARE if few else work
        other, done = self._joined_up(*within, columns.after, limit - constant, share)
        bound = self._bytes_of(other) if other is not None and other.size else limit
        if other is None:
            if not few:
                return Proved(found, prices.value * step, done)
            other, bound, spent = self._modelled(within[0], limit, work - done)
            done += spent
            bound = min(limit, max(prices.value, bound))
        # Prices on touches count too little where a class is touched more often than it must be.
        if other is None or not other.size or self._bytes_of(other) > limit:
            return Proved(found, min(bound, limit) * step, done)
        return Proved(other, bound * step, done)

    def _modelled(
        self, columns: Ints, limit: float, work: float
    ) -> tuple[Ints | None, float, float]:
        """The best choice of columns that CP-SAT finds, what none costs less than, and the work."""
        classes = np.arange(columns.shape[1])
        touched = self._touched[classes, columns].astype(np.int64)
        chosen = best_columns(
            columns, self._paid(columns), touched, self._height, self._rooms, limit, work
        )
        if chosen.spread is None:
            return None, chosen.bound, chosen.work
        spread = np.zeros((len(self._height), self._problem.domains), dtype=np.int64)
        spread[:, self._domain] = chosen.spread
        return spread, chosen.bound, chosen.work

    def _bytes_of(self, spread: Ints) -> float:
        return self._problem.bytes_of(spread) / self._step

    def _paid(self, columns: Ints) -> Floats:
        """What columns cost without prices."""
        classes = np.arange(columns.shape[1])
        alone = self._cost[classes, columns].sum(axis=1)
        joined = np.minimum(columns, np.roll(columns, -1, axis=1)) @ self._link
        paid: Floats = alone - joined
        return paid

    def _joined_up(
        self, columns: Ints, priced: Floats, after: Floats, limit: float, work: float
    ) -> tuple[Ints | None, float]:
        """The cheapest sum of a column a domain that is all units, as `_cheaper` says; the work.

        None where there are too many sums.
        """
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
                return None, work
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
                return None, work
            column = able[column]
            true = true[origin] + paid[column]
            so_far, units = so_far[origin] + priced[column], units[origin] + used[column]
            sums = sums[:, origin] + code[:, column]
            by_sum = np.lexsort((true, *sums))
            fresh = np.append(True, (np.diff(sums[:, by_sum]) != 0).any(axis=0))[: len(by_sum)]
            first = by_sum[fresh]
            if len(first) > _MOST_STATES:
                return None, work
            sums, so_far, units, true = sums[:, first], so_far[first], units[first], true[first]
            layers.append((origin[first], column[first]))
        ends = np.flatnonzero((sums == words.goal[:, None]).all(axis=0))
        if not len(ends):
            return np.zeros((0, 0), dtype=np.int64), work - pairs_left / _PAIRS_PER_WORK
        state = int(ends[0])
        spread = np.zeros((len(self._height), self._problem.domains), dtype=np.int64)
        for j in range(len(layers) - 1, -1, -1):
            origin, column = layers[j]
            spread[:, self._domain[j]] = columns[column[state]]
            state = int(origin[state])
        return spread, work - pairs_left / _PAIRS_PER_WORK
