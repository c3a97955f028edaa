"""One pipeline over several kinds of accelerator: each stage on one kind, with layers to match.

Ranks of a stage are on one kind; kinds follow each other along the pipeline. Each stage gets layers
in proportion to the speed of its kind, no more than its memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from ..cluster import Cluster
from ..cost import Estimator, StepEstimate
from ..evaluate import Device
from ..pcg import Requirement
from ..strategies.grid import Grid
from ..workload import Schedule, Workload
from .floors import Floor, Floors
from .ground import domain_sizes, free_devices, island_size, of_kinds
from .layer_splits import LayerCosts, LayerSplit
from .limits import Limits
from .search import first_broken
from .seats import devices_in_order
from .space import Shape, Slice, Space
from .task import Task

_MEMORY_ROUNDS = 4


class MixedEstimator:
    """Estimates with the stages of a pipeline on kinds of accelerator, one kind after another."""

    def __init__(self, cluster: Cluster, kinds: Sequence[str]) -> None:
        self.cluster, self.kinds = cluster, tuple(kinds)
        room = free_devices(cluster)
        self._free = {
            kind: devices_in_order(of_kinds(cluster, [kind]), room[kind]) for kind in self.kinds
        }
        self._known: dict[int, Estimator] = {}

    def __call__(self, workload: Workload, devices: Sequence[Device] | None = None) -> StepEstimate:
        """As `Estimator`; by default on each kind's free devices in order."""
        return self._estimator(workload)(workload, self._given(workload, devices))

    def _estimator(self, workload: Workload) -> Estimator:
        """The estimator for stages of as many ranks, which keeps what it has worked out."""
        split = workload.parallelism
        ranks = split.world_size // split.pp
        if ranks not in self._known:
            order = [
                device
                for kind, stages in zip(self.kinds, self.stage_counts(ranks), strict=True)
                for device in self._free[kind][: stages * ranks]
            ]
            self._known[ranks] = Estimator(self.cluster, devices=order)
        return self._known[ranks]

    def _given(
        self, workload: Workload, devices: Sequence[Device] | None
    ) -> Sequence[Device] | None:
        """None where ranks are numbered stage after stage, as the estimator's devices are."""
        if devices is not None or workload.dimension_order[-1] == "pp":
            return devices
        return self.devices(workload)

    def stage_counts(self, ranks: int) -> tuple[int, ...]:
        """Stages of so many ranks that there is room for on each kind."""
        return tuple(len(self._free[kind]) // ranks for kind in self.kinds)

    def stage_kinds(self, workload: Workload) -> list[str]:
        """The kind of each stage."""
        split = workload.parallelism
        counts = self.stage_counts(split.world_size // split.pp)
        return [kind for kind, n in zip(self.kinds, counts, strict=True) for _ in range(n)]

    def devices(self, workload: Workload) -> list[Device]:
        """A device for each rank: those of a stage on its kind's devices in order."""
        grid = Grid.of(workload).dense
        left = {kind: iter(devices) for kind, devices in self._free.items()}
        found: dict[int, Device] = {}
        for stage, kind in zip(grid, self.stage_kinds(workload), strict=True):
            for rank in sorted(stage.ravel().tolist()):
                found[rank] = next(left[kind])
        return [found[rank] for rank in range(len(found))]

    def requires(self, workload: Workload) -> tuple[Requirement, ...]:
        """The kind that each stage's ranks need."""
        grid = Grid.of(workload).dense
        ranks: dict[str, list[int]] = {}
        for stage, kind in zip(grid, self.stage_kinds(workload), strict=True):
            ranks.setdefault(kind, []).extend(stage.ravel().tolist())
        return tuple(
            Requirement(ranks=tuple(sorted(found)), accelerator=kind)
            for kind, found in ranks.items()
        )

    def fullness(self, workload: Workload) -> list[float]:
        """Of each stage, the memory needed over that of its devices."""
        stages = self._estimator(workload).stages(workload, self._given(workload, None))
        return [stage.memory_bytes / stage.memory_limit_bytes for stage in stages]


class MixedSpace(Space):
    """The strategies of pipelines over all of these kinds, in this order."""

    def __init__(
        self, task: Task, limits: Limits, cluster: Cluster, estimator: MixedEstimator
    ) -> None:
        room = free_devices(cluster)
        total = sum(room[kind] for kind in estimator.kinds)
        super().__init__(
            task, limits, range(1, total + 1), island_size(cluster), domain_sizes(cluster)
        )
        self._estimator = estimator
        self.floors = MixedFloors(self, cluster, estimator.kinds)

    def pairs(self, inner: int, micro_batch: int, expert_ranks: int) -> list[tuple[int, int]]:
        """As of `Space`: with as many stages as there is room for on each kind."""
        found = []
        for dp in sorted({dp for _, dp in super().pairs(inner, micro_batch, expert_ranks)}):
            counts = self._estimator.stage_counts(inner * dp)
            allowed = self.limits.pp is None or sum(counts) in self.limits.pp
            if min(counts) and sum(counts) <= self.task.model.layers + 2 and allowed:
                found.append((sum(counts), dp))
        return found

    def shapes(self, part: Slice) -> Iterator[Shape]:
        """As of `Space`: with layers in proportion to speed and memory, and evenly."""
        rates = self.floors.busy(part)
        for pp, dp in self.pairs(part.tp * part.cp, part.micro_batch, part.etp * part.ep):
            counts = self._estimator.stage_counts(part.tp * part.cp * dp)
            each = [rates[k] for k, count in enumerate(counts) for _ in range(count)]
            if not self._sharings(part, dp):
                continue
            plain = Shape(part, pp, dp, 1, None, LayerSplit())
            ways = dict.fromkeys((self.even_stages(plain), self._matched(plain, each)))
            for schedule in self._schedules():
                for layers in filter(None, ways):
                    yield plain._replace(schedule=schedule, layers=layers)

    def size(self, part: Slice) -> int:
        """How many strategies a slice has."""
        inside = part.etp * part.ep
        return sum(
            2 * len(self._schedules()) * len(self._sharings(part, dp))
            for _, dp in self.pairs(part.tp * part.cp, part.micro_batch, inside)
        )

    def _schedules(self) -> list[Schedule | None]:
        found: list[Schedule | None] = [None] if "1f1b" in self.limits.schedules else []
        return [*found, "zero-bubble"] if "zero-bubble" in self.limits.schedules else found

    def _matched(self, shape: Shape, rates: Sequence[float]) -> LayerSplit | None:
        """Layers in proportion to speed; stages that do not fit give some to the others."""
        layers = self.task.model.layers
        caps = [layers] * len(rates)
        found: LayerSplit | None = None
        for _ in range(_MEMORY_ROUNDS):
            counts = proportional(self._costs, rates, caps)
            if counts is None:
                return found
            found = LayerSplit(tuple(counts))
            sharing = self.sharings(shape)[0]
            workload = self.workload(shape._replace(layers=found), sharing)
            if first_broken(workload) is not None:
                return found
            share = self.limits.memory_share
            over = [full / share for full in self._estimator.fullness(workload)]
            if max(over) <= 1:
                return found
            caps = [
                min(cap, max(1, int(count / full))) if full > 1 else cap
                for cap, count, full in zip(caps, counts, over, strict=True)
            ]
        return found


class MixedFloors(Floors):
    """Floors of pipelines over several kinds: with stages that take 1/r_k of the time for the whole
    model, the slowest takes 1 / sum(r_k) at least."""

    def __init__(self, space: Space, cluster: Cluster, kinds: Sequence[str]) -> None:
        self._room = [free_devices(cluster)[kind] for kind in kinds]
        self._kinds = [Floors(space, Estimator(of_kinds(cluster, [kind]))) for kind in kinds]
        self._known: dict[Slice, tuple[float, ...]] = {}
        super().__init__(space, Estimator(cluster))

    def busy(self, part: Slice) -> tuple[float, ...]:
        """Seconds of a micro-batch of the whole model on each kind, communication aside."""
        if part not in self._known:
            self._known[part] = tuple(floors.of_slice(part).busy_s for floors in self._kinds)
        return self._known[part]

    def of_slice(self, part: Slice) -> Floor:
        """As of `Floors`, as if all devices were one stage that is as fast as they are together."""
        busy = self.busy(part)
        together = sum(self._room) / sum(n / s for n, s in zip(self._room, busy, strict=True))
        return Floor(together, 0.0, 0.0)

    def shape_s(self, shape: Shape, floor: Floor) -> float:
        """Seconds that no step of the shape goes below."""
        part = shape.slice
        ranks = part.tp * part.cp * shape.dp
        rates = sum((n // ranks) / s for n, s in zip(self._room, self.busy(part), strict=True))
        return self._batch // (shape.dp * part.micro_batch) / rates


def proportional(
    costs: LayerCosts, rates: Sequence[float], caps: Sequence[int]
) -> list[int] | None:
    """Layers of each stage such that the slowest takes as little time as can be, and the others as
    even times as that allows.

    rates: seconds of a stage for a unit of cost. caps: most layers of each. Only the first and the
    last stage may be without layers. None where the caps leave no way. Exact, by dynamic
    programming over the layer that each stage ends at.
    """
    ends = np.arange(len(costs.layers) + 1)
    sums = np.array([0.0, *accumulate(costs.layers)])
    counts = ends[None, :] - ends[:, None]
    times = []
    for stage, (rate, cap) in enumerate(zip(rates, caps, strict=True)):
        inner, final = 0 < stage < len(rates) - 1, stage == len(rates) - 1
        seconds = rate * (sums[None, :] - sums[:, None] + (costs.last if final else 0.0))
        times.append(np.where((counts >= inner) & (counts <= cap), seconds, np.inf))
    least = np.where(ends == 0, 0.0, np.inf)
    for seconds in times:
        least = np.maximum(least[:, None], seconds).min(axis=0)
    bound = least[-1]
    if np.isinf(bound):
        return None
    total, choices = np.where(ends == 0, 0.0, np.inf), []
    for seconds in times:
        ways = total[:, None] + np.where(seconds <= bound, seconds**2, np.inf)
        choices.append(ways.argmin(axis=0))
        total = ways.min(axis=0)
    end, found = len(costs.layers), []
    for starts in reversed(choices):
        found.append(int(end - starts[end]))
        end = int(starts[end])
    return found[::-1]
