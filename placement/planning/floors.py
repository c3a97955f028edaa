"""Seconds and bytes that no strategy of a slice, or of a shape, goes below.

A slice is estimated once with the whole model on one stage and one micro-batch. Its time is the sum
of what the stages of any pipeline take for a micro-batch, since layers and ends add up; so the
slowest of p stages takes at least a p-th of it. With as many devices and ranks in the usual order,
its tensor, context and expert groups are the very same as those of every pipeline, and their time
counts too. Sends between stages, gradients and the optimizer come on top.
"""

from __future__ import annotations

from math import lcm
from typing import NamedTuple

from .estimates import Estimate
from .layer_splits import EVEN
from .space import Shape, Sharing, Slice, Space

_COMPUTE = ("compute", "recompute", "launch")
_GROUPS = ("tensor_parallel", "context_parallel", "expert_parallel")
_STATE = ("weights", "gradients", "optimizer")


class Floor(NamedTuple):
    """Of one micro-batch of the whole model: seconds of the slowest rank, the bytes of its weights,
    and of gradients and optimizer state."""

    busy_s: float
    weights_bytes: float
    shared_bytes: float


class Floors:
    """Floors of a space; `estimator` is that of the cluster."""

    def __init__(self, space: Space, estimator: Estimate) -> None:
        self._space, self._estimator = space, estimator
        self._batch = space.task.global_batch
        usual = space.task.rank_order.startswith("tp-cp-ep-dp-pp")
        self._count = next(iter(space.counts)) if usual and len(space.counts) == 1 else None

    def of_slice(self, part: Slice) -> Floor:
        """The floor of a slice."""
        inner = part.tp * part.cp
        count = self._count or lcm(inner, part.etp * part.ep)
        dp = count // inner
        shape = Shape(part, 1, dp, 1, None, EVEN)
        split = self._space.parallelism(
            shape, Sharing(3, None, True) if part.sharded else Sharing(0)
        )
        found = self._estimator(
            self._space.task.workload(
                split, part.micro_batch, part.recompute, global_batch=dp * part.micro_batch
            )
        )
        known = (*_COMPUTE, *_GROUPS) if self._count else _COMPUTE
        busy = sum(found.breakdown[name] for name in known)
        weights, gradients, optimizer = (found.memory[name] for name in _STATE)
        return Floor(busy, weights, gradients + optimizer)

    def slice_s(self, part: Slice, floor: Floor) -> float:
        """Seconds that no step of the slice goes below: all devices busy, no bubble."""
        rounds = self._batch / part.micro_batch
        return rounds * floor.busy_s * part.tp * part.cp / max(self._space.counts)

    def shape_s(self, shape: Shape, floor: Floor) -> float:
        """Seconds that no step of the shape goes below.

        m micro-batches, p stages that take T in all, v pieces: the slowest stage is busy for B of
        at least T / p, the bubble is (T - B) / v, together m B + (T - B) / v; a zero-bubble
        schedule may save all of the latter.
        """
        micro_batches = self._batch // (shape.dp * shape.slice.micro_batch)
        slowest = floor.busy_s / shape.pp
        if shape.schedule == "zero-bubble":
            return micro_batches * slowest
        return micro_batches * slowest + (floor.busy_s - slowest) / shape.virtual_pp

    def shape_bytes(self, shape: Shape, floor: Floor) -> float:
        """Bytes that the fullest rank has at least: an even share of the state of parameters."""
        part = shape.slice
        if part.sharded:
            return 0.0
        copies = shape.dp * part.cp
        shards = copies * max(1.0, part.tp / (part.etp * part.ep))
        return (floor.weights_bytes + floor.shared_bytes / shards) / shape.pp
