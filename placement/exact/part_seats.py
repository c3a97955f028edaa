"""From parts of sets to units: which of them go to which domain, so that few bytes cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..division.local import Local
from ..division.polish import polished
from ..jobs.index import Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Budget, Status, new_model

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_HEATS = (0.02, 0.2)
_MOVES = 400
"""Moves a unit of the walks that follow."""
_MOST_PLACES = 4_000
"""Pairs of a unit and a domain that the model of one class is built for."""


@dataclass(frozen=True)
class ClassParts:
    """What domains are to hold of one class.

    members: its units. set_of: by division, the set of each of them. rows: by division,
    `[domain, set]`, the parts of sets in each domain, falling: which sets these are is open.
    """

    members: Ints
    set_of: list[Ints]
    rows: list[Ints]


def seated_parts(
    graph: UnitGraph, parts: list[ClassParts], rooms: Ints, work: float, seed: int
) -> Ints | None:
    """The domain of each unit, in parts as told or close to it; None where no way is found.

    One class after another, each by CP-SAT, with as many linked units in one domain with those of
    the classes before as can be; exchanges of whole sets and walks of single units follow.
    """
    where = np.full(graph.units, -1, dtype=np.int64)
    budget = Budget(work)
    for each in parts:
        if not _seat(graph, each, where, budget, 1.0 / len(parts)):
            return None
    local = Local.of(
        graph, np.arange(graph.units), rooms, np.zeros((len(rooms), 0), dtype=np.int64)
    )
    where = _exchanged(local, parts, where)
    tried = [where, *(polished(local, where, _MOVES * graph.units, seed, h) for h in _HEATS)]
    return min(tried, key=local.bytes_of)


def _seat(graph: UnitGraph, parts: ClassParts, where: Ints, budget: Budget, share: float) -> bool:
    """Fill `where` for one class; False where no way is found."""
    model = new_model()
    used = np.flatnonzero(parts.rows[0].sum(axis=1)).tolist()
    units = len(parts.members)
    if units * len(used) > _MOST_PLACES:
        return False
    at = [{d: model.new_bool_var("") for d in used} for _ in range(units)]
    for one in at:
        model.add_exactly_one(one.values())
    for set_of, rows in zip(parts.set_of, parts.rows, strict=True):
        for d in used:
            sizes, count = np.unique(rows[d], return_counts=True)
            chosen: list[list[cp_model.IntVar]] = []
            for number in range(rows.shape[1]):
                is_of = [model.new_bool_var("") for _ in sizes]
                model.add_exactly_one(is_of)
                held = [at[u][d] for u in np.flatnonzero(set_of == number).tolist()]
                model.add(
                    sum(held) == sum(int(a) * one for a, one in zip(sizes, is_of, strict=True))
                )
                chosen.append(is_of)
            for k, often in enumerate(count.tolist()):
                model.add(sum(is_of[k] for is_of in chosen) == often)
    position = np.full(graph.units, -1, dtype=np.int64)
    position[parts.members] = np.arange(units)
    together = []
    for one, other in [*graph.link.T.tolist(), *graph.link[::-1].T.tolist()]:
        if position[one] >= 0 and position[other] < 0 <= where[other] and where[other] in used:
            together.append(at[position[one]][int(where[other])])
    model.maximize(sum(together))
    solver, status = budget.solve(model, share=share)
    if status not in (Status.OPTIMAL, Status.FEASIBLE):
        return False
    for u, one in zip(parts.members.tolist(), at, strict=True):
        where[u] = next(d for d, variable in one.items() if solver.value(variable))
    return True


def _exchanged(local: Local, parts: list[ClassParts], where: Ints) -> Ints:
    """Sets of one class, or of all classes alike, exchanged as long as that lowers the bytes."""
    together = [parts] if len({len(each.set_of) for each in parts}) == 1 else []
    groups = [*together, *([each] for each in parts if len(parts) > 1)]
    best = local.bytes_of(where)
    for group in groups:
        for d in range(len(group[0].set_of)):
            sets = min(int(each.set_of[d].max()) + 1 for each in group)
            for one in range(sets):
                for other in range(one + 1, sets):
                    trial = where.copy()
                    for each in group:
                        first = each.members[each.set_of[d] == one]
                        second = each.members[each.set_of[d] == other]
                        trial[first], trial[second] = where[second], where[first]
                    cost = local.bytes_of(trial)
                    if cost < best:
                        best, where = cost, trial
    return where
