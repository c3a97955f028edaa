"""The parallel computation graph of a transformer trained under TP x PP x DP."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import InvalidInput, Problem
from .models.work import share
from .pcg import PCG, Algorithm, Group, Op
from .workload import Workload

ACTIVATION_BYTES = 2
"""Bytes of an activation and of a parameter on the wire: bf16 and fp16; fp8 training too sends
activations and parameters in 16 bits."""


def build_pcg(workload: Workload) -> PCG:
    """The ranks of a workload and the groups they communicate in, with bytes a step.

    Volumes (s sequence, b micro-batch, h hidden, m micro-batches, L layers a stage, t tp, P
    parameters of the rank; 2 bytes an element, 4 for gradients if the workload says so):

    - tensor parallel, for each layer and micro-batch: 4 all-reduces of 2sbh bytes (2 forward, 2
      backward), with sequence parallelism 4 all-gathers and 4 reduce-scatters of it instead; half
      as many again with full recompute (Shoeybi 2019, Korthikanti 2022).
    - pipeline, for each boundary, micro-batch and direction: 2sbh bytes a tensor-parallel rank,
      2sbh/t with sequence parallelism; each of the virtual_pp pieces of a stage adds as much, and
      the last stage then feeds the first virtual_pp - 1 times (Narayanan 2021).
    - data parallel: zero 0 an all-reduce of the gradients; zero 1 and 2 their reduce-scatter and
      an all-gather of the parameters; zero 3 a reduce-scatter and two all-gathers, once a step or
      (reshard_parameters) once a micro-batch (Rajbhandari 2020).
    - tied embeddings on two stages: an all-reduce of the embedding's gradient between them.

    Left out: the embedding lookup and the output head (one more such operation a micro-batch on
    the first and on the last stage), the loss, the gradients of norms under sequence parallelism,
    and gathering inputs again for the backward pass. Raises InvalidInput for cp or ep above 1.
    """
    _refuse_unsupported(workload)
    grid = _Grid(workload)
    groups = [
        *_tensor_parallel(workload, grid),
        *_pipeline(workload, grid),
        *_data_parallel(workload, grid),
        *_tied_embeddings(workload, grid),
    ]
    # The groups are right by construction; checking 100,000 of them again takes most of a second.
    return PCG.model_construct(
        format="railweave.pcg/1",
        world_size=workload.parallelism.world_size,
        groups=tuple(groups),
        requires=(),
    )


def stage_parameters(workload: Workload, stage: int) -> int:
    """Parameters on each tensor-parallel rank of a pipeline stage.

    The first stage has the embedding and learned positions, the last the final norm and the output
    head, which is a copy of the embedding when that is tied and on another stage.
    """
    model, split = workload.model, workload.parallelism
    pieces = split.pp * split.virtual_pp
    in_piece = model.layers // pieces
    count = sum(
        layers * block.parameters(split.tp, split.ep)
        for piece in range(stage, pieces, split.pp)
        for layers, block in model.stack.between(piece * in_piece, (piece + 1) * in_piece)
    )
    if stage == 0:
        count += model.input_parameters(split.tp)
    if stage == split.pp - 1:
        count += model.output_parameters(split.tp, own_copy=stage > 0)
    return count


def vocabulary_shard(workload: Workload) -> int:
    """Parameters of one rank's share of the embedding: the vocabulary is padded to divide."""
    return share(workload.model.vocab, workload.parallelism.tp) * workload.model.hidden


class _Grid:
    """Ranks by their tensor-parallel, data-parallel and pipeline coordinates."""

    def __init__(self, workload: Workload) -> None:
        split = workload.parallelism
        self.tp, self.dp, self.pp = split.tp, split.dp, split.pp
        sizes = {"tp": split.tp, "dp": split.dp, "pp": split.pp}
        stride = 1
        strides = {}
        for dimension in workload.dimension_order:
            strides[dimension] = stride
            stride *= sizes.get(dimension, 1)
        self._tp, self._dp, self._pp = strides["tp"], strides["dp"], strides["pp"]

    def rank(self, tp: int, dp: int, pp: int) -> int:
        return tp * self._tp + dp * self._dp + pp * self._pp

    def tp_group(self, dp: int, pp: int) -> tuple[int, ...]:
        start = self.rank(0, dp, pp)
        return tuple(range(start, start + self.tp * self._tp, self._tp))

    def dp_group(self, tp: int, pp: int) -> tuple[int, ...]:
        start = self.rank(tp, 0, pp)
        return tuple(range(start, start + self.dp * self._dp, self._dp))


def _refuse_unsupported(workload: Workload) -> None:
    split = workload.parallelism
    problems = [
        Problem(f"parallelism.{name}", f"{name} {degree}", f"use {name} 1: {why} not yet built")
        for name, degree, why in (
            ("cp", split.cp, "the rings of context parallelism are"),
            ("ep", split.ep, "the all-to-alls of expert parallelism are"),
        )
        if degree > 1
    ]
    if problems:
        raise InvalidInput("Workload", problems)


def _group(name: str, op: Op, ranks: tuple[int, ...], size: float) -> Group:
    return Group.model_construct(
        name=name, op=op, ranks=ranks, bytes=float(size), algorithm=Algorithm.AUTO
    )


def _activation_bytes(workload: Workload) -> int:
    return ACTIVATION_BYTES * workload.sequence * workload.micro_batch * workload.model.hidden


def _gradient_bytes(workload: Workload) -> int:
    return 4 if workload.fp32_gradients else ACTIVATION_BYTES


def _tensor_parallel(workload: Workload, grid: _Grid) -> Iterator[Group]:
    if grid.tp == 1:
        return
    a_layer = 6 if workload.recompute == "full" else 4
    size = (
        a_layer * workload.layers_per_stage * workload.micro_batches * _activation_bytes(workload)
    )
    split = workload.parallelism.sequence_parallel
    ops = (Op.ALL_GATHER, Op.REDUCE_SCATTER) if split else (Op.ALL_REDUCE,)
    for pp in range(grid.pp):
        for dp in range(grid.dp):
            ranks = grid.tp_group(dp, pp)
            for op in ops:
                yield _group(f"tp/{op}/pp{pp}/dp{dp}", op, ranks, size)


def _pipeline(workload: Workload, grid: _Grid) -> Iterator[Group]:
    pieces = workload.parallelism.virtual_pp
    size = workload.micro_batches * _activation_bytes(workload)
    size_a_rank = size / grid.tp if workload.parallelism.sequence_parallel else size
    hops = [(stage, stage + 1, pieces) for stage in range(grid.pp - 1)]
    if pieces > 1:
        hops.append((grid.pp - 1, 0, pieces - 1))
    for sender, receiver, times in hops:
        for dp in range(grid.dp):
            for tp in range(grid.tp):
                ends = grid.rank(tp, dp, sender), grid.rank(tp, dp, receiver)
                place = f"pp{sender}-pp{receiver}/dp{dp}/tp{tp}"
                total = times * size_a_rank
                yield _group(f"pp/forward/{place}", Op.SEND_RECV, ends, total)
                yield _group(f"pp/backward/{place}", Op.SEND_RECV, ends[::-1], total)


def _data_parallel(workload: Workload, grid: _Grid) -> Iterator[Group]:
    if grid.dp == 1:
        return
    split = workload.parallelism
    rounds = workload.micro_batches if split.reshard_parameters else 1
    gathers = {0: 0, 1: 1, 2: 1, 3: 2}[split.zero]
    for pp in range(grid.pp):
        parameters = stage_parameters(workload, pp)
        gradient = rounds * _gradient_bytes(workload) * parameters
        gathered = rounds * gathers * ACTIVATION_BYTES * parameters
        for tp in range(grid.tp):
            ranks = grid.dp_group(tp, pp)
            if split.zero == 0:
                yield _group(f"dp/all_reduce/pp{pp}/tp{tp}", Op.ALL_REDUCE, ranks, gradient)
                continue
            name = f"dp/reduce_scatter/pp{pp}/tp{tp}"
            yield _group(name, Op.REDUCE_SCATTER, ranks, gradient)
            yield _group(f"dp/all_gather/pp{pp}/tp{tp}", Op.ALL_GATHER, ranks, gathered)


def _tied_embeddings(workload: Workload, grid: _Grid) -> Iterator[Group]:
    if grid.pp == 1 or not workload.model.tied_embeddings:
        return
    size = _gradient_bytes(workload) * vocabulary_shard(workload)
    for dp in range(grid.dp):
        for tp in range(grid.tp):
            ends = grid.rank(tp, dp, 0), grid.rank(tp, dp, grid.pp - 1)
            yield _group(f"embedding/all_reduce/dp{dp}/tp{tp}", Op.ALL_REDUCE, ends, size)
