"""How long a training step takes on a cluster, and what it is made of: `estimate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..cluster import Cluster
from ..errors import Infeasible, InvalidInput, Problem
from ..explained import shown
from ..models import Model
from ..workload import Parallelism, Workload
from ..workload import Software as SoftwareName
from .communication import Gradients, MicroBatch, Prices
from .constants import CONSTANTS, Constants
from .flops import training_flops_per_token
from .layout import Layout, Layouts, Numbering
from .memory import Footprint, RankMemory
from .schedule import bubble_s
from .slices import Slice, slice_of
from .software import Software, software_name, with_fusion
from .spans import ground_of, packed
from .stages import Stage, stages_of
from .step import StepEstimate
from .work import StageWork, StageWorker

Device = tuple[str, int]


def estimate(
    workload: Workload, cluster: Cluster, devices: Sequence[Device] | None = None
) -> StepEstimate:
    """Seconds of a training step, what they are made of, and the memory of the fullest rank.

    devices: (node name, device index) of ranks 0, 1, ...; by default the cluster's free devices in
    order, domain after domain, which keeps neighbouring ranks near each other. Every collective
    takes its time at the tier where its worst group lies, next to the job's other groups. Nothing
    but the job is assumed to use the network.

    Raises Infeasible with fewer devices than ranks, InvalidInput for devices that do not exist. A
    job too large for the memory is estimated all the same: see `StepEstimate.fits`. The model, its
    sources and its errors are described in docs/cost-model.md.
    """
    problems = [
        Problem(name, f"found {shown(value)}", f"give a {kind.__name__}")
        for name, value, kind in (
            ("workload", workload, Workload),
            ("cluster", cluster, Cluster),
        )
        if not isinstance(value, kind)
    ]
    if problems:
        raise InvalidInput("estimate", problems)
    return _estimator(cluster)(workload, devices)


_KEPT_CLUSTERS = 8
_MOST_SHAPES = 50_000
"""Splits kept before all is forgotten; some 10 kB each."""
_estimators: dict[int, Estimator] = {}


def _estimator(cluster: Cluster) -> Estimator:
    """The estimator of a cluster; the last few are kept, for what they have worked out."""
    found = _estimators.get(id(cluster))
    if found is None or found.cluster is not cluster:
        while len(_estimators) >= _KEPT_CLUSTERS:
            del _estimators[next(iter(_estimators))]
        found = _estimators[id(cluster)] = Estimator(cluster)
    return found


class StageEstimate(NamedTuple):
    """A rank of a pipeline stage.

    micro_batch_s: seconds of a micro-batch, forward and backward, with the communication that it
    waits for. memory: bytes at the peak by what they are; memory_bytes: in all.
    """

    micro_batch_s: float
    memory: dict[str, float]
    memory_bytes: float
    memory_limit_bytes: float


class _Part(NamedTuple):
    """Pipeline stages that are alike: the first of them, how many, and what each of them does."""

    first: int
    alike: int
    stage: Stage
    worker: StageWorker
    work: StageWork


@dataclass(frozen=True, eq=False)
class _Shape:
    """What of a workload does not depend on its batch, on data parallelism or on the network."""

    part: Slice
    parts: tuple[_Part, ...]
    flops_per_token: float


class Estimator:
    """`estimate` prepared for many workloads on one cluster, by the `constants` of the cost model.

    What estimates share is kept: layers by their shape and split, collectives by bytes and place.
    devices: of ranks where an estimate names none; by default as of `estimate`.
    """

    def __init__(
        self,
        cluster: Cluster,
        constants: Constants = CONSTANTS,
        devices: Sequence[Device] | None = None,
    ) -> None:
        self.cluster = cluster
        self._constants = constants
        ground = packed(cluster) if devices is None else ground_of(cluster, devices)
        self._numbers = Numbering()
        self._places = Layouts(ground, cluster, self._numbers)
        self._forget()

    def __call__(self, workload: Workload, devices: Sequence[Device] | None = None) -> StepEstimate:
        """As `estimate`."""
        split, count = workload.parallelism, workload.micro_batches
        layout = self._layout(workload, devices)
        name, program = self._program(workload, layout)
        shape = self._shape(workload, layout, program)
        prices = self._prices_of(layout, program)
        shares = self._stage_shares(workload, shape, layout, prices)
        busy = [sum(share) for share in shares]
        slowest = busy.index(max(busy))
        bubble = bubble_s(
            split.pipeline_schedule,
            [(part.alike, busy[i], part.work.weights_s) for i, part in enumerate(shape.parts)],
            split.virtual_pp,
        )
        data, optimizer = self._end_of_step(workload, shape, layout, prices, busy)
        compute, repeated, wait, tensor, context, expert, pipeline = shares[slowest]
        breakdown = {
            "compute": count * compute,
            "recompute": count * repeated,
            "launch": count * wait,
            "tensor_parallel": count * tensor,
            "context_parallel": count * context,
            "expert_parallel": count * expert,
            "pipeline_transfer": count * pipeline,
            "bubble": bubble,
            "data_parallel": data,
            "optimizer": optimizer,
        }
        seconds = math.fsum(breakdown.values())
        tokens = workload.global_batch * workload.sequence
        flops = tokens * shape.flops_per_token
        fullest = self._fullest(workload, shape, layout)
        stage = shape.parts[slowest].first
        return StepEstimate(
            step_s=seconds,
            tokens_per_s=tokens / seconds,
            mfu=flops / (seconds * layout.peaks[workload.precision]),
            memory_bytes=fullest.total,
            breakdown=breakdown,
            memory=fullest.parts,
            memory_limit_bytes=layout.memory_bytes[fullest.stage],
            slowest_stage=stage,
            slowest_rank=layout.first_ranks[stage],
            fullest_stage=fullest.stage,
            devices=split.world_size,
            model_flops=flops,
            power_w=layout.power_w,
            software=name,
        )

    def stages(
        self, workload: Workload, devices: Sequence[Device] | None = None
    ) -> tuple[StageEstimate, ...]:
        """What a rank of each pipeline stage takes for a micro-batch, and holds; first to last."""
        layout = self._layout(workload, devices)
        _, program = self._program(workload, layout)
        shape = self._shape(workload, layout, program)
        prices = self._prices_of(layout, program)
        busy = [sum(share) for share in self._stage_shares(workload, shape, layout, prices)]
        place = {(part.stage, layout.kinds[part.first]): i for i, part in enumerate(shape.parts)}
        memory = RankMemory(workload, self._constants)
        found = []
        for index, stage in enumerate(self._stages_of(workload)):
            at = place[stage, layout.kinds[index]]
            work = shape.parts[at].work
            held = memory.footprint(index, work.parameters, work.memory)
            limit = layout.memory_bytes[index]
            found.append(StageEstimate(busy[at], held.parts, held.total, limit))
        return tuple(found)

    def _forget(self) -> None:
        """Start without anything kept."""
        self._numbers.forget()
        self._programs: dict[Any, tuple[SoftwareName, Software]] = {}
        self._layouts: dict[Any, Layout] = {}
        self._workers: dict[Any, StageWorker] = {}
        # Models are known by their identity, which holds while they are kept alive here.
        self._models: list[Model] = []
        self._flops_per_token: dict[tuple[int, int], float] = {}
        self._stages: dict[Any, tuple[Stage, ...]] = {}
        self._sorts: dict[Any, list[tuple[Stage, tuple[str, ...], int, int]]] = {}
        self._shapes: dict[Any, _Shape] = {}
        self._prices: dict[tuple[int, Software], Prices] = {}
        self._shares: dict[Any, tuple[tuple[float, ...], ...]] = {}
        self._ends: dict[Any, tuple[tuple[float, float, float], ...]] = {}
        self._footprints: dict[Any, Footprint] = {}

    def _program(self, workload: Workload, layout: Layout) -> tuple[SoftwareName, Software]:
        sharded = workload.parallelism.zero == 3
        key = (
            *(workload.software, workload.fusion, workload.precision),
            *(sharded, layout.kinds_number),
        )
        found = self._programs.get(key)
        if found is None:
            name = software_name(workload, layout.accelerators)
            program = with_fusion(self._constants.software[name], workload.fusion)
            found = self._programs[key] = name, program
        return found

    def _layout(self, workload: Workload, devices: Sequence[Device] | None) -> Layout:
        split = workload.parallelism
        if devices is not None:
            if len(self._numbers) >= _MOST_SHAPES:
                self._forget()
            ground = ground_of(self.cluster, devices)
            _check_room(self.cluster, split.world_size, ground.size)
            return Layouts(ground, self.cluster, self._numbers).of(workload)
        key = (
            *(split.tp, split.cp, split.ep, split.dp, split.pp, split.etp, split.shard),
            *(split.virtual_pp > 1, workload.rank_order),
        )
        found = self._layouts.get(key)
        if found is None:
            _check_room(self.cluster, split.world_size, self._places.ground.size)
            found = self._layouts[key] = self._places.of(workload)
        return found

    def _prices_of(self, layout: Layout, program: Software) -> Prices:
        key = (layout.kinds_number, program)
        found = self._prices.get(key)
        if found is None:
            found = self._prices[key] = Prices(layout.links, program, self._constants)
        return found

    def _shape(self, workload: Workload, layout: Layout, program: Software) -> _Shape:
        model, split = workload.model, workload.parallelism
        part = slice_of(workload)
        precision = workload.precision
        key = (id(model), *_division(split), part, precision, program, layout.kinds_number)
        found = self._shapes.get(key)
        if found is None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._forget()
            flops = self._flops(model, workload.sequence)
            parts = self._parts(workload, layout, program, part)
            found = self._shapes[key] = _Shape(part, parts, flops)
        return found

    def _parts(
        self, workload: Workload, layout: Layout, program: Software, part: Slice
    ) -> tuple[_Part, ...]:
        found = []
        for stage, kinds, first, count in self._alike(workload, layout):
            worker = self._worker(layout.slowest(kinds, workload.precision), workload, program)
            work = worker.work(workload.model, stage, part)
            found.append(_Part(first, count, stage, worker, work))
        return tuple(found)

    def _alike(
        self, workload: Workload, layout: Layout
    ) -> list[tuple[Stage, tuple[str, ...], int, int]]:
        """Stages that differ, with their kinds of accelerator, the first of each and how many."""
        key = (id(workload.model), *_division(workload.parallelism), layout.kinds_number)
        found = self._sorts.get(key)
        if found is None:
            alike: dict[tuple[Stage, tuple[str, ...]], list[int]] = {}
            for index, stage in enumerate(self._stages_of(workload)):
                alike.setdefault((stage, layout.kinds[index]), []).append(index)
            found = self._sorts[key] = [(*one, at[0], len(at)) for one, at in alike.items()]
        return found

    def _flops(self, model: Model, sequence: int) -> float:
        key = (id(model), sequence)
        found = self._flops_per_token.get(key)
        if found is None:
            found = self._flops_per_token[key] = training_flops_per_token(model, sequence)
            self._models.append(model)
        return found

    def _stages_of(self, workload: Workload) -> tuple[Stage, ...]:
        split = workload.parallelism
        key = (id(workload.model), *_division(split))
        found = self._stages.get(key)
        if found is None:
            found = self._stages[key] = stages_of(workload)
            self._models.append(workload.model)
        return found

    def _worker(self, kind: str, workload: Workload, program: Software) -> StageWorker:
        key = (kind, workload.precision, program)
        found = self._workers.get(key)
        if found is None:
            accelerator = self.cluster.accelerator(kind)
            found = self._workers[key] = StageWorker(
                accelerator, workload.precision, program, self._constants
            )
        return found

    def _stage_shares(
        self, workload: Workload, shape: _Shape, layout: Layout, prices: Prices
    ) -> tuple[tuple[float, ...], ...]:
        """Seconds of a micro-batch by what takes them, for each part of the shape."""
        form = (workload.parallelism.context_form, workload.regather_inputs)
        key = (shape, prices, layout.inside, *form)
        found = self._shares.get(key)
        if found is None:
            batch = MicroBatch(workload, shape.part, layout, prices)
            rows = []
            for part in shape.parts:
                work, waits = part.work, batch.waits(part.work, part.stage)
                compute = work.forward_s + work.backward_s
                rows.append((compute, work.repeated_s, work.wait_s, *waits))
            found = self._shares[key] = tuple(rows)
        return found

    def _end_of_step(
        self,
        workload: Workload,
        shape: _Shape,
        layout: Layout,
        prices: Prices,
        busy: Sequence[float],
    ) -> tuple[float, float]:
        """Seconds after the last micro-batch: gradients that are still on their way, optimizer."""
        split = workload.parallelism
        rounds = workload.micro_batches if split.reshard_parameters else 1
        key = (shape, prices, layout.outside, split.zero, workload.fp32_gradients, rounds)
        found = self._ends.get(key)
        if found is None:
            gradients = Gradients(workload, layout, prices)
            shards = (split.shard_size, split.expert_shard_size)
            found = self._ends[key] = tuple(
                [
                    (
                        *gradients.seconds(part.work.parameters, part.stage),
                        part.worker.optimizer_s(part.work.parameters, split.zero, shards),
                    )
                    for part in shape.parts
                ]
            )
        program, count = prices.software, workload.micro_batches
        beside = program.gather_overlap * count if split.zero == 3 else program.gradient_overlap
        ends = [
            (max(0.0, moved - beside * seconds) + tied, optimizer)
            for (moved, tied, optimizer), seconds in zip(found, busy, strict=True)
        ]
        return max(ends, key=sum)

    def _fullest(self, workload: Workload, shape: _Shape, layout: Layout) -> Footprint:
        """The rank that fills most of its device; of stages that are alike the first holds most
        micro-batches at once."""
        split = workload.parallelism
        held = min(workload.micro_batches, split.pp * split.virtual_pp)
        several = workload.micro_batches > 1 and not split.reshard_parameters
        shards = (split.shard_size, split.expert_shard_size, split.dp, several)
        key = (shape, shards, split.virtual_pp, split.zero, workload.fp32_gradients, held)
        found = self._footprints.get(key)
        if found is None:
            memory = RankMemory(workload, self._constants)
            filled = -1.0
            for one in shape.parts:
                held_here = memory.footprint(one.first, one.work.parameters, one.work.memory)
                share = held_here.total / layout.memory_bytes[one.first]
                if share > filled:
                    filled, found = share, held_here
            assert found is not None
            self._footprints[key] = found
        return found


def _division(split: Parallelism) -> tuple[object, ...]:
    """What decides which layers are on which stage, as a key."""
    ends = (split.embedding_as_layer, split.head_as_layer)
    return (split.pp, split.virtual_pp, split.stage_layers, *ends)


def _check_room(cluster: Cluster, ranks: int, devices: int) -> None:
    if ranks > devices:
        raise Infeasible(
            f"estimate: {ranks} ranks on {devices} free devices of cluster {cluster.name!r}: "
            f"{ranks - devices} too few; use smaller degrees of parallelism or free nodes"
        )
