"""Groups of ranks by the axes of the rank grid that their members differ along.

Ranks are mixed radix numbers of their coordinates, so that a kind of group is known by a few
numbers whatever the count of ranks: equal axes are equal groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..strategies.order import dimension_order
from ..workload import Parallelism

Ints = npt.NDArray[np.int64]


class Axis(NamedTuple):
    """So many ranks, each so many after the one before."""

    size: int
    stride: int


Axes = tuple[Axis, ...]
"""Axes with ascending strides; each ends before the next begins."""


class SplitAxes:
    """The axes of every kind of group of a split; fields as in `Grid`.

    experts: whether those of experts are axes too: only where a stage's ranks follow each other.
    """

    def __init__(self, split: Parallelism, rank_order: str) -> None:
        order = dimension_order(rank_order)
        sizes = {"tp": split.tp, "cp": split.cp, "dp": split.dp, "pp": split.pp}
        dense = _strided(order, sizes)
        inside = {"tp": split.expert_tp, "ep": split.ep, "dp": split.expert_dp}
        experts = _strided(order, inside)
        self.tp, self.cp, self.pp = dense["tp"], dense["cp"], dense["pp"]
        self.dp = joined([dense["cp"], dense["dp"]])
        self.ep, self.etp, self.expert_dp = experts["ep"], experts["tp"], experts["dp"]
        self.experts = split.pp == 1 or dense["pp"].stride * split.pp == split.world_size


def joined(axes: Iterable[Axis]) -> Axes:
    """Several axes, those that continue each other as one."""
    found: list[Axis] = []
    for axis in sorted((axis for axis in axes if axis.size > 1), key=lambda axis: axis.stride):
        if found and found[-1].size * found[-1].stride == axis.stride:
            axis = Axis(found[-1].size * axis.size, found.pop().stride)
        found.append(axis)
    return tuple(found)


def cut(axes: Axes, size: int) -> tuple[Axes, Axes] | None:
    """Groups cut into parts of `size` ranks in a row, and those across the parts; None where the
    parts are not axes."""
    inside: list[Axis] = []
    across: list[Axis] = []
    for count, stride in axes:
        if size >= count:
            if size % count:
                return None
            inside.append(Axis(count, stride))
            size //= count
        else:
            if count % size:
                return None
            inside.append(Axis(size, stride))
            across.append(Axis(count // size, stride * size))
            size = 1
    return joined(inside), joined(across)


def groups_of(axes: Axes, world: int) -> Ints:
    """The groups among `world` ranks: a row of ranks for each."""
    ranks = np.arange(world)
    offsets = np.zeros(1, dtype=np.int64)
    first = np.ones(world, dtype=bool)
    for size, stride in axes:
        offsets = (offsets[None, :] + stride * np.arange(size)[:, None]).ravel()
        first &= ranks // stride % size == 0
    return ranks[first][:, None] + offsets[None, :]


def hops_of(axis: Axis, world: int, closed: bool) -> Ints:
    """Pairs of ranks that follow each other along an axis; closed: the first after the last too."""
    ranks = np.arange(world)
    place = ranks // axis.stride % axis.size
    senders = ranks if closed else ranks[place < axis.size - 1]
    receivers = np.where(place < axis.size - 1, ranks, ranks - axis.size * axis.stride)
    return np.stack([senders, receivers[senders] + axis.stride], axis=1)


def ends_of(axis: Axis, world: int) -> Ints:
    """Pairs of the first and the last rank along an axis."""
    ranks = np.arange(world)
    first = ranks[ranks // axis.stride % axis.size == 0]
    return np.stack([first, first + (axis.size - 1) * axis.stride], axis=1)


def _strided(order: Iterable[str], sizes: dict[str, int]) -> dict[str, Axis]:
    found, stride = {}, 1
    for dimension in order:
        if dimension in sizes:
            found[dimension] = Axis(sizes[dimension], stride)
            stride *= sizes[dimension]
    return found
