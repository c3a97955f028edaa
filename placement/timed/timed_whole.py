"""Groups of ranks that a search by time must leave in one domain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..jobs.index import Ints
from ..loops.compiled import inner
from .timed_job import Net


class Whole(NamedTuple):
    """Parts of a job of which each stays in one domain of a level.

    of: by rank, its part, or -1 where it may go anywhere. Part p has the ranks
    `member[start[p]:start[p + 1]]`.
    """

    level: int
    of: Ints
    start: Ints
    member: Ints


def whole_parts(groups: Sequence[Sequence[int]], ranks: int, level: int) -> Whole:
    """Parts of a job of so many ranks from groups; those that share a rank become one part."""
    of = np.full(ranks, -1, dtype=np.int64)
    for number, group in enumerate(groups):
        members = np.array(group, dtype=np.int64)
        joined = np.unique(of[members])
        of[members] = number
        if (joined >= 0).any():
            of[np.isin(of, joined[joined >= 0])] = number
    chosen = np.flatnonzero(of >= 0)
    _, of[chosen] = np.unique(of[chosen], return_inverse=True)
    member = chosen[np.argsort(of[chosen], kind="stable")]
    sizes = np.bincount(of[chosen])
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Whole(level, of, start, member)


def blocks_of(whole: Whole) -> Ints:
    """`[part, place]`, the ranks of parts that may change places; none where sizes differ."""
    sizes = np.diff(whole.start)
    if len(sizes) == 0 or (sizes != sizes[0]).any():
        return np.zeros((0, 1), dtype=np.int64)
    return whole.member.reshape(-1, sizes[0])


@inner
def stays_whole(
    net: Net, whole: Whole, slot: Ints, ranks: Ints, slots: Ints, count: int, then: Ints
) -> bool:
    """Whether each part is in one domain once the first `count` of `ranks` are on `slots`.

    slot: of each rank before. then: scratch by rank, -1 all over, and left so.
    """
    if len(whole.member) == 0:
        return True
    for n in range(count):
        then[ranks[n]] = slots[n]
    stays = True
    for n in range(count):
        part = whole.of[ranks[n]]
        if part < 0 or not stays:
            continue
        domain = net.low[whole.level, slots[n]]
        for i in range(whole.start[part], whole.start[part + 1]):
            other = whole.member[i]
            at = then[other] if then[other] >= 0 else slot[other]
            if net.low[whole.level, at] != domain:
                stays = False
                break
    for n in range(count):
        then[ranks[n]] = -1
    return stays


@inner
def joins_part(net: Net, whole: Whole, slot: Ints, rank: int, at: int) -> bool:
    """Whether a rank put on a slot is in the domain of those of its part that have a slot."""
    part = whole.of[rank]
    if part < 0:
        return True
    for i in range(whole.start[part], whole.start[part + 1]):
        other = whole.member[i]
        if other != rank and slot[other] >= 0:
            return bool(net.low[whole.level, slot[other]] == net.low[whole.level, at])
    return True
