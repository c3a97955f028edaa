"""The cheapest choice of parts with each domain by itself: which domains a set is divided among."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.index import Ints
from ..loops.budget import Status, new_model
from ..loops.settled import settled
from .least_sum import OverPrices
from .part_model import ChosenParts, PartColumns, overlaps, part_sums
from .part_prices import PartProblem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_TAKEN = 6_000
"""Pairs of a column and a domain that the model is built for."""
_MOST_WAYS = 4_000
"""Ways to divide a set of one class among the domains."""
_MOST_FLOWS = 20_000
"""Pairs of ways, one of a class and one of the next, that are told apart."""
_BUILDING_WORK = 3e-5
"""Work a variable of building the model."""


def best_by_domain(
    problem: PartProblem, columns: PartColumns, least: float, limit: float, work: float
) -> ChosenParts | None:
    """As `best_parts`, with sets whose parts are in different domains; None where it is too large.

    Where links join the sets of two classes one to one, two sets that are linked have no more pairs
    in a domain than the smaller of their parts there, so columns that have many pairs must go with
    sets that are divided alike.
    """
    model = _Model.of(problem, columns)
    if model is None:
        return None
    building = _BUILDING_WORK * model.variables
    priced = OverPrices.of(part_sums(problem, columns)) if work > building else None
    if priced is None:
        return None
    if limit <= priced.least:
        return ChosenParts(limit, None, False, building)
    paid = model.paid(priced, limit)
    model.model.add(paid <= math.floor((limit - priced.base) / priced.unit(limit)))
    model.model.minimize(paid)
    ended = settled(model.model, work - building)
    spent = building + ended.work
    if ended.status is Status.INFEASIBLE:
        return ChosenParts(limit, None, False, spent)
    bound = max(least, priced.bound(ended.bound, limit))
    if ended.status not in (Status.OPTIMAL, Status.FEASIBLE):
        return ChosenParts(bound, None, False, spent)
    chosen = sorted((d, k) for (k, d), one in model.taken.items() if ended.solver.value(one))
    choice = columns.choice[[k for _, k in chosen]]
    return ChosenParts(bound, choice, ended.status is Status.OPTIMAL, spent)


@dataclass
class _Model:
    """taken: whether a domain has a column, by both. ways: of a class and division, how many sets
    are divided in each. lost: by class and domain, pairs with the next class that the columns count
    and the sets do not have."""

    problem: PartProblem
    columns: PartColumns
    model: cp_model.CpModel
    taken: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    ways: dict[tuple[int, int], tuple[Ints, list[cp_model.IntVar]]] = field(default_factory=dict)
    lost: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    variables: int = 0

    @classmethod
    def of(cls, problem: PartProblem, columns: PartColumns) -> _Model | None:
        fits = columns.used[:, None] <= problem.rooms
        if fits.sum() > _MOST_TAKEN:
            return None
        made = cls(problem, columns, new_model())
        for k, d in np.argwhere(fits).tolist():
            made.taken[k, d] = made.model.new_bool_var("")
        made.variables = len(made.taken)
        made._one_a_domain()
        for p in range(problem.classes):
            if not made._divide(p):
                return None
        for p in np.flatnonzero(problem.link > 0).tolist():
            for d, aligned in enumerate(problem.aligned[p]):
                if aligned:
                    made._pair(p, d)
        return made

    def paid(self, priced: OverPrices, limit: float) -> cp_model.LinearExprT:
        """What a choice costs over the prices of parts, in units, rounded down.

        What costs too much to be taken within the limit does so however much it costs: the whole
        numbers stay small.
        """
        unit, most = priced.unit(limit), priced.most(limit) + self.variables
        rooms, used = self.problem.rooms, self.columns.used
        larger = [room for room in np.unique(rooms).tolist() if (used > room).any()]
        paid: list[cp_model.LinearExprT] = []
        for (k, d), one in self.taken.items():
            left = sum(
                cost
                for cost, room in zip(priced.left.tolist(), larger, strict=True)
                if used[k] <= room < rooms[d]
            )
            paid.append(min(most, math.floor((priced.over[k] + left) / unit)) * one)
        first = len(used)
        for p, cost in enumerate(self.problem.costs):
            for number, each in enumerate(cost.divisions):
                ways, often = self.ways[p, number]
                sizes = np.arange(1, each.splits.shape[1] + 1)
                split = {row.tobytes(): k for k, row in enumerate(each.splits)}
                parts = (ways[:, :, None] == sizes).sum(axis=1)
                for row, one in zip(parts.astype(each.splits.dtype), often, strict=True):
                    over = priced.over[first + split[row.tobytes()]]
                    paid.append(min(most, math.floor(over / unit)) * one)
                first += len(each.splits)
        for (p, _), lost in self.lost.items():
            paid.append(min(most, math.floor(self.problem.link[p] / unit)) * lost)
        return sum(paid)

    def _sum(self, weight: Ints, d: int) -> cp_model.LinearExprT:
        """What the column of a domain weighs."""
        some = np.flatnonzero(weight).tolist()
        return sum(int(weight[k]) * self.taken[k, d] for k in some if (k, d) in self.taken)

    def _one_a_domain(self) -> None:
        rooms = self.problem.rooms
        number = np.arange(len(self.columns.used))
        for d in range(len(rooms)):
            self.model.add(self._sum(np.ones_like(number), d) == 1)
        for one, other in pairwise(range(len(rooms))):
            if rooms[one] == rooms[other]:
                self.model.add(self._sum(number, one) <= self._sum(number, other))

    def _divide(self, p: int) -> bool:
        """Sets of a class in ways that give every domain its parts; False where these are many."""
        problem = self.problem
        rows = problem.parts[p][self.columns.choice[:, p]].astype(np.int64)
        for number, (span, each) in enumerate(
            zip(problem.spans(p), problem.costs[p].divisions, strict=True)
        ):
            parts = rows[:, span]
            sizes = [
                [0, *(1 + np.flatnonzero(parts[self.columns.used <= room].any(axis=0))).tolist()]
                for room in problem.rooms.tolist()
            ]
            ways = _ways(each.size, sizes)
            if ways is None:
                return False
            often = [self.model.new_int_var(0, each.sets, "") for _ in ways]
            self.variables += len(often)
            self.model.add(sum(often) == each.sets)
            self.ways[p, number] = ways, often
            for d, some in enumerate(sizes):
                for a in some[1:]:
                    here = np.flatnonzero(ways[:, d] == a).tolist()
                    self.model.add(self._sum(parts[:, a - 1], d) == sum(often[w] for w in here))
        return True

    def _pair(self, p: int, number: int) -> None:
        """Sets that links join to sets of the next class, by the ways in which both are divided."""
        after = (p + 1) % self.problem.classes
        one, often = self.ways[p, number]
        other, often_other = self.ways[after, number]
        if self.variables + len(one) * len(other) > _MOST_FLOWS:
            return
        sets = self.problem.costs[p].divisions[number].sets
        flow = [[self.model.new_int_var(0, sets, "") for _ in other] for _ in one]
        self.variables += len(one) * len(other)
        for row, total in zip(flow, often, strict=True):
            self.model.add(sum(row) == total)
        for column, total in zip(zip(*flow, strict=True), often_other, strict=True):
            self.model.add(sum(column) == total)
        counted = overlaps(self.problem, self.columns.choice)[:, p]
        for d in range(len(self.problem.rooms)):
            most = np.minimum.outer(one[:, d], other[:, d])
            alike = np.argwhere(most > 0).tolist()
            pairs: cp_model.LinearExprT = sum(int(most[i, j]) * flow[i][j] for i, j in alike)
            if (p, d) not in self.lost:
                self.lost[p, d] = self.model.new_int_var(0, int(counted.max(initial=0)), "")
            counts = self._sum(counted, d)
            self.model.add(sum([self.lost[p, d], pairs]) >= counts)


def _ways(size: int, sizes: list[list[int]]) -> Ints | None:
    """`[way, domain]`: how a set may be divided into parts of the sizes that domains can have."""
    most = np.concatenate([np.cumsum([some[-1] for some in sizes][::-1])[::-1], [0]]).tolist()
    ways: list[list[int]] = [[]]
    for d, some in enumerate(sizes):
        ways = [[*way, a] for way in ways for a in some if 0 <= size - sum(way) - a <= most[d + 1]]
        if len(ways) > _MOST_WAYS:
            return None
    return np.array(ways, dtype=np.int64).reshape(-1, len(sizes))
