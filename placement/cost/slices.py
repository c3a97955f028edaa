"""The part of a model that one rank works on, for one micro-batch."""

from __future__ import annotations

from typing import NamedTuple

from ..models import AttentionCore, MatMul
from ..workload import Workload

ELEMENT_BYTES = 2
"""Bytes of an activation: bf16 and fp16; fp8 training keeps them so, and casts for products."""


class Slice(NamedTuple):
    """The part of a layer that a rank works on.

    sequence, samples: tokens of a sample, and samples of a micro-batch. source: tokens of a sample
    in the encoder, for cross-attention. split_sequence: sequence_parallel. The rest as in
    `Parallelism` and `Workload`.
    """

    sequence: int
    samples: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int = 1
    split_sequence: bool = False
    recompute: str = "none"
    fp8: bool = False
    source: int | None = None
    vocabulary_tp: int = 1
    tower_inputs: int = 0
    fp8_dispatch: bool = False

    @property
    def exchanges_tokens(self) -> bool:
        """Whether tokens travel to their experts."""
        return self.ep > 1 or self.expert_tp != self.tp

    @property
    def tokens(self) -> float:
        """Tokens of the rank's micro-batch."""
        return self.samples * self.sequence / self.cp

    @property
    def source_tokens(self) -> float:
        """Tokens of the encoder in the rank's micro-batch; its own where there is none."""
        return self.tokens if self.source is None else self.samples * self.source / self.cp

    @property
    def whole_tokens(self) -> float:
        """Tokens whose elements the rank has whole, outside the tensor-parallel parts."""
        return self.tokens / self.tp if self.split_sequence else self.tokens

    def rows_of(self, matmul: MatMul) -> float:
        """Rows of a matrix product on this rank."""
        tokens = self.tokens if matmul.source == "own" else self.source_tokens
        return matmul.rows * tokens

    def keys_of(self, core: AttentionCore) -> int:
        """Keys whose scores are written for each query, where attention is not fused."""
        return self.source if core.cross and self.source is not None else self.sequence


def slice_of(workload: Workload) -> Slice:
    """The part of a layer that each rank of a workload works on."""
    split = workload.parallelism
    return Slice(
        workload.sequence,
        workload.micro_batch,
        split.tp,
        split.cp,
        split.ep,
        split.expert_tp,
        split.sequence_parallel,
        workload.recompute,
        workload.precision == "fp8",
        None if workload.model.encoder is None else workload.encoder_sequence,
        split.vocabulary_tp,
        workload.tower_inputs,
        workload.fp8_dispatch,
    )
