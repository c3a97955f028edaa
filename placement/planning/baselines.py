"""Rules of thumb that a plan must not be worse than."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import Problem
from ..strategies.rules import broken_rules
from ..workload import Recompute
from .estimates import Estimate
from .layer_splits import EVEN
from .search import Strategy
from .space import Shape, Sharing, Slice, Space, divisors

PLAIN = "plain data parallelism"
MEGATRON = "Megatron rule of thumb"
_MOST_MICRO_BATCH = 8
_RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True)
class Baseline:
    """A rule of thumb: what it chooses; where nothing of its kind fits, the least that it needs.

    strategy: None where the rules allow none of its kind; problem: the rule that is broken then.
    """

    name: str
    strategy: Strategy | None
    fits: bool
    problem: Problem | None = None


def baselines(space: Space, estimator: Estimate, island: int) -> list[Baseline]:
    """Both baselines, on as many devices as the space allows and the batch can keep busy."""
    count = max(space.counts)
    return [
        _first_that_fits(PLAIN, space, estimator, _plain(space, count)),
        _first_that_fits(MEGATRON, space, estimator, _megatron(space, count, island)),
    ]


def _first_that_fits(
    name: str, space: Space, estimator: Estimate, groups: Iterator[list[tuple[Shape, Sharing]]]
) -> Baseline:
    """The fastest of the first group with any that fits, else the one that misses by least."""
    leanest: Strategy | None = None
    problem: Problem | None = None
    for group in groups:
        found = []
        for shape, sharing in group:
            workload = space.workload(shape, sharing)
            broken = broken_rules(workload)
            if broken:
                problem = problem or broken[0]
            else:
                found.append(Strategy(shape, sharing, workload, estimator(workload)))
        fitting = [one for one in found if space.limits.allows(one.estimate)]
        if fitting:
            return Baseline(name, min(fitting, key=lambda one: one.rank), True)
        for one in found:
            if leanest is None or one.estimate.memory_bytes < leanest.estimate.memory_bytes:
                leanest = one
    return Baseline(name, leanest, False, problem)


def _plain(space: Space, count: int) -> Iterator[list[tuple[Shape, Sharing]]]:
    """A copy of the model on every device, with as little shared out as fits: ZeRO-0 first, and of
    each level all micro-batches and recomputation."""
    batch = space.task.global_batch
    replicas = _most_replicas(batch, count)
    sizes = [size for size in divisors(batch // replicas) if size <= _MOST_MICRO_BATCH]
    for zero in (0, 1, 2, 3):
        sharing = Sharing(zero, None, zero == 3)
        yield [
            (Shape(_slice(1, 1, size, recompute, zero == 3), 1, replicas, 1, None, EVEN), sharing)
            for size in sizes
            for recompute in _RECOMPUTE
        ]


def _megatron(space: Space, count: int, island: int) -> Iterator[list[tuple[Shape, Sharing]]]:
    """Tensor parallelism as far as the node, then pipeline stages, only as much as fits; the rest
    data parallel with ZeRO-1 (Narayanan 2021, section 5). Experts are spread over the
    data-parallel ranks of a node or more, whole (Megatron Core's advice)."""
    for inner, pp in _ladder(count, island):
        if inner * pp > count:
            continue
        dp = _most_replicas(space.task.global_batch, count // inner // pp)
        experts = divisors(space.task.model.experts) if space.task.model.experts else (1,)
        wide = [ep for ep in experts if inner * dp % ep == 0 and ep <= max(island, 1)]
        yield [
            (
                Shape(_slice(inner, max(wide), 1, recompute, False), pp, dp, 1, None, EVEN),
                Sharing(1),
            )
            for recompute in _RECOMPUTE
        ]


def _most_replicas(batch: int, room: int) -> int:
    """The most replicas that there is room for and that a batch divides over."""
    return max(degree for degree in divisors(batch) if degree <= room)


def _ladder(count: int, island: int) -> Iterator[tuple[int, int]]:
    """Tensor-parallel degree and stages, in the order in which the rule tries them."""
    widths = [width for width in divisors(island) if width <= count]
    for width in widths:
        yield width, 1
    for stages in range(2, count // widths[-1] + 1):
        yield widths[-1], stages


def _slice(tp: int, ep: int, micro_batch: int, recompute: Recompute, sharded: bool) -> Slice:
    return Slice(tp, 1, ep, 1 if ep > 1 else tp, True, "ring", micro_batch, recompute, sharded)
