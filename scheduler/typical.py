"""A workload for a job of which only the degrees of parallelism are known."""

from __future__ import annotations

from math import lcm

from ..placement.model import Model
from ..placement.workload import Parallelism, Workload

_HIDDEN = 4096
_LAYERS = 32
_HEADS = 32
_SEQUENCE = 4096
_MICRO_BATCHES_A_STAGE = 4


def typical_workload(tp: int, pp: int, dp: int) -> Workload:
    """A GPT of 7 billion parameters split that way, grown where a degree asks for it.

    Placement needs only the proportions: tensor parallelism sends most, then data parallelism, then
    the pipeline, as they do in any large transformer. Ranks are numbered tensor-parallel first,
    then data, then pipeline.
    """
    model = Model.transformer(
        name="typical",
        hidden=lcm(_HIDDEN, tp),
        layers=lcm(_LAYERS, pp),
        heads=lcm(_HEADS, tp),
        vocab=50304,
        sequence=lcm(_SEQUENCE, tp),
        head_dim=_HIDDEN // _HEADS,
    )
    return Workload(
        model=model,
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp),
        global_batch=dp * (_MICRO_BATCHES_A_STAGE * pp if pp > 1 else 1),
        sequence=model.sequence,
        rank_order="tp-dp-pp",
    )
