"""What a plan may choose from: fixed degrees, most, and what the training program can do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ..cost import StepEstimate
from ..explained import Explained
from ..models.sizes import Count
from ..quantities import Positive
from ..workload import ContextForm, Recompute, Schedule


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, int | str) else value


Degrees = Annotated[tuple[Count, ...], BeforeValidator(_several), Field(min_length=1)]
Zero = Literal[0, 1, 2, 3]


class Limits(Explained):
    """Strategies that a plan may choose; one value, or several to choose from.

    tp, pp, dp, cp, ep, etp, virtual_pp, micro_batch: allowed degrees; all by default.
    most_tp: by default the devices of a scale-up domain (tensor parallelism stays inside it).
    most_cp: by default such that a rank keeps 1024 tokens of a sample or more.
    most_pp, most_ep: as many as there are layers, and experts, by default.
    zero, hybrid_sharding: what data-parallel ranks may share out, and whether groups that fill a
        node or a domain of the network may do so among themselves.
    sequence_parallel, recompute, schedules, context_forms: what the program can do.
    uneven_stages: whether stages may have different numbers of layers.
    memory_share: of a device's memory, what a rank may be predicted to need; less than 1 leaves
        room for what the prediction misses.
    """

    tp: Degrees | None = None
    pp: Degrees | None = None
    dp: Degrees | None = None
    cp: Degrees | None = None
    ep: Degrees | None = None
    etp: Degrees | None = None
    virtual_pp: Degrees | None = None
    micro_batch: Degrees | None = None
    most_tp: Count | None = None
    most_pp: Count | None = None
    most_cp: Count | None = None
    most_ep: Count | None = None
    most_virtual_pp: Count = 8
    most_micro_batch: Count = 32
    zero: Annotated[tuple[Zero, ...], BeforeValidator(_several), Field(min_length=1)] = (0, 1, 2, 3)
    hybrid_sharding: bool = True
    sequence_parallel: Annotated[
        tuple[bool, ...], BeforeValidator(_several), Field(min_length=1)
    ] = (True, False)
    recompute: Annotated[tuple[Recompute, ...], BeforeValidator(_several), Field(min_length=1)] = (
        "none",
        "selective",
        "full",
    )
    schedules: Annotated[tuple[Schedule, ...], BeforeValidator(_several), Field(min_length=1)] = (
        "1f1b",
        "interleaved",
        "zero-bubble",
    )
    context_forms: Annotated[
        tuple[ContextForm, ...], BeforeValidator(_several), Field(min_length=1)
    ] = ("ring", "all-to-all")
    uneven_stages: bool = True
    memory_share: Annotated[Positive, Field(le=1)] = 1.0

    def allows(self, found: StepEstimate) -> bool:
        """Whether the fullest rank of an estimate has room."""
        return found.memory_bytes <= self.memory_share * found.memory_limit_bytes
