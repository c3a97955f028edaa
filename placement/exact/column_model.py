"""The cheapest choice of a column for every domain, by CP-SAT: how often each column is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.budget import Budget, Status, new_model, proved_least

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MOST_COLUMNS: Final = 3_000
"""Columns up to which the model is worth building."""
_STEPS: Final = 1e10
"""Whole numbers that stand for a cost of 1."""
_BUILDING_WORK: Final = 2e-5
"""Work a column of building the model."""


@dataclass(frozen=True)
class Chosen:
    """A column for each domain, `[class, domain]`, or None, and what no choice costs less than.

    bound: infinite where no choice of the columns places every unit.
    """

    spread: Ints | None
    bound: float


def best_columns(
    columns: Ints, paid: Floats, touched: Ints, height: Ints, rooms: Ints, work: float
) -> Chosen:
    """The cheapest choice of one column a domain in which every class is placed whole.

    columns: `[column, class]` units; paid: what each costs; touched: how often a class counts as
    touched by it, once for a part and twice for the whole, which is twice or more in every choice.
    rooms: of the domains. Which domain takes which column makes no difference but for its room, so
    the model counts how often each is taken: of those that need more than any one room no more
    than there are domains with more.
    """
    used = columns.sum(axis=1)
    model = new_model()
    often = []
    for column, need in zip(columns, used.tolist(), strict=True):
        some = column > 0
        most = int((height[some] // column[some]).min(initial=len(rooms)))
        most = min(most, int((rooms >= need).sum()))
        often.append(model.new_int_var(0, most, ""))

    def total(weight: Ints) -> cp_model.LinearExprT:
        taken = np.flatnonzero(weight)
        return sum(int(weight[c]) * often[c] for c in taken.tolist())

    for p, units in enumerate(height.tolist()):
        model.add(total(columns[:, p]) == units)
        model.add(total(touched[:, p]) >= 2)
    model.add(sum(often) == len(rooms))
    for room in np.unique(rooms).tolist():
        if (used > room).any():
            model.add(total((used > room).astype(np.int64)) <= int((rooms > room).sum()))
    model.minimize(total(np.rint(paid * _STEPS).astype(np.int64)))
    budget = Budget(work)
    budget.charge(_BUILDING_WORK * len(columns))
    solver, status = budget.solve(model, share=1.0)
    if status is Status.INFEASIBLE:
        return Chosen(None, np.inf)
    bound = (proved_least(solver, status) - len(rooms) / 2) / _STEPS
    if status not in (Status.OPTIMAL, Status.FEASIBLE):
        return Chosen(None, bound)
    taken = np.repeat(np.arange(len(columns)), [solver.value(one) for one in often])
    spread = np.zeros((len(height), len(rooms)), dtype=np.int64)
    by_room = np.argsort(-rooms, kind="stable")
    spread[:, by_room] = columns[taken[np.argsort(-used[taken], kind="stable")]].T
    return Chosen(spread, bound)
