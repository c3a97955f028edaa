"""Prices of parts of sets, so that what a domain holds of each class can be priced by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bounds.part_cost import PartCost
from ..jobs.index import Floats, Ints
from .column_tables import FAR
from .columns import Columns

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp

STEP_WORK = 1e-3
"""Work of a step besides its entries."""
ENTRIES_PER_WORK = 60_000_000
"""Entries of tables and of the linear program that count as one unit of work."""
_MOST_STEPS = 150
_FOREIGN = 10.0
"""What a part costs that no column or set has, to the dearest cost there is."""
_STILL = 1e-7
"""Relative distance between the bound and the linear program at which steps end."""
_DAMPING = 0.5
"""Part that the best prices so far have in the next."""


@dataclass(frozen=True)
class PartProblem:
    """Classes of units in a chain, by the parts of sets that domains may hold of them.

    costs: of each class, divided by `scale` bytes, as are `link`s; closed as in Counts. rooms: of
    the domains, rising. aligned: `[class, division]`, whether the links to the next class join sets
    of the one to sets of the other.
    """

    costs: list[PartCost]
    link: Floats
    rooms: Ints
    aligned: list[tuple[bool, ...]]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.costs)

    @cached_property
    def total(self) -> int:
        """Units of all classes."""
        return sum(cost.height for cost in self.costs)

    @cached_property
    def parts(self) -> list[Floats]:
        """By class, `[choice, part]`: parts of every size of the first division, then the next."""
        return [self._by_cost[id(cost)][0] for cost in self.costs]

    @cached_property
    def first(self) -> list[Ints]:
        """By class, `[units]`: the first choice of so many units, and the number of choices."""
        return [self._by_cost[id(cost)][1] for cost in self.costs]

    @cached_property
    def _by_cost(self) -> dict[int, tuple[Floats, Ints]]:
        found: dict[int, tuple[Floats, Ints]] = {}
        for cost in self.costs:
            if id(cost) not in found:
                parts = np.concatenate([each.parts() for each in cost.divisions], axis=1)
                units = np.arange(int(cost.units[-1]) + 2)
                found[id(cost)] = parts.astype(np.float64), np.searchsorted(cost.units, units)
        return found

    def spans(self, p: int) -> list[slice]:
        """The parts of each division of a class among all of it."""
        ends = np.cumsum([0, *(each.splits.shape[1] for each in self.costs[p].divisions)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def sets(self, prices: list[Floats]) -> float:
        """The least that the parts of all sets are worth at these prices, however they are made."""
        total = 0.0
        for p, cost in enumerate(self.costs):
            for span, each in zip(self.spans(p), cost.divisions, strict=True):
                total += each.sets * float((each.splits @ prices[p][span]).min())
        return total

    def over(self, p: int, prices: list[Floats]) -> Floats:
        """What each choice of a class costs more than its parts are worth."""
        over: Floats = self.costs[p].cost - self.parts[p] @ prices[p]
        return over


class Priced:
    """A problem at prices of its parts: `value` is what no placement costs less than.

    The parts of all domains are worth what those of the sets are, which is at least what the
    cheapest ways to divide these are worth; and each domain costs at least what it does over its
    own parts.
    """

    def __init__(self, problem: PartProblem, prices: list[Floats]) -> None:
        self.problem, self.prices = problem, prices
        tall = max(cost.height for cost in problem.costs) + 1
        least = np.full((problem.classes, tall), FAR)
        self._choice = np.zeros((problem.classes, tall), dtype=np.int64)
        known: dict[tuple[int, bytes], tuple[Floats, Ints]] = {}
        for p, cost in enumerate(problem.costs):
            key = (id(cost), prices[p].tobytes())
            if key not in known:
                known[key] = _cheapest(problem.over(p, prices), problem.first[p], tall)
            least[p], self._choice[p] = known[key]
        self.least = least
        self.columns = Columns(least, problem.link, problem.rooms, problem.total)
        self.worth = problem.sets(prices)
        self.value = self.worth + self.columns.value
        self._within: dict[float, tuple[Ints, Floats] | None] = {}

    def best(self, units: int) -> tuple[Ints, Ints]:
        """The cheapest column of so many units, by class, and the choice of parts of each."""
        column = self.columns.column(units)
        return column, self._choice[np.arange(len(column)), column]

    def within(self, limit: float) -> tuple[Ints, Floats] | None:
        """Columns by units that may be part of a sum within a limit, and how much that leaves."""
        if limit not in self._within:
            found = self.columns.within(limit - self.worth)
            if found is not None:
                rows, priced = found
                slack = limit - self.worth - priced - self.columns.rest[rows.sum(axis=1)]
                found = rows, slack
            self._within = {limit: found}
        return self._within[limit]


def _cheapest(over: Floats, first: Ints, tall: int) -> tuple[Floats, Ints]:
    """By units, the least that a choice costs over its parts, and the first such choice."""
    least, choice = np.full(tall, FAR), np.zeros(tall, dtype=np.int64)
    for units, (begin, end) in enumerate(pairwise(first.tolist())):
        if begin < end:
            choice[units] = begin + int(np.argmin(over[begin:end]))
            least[units] = over[choice[units]]
    return least, choice


def price_parts(problem: PartProblem, target: float, work: float) -> tuple[Priced, float]:
    """Prices at which the bound is about as high as it can be, or reaches `target`; the work done.

    The best prices are those of a linear program: of all columns so many of each that their parts
    add up to those of ways to divide the sets, as cheaply as can be (Gilmore, Gomory, Oper. Res. 9,
    1961). Its columns are found one after another, each the cheapest at the prices before.
    """
    each = STEP_WORK + _entries(problem) / ENTRIES_PER_WORK
    program = _Program(problem)
    best = Priced(problem, [np.zeros(parts.shape[1]) for parts in problem.parts])
    now, done = best, 0.0
    for _ in range(_MOST_STEPS):
        new = program.extend(now)
        done += each + program.entries / ENTRIES_PER_WORK
        if best.value >= target or (not new and now is best) or done > work:
            break
        solved = program.solved()
        if solved is None:
            break
        value, prices = solved
        if value - best.value <= _STILL * max(1.0, abs(value)):
            break
        if new:
            prices = [
                _DAMPING * before + (1 - _DAMPING) * after
                for before, after in zip(best.prices, prices, strict=True)
            ]
        now = Priced(problem, prices)
        if now.value > best.value:
            best = now
        elif not new:
            break
    return best, done


def _entries(problem: PartProblem) -> float:
    different = {
        id(cost): parts.size for cost, parts in zip(problem.costs, problem.parts, strict=True)
    }
    tall = max(cost.height for cost in problem.costs) + 1
    ends = tall if problem.link[-1] > 0 else 1
    tables = problem.classes * ends * (int(problem.rooms.max()) + 1) * tall
    knapsack = len(problem.rooms) * problem.total * int(problem.rooms.max())
    return float(sum(different.values()) + tables + knapsack)


class _Program:
    """The linear program over the columns met so far."""

    def __init__(self, problem: PartProblem) -> None:
        # Imported here because most jobs do without it.
        from ortools.linear_solver import pywraplp

        self._problem = problem
        self._solver: Any = pywraplp.Solver.CreateSolver("GLOP")
        solver, far = self._solver, self._solver.infinity()
        self._part: list[list[pywraplp.Constraint]] = []
        self.entries = 0
        for p, cost in enumerate(problem.costs):
            rows = [solver.Constraint(0.0, 0.0) for _ in range(problem.parts[p].shape[1])]
            self._part.append(rows)
            for span, each in zip(problem.spans(p), cost.divisions, strict=True):
                whole = solver.Constraint(each.sets, each.sets)
                for way in each.splits.tolist():
                    often = solver.NumVar(0.0, far, "")
                    whole.SetCoefficient(often, 1.0)
                    for row, count in zip(rows[span], way, strict=True):
                        if count:
                            row.SetCoefficient(often, -count)
            for row in rows:
                for sign in (1.0, -1.0):
                    foreign = solver.NumVar(0.0, far, "")
                    row.SetCoefficient(foreign, sign)
                    solver.Objective().SetCoefficient(foreign, _FOREIGN)
        rooms = problem.rooms
        self._larger = [
            (room, solver.Constraint(-far, int((rooms > room).sum())))
            for room in np.unique(rooms).tolist()
        ]
        self._all = solver.Constraint(len(rooms), len(rooms))
        solver.Objective().SetMinimization()
        self._seen: set[bytes] = set()

    def extend(self, priced: Priced) -> bool:
        """Take up the cheapest column of every number of units; whether any of them is new."""
        new = False
        for units in np.flatnonzero(priced.columns.least < FAR / 2).tolist():
            column, choice = priced.best(units)
            key = choice.tobytes()
            if key not in self._seen:
                self._seen.add(key)
                self._add(units, column, choice)
                new = True
        return new

    def _add(self, units: int, column: Ints, choice: Ints) -> None:
        problem = self._problem
        joined = float((np.minimum(column, np.roll(column, -1)) * problem.link).sum())
        paid = sum(float(c.cost[k]) for c, k in zip(problem.costs, choice.tolist(), strict=True))
        often = self._solver.NumVar(0.0, self._solver.infinity(), "")
        self._solver.Objective().SetCoefficient(often, paid - joined)
        self._all.SetCoefficient(often, 1.0)
        for room, row in self._larger:
            if units > room:
                row.SetCoefficient(often, 1.0)
        for rows, parts, k in zip(self._part, problem.parts, choice.tolist(), strict=True):
            for a in np.flatnonzero(parts[k]).tolist():
                rows[a].SetCoefficient(often, float(parts[k, a]))
        self.entries += 20 * (problem.classes + 1)

    def solved(self) -> tuple[float, list[Floats]] | None:
        """The least cost, and the prices of parts that prove it; None where rounding hinders."""
        if self._solver.Solve() != self._solver.OPTIMAL:
            return None
        prices = [np.array([row.dual_value() for row in rows]) for rows in self._part]
        return float(self._solver.Objective().Value()), prices
