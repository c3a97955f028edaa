"""The cheapest whole numbers that make given sums: CP-SAT at what each costs over its prices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.budget import Status, new_model
from ..loops.settled import settled

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp
    from ortools.sat.python import cp_model

_STEPS = 1e9
"""Whole numbers that stand for what may be paid over the prices."""
_FINEST = 1e-12
"""Least that one of them may stand for, to the largest sum there is: finer ones are rounding."""
_BUILDING_WORK = 4e-5
"""Work a number of pricing it and of building the model."""


@dataclass(frozen=True)
class Sums:
    """How often each of some things may be taken, in whole numbers.

    cost: of each. equal: `[sum, thing]`, which must add up to `total`; within: the same, which may
    not exceed `room`. times: how often each may be taken at most.
    """

    cost: Floats
    equal: Ints
    total: Ints
    within: Ints
    room: Ints
    times: Ints


@dataclass(frozen=True)
class LeastSum:
    """What no choice costs less than, the limit where none is cheaper; and the best that was found.

    often: how often each thing is taken; None where nothing was found. best: whether it is proved
    that no other choice is cheaper.
    """

    bound: float
    often: Ints | None
    best: bool
    work: float


def least_sum(sums: Sums, limit: float, work: float) -> LeastSum:
    """The cheapest choice that costs no more than `limit`.

    A linear program prices the sums. What is over those prices, of each thing and of the room that
    is left, is hardly ever negative, so that little can be taken within the limit; CP-SAT learns
    much from that which the costs themselves do not show. Any prices give a valid bound.
    """
    building = _BUILDING_WORK * len(sums.cost)
    priced = OverPrices.of(sums) if work > building else None
    if priced is None:
        return LeastSum(-np.inf, None, False, min(work, building))
    if limit <= priced.least:
        return LeastSum(limit, None, False, building)
    unit = priced.unit(limit)
    model, often = _model(sums, priced, limit - priced.base, unit)
    ended = settled(model, work - building)
    spent = building + ended.work
    if ended.status is Status.INFEASIBLE:
        return LeastSum(limit, None, False, spent)
    bound = priced.bound(ended.bound, limit)
    if ended.status not in (Status.OPTIMAL, Status.FEASIBLE):
        return LeastSum(bound, None, False, spent)
    found = np.zeros(len(sums.cost), dtype=np.int64)
    for k, one in often.items():
        found[k] = ended.solver.value(one)
    return LeastSum(bound, found, ended.status is Status.OPTIMAL, spent)


@dataclass(frozen=True)
class OverPrices:
    """Costs over the prices of sums: a choice costs `base`, `over @ often`, and `left @ unused`.

    unused: of each room. least: what all of that is not below. largest: the largest of the sums
    that make these, which tells how far off rounding can be.
    """

    over: Floats
    left: Floats
    base: float
    least: float
    largest: float

    def unit(self, limit: float) -> float:
        """What one of the whole numbers of a model of what is over stands for."""
        return max((limit - self.least) / _STEPS, _FINEST * self.largest)

    def most(self, limit: float) -> int:
        """How many of the whole numbers a thing that can be taken within `limit` costs at most."""
        return math.ceil((limit - self.least) / self.unit(limit))

    def bound(self, told: float, limit: float) -> float:
        """What no choice costs less than where no sum of the model is below `told`.

        What is over is rounded down there, so it is no more than it is in fact.
        """
        least = max(self.least, self.base + told * self.unit(limit))
        return min(limit, least - _FINEST * self.largest)

    @classmethod
    def of(cls, sums: Sums) -> OverPrices | None:
        """At the prices of the linear program; None where rounding hinders it."""
        # Imported here because most jobs do without it.
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        far = solver.infinity()
        often = [solver.NumVar(0.0, float(most), "") for most in sums.times]
        for one, cost in zip(often, sums.cost.tolist(), strict=True):
            solver.Objective().SetCoefficient(one, cost)
        solver.Objective().SetMinimization()
        equal = [solver.Constraint(float(b), float(b)) for b in sums.total]
        within = [solver.Constraint(-far, float(b)) for b in sums.room]
        _fill(equal, often, sums.equal)
        _fill(within, often, sums.within)
        if solver.Solve() != solver.OPTIMAL:
            return None
        price = np.array([row.dual_value() for row in equal])
        left = np.maximum(0.0, -np.array([row.dual_value() for row in within]))
        worth = price @ sums.equal - left @ sums.within
        base = float(price @ sums.total - left @ sums.room)
        over = sums.cost - worth
        least = base + float(np.minimum(over, 0.0) @ sums.times)
        largest = float(np.abs(price) @ np.abs(sums.total) + left @ np.abs(sums.room))
        return cls(over, left, base, least, max(largest, float(np.abs(sums.cost).max())))


def _fill(rows: list[pywraplp.Constraint], often: list[pywraplp.Variable], weight: Ints) -> None:
    for row, some in zip(rows, weight, strict=True):
        for k in np.flatnonzero(some).tolist():
            row.SetCoefficient(often[k], float(some[k]))


def _model(
    sums: Sums, priced: OverPrices, gap: float, unit: float
) -> tuple[cp_model.CpModel, dict[int, cp_model.IntVar]]:
    """The model of what is paid over the prices, at most `gap`; and the numbers that it is about.

    What costs more than that by itself is left out.
    """
    model = new_model()
    paid = np.floor(priced.over / unit)
    most = np.floor(gap / unit) - float((np.minimum(paid, 0.0) * sums.times).sum())
    times = np.where(paid > 0, np.minimum(sums.times, most // np.maximum(paid, 1.0)), sums.times)
    often = {k: model.new_int_var(0, int(times[k]), "") for k in np.flatnonzero(times > 0).tolist()}

    def total(weight: Ints) -> cp_model.LinearExprT:
        return sum(int(weight[k]) * often[k] for k in np.flatnonzero(weight).tolist() if k in often)

    for row, goal in zip(sums.equal, sums.total.tolist(), strict=True):
        model.add(total(row) == goal)
    over = [total(paid.astype(np.int64))]
    for row, room, dear in zip(sums.within, sums.room.tolist(), priced.left / unit, strict=True):
        if dear < 1.0:
            model.add(total(row) <= room)
            continue
        unused = model.new_int_var(0, int(room - np.minimum(row, 0) @ sums.times), "")
        model.add(sum([total(row), unused]) == room)
        # Room that costs too much to be left does so however much it costs: the whole numbers stay
        # small, for with large ones CP-SAT has called models infeasible that had solutions.
        over.append(int(min(dear, most + 1)) * unused)
    model.add(sum(over) <= math.floor(gap / unit))
    model.minimize(sum(over))
    return model, often
