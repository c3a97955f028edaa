"""Simple spreads to start a search from."""

from __future__ import annotations

import numpy as np

from ..jobs.index import ANY_KIND, Ints
from .counts import Counts


def starts_of(problem: Counts) -> list[Ints]:
    """Simple spreads: class after class, and all classes side by side."""
    natural = np.arange(problem.domains)
    largest = np.argsort(-problem.room, kind="stable")
    found = [_class_after_class(problem, natural), _class_after_class(problem, largest)]
    found.append(_side_by_side(problem, largest))
    return found


def _class_after_class(problem: Counts, order: Ints) -> Ints:
    free, kind_free = problem.room.copy(), problem.kind_room.copy()
    spread = np.zeros((problem.classes, problem.domains), dtype=np.int64)
    _place_rest(problem, spread, free, kind_free, order)
    return spread


def _side_by_side(problem: Counts, order: Ints) -> Ints:
    free, kind_free = problem.room.copy(), problem.kind_room.copy()
    spread = np.zeros((problem.classes, problem.domains), dtype=np.int64)
    if not problem.kind_room.shape[1]:
        for j in order.tolist():
            rows = int(free[j]) // problem.classes
            left = problem.height - spread.sum(axis=1)
            spread[:, j] = np.minimum(rows, left)
            free[j] -= int(spread[:, j].sum())
    _place_rest(problem, spread, free, kind_free, order)
    return spread


def _place_rest(problem: Counts, spread: Ints, free: Ints, kind_free: Ints, order: Ints) -> None:
    """Place what is left of every class; those that need a kind come first."""
    kinds = kind_free.shape[1] > 0
    rest = (problem.height - spread.sum(axis=1)).tolist()
    for p in (
        np.argsort(problem.kind == ANY_KIND, kind="stable").tolist()
        if kinds
        else range(problem.classes)
    ):
        left = rest[p]
        wanted = int(problem.kind[p])
        for j in order.tolist():
            if left == 0:
                break
            most = int(free[j])
            if most == 0:
                continue
            if kinds and wanted != ANY_KIND:
                most = min(most, int(kind_free[j, wanted]))
                kind_free[j, wanted] -= min(most, left)
            amount = min(most, left)
            spread[p, j] += amount
            free[j] -= amount
            left -= amount
