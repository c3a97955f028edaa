"""A workload for a job of which only the degrees of parallelism are known."""

from __future__ import annotations

from math import lcm

from ..placement.models import Model
from ..placement.workload import Parallelism, Workload

# Hidden size and layers of a GPT of 7, 70 and 175 billion parameters, by how many ranks hold one.
_SHAPES = ((8, 4096, 32), (64, 8192, 80), (None, 12288, 96))
_HEAD_DIM = 128
_SEQUENCE = 4096
_FEWEST_MICRO_BATCHES = 8
_MICRO_BATCHES_A_STAGE = 4


def typical_workload(tp: int, pp: int, dp: int) -> Workload:
    """A GPT of 7, 70 or 175 billion parameters split that way, grown where a degree asks for it.

    Placement needs only the proportions: tensor parallelism sends most, then data parallelism, then
    the pipeline, as they do in any large transformer. Ranks are numbered tensor-parallel first,
    then data, then pipeline.
    """
    hidden, layers = next((h, n) for most, h, n in _SHAPES if most is None or tp * pp <= most)
    sequence = lcm(_SEQUENCE, tp)
    model = Model.transformer(
        name="typical",
        hidden=lcm(hidden, tp),
        layers=lcm(layers, pp),
        heads=lcm(hidden // _HEAD_DIM, tp),
        vocab=50304,
        sequence=sequence,
        head_dim=_HEAD_DIM,
    )
    return Workload(
        model=model,
        parallelism=Parallelism(tp=tp, pp=pp, dp=dp),
        global_batch=dp * max(_FEWEST_MICRO_BATCHES, _MICRO_BATCHES_A_STAGE * pp),
        sequence=sequence,
        rank_order="tp-dp-pp",
    )
