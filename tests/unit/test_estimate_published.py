"""Step estimates against what was published: steps, days, bubbles and operations."""

from __future__ import annotations

from typing import Any

import pytest
from estimate_inputs import GPT3, SMALL, cluster, workload
from railweave.placement import (
    Model,
    estimate,
)
from railweave.placement.cost.flops import training_flops_per_token
from railweave.placement.cost.schedule import bubble_s

MEGATRON = [
    # Narayanan 2021 and Korthikanti 2022 on DGX A100: model, nodes, split, batch, micro-batch,
    # recomputation, seconds.
    ((6144, 48, 64), 1, {"tp": 8}, 4, 4, "full", 1.42),
    ((6144, 48, 64), 1, {"tp": 8, "sequence_parallel": True}, 4, 4, "selective", 1.10),
    ((12288, 96, 96), 8, {"tp": 8, "pp": 8, "virtual_pp": 3}, 64, 1, "full", 18.13),
    (
        (12288, 96, 96),
        8,
        {"tp": 8, "pp": 8, "virtual_pp": 3, "sequence_parallel": True},
        64,
        1,
        "selective",
        13.75,
    ),
    ((12288, 96, 96), 48, {"tp": 8, "pp": 12, "dp": 4}, 1536, 1, "full", 76.78),
    ((20480, 105, 128), 280, {"tp": 8, "pp": 35, "dp": 8}, 2240, 1, "full", 55.45),
]


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row[0][0]}-{row[1]}-{row[5]}")
def test_published_megatron_steps_are_met_within_a_tenth(row: Any) -> None:
    (hidden, layers, heads), nodes, split, batch, micro_batch, recompute, seconds = row
    model = Model.transformer(hidden=hidden, layers=layers, heads=heads, vocab=51200, sequence=2048)
    found = estimate(
        workload(
            model,
            batch,
            micro_batch=micro_batch,
            recompute=recompute,
            precision="fp16",
            **({"zero": 0, "sequence_parallel": False} | split),
        ),
        cluster(nodes),
    )
    assert found.step_s == pytest.approx(seconds, rel=0.10)


H100 = [
    # NVIDIA's DGX Cloud recipes: precision, nodes, split, batch, seconds; Llama 3.1 70B at 8192.
    ("bf16", 8, {"tp": 4, "pp": 4, "cp": 2, "dp": 2, "virtual_pp": 5}, 128, 14.66),
    ("fp8", 8, {"tp": 4, "pp": 8, "dp": 2, "virtual_pp": 5}, 128, 9.86),
    ("fp8", 64, {"tp": 4, "pp": 8, "dp": 16, "virtual_pp": 5}, 1024, 10.07),
]


@pytest.mark.parametrize("row", H100, ids=lambda row: f"{row[0]}-{row[1]}")
def test_published_h100_steps_are_met_within_a_tenth(row: Any) -> None:
    precision, nodes, split, batch, seconds = row
    model = Model.transformer(
        hidden=8192, layers=80, heads=64, kv_heads=8, ffn=28672, vocab=128256, sequence=8192,
        gated_mlp=True,
    )  # fmt: skip
    found = estimate(
        workload(model, batch, precision=precision, **split), cluster(nodes, "H100-SXM", 50e9)
    )
    assert found.step_s == pytest.approx(seconds, rel=0.10)


def test_175b_on_300b_tokens_takes_1024_a100_about_34_days_and_314_zettaflop() -> None:
    found = estimate(
        workload(
            Model.transformer(**GPT3),
            1536,
            tp=8,
            pp=8,
            dp=16,
            zero=0,
            sequence_parallel=False,
            recompute="full",
            precision="fp16",
        ),
        cluster(128),
    )
    tokens = 300e9
    assert found.days(tokens) == pytest.approx(34, rel=0.06)
    step_tokens = 1536 * 2048
    zettaflop = found.model_flops / step_tokens * tokens / 1e21
    assert 6 * 174.6e9 * tokens / 1e21 == pytest.approx(314, rel=0.005)
    assert zettaflop == pytest.approx(314, rel=0.05)  # the rest is attention
    assert 6 * 175e9 * tokens / 312e12 / 86400 / 365 == pytest.approx(32, rel=0.01)


def test_interleaving_shortens_the_bubble_by_its_pieces() -> None:
    model = Model.transformer(**GPT3)
    plain, pieces = (
        estimate(workload(model, 64, tp=8, pp=8, virtual_pp=v), cluster(8)).breakdown["bubble"]
        for v in (1, 3)
    )
    assert pieces == pytest.approx(plain / 3, rel=0.1)


def test_bubbles_of_equal_stages_are_the_published_ones() -> None:
    p, forward_and_backward, weights = 8, 3.0, 1.0
    stages = [(p, forward_and_backward, weights)]
    assert bubble_s("1f1b", stages, 1) == (p - 1) * 3.0
    assert bubble_s("interleaved", stages, 4) == (p - 1) * 3.0 / 4
    assert bubble_s("zero-bubble", stages, 1) == (p - 1) * 2.0


def test_model_flops_follow_the_published_formula() -> None:
    """Narayanan 2021: 72 L h^2 (1 + s / 6h + V / 12 L h) a token with full attention."""
    h, layers, s, vocab = 12288, 96, 2048, 51200
    found = training_flops_per_token(Model.transformer(**GPT3), s)
    attention = 12 * layers * h * s
    full = 72 * layers * h * h * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert found == pytest.approx(full - attention / 2, rel=1e-4)


def test_sparse_models_count_the_experts_a_token_uses() -> None:
    dims = SMALL | {"gated_mlp": True}
    dense = training_flops_per_token(Model.transformer(**dims), 1024)
    sparse = training_flops_per_token(
        Model.transformer(**dims, experts=8, experts_per_token=2), 1024
    )
    layers, h = SMALL["layers"], SMALL["hidden"]
    one_more = 6 * layers * (3 * h * 4 * h + 8 * h)
    assert sparse == pytest.approx(dense + one_more, rel=1e-9)
