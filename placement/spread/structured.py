"""The problem of spreading chains of classes over the domains of a level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.index import ANY_KIND, Ints
from .counts import Counts
from .room import Room
from .structure import Chains


def counts_in(
    chains: Chains, height: Ints, room: Room, level: int, domains: Ints, block: int
) -> Counts:
    """The problem of spreading `height` units of each class over some domains of a level.

    block: units of `room` in one unit of the chains. Blocks that cannot all be whole have one more
    domain, the last, which stands for what is left over everywhere.
    """
    needs = bool((chains.kind != ANY_KIND).any())
    kinds = room.kind_room[level][domains] // block
    rooms = room.room[level][domains] // block
    short = int(height.sum() - rooms.sum())
    if short > 0:
        rooms = np.append(rooms, short)
        kinds = np.append(kinds, np.zeros((1, kinds.shape[1]), dtype=np.int64), axis=0)
    return Counts(
        height=height,
        cost=chains.cost,
        link=chains.link,
        room=rooms,
        kind=chains.kind,
        kind_room=kinds if needs else np.zeros((len(rooms), 0), dtype=np.int64),
    )


def part_of(problem: Counts, classes: Ints) -> Counts:
    """The problem of some of its classes; chains end where the next class is not among them."""
    joined = np.append(np.diff(classes) == 1, len(classes) == problem.classes)
    return replace(
        problem,
        height=problem.height[classes],
        cost=problem.cost[classes],
        link=np.where(joined, problem.link[classes], 0.0),
        kind=problem.kind[classes],
    )
