"""Prices of parts by their size, so that parts of classes must add up to whole classes."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean
from .cut_program import CutProgram
from .joint_columns import CELLS_PER_WORK, FAR, JointColumns

_MOST_STEPS = 300
_STEP_WORK = 5e-4
"""Work of one step besides its loops and the linear program."""
_REACH = 0.1
"""How far the first prices may go from those at the start, in dearest single steps."""
_WIDER, _NARROWER, _STEADIER = 1.5, 0.8, 0.9
_ENOUGH = 0.1
"""Part of what the model foresees that a step must bring for prices to be moved there."""
_LITTLE = 0.01
"""Part of what is missing up to which a gain foreseen is little."""
_STILL = 1e-7
"""Relative gain foreseen at which steps end."""
_SURE = 0.02
"""Reach within which steps must foresee no gain before they end: there is none anywhere then."""
_EVEN = 1e-12


class SizePrices:
    """A bound by a price for each size of part that a domain may hold of a class.

    All columns together are kept within the room as in `JointColumns`, and every class is divided
    into parts as is cheapest at these prices, on its own. Where a class of 80 units can only be
    split into parts of at most 39, that there must be three of them counts, and not 80 / 39. Prices
    are those at the start, and added to them one for each size, the same for all classes of a
    kind, and one for the units of each class.
    """

    def __init__(self, columns: JointColumns, start: Floats, met: list[Ints]) -> None:
        """start: prices `[class, size]`. met: columns that some prices were met with before."""
        self._columns, self._start = columns, start
        self._program = CutProgram(_kinds(columns), start)
        for spread in met:
            self._program.add_columns(columns.paid(spread), spread)

    def climbed(self, target: float, work: float) -> float:
        """The best bound met, or about `target`, within so much work.

        Cutting planes in a box round the best prices, which widens where the model of the cuts
        foretells well what prices bring (Marsten, Hogan, Blankenship, Oper. Res. 23, 1975).
        """
        cells = float((self._columns.height**2).sum()) / 2
        each = self._columns.work + cells / CELLS_PER_WORK + _STEP_WORK
        centre = self._program.nothing
        best = self._value(self._start)
        done, reach = each, _REACH
        for _ in range(_MOST_STEPS):
            if best >= target - _EVEN * abs(target) or done + each > work:
                break
            solved = self._program.best_within(centre, reach)
            done += each + self._program.work
            if solved is None:
                reach *= _NARROWER
                continue
            foreseen = solved.value - best
            if foreseen <= _LITTLE * (target - best) and reach < _SURE:
                # Little is to be won so near; farther off may be more.
                reach = _SURE
                continue
            if foreseen <= _STILL * max(1.0, abs(best)):
                break
            value = self._value(self._program.prices(solved.at))
            if value > best + _ENOUGH * foreseen:
                reach *= _WIDER if value > best + foreseen / 2 else 1.0
                best, centre = value, solved.at
            else:
                reach *= _NARROWER if value < best else _STEADIER
        return best

    def _value(self, prices: Floats) -> float:
        """The bound at these prices `[class, size]`; what attains it is added to the model."""
        height = self._columns.height
        value, spread = self._columns.cheapest(prices)
        self._program.add_columns(self._columns.paid(spread), spread)
        least = np.empty(int(height.max()) + 1)
        came = np.zeros(len(least), dtype=np.int64)
        divided = np.zeros(prices.shape, dtype=np.int64)
        value += _divide(prices, height, least, came, divided)
        for p, parts in enumerate(divided):
            self._program.add_division(p, parts)
        return value


def _kinds(columns: JointColumns) -> Ints:
    """Classes of equal height and costs have the same number."""
    rows = np.column_stack([columns.height, columns.cost])
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


@lean
def _divide(prices: Floats, height: Ints, least: Floats, came: Ints, divided: Ints) -> float:
    """The least that parts of all classes cost; `divided[p, a]`: parts of a units in class p."""
    classes, tall = prices.shape[0], prices.shape[1] - 1
    total = 0.0
    for p in range(classes):
        least[0] = 0.0
        for t in range(1, height[p] + 1):
            best, at = FAR, 0
            for a in range(1, min(tall, t) + 1):
                value = least[t - a] + prices[p, a]
                if value < best:
                    best, at = value, a
            least[t], came[t] = best, at
        total += least[height[p]]
        t = height[p]
        while t > 0:
            divided[p, came[t]] += 1
            t -= came[t]
    return total
