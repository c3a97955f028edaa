"""What a rank of each pipeline stage computes and holds in a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..cluster import Cluster
from ..cost import Estimator
from ..models import AttentionCore, MatMul
from ..workload import Workload
from .parts import (
    Part,
    StageParts,
    back_parts,
    front_parts,
    rank_parameters,
    stage_parts,
)


class StageFlops(NamedTuple):
    """FLOPs of a rank in a step: forward, backward (twice as many), and what recomputation
    repeats. Causal attention is counted half; softmax, norms and look-ups are left out."""

    forward: float
    backward: float
    repeated: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.forward + self.backward + self.repeated


class StageLoad(NamedTuple):
    """A rank of a pipeline stage: layers (by virtual stage), parameters, FLOPs, and memory in bytes
    by what holds it, at the fullest moment of its place in the schedule."""

    stage: int
    layers: tuple[int, ...]
    parameters: int
    flops: StageFlops
    memory: dict[str, float]
    memory_bytes: float
    micro_batch_s: float


def stage_loads(
    workload: Workload, cluster: Cluster, estimator: Estimator | None = None
) -> tuple[StageLoad, ...]:
    """What the ranks of each pipeline stage compute and hold, on the cluster's free devices.

    estimator: one of the same cluster, where many workloads are asked for. Raises Infeasible with
    fewer devices than ranks.
    """
    estimates = (estimator or Estimator(cluster)).stages(workload)
    pieces = workload.piece_layers
    found = []
    for index, stage in enumerate(stage_parts(workload)):
        held = rank_parameters(workload, stage)
        found.append(
            StageLoad(
                index,
                pieces[index :: workload.parallelism.pp],
                held.dense + held.experts,
                _flops(workload, stage),
                estimates[index].memory,
                estimates[index].memory_bytes,
                estimates[index].micro_batch_s,
            )
        )
    return tuple(found)


def stage_flops(workload: Workload) -> tuple[StageFlops, ...]:
    """FLOPs of a rank of each pipeline stage in a step.

    With equal stages those of all ranks together are the model's own
    (`cost.flops.training_flops_per_token` times tokens), and what ranks do alike: parts of the
    model that every tensor-parallel rank has whole, unless they share out the sequence.
    """
    return tuple(_flops(workload, stage) for stage in stage_parts(workload))


def layer_flops(workload: Workload) -> tuple[list[float], float, float]:
    """Forward FLOPs of a rank for a micro-batch: of each layer in the model's order, and of what
    the first and the last stage do besides."""
    model, source = workload.model, workload.encoder_sequence
    layers: list[float] = []
    for count, block in model.runs:
        layers += [_part_flops(workload, Part(1, 1, block, workload.sequence, source))] * count
    first, last = (
        sum(part.count * _part_flops(workload, part) for part in parts)
        for parts in (front_parts(workload), back_parts(workload))
    )
    return layers, first, last + _end_flops(workload, stage_parts(workload)[-1])


def _part_flops(workload: Workload, part: Part) -> float:
    return sum(_matmul_flops(workload, part)) + _core_flops(workload, part)


def _flops(workload: Workload, stage: StageParts) -> StageFlops:
    layers = cores = 0.0
    for part in stage.parts:
        layers += part.count * sum(_matmul_flops(workload, part))
        cores += part.count * _core_flops(workload, part)
    ends = _end_flops(workload, stage)
    batches = workload.micro_batches
    repeated = {"none": 0.0, "selective": cores, "full": layers + cores}[workload.recompute]
    forward = batches * (layers + cores + ends)
    return StageFlops(forward, 2 * forward, batches * repeated)


def _matmul_flops(workload: Workload, part: Part) -> Iterator[float]:
    split = workload.parallelism
    for matmul in part.block.matmuls(split.tp, split.ep, split.expert_tp):
        sequence = part.source if matmul.source == "encoder" else part.sequence
        yield matmul.flops_per_token * _rows(workload, matmul, sequence)


def _rows(workload: Workload, matmul: MatMul, sequence: int) -> float:
    """Tokens that a rank multiplies with a matrix: all of its tensor-parallel group's, but its own
    of a matrix that is whole on each, and those that come from all ranks of its expert group."""
    split = workload.parallelism
    tokens = workload.micro_batch * sequence / split.cp
    if matmul.expert:
        return tokens * split.expert_tp / split.tp
    whole = matmul.split == "none" and split.sequence_parallel
    return tokens / split.tp if whole else tokens


def _core_flops(workload: Workload, part: Part) -> float:
    split = workload.parallelism
    tokens = workload.micro_batch * part.sequence / split.cp
    return (
        sum(
            core.flops_per_token(part.sequence, part.source)
            if isinstance(core, AttentionCore)
            else core.flops_per_token(part.sequence)
            for core in part.block.cores(split.tp)
        )
        * tokens
    )


def _end_flops(workload: Workload, stage: StageParts) -> float:
    """The output head, once more for each token predicted ahead, and what joins these."""
    model, split = workload.model, workload.parallelism
    if not stage.last:
        return 0.0
    total, heads = 0.0, 1
    if model.prediction is not None:
        ahead = model.prediction
        heads += ahead.tokens
        total += ahead.tokens * sum(
            m.flops_per_token * _rows(workload, m, workload.sequence) for m in ahead.matmuls()
        )
    if model.head is not None:
        total += heads * sum(
            m.flops_per_token * _rows(workload, m, workload.sequence)
            for m in model.head.matmuls(split.vocabulary_tp)
        )
    return total
