"""A lower bound on what any spread of classes over domains costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from ..spread.counts import Counts
from .joint_columns import FAR, JointColumns
from .size_prices import SizePrices

SAFETY = 1e-9
"""Relative allowance for rounding, taken off every bound."""
_CLIMB_STEPS = 30
"""Steps of subgradients; the rest of the work is for prices of sizes."""
_PATIENCE = 4
_MOST_MET = 40
"""Spreads met last that prices of sizes start from."""


def bound_work(problem: Counts) -> float:
    """Work of one step of `spread_bound`."""
    return JointColumns(problem).work


@dataclass(frozen=True)
class Bound:
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
    What kinds need is left out, which only lowers the bound.
    """
    scale = float(max(np.abs(problem.cost).max(), np.abs(problem.link).max()))
    if scale == 0.0 or problem.domains == 0:
        return 0.0
    problem, closing = problem.opened()
    target = (found - closing) / scale
    relaxed = _Relaxed(problem, scale)
    each = relaxed.columns.work
    steps = min(_CLIMB_STEPS, int(work / each))
    bound = relaxed.climbed(target, steps)
    least, rest = bound.least, work - steps * each
    if least < target - SAFETY * abs(target) and rest > each:
        sizes = SizePrices(problem, scale, bound.whole, bound.parts)
        for spread in bound.met:
            sizes.meet(spread)
        least = max(least, sizes.climbed(target, rest))
    return (least - SAFETY * abs(least)) * scale + closing


class _Relaxed:
    """The problem with prices of units and of touched classes; costs are divided by `scale`."""

    def __init__(self, problem: Counts, scale: float) -> None:
        self.columns = JointColumns(problem)
        self._height = problem.height
        self._cost = problem.cost / scale
        self._link = problem.link / scale
        touched = np.zeros_like(self._cost)
        touched[:, 1:] = 1.0
        for p, height in enumerate(problem.height.tolist()):
            self._cost[p, height + 1 :] = FAR
            touched[p, height] = 2.0
        self._touched = touched
        self._units = np.arange(self._cost.shape[1])

    def _value(self, whole: Floats, parts: Floats) -> tuple[float, Ints]:
        """The bound at these prices, and the columns that attain it."""
        cost = self._cost - parts[:, None] * self._touched - whole[:, None] * self._units
        value, spread = self.columns.cheapest(cost, self._link)
        return value + float((whole * self._height).sum()) + 2 * float(parts.sum()), spread

    def climbed(self, target: float, steps: int) -> Bound:
        """The best bound met in so many subgradient steps, from one of a few prices of parts."""
        none = np.zeros(len(self._cost))
        share = self._cost[:, 1] if self._cost.shape[1] > 1 else none
        best = Bound(-np.inf, none, none, [])
        for part in (0.0, 0.5, 0.9, 0.25)[: max(1, steps // 4)]:
            parts = part * np.maximum(share, 0.0)
            value, _ = self._value(none, parts)
            if value > best.least:
                best = Bound(value, none, parts, [])
        return self._climbed_from(best, target, steps)

    def _climbed_from(self, best: Bound, target: float, steps: int) -> Bound:
        """Prices of parts stay at 0 where the start has none."""
        whole, parts, met = best.whole, best.parts, best.met
        priced = bool(parts.any())
        theta, fails = 1.0, 0
        tall = float(self._height.max())
        for _ in range(steps):
            value, spread = self._value(whole, parts)
            met = [*met[1 - _MOST_MET :], spread]
            if value > best.least:
                best, fails = Bound(value, whole, parts, met), 0
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
        return Bound(best.least, best.whole, best.parts, met)
