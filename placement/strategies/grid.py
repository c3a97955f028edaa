"""The ranks of a split as arrays: every group that a strategy communicates in, for any rank order.

Orders are those of Megatron Core (parallel_state.py, RankGenerator): a rank's number is a mixed
radix number of its coordinates, the first dimension of the order counting fastest. Experts have a
grid of their own over the ranks of each pipeline stage, in the same order, with expert-tensor
parallelism in the place of tp and their data parallelism in that of dp.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from .order import dimension_order

if TYPE_CHECKING:
    from ..workload import Parallelism, Workload

Ints = npt.NDArray[np.int64]


class Family(NamedTuple):
    """Groups of one kind: a row of ranks for each, and the coordinates that they do not differ in.

    names: of the coordinates; labels: a row of them for each group.
    """

    ranks: Ints
    names: tuple[str, ...]
    labels: Ints


class Grid:
    """Ranks of a split by coordinate.

    dense: `[pp, dp, cp, tp]`. experts: `[pp, edp, ep, etp]`, the same ranks as experts see them.
    """

    def __init__(self, split: Parallelism, rank_order: str) -> None:
        order = dimension_order(rank_order)
        self._split = split
        self.dense = _laid_out(
            np.arange(split.world_size),
            {"tp": split.tp, "cp": split.cp, "dp": split.dp, "pp": split.pp},
            order,
            ("pp", "dp", "cp", "tp"),
        )
        stages = np.sort(self.dense.reshape(split.pp, -1), axis=1)
        inside = {"tp": split.expert_tp, "ep": split.ep, "dp": split.expert_dp}
        self.experts = np.stack(
            [_laid_out(stage, inside, order, ("dp", "ep", "tp")) for stage in stages]
        )

    @classmethod
    def of(cls, workload: Workload) -> Grid:
        """The grid of a workload."""
        return cls(workload.parallelism, workload.rank_order)

    @cached_property
    def tp(self) -> Family:
        """Ranks that share out a layer's matrices."""
        return _family(self.dense, ("pp", "dp", "cp", "tp"), "tp")

    @cached_property
    def cp(self) -> Family:
        """Ranks that share out the sequence of the same samples."""
        return _family(self.dense, ("pp", "dp", "cp", "tp"), "cp")

    @cached_property
    def dp(self) -> Family:
        """Ranks with the same parameters, over data and context parallelism, in rank order."""
        axes = np.moveaxis(self.dense, 3, 1).reshape(self._split.pp, self._split.tp, -1)
        return _family(np.sort(axes, axis=2), ("pp", "tp", "dp"), "dp")

    @cached_property
    def ep(self) -> Family:
        """Ranks that exchange tokens for experts."""
        return _family(self.experts, ("pp", "edp", "ep", "etp"), "ep")

    @cached_property
    def etp(self) -> Family:
        """Ranks that share out an expert's matrices."""
        return _family(self.experts, ("pp", "edp", "ep", "etp"), "etp")

    @cached_property
    def edp(self) -> Family:
        """Ranks with the same experts, in rank order."""
        ordered = np.sort(np.moveaxis(self.experts, 1, 3), axis=3)
        return _family(ordered, ("pp", "ep", "etp", "edp"), "edp")

    def hops(self, sender: int, receiver: int) -> Family:
        """Pairs of ranks of two stages that differ in nothing else."""
        pairs = np.stack([self.dense[sender], self.dense[receiver]], axis=3)
        return _family(pairs, ("dp", "cp", "tp", "end"), "end")

    @property
    def replica_of(self) -> Ints:
        """By rank, the data-parallel replica it belongs to: which samples it works on."""
        found = np.empty(self.dense.size, dtype=np.int64)
        found[self.dense] = np.arange(self._split.dp)[None, :, None, None]
        return found


def sharded(family: Family, size: int) -> tuple[Family, Family]:
    """The groups of a family cut into parts of `size` ranks in a row, and those across the parts.

    Hybrid sharding: state is shared out inside a part, gradients are summed across the parts.
    """
    groups, ranks = family.ranks.shape
    parts = ranks // size
    cut = family.ranks.reshape(groups, parts, size)
    return (
        Family(cut.reshape(-1, size), (*family.names, "replica"), _extended(family.labels, parts)),
        Family(
            np.moveaxis(cut, 1, 2).reshape(-1, parts),
            (*family.names, "shard"),
            _extended(family.labels, size),
        ),
    )


def _laid_out(
    ranks: Ints, sizes: dict[str, int], order: Iterable[str], axes: tuple[str, ...]
) -> Ints:
    """Ranks in a row as an array with these axes; the first dimension of the order runs fastest."""
    slow_first = [dim for dim in order if dim in sizes][::-1]
    shape = [sizes[dim] for dim in slow_first]
    return ranks.reshape(shape).transpose([slow_first.index(axis) for axis in axes])


def _family(ranks: Ints, axes: tuple[str, ...], along: str) -> Family:
    """The groups along one axis."""
    at = axes.index(along)
    rest = tuple(name for name in axes if name != along)
    moved = np.moveaxis(ranks, at, -1)
    labels = np.stack([each.ravel() for each in np.indices(moved.shape[:-1])], axis=1)
    return Family(np.ascontiguousarray(moved.reshape(-1, moved.shape[-1])), rest, labels)


def _extended(labels: Ints, count: int) -> Ints:
    """Each row of labels `count` times, with a number from 0 behind it."""
    numbers = np.tile(np.arange(count), len(labels))[:, None]
    return np.concatenate([np.repeat(labels, count, axis=0), numbers], axis=1)
