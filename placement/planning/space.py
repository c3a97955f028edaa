"""Every strategy for a task on a number of devices, from coarse to fine.

A slice fixes what one rank computes for a micro-batch of the whole model, a shape adds pipeline and
data parallelism, a sharing what data-parallel ranks share out. A slice, or a shape, is ruled out
as a whole where a bound or a rule allows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

from ..models import Model
from ..workload import ContextForm, Parallelism, Recompute, Schedule, Workload
from .layer_splits import EVEN, LayerCosts, LayerSplit, layer_splits
from .limits import Limits
from .task import Task

TOKENS_A_RANK = 1024
"""Context parallelism leaves a rank at least so many tokens of a sample, if no limit is given."""


class Slice(NamedTuple):
    """What a rank does with one micro-batch. sharded: parameters are shared out too (zero 3), which
    is another program."""

    tp: int
    cp: int
    ep: int
    etp: int
    sequence_parallel: bool
    context_form: ContextForm
    micro_batch: int
    recompute: Recompute
    sharded: bool


class Shape(NamedTuple):
    """A slice with a pipeline and data parallelism."""

    slice: Slice
    pp: int
    dp: int
    virtual_pp: int
    schedule: Schedule | None
    layers: LayerSplit


class Sharing(NamedTuple):
    """Fields of `Parallelism` that say what data-parallel ranks share out, and how."""

    zero: int
    shard: int | None = None
    reshard_parameters: bool = False


class Space:
    """The strategies within limits for a task on so many devices.

    counts: how many devices may be used. island: devices of a scale-up domain. domains: devices of
    a node and of the domains of the network, which hybrid sharding may fill.
    """

    def __init__(
        self, task: Task, limits: Limits, counts: Sequence[int], island: int, domains: Sequence[int]
    ) -> None:
        self.task, self.limits = task, limits
        self.counts = frozenset(counts)
        self._most = max(counts)
        self._most_tp = limits.most_tp or island
        self._most_cp = limits.most_cp or max(1, task.sequence // TOKENS_A_RANK)
        self._domains = sorted(set(domains))
        self._costs = LayerCosts.of(task.model, task.sequence)
        self._ways: dict[int, list[tuple[int, Schedule | None, LayerSplit]]] = {}
        self._pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._experts = _expert_counts(task.model)

    def slices(self) -> Iterator[Slice]:
        """Every slice that has a shape."""
        limits = self.limits
        for tp, cp in self._inner():
            for ep, etp in self._expert_ways(tp, cp):
                for micro_batch in self._micro_batches():
                    if not self.pairs(tp * cp, micro_batch, etp * ep):
                        continue
                    for sequence_parallel in limits.sequence_parallel if tp > 1 else (True,):
                        for form in limits.context_forms if cp > 1 else limits.context_forms[:1]:
                            for recompute in limits.recompute:
                                for sharded in (False, True):
                                    yield Slice(
                                        tp, cp, ep, etp, sequence_parallel, form,
                                        micro_batch, recompute, sharded,
                                    )  # fmt: skip

    def shapes(self, part: Slice) -> Iterator[Shape]:
        """Every shape of a slice."""
        for pp, dp in self.pairs(part.tp * part.cp, part.micro_batch, part.etp * part.ep):
            for virtual_pp, schedule, layers in self.pipelines(pp):
                yield Shape(part, pp, dp, virtual_pp, schedule, layers)

    def size(self, part: Slice) -> int:
        """How many strategies a slice has."""
        inside = part.etp * part.ep
        return sum(
            len(self.pipelines(pp)) * len(self._sharings(part, dp))
            for pp, dp in self.pairs(part.tp * part.cp, part.micro_batch, inside)
        )

    def sharings(self, shape: Shape) -> tuple[Sharing, ...]:
        """What may be shared out in a shape: the one that takes least memory first."""
        return self._sharings(shape.slice, shape.dp)

    def pairs(self, inner: int, micro_batch: int, expert_ranks: int) -> list[tuple[int, int]]:
        """Pipeline and data-parallel degrees around `inner` ranks, with whole micro-batches and
        whole groups of ranks that have all experts."""
        key = (inner, micro_batch)
        found = self._pairs.get(key)
        if found is None:
            found = self._pairs[key] = list(self._new_pairs(inner, micro_batch))
        return [(pp, dp) for pp, dp in found if inner * dp % expert_ranks == 0]

    def parallelism(self, shape: Shape, sharing: Sharing) -> Parallelism:
        """The fields of a strategy."""
        part = shape.slice
        return Parallelism.model_construct(
            tp=part.tp,
            pp=shape.pp,
            dp=shape.dp,
            cp=part.cp,
            ep=part.ep,
            etp=None if part.etp == part.tp else part.etp,
            virtual_pp=shape.virtual_pp,
            schedule=shape.schedule,
            stage_layers=shape.layers.stage_layers,
            embedding_as_layer=shape.layers.embedding_as_layer,
            head_as_layer=shape.layers.head_as_layer,
            zero=sharing.zero,
            shard=sharing.shard,
            sequence_parallel=part.sequence_parallel,
            context_form=part.context_form,
            reshard_parameters=sharing.reshard_parameters,
        )

    def workload(self, shape: Shape, sharing: Sharing) -> Workload:
        """A strategy as a workload, its rules not checked."""
        part = shape.slice
        split = self.parallelism(shape, sharing)
        return self.task.workload(split, part.micro_batch, part.recompute)

    def even_stages(self, shape: Shape) -> LayerSplit:
        """The same number of layers on every stage, or one more on the first ones."""
        stages = shape.pp * shape.virtual_pp
        each, over = divmod(self.task.model.layers, stages)
        counts = tuple(each + (stage < over) for stage in range(stages))
        return LayerSplit(counts) if over else EVEN

    def holds(self, shape: Shape, sharing: Sharing) -> bool:
        """Whether a strategy is one of the space."""
        part = shape.slice
        return (
            part in self.slices() and shape in self.shapes(part) and sharing in self.sharings(shape)
        )

    def _inner(self) -> Iterator[tuple[int, int]]:
        for tp in _allowed(self.limits.tp, range(1, min(self._most_tp, self._most) + 1)):
            for cp in _allowed(self.limits.cp, range(1, min(self._most_cp, self._most) + 1)):
                if any(count % (tp * cp) == 0 for count in self.counts):
                    yield tp, cp

    def _expert_ways(self, tp: int, cp: int) -> Iterator[tuple[int, int]]:
        """ep and etp: one for a dense model."""
        eps = sorted({degree for count in self._experts for degree in divisors(count)} or {1})
        most = self.limits.most_ep or self._most
        for ep in _allowed(self.limits.ep, [ep for ep in eps if ep <= most]):
            etps = divisors(tp) if self._experts else [tp]
            for etp in _allowed(self.limits.etp, etps):
                if any(count % (etp * ep) == 0 for count in self.counts):
                    yield ep, etp

    def _micro_batches(self) -> Sequence[int]:
        sizes = [d for d in divisors(self.task.global_batch) if d <= self.limits.most_micro_batch]
        return _allowed(self.limits.micro_batch, sizes)

    def _new_pairs(self, inner: int, micro_batch: int) -> Iterator[tuple[int, int]]:
        whole, over = divmod(self.task.global_batch, micro_batch)
        most = self.limits.most_pp or self.task.model.layers + 2
        if over:
            return
        for dp in _allowed(self.limits.dp, divisors(whole)):
            if inner * dp > self._most:
                continue
            for pp in _allowed(self.limits.pp, range(1, min(most, self._most // inner // dp) + 1)):
                if inner * dp * pp in self.counts:
                    yield pp, dp

    def pipelines(self, pp: int) -> list[tuple[int, Schedule | None, LayerSplit]]:
        """Virtual stages, schedule and layers of each stage."""
        found = self._ways.get(pp)
        if found is None:
            found = self._ways[pp] = list(self._new_pipelines(pp))
        return found

    def _new_pipelines(self, pp: int) -> Iterator[tuple[int, Schedule | None, LayerSplit]]:
        limits = self.limits
        if pp == 1:
            if limits.virtual_pp is None or 1 in limits.virtual_pp:
                yield 1, None, LayerSplit()
            return
        most = min(limits.most_virtual_pp, (self.task.model.layers + 2) // pp)
        for virtual_pp in _allowed(limits.virtual_pp, range(1, most + 1)):
            schedules: list[Schedule] = (
                ["interleaved"] if virtual_pp > 1 else ["1f1b", "zero-bubble"]
            )
            # Pieces of a stage that are uneven make sense where even stages cannot be had.
            uneven = limits.uneven_stages and (virtual_pp == 1 or self.task.model.layers % pp > 0)
            for layers in layer_splits(self._costs, pp * virtual_pp, uneven):
                for schedule in schedules:
                    if schedule in limits.schedules:
                        plain = schedule != "zero-bubble"
                        yield virtual_pp, None if plain else schedule, layers

    def _sharings(self, part: Slice, dp: int) -> tuple[Sharing, ...]:
        copies = dp * part.cp
        expert_copies = part.tp * copies // (part.etp * part.ep)
        shares = copies > 1 or (bool(self._experts) and expert_copies > 1)
        shards: list[int] = []
        if self.limits.hybrid_sharding:
            filled = {size // part.tp for size in self._domains if size % part.tp == 0}
            shards = [s for s in sorted(filled) if 1 < s < copies and copies % s == 0]
        return _sharings(part.sharded, shares, self.limits.zero, tuple(shards))


@lru_cache(maxsize=4096)
def _sharings(
    sharded: bool, shares: bool, allowed: tuple[int, ...], shards: tuple[int, ...]
) -> tuple[Sharing, ...]:
    levels = sorted((zero for zero in allowed if (zero == 3) == sharded), reverse=True)
    if not shares:
        # With nothing to share out all levels are one; the plainest stands for them, at 3 in the
        # form that keeps less.
        plainest = min(allowed)
        return (Sharing(plainest, None, sharded),) if (plainest == 3) == sharded else ()
    found = []
    for zero in levels:
        for reshard in (True, False) if zero == 3 else (False,):
            sizes = (None, *reversed(shards)) if zero else (None,)
            found += [Sharing(zero, shard, reshard) for shard in sizes]
    return tuple(found)


@lru_cache(maxsize=65536)
def divisors(count: int) -> tuple[int, ...]:
    """The divisors of a count, ascending."""
    small = [d for d in range(1, isqrt(count) + 1) if count % d == 0]
    return tuple(sorted({*small, *(count // d for d in small)}))


def _allowed(given: Sequence[int] | None, possible: Sequence[int]) -> list[int]:
    """The possible ones, or those of them that a limit names."""
    return list(possible) if given is None else [value for value in given if value in possible]


def _expert_counts(model: Model) -> set[int]:
    return {block.mixture.experts for _, block in model.kinds if block.mixture is not None}
