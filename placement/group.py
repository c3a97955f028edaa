"""A group of a PCG: the ranks of one collective, what it does and how many bytes it moves."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from .quantities import Index, Name, NonNegative


class Op(StrEnum):
    """What a group does each step; the meaning of its `bytes` differs by operation."""

    ALL_REDUCE = "all_reduce"
    """bytes = the tensor each rank reduces."""
    ALL_GATHER = "all_gather"
    """bytes = the full gathered tensor."""
    REDUCE_SCATTER = "reduce_scatter"
    """bytes = the full tensor before it is scattered."""
    ALL_TO_ALL = "all_to_all"
    """bytes = what each rank sends in total, an equal part to every member, itself included."""
    SEND_RECV = "send_recv"
    """bytes = what ranks[0] sends to ranks[1]."""
    BROADCAST = "broadcast"
    """bytes = the tensor."""


class Algorithm(StrEnum):
    """How a collective moves its bytes."""

    RING = "ring"
    """Each rank sends to the next one of a ring."""
    TREE = "tree"
    """Hierarchical: one representative a domain crosses each boundary, up and down."""
    DIRECT = "direct"
    """Every rank sends to every other."""
    AUTO = "auto"
    """Ring for all_reduce, all_gather and reduce_scatter; direct for all_to_all."""


ALLOWED: Final[Mapping[Op, frozenset[Algorithm]]] = {
    Op.ALL_REDUCE: frozenset({Algorithm.RING, Algorithm.TREE, Algorithm.AUTO}),
    Op.ALL_GATHER: frozenset({Algorithm.RING, Algorithm.AUTO}),
    Op.REDUCE_SCATTER: frozenset({Algorithm.RING, Algorithm.AUTO}),
    Op.ALL_TO_ALL: frozenset({Algorithm.DIRECT, Algorithm.AUTO}),
    Op.SEND_RECV: frozenset(Algorithm),  # one accounting whatever the algorithm
    Op.BROADCAST: frozenset(Algorithm),
}


class Kind(StrEnum):
    """Which part of a parallel strategy a group belongs to."""

    TP = "tp"
    """Sums over the ranks that share out a layer's matrices."""
    SP = "sp"
    """The same sums in two halves, gathered and scattered along the sequence."""
    PP = "pp"
    """Activations, and their gradients, between stages of a pipeline."""
    DP = "dp"
    """Gradients and parameters of what all data-parallel ranks have alike."""
    EP = "ep"
    """Tokens on their way to experts and back."""
    EDP = "edp"
    """Gradients and parameters of experts."""
    CP = "cp"
    """Keys and values, or heads, between ranks that share out the sequence."""
    ETP = "etp"
    """Tokens between ranks that share out the matrices of an expert."""
    EMBEDDING = "embedding"
    """Gradients of an embedding that the first and the last stage both have."""


class Group(BaseModel):
    """The ranks of one collective and its bytes per step.

    kind: what it belongs to. count: how many times a step it runs, each time with bytes / count.
    overlap: the part of its bytes, 0 to 1, that no computation of the same ranks has to wait for,
    so that it can hide behind compute. All three are None where they are not known; they change no
    traffic.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    op: Op
    ranks: tuple[Index, ...] = Field(min_length=1)
    bytes: NonNegative
    algorithm: Algorithm = Algorithm.AUTO
    kind: Kind | None = None
    count: NonNegative | None = None
    overlap: Annotated[NonNegative, Field(le=1)] | None = None

    @property
    def resolved_algorithm(self) -> Algorithm:
        """The algorithm with AUTO replaced by what it stands for."""
        return automatic(self.op) if self.algorithm is Algorithm.AUTO else self.algorithm


def automatic(op: Op) -> Algorithm:
    """What AUTO stands for in an operation."""
    if op in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER):
        return Algorithm.RING
    return Algorithm.TREE if op is Op.BROADCAST else Algorithm.DIRECT
