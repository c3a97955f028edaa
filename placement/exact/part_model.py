"""The cheapest choice of parts for every domain, by CP-SAT: how often each column is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.budget import Budget, Status, new_model, proved_least
from .part_prices import PartProblem, Priced

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MOST_COLUMNS = 8_000
"""Columns up to which the model is worth building."""
_MOST_MET = 400_000
"""Columns that may be met before what their links cost is known."""
_STEPS = 1e10
"""Whole numbers that stand for the limit."""
_BUILDING_WORK = 3e-5
"""Work a column of finding the columns and building the model."""


@dataclass(frozen=True)
class PartColumns:
    """Columns that may be part of a sum within a limit: `[column, class]`, the choice of each.

    cost: of each, without prices. used: its units.
    """

    choice: Ints
    cost: Floats
    used: Ints


@dataclass(frozen=True)
class ChosenParts:
    """What no choice within a limit costs less than, the limit where there is none; and the best.

    choice: `[domain, class]`, domains by rising room; None where none was found.
    """

    bound: float
    choice: Ints | None
    work: float


def surviving(priced: Priced, limit: float) -> list[Ints] | None:
    """By class, the choices that may be part of a sum within a limit; None where not known."""
    found = priced.within(limit)
    if found is None:
        return None
    rows, slack = found
    kept = []
    for p in range(priced.problem.classes):
        most = np.full(priced.least.shape[1], -np.inf)
        np.maximum.at(most, rows[:, p], slack)
        units = priced.problem.costs[p].units
        over = priced.problem.over(p, priced.prices) - priced.least[p][units]
        kept.append(np.flatnonzero(over <= most[units]))
    return kept


def columns_within(priced: Priced, limit: float) -> PartColumns | None:
    """All columns that may be part of a sum within a limit; None where there are too many."""
    found = priced.within(limit)
    if found is None:
        return None
    rows, slack = found
    problem = priced.problem
    owner, choice = np.arange(len(rows)), np.zeros((len(rows), 0), dtype=np.int64)
    for p, cost in enumerate(problem.costs):
        over = problem.over(p, priced.prices) - priced.least[p][cost.units]
        order = np.lexsort((over, cost.units))
        over, first = over[order], problem.first[p]
        units = rows[owner, p]
        count = np.zeros(len(units), dtype=np.int64)
        for u in np.unique(units).tolist():
            here = units == u
            some = over[first[u] : first[u + 1]]
            count[here] = np.searchsorted(some, slack[here], side="right")
        if count.sum() > _MOST_MET:
            return None
        at = np.repeat(np.arange(len(owner)), count)
        next_one = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        which = first[units[at]] + next_one
        choice = np.column_stack([choice[at], order[which]])
        owner, slack = owner[at], slack[at] - over[which]
    rows = rows[owner]
    lost = (np.minimum(rows, np.roll(rows, -1, axis=1)) - overlaps(problem, choice)) * problem.link
    kept = lost.sum(axis=1) <= slack
    rows, choice, lost = rows[kept], choice[kept], lost[kept]
    paid = np.zeros(len(rows))
    for p, cost in enumerate(problem.costs):
        paid += cost.cost[choice[:, p]]
    paid += (lost - np.minimum(rows, np.roll(rows, -1, axis=1)) * problem.link).sum(axis=1)
    return PartColumns(choice, paid, rows.sum(axis=1))


def overlaps(problem: PartProblem, choice: Ints) -> Ints:
    """`[column, class]`: the most units that can be matched with ones of the next class.

    Links that join sets to sets match no more in any two sets than the smaller part of them.
    """
    most = np.empty_like(choice)
    for p, cost in enumerate(problem.costs):
        after = (p + 1) % problem.classes
        other = problem.costs[after]
        one, two = choice[:, p], choice[:, after]
        most[:, p] = np.minimum(cost.units[one], other.units[two])
        if problem.link[p] > 0:
            for d, aligned in enumerate(problem.aligned[p]):
                if aligned:
                    here, there = cost.divisions[d].rows[one], other.divisions[d].rows[two]
                    most[:, p] = np.minimum(most[:, p], np.minimum(here, there).sum(axis=1))
    return most


def best_parts(
    problem: PartProblem, columns: PartColumns, least: float, limit: float, work: float
) -> ChosenParts:
    """The cheapest choice of a column for each domain whose parts make whole sets.

    least: what none costs less than. Domains with the same room are alike, so the model counts how
    often each column is taken: of those that need more than any one room no more than there are
    domains with more.
    """
    model = new_model()
    rooms, used = problem.rooms, columns.used
    most = np.searchsorted(rooms, used)
    often = [model.new_int_var(0, len(rooms) - int(m), "") for m in most.tolist()]

    def total(weight: Ints) -> cp_model.LinearExprT:
        taken = np.flatnonzero(weight)
        return sum(int(weight[k]) * often[k] for k in taken.tolist())

    for p, cost in enumerate(problem.costs):
        parts = problem.parts[p][columns.choice[:, p]].astype(np.int64)
        for span, each in zip(problem.spans(p), cost.divisions, strict=True):
            ways = [model.new_int_var(0, each.sets, "") for _ in each.splits]
            model.add(sum(ways) == each.sets)
            for a, held in enumerate(parts[:, span].T):
                made = each.splits[:, a]
                some = np.flatnonzero(made).tolist()
                model.add(total(held) == sum(int(made[w]) * ways[w] for w in some))
    model.add(sum(often) == len(rooms))
    for room in np.unique(rooms).tolist():
        if (used > room).any():
            model.add(total((used > room).astype(np.int64)) <= int((rooms > room).sum()))
    size = _STEPS / max(abs(limit), float(np.abs(columns.cost).max(initial=0.0)), 1e-9)
    model.minimize(total(np.rint(columns.cost * size).astype(np.int64)))
    budget = Budget(work)
    budget.charge(_BUILDING_WORK * len(used))
    solver, status = budget.solve(model, share=1.0)
    spent = work - budget.left
    if status is Status.INFEASIBLE:
        return ChosenParts(limit, None, spent)
    bound = (proved_least(solver, status) - len(rooms)) / size
    bound = min(limit, max(least, bound))
    if status not in (Status.OPTIMAL, Status.FEASIBLE):
        return ChosenParts(bound, None, spent)
    taken = np.repeat(np.arange(len(used)), [solver.value(one) for one in often])
    taken = taken[np.argsort(used[taken], kind="stable")]
    return ChosenParts(bound, columns.choice[taken], spent)
