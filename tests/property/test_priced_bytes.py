"""The bytes whose time an estimate counts are those that the PCG says are sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import (
    Cluster,
    InvalidInput,
    Kind,
    Model,
    Op,
    Parallelism,
    Workload,
    build_pcg,
)
from railweave.placement.cost.communication import Gradients, MicroBatch, Prices
from railweave.placement.cost.constants import CONSTANTS
from railweave.placement.cost.layout import Layouts
from railweave.placement.cost.slices import slice_of
from railweave.placement.cost.spans import Span, packed
from railweave.placement.cost.stages import stages_of
from railweave.placement.cost.work import StageWorker
from railweave.placement.models import Block, Embedding, Head, Mamba2, Stack

SIZES = {"hidden": 64, "heads": 8, "kv_heads": 4, "vocab": 96, "sequence": 32, "layers": 4}
EXPERTS = {"experts": 8, "experts_per_token": 2, "expert_ffn": 32, "gated_mlp": True}
KINDS = {
    "dense": {"gated_mlp": True},
    "gpt": {"gated_mlp": False},
    "mixture": EXPERTS,
    "dense before mixtures": EXPERTS | {"dense_layers": 1},
    "with a shared expert": EXPERTS | {"shared_experts": 1},
    "that predicts ahead": EXPERTS | {"shared_experts": 1, "prediction_layers": 1},
}
MODELS = {name: Model.transformer(**SIZES, **more) for name, more in KINDS.items()}
_LAYER = Block(hidden=64, mixer=Mamba2(hidden=64, heads=8, head_dim=16, groups=8, state=8))
MODELS["recurrent"] = Model(
    name="recurrent",
    sequence=32,
    embedding=Embedding(hidden=64, vocab=96),
    stack=Stack.of([(4, _LAYER)]),
    head=Head(inputs=64, outputs=96),
)
PLACE = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "lab",
        "tiers": [{"name": "spine", "bandwidth": 25e9, "latency": 2e-6}],
        "rails": 8,
        "nodes": [{"name": f"n{n}", "accelerator": "H100-SXM", "devices": 8} for n in range(16)],
    }
)
NOTHING_HIDES = replace(
    CONSTANTS.software["megatron"],
    tensor_overlap=0.0,
    context_overlap=0.0,
    pipeline_overlap=0.0,
    expert_overlap=0.0,
    dispatch_once=False,
)


class Bytes:
    """Prices at one second a byte."""

    software = NOTHING_HIDES

    def seconds(
        self, op: Op, size: float, span: Span, networks: int = 0, part_away: float = 1.0
    ) -> float:
        return size if span.ranks > 1 else 0.0


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
    small = st.sampled_from([1, 2, 2, 4])
    while True:
        tp, cp, pp, dp = draw(small), draw(st.sampled_from([1, 2])), draw(small), draw(small)
        try:
            return Workload(
                model=model,
                parallelism=Parallelism(
                    tp=tp,
                    cp=cp,
                    pp=pp,
                    dp=dp,
                    ep=draw(st.sampled_from([1, 2, 4])),
                    etp=draw(st.sampled_from([None, None, 1, 2])),
                    zero=draw(st.integers(0, 3)),
                    sequence_parallel=draw(st.booleans()),
                    vocabulary_parallel=draw(st.booleans()),
                    context_form=draw(st.sampled_from(["ring", "all-to-all"])),
                ),
                global_batch=4 * dp,
                micro_batch=draw(st.sampled_from([1, 2])),
                recompute=draw(st.sampled_from(["none", "selective", "full"])),
                regather_inputs=draw(st.booleans()),
                fp8_dispatch=draw(st.booleans()),
                fp32_gradients=draw(st.booleans()),
            )
        except InvalidInput:
            continue


@settings(max_examples=60, deadline=None)
@given(workloads())
def test_an_estimate_counts_the_bytes_of_the_pcg(workload: Workload) -> None:
    split, part = workload.parallelism, slice_of(workload)
    layout = Layouts(packed(PLACE), PLACE).of(workload)
    prices = cast(Prices, Bytes())
    worker = StageWorker(PLACE.accelerator("H100-SXM"), "bf16", NOTHING_HIDES, CONSTANTS)
    batch, step = MicroBatch(workload, part, layout, prices), Gradients(workload, layout, prices)
    sent = _sent(workload)
    ranks = split.world_size // split.pp
    for index, stage in enumerate(stages_of(workload)):
        work = worker.work(workload.model, stage, part)
        waits, (moved, tied) = batch.waits(work, stage), step.seconds(work.parameters, stage)
        here = sent[index]
        counted = {
            "tensor": workload.micro_batches * waits.tensor,
            "context": workload.micro_batches * waits.context,
            "expert": workload.micro_batches * waits.expert,
            "data": moved,
            "embedding": tied,
        }
        for name, size in counted.items():
            assert here[name] / ranks == pytest.approx(size, rel=1e-9, abs=1e-6), (index, name)
        if split.pp > 1:
            hop = sent[index - 1 if index else 0]["pipeline"] / ranks
            assert 2 * hop == pytest.approx(workload.micro_batches * waits.pipeline)


_NAMES = {
    Kind.TP: "tensor",
    Kind.SP: "tensor",
    Kind.CP: "context",
    Kind.EP: "expert",
    Kind.ETP: "expert",
    Kind.DP: "data",
    Kind.EDP: "data",
    Kind.PP: "pipeline",
    Kind.EMBEDDING: "embedding",
}


def _sent(workload: Workload) -> dict[int, Counter[str]]:
    """Bytes of every group, once for each of its ranks, by stage; those between stages count for
    the one before, forward alone. The loss and norms' gradients aside."""
    split = workload.parallelism
    found: dict[int, Counter[str]] = {stage: Counter() for stage in range(split.pp)}
    ranks = split.world_size // split.pp
    for group in build_pcg(workload).groups:
        if group.name.startswith(("tp-loss", "tp-norms", "pp/backward")):
            continue
        assert group.kind is not None
        name = _NAMES[group.kind]
        if name == "pipeline":
            found[group.ranks[0] // ranks][name] += group.bytes
            continue
        for rank in group.ranks:
            found[rank // ranks][name] += group.bytes
    return found
