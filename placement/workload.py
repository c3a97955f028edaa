"""A workload: a model, how it is split over ranks, and the batch it is trained with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .errors import InvalidInput, Problem
from .explained import Explained
from .models import Model
from .models.sizes import Count

Recompute = Literal["none", "selective", "full"]
Precision = Literal["bf16", "fp16", "fp8"]
Software = Literal["megatron-2021", "megatron", "fsdp"]
Fusion = Literal["none", "elementwise", "attention"]
DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")


class Parallelism(Explained):
    """Degrees of parallelism: tensor, pipeline, data, context and expert.

    ep: experts are spread over this many of the data- and context-parallel ranks, so it does not
        add ranks.
    virtual_pp: pipeline stages a rank (interleaved schedule).
    zero: what the data-parallel ranks share out: 0 nothing, 1 the optimizer state, 2 gradients
        too, 3 parameters too.
    sequence_parallel: the tensor-parallel ranks split the rest of a layer along the sequence.
    reshard_parameters: with zero 3, parameters are shared out again after every micro-batch, so
        that each gathers them anew; without it they are gathered once a step and direction.
    """

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    cp: Count = 1
    ep: Count = 1
    virtual_pp: Count = 1
    zero: Annotated[int, Field(ge=0, le=3)] = 1
    sequence_parallel: bool = True
    reshard_parameters: bool = False

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp


class Workload(Explained):
    """What is trained and how: becomes a PCG.

    global_batch, micro_batch: samples a step, and samples a rank works on at a time.
    sequence: tokens a sample; the model's own by default.
    fp32_gradients: gradients are summed in 4 bytes instead of the 2 of the precision.
    rank_order: which dimension's ranks are next to each other, nearest first.
    software: the training program whose habits a step's time follows; by default the one that such
        steps were measured with on these accelerators (`cost.software.software_name`).
    fusion: what its kernels fuse: "none" each operation a kernel of its own, "elementwise" chains
        of element-wise ones, "attention" attention too; by default what the program does.

    Making one checks every rule that the split must meet; InvalidInput lists all that are broken.
    """

    model: Model
    parallelism: Parallelism
    global_batch: Count
    micro_batch: Count = 1
    sequence: Count
    recompute: Recompute = "none"
    precision: Precision = "bf16"
    fp32_gradients: bool = False
    rank_order: str = "tp-cp-ep-dp-pp"
    software: Software | None = None
    fusion: Fusion | None = None

    @model_validator(mode="before")
    @classmethod
    def _sequence_of_model(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("sequence") is None:
            model = data.get("model")
            own = model.get("sequence") if isinstance(model, dict) else None
            own = model.sequence if isinstance(model, Model) else own
            return {key: value for key, value in data.items() if key != "sequence"} | (
                {} if own is None else {"sequence": own}
            )
        return data

    @model_validator(mode="after")
    def _rules(self) -> Self:
        problems = broken_rules(self)
        if problems:
            raise InvalidInput("Workload", problems)
        return self

    @property
    def micro_batches(self) -> int:
        """Micro-batches a step that each data-parallel replica works on."""
        return self.global_batch // (self.parallelism.dp * self.micro_batch)

    @property
    def layers_per_stage(self) -> int:
        """Layers on each pipeline rank, over all of its virtual stages."""
        return self.model.layers // self.parallelism.pp

    @property
    def dimension_order(self) -> tuple[str, ...]:
        """All five dimensions, those of neighbouring ranks first."""
        named = tuple(self.rank_order.split("-"))
        return named + tuple(dim for dim in DIMENSIONS if dim not in named)


def broken_rules(workload: Workload) -> list[Problem]:
    """Every rule of the split that a workload breaks, each with the number that breaks it."""
    return [
        *_model_rules(workload.model, workload.parallelism),
        *_sequence_rules(workload),
        *_batch_rules(workload),
        *_order_rules(workload),
    ]


def _model_rules(model: Model, split: Parallelism) -> list[Problem]:
    problems = []
    divided = {pair: None for _, block in model.kinds for pair in block.tensor_splits}
    for things, count in divided:
        if count % split.tp:
            problems.append(_does_not_divide("tp", split.tp, count, f"{things} {count}"))
    if model.kv_heads and model.kv_heads % split.tp and split.tp % model.kv_heads:
        found = f"tp {split.tp} and kv_heads {model.kv_heads}: neither divides the other"
        fix = "make one a multiple of the other, so that each rank has whole heads"
        problems.append(Problem("parallelism.tp", found, fix))
    stages = split.pp * split.virtual_pp
    if model.layers % stages:
        found = (
            f"{model.layers} layers over pp {split.pp} x virtual_pp {split.virtual_pp} = {stages} "
            f"stages is {model.layers / stages:.6g} a stage"
        )
        fix = f"make pp x virtual_pp one of {_divisors(model.layers)}"
        problems.append(Problem("parallelism.pp", found, fix))
    if split.virtual_pp > 1 and split.pp == 1:
        found = f"virtual_pp {split.virtual_pp} with pp 1"
        problems.append(
            Problem("parallelism.virtual_pp", found, "use virtual_pp 1, or more stages")
        )
    if split.reshard_parameters and split.zero < 3:
        found = f"parameters cannot be shared out again with zero {split.zero}"
        problems.append(Problem("parallelism.reshard_parameters", found, "use zero 3"))
    return problems


def _sequence_rules(workload: Workload) -> list[Problem]:
    problems = []
    model, split, sequence = workload.model, workload.parallelism, workload.sequence
    if split.sequence_parallel and sequence % split.tp:
        problems.append(_does_not_divide("tp", split.tp, sequence, f"sequence {sequence}"))
    if model.positions == "learned" and model.sequence and sequence > model.sequence:
        found = f"sequence {sequence} over the model's {model.sequence} learned positions"
        problems.append(Problem("sequence", found, f"give {model.sequence} at most"))
    return problems


def _batch_rules(workload: Workload) -> list[Problem]:
    problems = []
    split, batch = workload.parallelism, workload.global_batch
    a_round = split.dp * workload.micro_batch
    if batch % a_round:
        found = (
            f"global_batch {batch} over dp {split.dp} x micro_batch {workload.micro_batch} "
            f"is {batch / a_round:.6g} micro-batches"
        )
        near = [count * a_round for count in (batch // a_round, batch // a_round + 1) if count]
        fix = f"make it a multiple of {a_round}, such as {' or '.join(map(str, near))}"
        problems.append(Problem("global_batch", found, fix))
    elif split.virtual_pp > 1 and workload.micro_batches % split.pp:
        found = (
            f"{workload.micro_batches} micro-batches over pp {split.pp}; "
            "the interleaved schedule works in rounds of pp"
        )
        fix = f"make global_batch a multiple of {a_round * split.pp}, or use virtual_pp 1"
        problems.append(Problem("global_batch", found, fix))
    return problems


def _order_rules(workload: Workload) -> list[Problem]:
    named = workload.rank_order.split("-")
    needed = {dim for dim in DIMENSIONS if getattr(workload.parallelism, dim) > 1}
    if len(set(named)) == len(named) and needed <= set(named) <= set(DIMENSIONS):
        return []
    found = f"found {workload.rank_order!r}"
    fix = f"name each of {', '.join(DIMENSIONS)} once, joined by '-' (those of degree 1 may go)"
    return [Problem("rank_order", found, fix)]


def _does_not_divide(name: str, degree: int, count: int, what: str) -> Problem:
    found = f"{name} {degree} does not divide {what} ({count / degree:.6g} a rank)"
    return Problem(f"parallelism.{name}", found, f"use one of {_divisors(count)}")


def _divisors(count: int) -> str:
    found = [degree for degree in range(1, min(count, 4096) + 1) if count % degree == 0]
    shown = ", ".join(map(str, found[:16]))
    return f"{shown}, ..." if len(found) > 16 else shown
