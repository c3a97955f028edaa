"""What is known of a bound at all prices of sizes: the linear program over the cuts met so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..jobs.index import Floats, Ints

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp

_MOST_ROWS = 400
"""Sizes of different kinds of classes that have prices of their own; beyond, all kinds share."""
_UNITS_REACH = 3.0
"""How far the price of a whole class may go, to that of one size."""
_SOLVE_WORK = 1e-3
"""Work of solving once, besides its entries."""
_ENTRIES_PER_WORK = 8_000_000


@dataclass(frozen=True)
class Solved:
    """The most that prices in a box can prove as far as is known, and where: changes by row."""

    value: float
    at: Floats


class CutProgram:
    """Upper estimates of a bound: columns met, and divisions of every class that were met.

    At any prices the bound is at most what some columns cost over their parts, and some divisions
    of the classes are worth. The dual of the linear program in the prices is solved, where the
    cuts are columns, and what holds the prices in a box are two more for each row.
    """

    def __init__(self, kind: Ints, start: Floats) -> None:
        """kind: of each class. start: `[class, size]`, prices that changes are added to."""
        # Imported here because most jobs do without it.
        from ortools.linear_solver import pywraplp

        self._start = start
        classes, sizes = start.shape
        self._tall = sizes - 1
        kinds = int(kind.max()) + 1
        self._kind = kind if kinds * self._tall <= _MOST_ROWS else np.zeros_like(kind)
        self._solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        solver, far = self._solver, self._solver.infinity()
        # With it, no run goes on from the last solution, and some end "abnormal".
        solver.SetSolverSpecificParametersAsString("use_preprocessing: false")
        self._rows: list[pywraplp.Constraint] = []
        self._above: list[pywraplp.Variable] = []
        self._below: list[pywraplp.Variable] = []
        sized = (int(self._kind.max()) + 1) * self._tall
        for _ in range(sized + classes):
            row = solver.Constraint(0.0, 0.0)
            above, below = solver.NumVar(0.0, far, ""), solver.NumVar(0.0, far, "")
            row.SetCoefficient(above, 1.0)
            row.SetCoefficient(below, -1.0)
            self._rows.append(row)
            self._above.append(above)
            self._below.append(below)
        self._reach = np.repeat([1.0, _UNITS_REACH], [sized, classes])
        self._columns = solver.Constraint(1.0, 1.0)
        self._classes = [solver.Constraint(1.0, 1.0) for _ in range(classes)]
        solver.Objective().SetMinimization()
        self._seen: set[tuple[int, bytes]] = set()
        self._entries = 2 * len(self._rows)

    @property
    def nothing(self) -> Floats:
        """No change of any price."""
        return np.zeros(len(self._rows))

    @property
    def work(self) -> float:
        """Work of solving it once."""
        return _SOLVE_WORK + self._entries / _ENTRIES_PER_WORK

    def prices(self, at: Floats) -> Floats:
        """`[class, size]`: the prices with changes by row."""
        classes, sizes = self._start.shape
        sized = len(at) - classes
        by_size = np.zeros((sized // self._tall, sizes))
        by_size[:, 1:] = at[:sized].reshape(-1, self._tall)
        by_unit = at[sized:, None] * np.arange(sizes) / self._tall
        prices: Floats = self._start + by_size[self._kind] + by_unit
        return prices

    def add_columns(self, paid: float, spread: Ints) -> None:
        """A spread `[class, domain]` that was met, and what it costs."""
        classes, sizes = self._start.shape
        parts = np.zeros((classes, sizes))
        np.add.at(parts, (np.arange(classes)[:, None], spread), 1.0)
        parts[:, 0] = 0.0
        self._add(self._columns, parts, paid, 1.0, (-1, spread.tobytes()))

    def add_division(self, p: int, parts: Ints) -> None:
        """Parts of one class that were met, by size."""
        every = np.zeros(self._start.shape)
        every[p] = parts
        self._add(self._classes[p], every, 0.0, -1.0, (p, parts.tobytes()))

    def _add(
        self, one: Any, parts: Floats, paid: float, sign: float, key: tuple[int, bytes]
    ) -> None:
        if key in self._seen:
            return
        self._seen.add(key)
        often = self._solver.NumVar(0.0, self._solver.infinity(), "")
        worth = float((parts * self._start).sum())
        self._solver.Objective().SetCoefficient(often, paid - sign * worth)
        one.SetCoefficient(often, 1.0)
        by_size = np.zeros((int(self._kind.max()) + 1, self._tall))
        np.add.at(by_size, self._kind, parts[:, 1:])
        by_unit = parts @ np.arange(parts.shape[1]) / self._tall
        entry = np.concatenate([by_size.ravel(), by_unit])
        rows = np.flatnonzero(entry).tolist()
        for row in rows:
            self._rows[row].SetCoefficient(often, sign * float(entry[row]))
        self._entries += len(rows) + 1

    def best_within(self, centre: Floats, reach: float) -> Solved | None:
        """The best changes of prices within `reach` of `centre`; None where rounding hinders."""
        objective = self._solver.Objective()
        far = reach * self._reach
        for above, most in zip(self._above, (centre + far).tolist(), strict=True):
            objective.SetCoefficient(above, most)
        for below, least in zip(self._below, (far - centre).tolist(), strict=True):
            objective.SetCoefficient(below, least)
        if self._solver.Solve() != self._solver.OPTIMAL:
            return None
        at = np.array([row.dual_value() for row in self._rows])
        return Solved(float(objective.Value()), at)
