"""Counts in steps of several units: a smaller problem whose spreads are good starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.index import Floats, Ints
from .counts import Counts

_ROOM_STEPS = 48
"""Steps that the largest domain has room for at least."""


def coarsest(problem: Counts) -> int:
    """The largest power of two of units to a step at which all steps find room; 1 if none do.

    1 too where kinds matter: room for whole steps of each kind says little.
    """
    if problem.kind_room.shape[1] or not problem.domains:
        return 1
    step = 1
    while problem.room.max() >= 2 * step * _ROOM_STEPS:
        step *= 2
    while step > 1 and (problem.room // step).sum() < (-(-problem.height // step)).sum():
        step //= 2
    return step


def coarsened(problem: Counts, step: int) -> Counts:
    """The problem in steps of `step` units; classes are rounded up, rooms down."""
    height = -(-problem.height // step)
    most = int(height.max(initial=0))
    units = np.minimum(np.arange(most + 1) * step, problem.height[:, None])
    return replace(
        problem,
        height=height,
        cost=np.take_along_axis(problem.cost, units, axis=1),
        link=problem.link * step,
        room=problem.room // step,
        kind_room=np.zeros((problem.domains, 0), dtype=np.int64),
    )


def refined(problem: Counts, spread: Ints, step: int) -> Ints:
    """A spread of units from one of steps.

    What the rounding of a class added is taken from the domain where that is cheapest.
    """
    units = spread * step
    for p in range(problem.classes):
        excess = int(units[p].sum() - problem.height[p])
        if excess == 0:
            continue
        able = np.flatnonzero(units[p] >= excess)
        j = int(able[np.argmin(_without(problem, units, p, able, excess))])
        units[p, j] -= excess
    return units


def _without(problem: Counts, spread: Ints, p: int, domains: Ints, excess: int) -> Floats:
    """What taking `excess` units of class p from each of the domains changes."""
    tall = int(problem.height[p])
    before = np.minimum(spread[p, domains], tall)
    after = spread[p, domains] - excess
    change: Floats = problem.cost[p, after] - problem.cost[p, before]
    for other, link in ((p - 1, p - 1), (p + 1, p)):
        if 0 <= other < problem.classes:
            near = spread[other, domains]
            change -= problem.link[link] * (np.minimum(after, near) - np.minimum(before, near))
    return change
