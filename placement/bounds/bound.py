"""A lower bound on what any spread of classes over domains costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from ..spread.counts import Counts
from .joint_columns import JointColumns
from .size_prices import SizePrices

SAFETY = 1e-9
"""Relative allowance for rounding, taken off every bound."""
_CLIMB_STEPS = 30
"""Steps of subgradients; the rest of the work is for prices of sizes."""
_CLOSED_STEPS = 10
"""Steps that there must be work for if a closed chain is to be taken as it is."""
_PATIENCE = 4
_MOST_MET = 40
"""Spreads met last that prices of sizes start from."""


def bound_work(problem: Counts) -> float:
    """Work of one step of `spread_bound`, of a chain that closes opened."""
    return JointColumns(problem.opened()[0]).work


@dataclass(frozen=True)
class _Bound:
    """What no spread costs less than, the prices behind it, and the last spreads met.

    A class pays `whole` for each unit, and `parts` for each domain that holds some of it: once for
    a part, twice for all of it, so that every class is touched twice or more.
    """

    least: float
    whole: Floats
    parts: Floats
    met: list[Ints]


def spread_bound(problem: Counts, found: float, work: float) -> float:
    """A number no spread can cost less than, up to the same constant as `Counts.bytes_of`.

    found: the cost of a spread that is known, at which to stop.

    Lagrangian: that each class is placed completely is priced; that all classes together are, that
    each domain has one column within its room, and what a column costs, are kept exactly. Each
    domain's table (least priced cost by units used, over the chain) is joined by a knapsack over
    the domains. Any prices give a valid bound; subgradient steps look for good prices of units and
    of touched classes, and a cutting-plane model for prices of parts by their size (`SizePrices`).
    What kinds need is left out, which only lowers the bound. A closed chain is taken opened, and as
    it is where the work allows for that.
    """
    opened, closing = problem.opened()
    if opened is problem:
        return _bounded(problem, found, work)
    if JointColumns(problem).work * _CLOSED_STEPS > work / 2:
        return _bounded(opened, found - closing, work) + closing
    least = _bounded(opened, found - closing, work / 2) + closing
    return least if least >= found else max(least, _bounded(problem, found, work / 2))


def _bounded(problem: Counts, found: float, work: float) -> float:
    """See `spread_bound`; a closed chain is taken as it is."""
    scale = float(max(np.abs(problem.cost).max(), np.abs(problem.link).max()))
    if scale == 0.0 or problem.domains == 0:
        return 0.0
    target = found / scale
    relaxed = _Relaxed(JointColumns(problem, scale))
    each = relaxed.columns.work
    steps = min(_CLIMB_STEPS, int(work / each))
    bound = relaxed.climbed(target, steps)
    least, rest = bound.least, work - steps * each
    if least < target - SAFETY * abs(target) and rest > each:
        sizes = SizePrices(relaxed.columns, relaxed.prices(bound.whole, bound.parts), bound.met)
        least = max(least, sizes.climbed(target, rest))
    return (least - SAFETY * abs(least)) * scale


class _Relaxed:
    """Prices of the units of each class and of how often it is touched."""

    def __init__(self, columns: JointColumns) -> None:
        self.columns = columns
        self._height = columns.height
        self._touched = columns.touched()
        self._units = np.arange(columns.tall + 1)

    def prices(self, whole: Floats, parts: Floats) -> Floats:
        """`[class, units]`: what a domain that holds so much of a class has to its credit."""
        prices: Floats = parts[:, None] * self._touched + whole[:, None] * self._units
        return prices

    def _value(self, whole: Floats, parts: Floats) -> tuple[float, Ints]:
        """The bound at these prices, and the columns that attain it."""
        value, spread = self.columns.cheapest(self.prices(whole, parts))
        return value + float((whole * self._height).sum()) + 2 * float(parts.sum()), spread

    def climbed(self, target: float, steps: int) -> _Bound:
        """The best bound met in so many subgradient steps, from one of a few prices of parts."""
        none, cost = np.zeros(len(self._height)), self.columns.cost
        share = cost[:, 1] if cost.shape[1] > 1 else none
        best = _Bound(-np.inf, none, none, [])
        for part in (0.0, 0.5, 0.9, 0.25)[: max(1, steps // 4)]:
            parts = part * np.maximum(share, 0.0)
            value, _ = self._value(none, parts)
            if value > best.least:
                best = _Bound(value, none, parts, [])
        return self._climbed_from(best, target, steps)

    def _climbed_from(self, best: _Bound, target: float, steps: int) -> _Bound:
        """Prices of parts stay at 0 where the start has none."""
        whole, parts, met = best.whole, best.parts, best.met
        priced = bool(parts.any())
        theta, fails = 1.0, 0
        tall = float(self._height.max())
        for _ in range(steps):
            value, spread = self._value(whole, parts)
            met = [*met[1 - _MOST_MET :], spread]
            if value > best.least:
                best, fails = _Bound(value, whole, parts, met), 0
            else:
                fails += 1
                if fails >= _PATIENCE:
                    theta, fails, whole, parts = theta / 2, 0, best.whole, best.parts
                    if theta < 1e-3:
                        break
            if best.least >= target - SAFETY * abs(target):
                break
            short = (self._height - spread.sum(axis=1)) / tall
            missing = 2.0 - self._touched[np.arange(len(spread))[:, None], spread].sum(axis=1)
            missing[(parts <= 0) & (missing < 0)] = 0.0
            if not priced:
                missing[:] = 0.0
            size = float((short**2).sum() + (missing**2).sum())
            if size == 0.0:
                break
            step = theta * max(target - value, 1e-9 * abs(target)) / size
            whole = whole + step * short / tall
            whole = whole - float((whole * self._height).sum() / self.columns.total)
            parts = np.maximum(0.0, parts + step * missing)
        return _Bound(best.least, best.whole, best.parts, met)
