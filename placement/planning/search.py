"""The search: best bound first, so that what is left when it stops cannot be better.

Strategies that share their degrees are told as one, in their best form: the ranking is of different
ways to split a model.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from ..cost import StepEstimate
from ..strategies.rules import RULES, Rule
from ..workload import Workload
from .estimates import Estimate
from .floors import Floor, Floors
from .space import Shape, Sharing, Slice, Space
from .tally import BOUND, ESTIMATED, MEMORY, Tally

Degrees = tuple[int, ...]
_AFTER_BACKWARD = ("data_parallel", "optimizer")
_ROUNDING = 1e-9
# Rules that a slice breaks whatever pipeline and data parallelism it is given.
_OF_SLICE = (
    "tensor_divides",
    "key_value_heads_divide",
    "experts_divide",
    "expert_tensor_needs_experts",
    "experts_need_split_sequence",
    "sequence_divides",
    "causal_rings_are_even",
    "positions_suffice",
    "context_divides_heads",
    "tower_tokens_known",
    "order_names_dimensions",
)


class Strategy(NamedTuple):
    """A strategy, as a workload too, and its estimate on the free devices in order."""

    shape: Shape
    sharing: Sharing
    workload: Workload
    estimate: StepEstimate

    @property
    def degrees(self) -> Degrees:
        """What makes strategies different in a ranking: tp, pp, dp, cp, ep, etp."""
        return degrees_of(self.workload)

    @property
    def rank(self) -> tuple[float, float]:
        """Less is better: seconds, then memory."""
        return self.estimate.step_s, self.estimate.memory_bytes


class Point(NamedTuple):
    """A strategy that was worked out, in short."""

    step_s: float
    memory_bytes: float
    fits: bool
    degrees: Degrees


@dataclass
class Outcome:
    """What a search found.

    best: those that fit, fastest first, each pair of degrees once. points: all that were worked
    out. leanest: of those that do not fit, the one that misses by least.
    """

    best: list[Strategy] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    points: list[Point] = field(default_factory=list)
    leanest: Strategy | None = None


def first_broken(workload: Workload) -> str | None:
    """The name of the first rule that a workload breaks."""
    return next((name for name, rule in RULES.items() if _breaks(rule, workload)), None)


def _breaks(rule: Rule, workload: Workload) -> bool:
    return any(True for _ in rule(workload))


def degrees_of(workload: Workload) -> Degrees:
    """tp, pp, dp, cp, ep, etp."""
    split = workload.parallelism
    return split.tp, split.pp, split.dp, split.cp, split.ep, split.expert_tp


def search(
    space: Space,
    estimator: Estimate,
    keep: int,
    limit_s: float = float("inf"),
    floors: Floors | None = None,
) -> Outcome:
    """The `keep` fastest strategies of a space that fit, and none that is faster is left out.

    limit_s: steps that take longer are of no interest. floors: the bounds, made of the estimator by
    default.
    Predicted on the cluster's free devices in order. Slices and shapes wait in a queue by the
    seconds that none of their strategies goes below; the search ends when the least of these is no
    better than the last of the best found.
    """
    known = floors or Floors(space, estimator)
    return _Search(space, estimator, keep, limit_s, known).run()


class _Search:
    def __init__(
        self, space: Space, estimator: Estimate, keep: int, limit_s: float, floors: Floors
    ) -> None:
        self._space, self._estimator, self._keep = space, estimator, keep
        self._floors = floors
        self._outcome = Outcome()
        self._best: dict[Degrees, Strategy] = {}
        self._limit_s = limit_s
        self._order = count()
        self._queue: list[tuple[float, int, Slice | Shape, Floor | None]] = []
        self._memory_bytes = space.limits.memory_share * max(
            estimator.cluster.accelerator(node.accelerator).memory_bytes
            for node in estimator.cluster.nodes
            if node.usable_devices
        )

    def run(self) -> Outcome:
        tally = self._outcome.tally
        self._queue_slices()
        while self._queue:
            seconds, _, item, floor = heapq.heappop(self._queue)
            if self._hopeless(seconds):
                tally.add(BOUND, self._size(item))
            elif isinstance(item, Shape):
                self._work_out(item)
            elif floor is None:
                self._queue_slice(item)
            else:
                for shape in self._shapes(item, floor):
                    self._push(self._floors.shape_s(shape, floor), shape, floor)
        self._outcome.best = self._ranked()[: self._keep]
        return self._outcome

    def _queue_slices(self) -> None:
        """Queue every slice; those that recompute more by the floor of one that recomputes less.

        Recomputation only adds to a step, so most of these never need a floor of their own.
        """
        order = ("none", "selective", "full").index
        least: dict[Slice, float] = {}
        for part in sorted(self._slices(), key=lambda part: order(part.recompute)):
            key = part._replace(recompute="none")
            if key in least:
                self._push(least[key], part, None)
            else:
                least[key] = self._queue_slice(part)

    def _queue_slice(self, part: Slice) -> float:
        floor = self._floors.of_slice(part)
        seconds = self._floors.slice_s(part, floor)
        self._push(seconds, part, floor)
        return seconds

    def _push(self, seconds: float, item: Slice | Shape, floor: Floor | None) -> None:
        heapq.heappush(self._queue, (seconds, next(self._order), item, floor))

    def _slices(self) -> Iterator[Slice]:
        """Slices that break no rule by themselves."""
        broken: dict[tuple[object, ...], str | None] = {}
        for part in self._space.slices():
            key = part[:6]
            if key not in broken:
                broken[key] = self._slice_breaks(part)
            reason = broken[key]
            if reason is None:
                yield part
            else:
                self._outcome.tally.add(reason, self._space.size(part))

    def _slice_breaks(self, part: Slice) -> str | None:
        shape = next(self._space.shapes(part), None)
        if shape is None:
            return None
        workload = self._space.workload(shape, Sharing(0))
        for name in _OF_SLICE:
            if _breaks(RULES[name], workload):
                return name
        return None

    def _shapes(self, part: Slice, floor: Floor) -> Iterator[Shape]:
        """Shapes of a slice that may be worth working out, their rules not looked at."""
        tally = self._outcome.tally
        for shape in self._space.shapes(part):
            strategies = len(self._space.sharings(shape))
            if not strategies:
                continue
            if self._floors.shape_bytes(shape, floor) > self._memory_bytes:
                tally.add(MEMORY, strategies)
            elif self._hopeless(self._floors.shape_s(shape, floor)):
                tally.add(BOUND, strategies)
            else:
                yield shape

    def _size(self, item: Slice | Shape) -> int:
        if isinstance(item, Shape):
            return len(self._space.sharings(item))
        return self._space.size(item)

    def _hopeless(self, seconds: float) -> bool:
        return seconds > self._limit_s * (1 + _ROUNDING)

    def _work_out(self, shape: Shape) -> None:
        """Estimate what a shape may share out, the one that takes least memory first.

        What is shared out changes memory and the end of a step alone: when that one does not fit
        none does, and none takes less than its step without the end.
        """
        sharings = self._space.sharings(shape)
        tally = self._outcome.tally
        reason = first_broken(self._space.workload(shape, Sharing(0)))
        if reason is not None:
            tally.add(reason, len(sharings))
            return
        least: float | None = None
        for position, sharing in enumerate(sharings):
            workload = self._space.workload(shape, sharing)
            if sharing.shard and _breaks(RULES["sharding_is_whole"], workload):
                tally.add("sharding_is_whole", 1)
                continue
            if least is not None and not self._may_improve(least, workload):
                tally.add(BOUND, len(sharings) - position)
                return
            found = self._estimator(workload)
            strategy = Strategy(shape, sharing, workload, found)
            degrees, fits = strategy.degrees, self._space.limits.allows(found)
            self._outcome.points.append(Point(found.step_s, found.memory_bytes, fits, degrees))
            if not fits:
                self._misses(strategy)
                if least is None:
                    tally.add(MEMORY, len(sharings) - position)
                    return
                tally.add(MEMORY, 1)
                continue
            tally.add(ESTIMATED, 1)
            self._fits(strategy)
            if least is None:
                least = found.step_s - sum(found.breakdown[name] for name in _AFTER_BACKWARD)

    def _may_improve(self, seconds: float, workload: Workload) -> bool:
        known = self._best.get(degrees_of(workload))
        best = self._limit_s if known is None else min(known.estimate.step_s, self._limit_s)
        return seconds < best * (1 - _ROUNDING)

    def _fits(self, strategy: Strategy) -> None:
        known = self._best.get(strategy.degrees)
        if known is not None and not _better(strategy, known):
            return
        self._best[strategy.degrees] = strategy
        if len(self._best) >= self._keep:
            times = (one.estimate.step_s for one in self._best.values())
            self._limit_s = min(self._limit_s, heapq.nsmallest(self._keep, times)[-1])

    def _misses(self, strategy: Strategy) -> None:
        known = self._outcome.leanest
        if known is None or _excess(strategy) < _excess(known):
            self._outcome.leanest = strategy

    def _ranked(self) -> list[Strategy]:
        return sorted(self._best.values(), key=lambda one: (*one.rank, one.degrees))


def _better(one: Strategy, other: Strategy) -> bool:
    """Faster, or as fast and leaner."""
    if one.estimate.step_s < other.estimate.step_s * (1 - _ROUNDING):
        return True
    same = one.estimate.step_s <= other.estimate.step_s * (1 + _ROUNDING)
    return same and one.estimate.memory_bytes < other.estimate.memory_bytes


def _excess(strategy: Strategy) -> float:
    return strategy.estimate.memory_bytes - strategy.estimate.memory_limit_bytes
