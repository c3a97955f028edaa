"""Layers of models: what a rank holds and multiplies, what a query sees, and equal layers once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement import InvalidInput, Model
from railweave.placement.models import (
    Attention,
    AttentionCore,
    Block,
    DeltaNet,
    FeedForward,
    KimiDelta,
    LatentAttention,
    Mamba,
    Mamba2,
    Mixture,
    Stack,
)

DEEPSEEK_V3: dict[str, Any] = {
    "hidden": 7168,
    "layers": 61,
    "heads": 128,
    "vocab": 129280,
    "sequence": 4096,
    "ffn": 18432,
    "gated_mlp": True,
    "experts": 256,
    "experts_per_token": 8,
    "expert_ffn": 2048,
    "shared_experts": 1,
    "dense_layers": 3,
    "router_bias": True,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "prediction_layers": 1,
}


def test_a_mixture_with_latent_attention_and_dense_layers_first_has_its_published_size() -> None:
    model = Model.transformer(**DEEPSEEK_V3)
    assert model.parameters == 671_026_419_200
    assert model.active_parameters == 37_552_297_472
    assert [count for count, _ in model.runs] == [3, 58]
    assert (model.ffn, model.expert_ffn, model.shared_ffn) == (18432, 2048, 2048)
    # One more mixture layer, its joining matrix, and three norms.
    joined = 2 * 7168 * 7168 + 3 * 7168
    assert model.prediction_parameters == model.layer_parameters(layer=60) + joined


def blocks() -> list[Block]:
    """One block of every kind of mixer and feed-forward; all degrees up to 4 divide them."""
    hidden = 64
    dense = FeedForward(hidden=hidden, ffn=256, gated=True, bias=True)
    expert = FeedForward(hidden=hidden, ffn=32, gated=False, bias=True)
    small = FeedForward(hidden=16, ffn=32, gated=False)
    sizes = {"hidden": hidden, "heads": 8, "kv_heads": 4, "head_dim": 16, "v_head_dim": 8}
    latent = LatentAttention(
        hidden=hidden,
        heads=8,
        q_lora_rank=24,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=12,
    )
    mixers = [
        Attention(**sizes),
        Attention(**sizes, bias=True, qkv_bias=True, qk_norm="whole", sinks=True),
        Attention(**(sizes | {"v_head_dim": 16}), key_is_value=True, qkv_bias=True),
        Attention(**sizes, output_gate=True, qk_norm="head", qkv_bias=True, key_bias=False),
        latent,
        LatentAttention(**(latent.model_dump() | {"q_lora_rank": 0, "bias": True})),
        DeltaNet(hidden=hidden, key_heads=4, value_heads=8, key_head_dim=8, value_head_dim=16),
        KimiDelta(hidden=hidden, heads=8, head_dim=16),
        Mamba2(hidden=hidden, heads=8, head_dim=16, state=32, groups=4),
        Mamba(hidden=hidden, inner=128, state=16, dt_rank=4),
        None,
    ]
    halves = [
        dense,
        Mixture(hidden=hidden, experts=8, experts_per_token=2, expert=expert, shared=dense),
        Mixture(hidden=hidden, experts=4, experts_per_token=1, expert=small, router_bias=True),
        None,
    ]
    cross = Attention(**(sizes | {"causal": False, "source_hidden": 96}))
    found = [Block(hidden=hidden, mixer=m, feed_forward=f) for m in mixers for f in halves]
    return [*found, Block(hidden=hidden, mixer=mixers[0], cross=cross, feed_forward=dense)]


@pytest.mark.parametrize("block", blocks())
@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("ep", [1, 2])
def test_ranks_hold_together_what_one_would_and_whole_parts_once_each(
    block: Block, tp: int, ep: int
) -> None:
    split = [m.weights for m in block.matmuls() if m.split != "none" and not m.expert]
    held = [m.weights for m in block.matmuls(tp) if m.split != "none" and not m.expert]
    assert [tp * weights for weights in held] == split
    assert [m.weights for m in block.matmuls(tp) if m.split == "none"] == [
        m.weights for m in block.matmuls() if m.split == "none"
    ]
    experts = sum(m.weights for m in block.matmuls() if m.expert)
    assert tp * ep * sum(m.weights for m in block.matmuls(tp, ep) if m.expert) == experts
    # Vectors beside the matrices are few, divided at most, and never fewer than a part of them.
    whole = block.parameters() - sum(m.weights for m in block.matmuls())
    part = block.parameters(tp, ep) - sum(m.weights for m in block.matmuls(tp, ep))
    assert whole <= part * tp * ep and part <= whole


@pytest.mark.parametrize("block", blocks())
def test_flops_of_ranks_add_up_whatever_divides_the_experts(block: Block) -> None:
    def flops(tp: int, ep: int, expert_tp: int | None = None) -> float:
        return sum(
            m.flops_per_token * (1 if m.split == "none" else expert_tp or tp if m.expert else tp)
            for m in block.matmuls(tp, ep, expert_tp)
        )

    assert flops(2, 1) == flops(1, 1) == flops(1, 4) == flops(4, 2, 1)


def test_a_token_is_multiplied_with_its_active_weights_alone() -> None:
    model = Model.transformer(**DEEPSEEK_V3)
    for _, block in model.kinds:
        flops = sum(matrix.flops_per_token for matrix in block.matmuls())
        vectors = block.parameters() - sum(matrix.weights for matrix in block.matmuls())
        assert flops == 2 * (block.active_parameters - vectors)


@given(
    sequence=st.integers(1, 40),
    window=st.none() | st.integers(1, 50),
    chunk=st.none() | st.integers(1, 50),
    causal=st.booleans(),
)
def test_keys_a_query_sees_are_those_counted_one_by_one(
    sequence: int, window: int | None, chunk: int | None, causal: bool
) -> None:
    window = None if chunk else window

    def sees(query: int, key: int) -> bool:
        if causal and key > query:
            return False
        if chunk and query // chunk != key // chunk:
            return False
        if window is None:
            return True
        return query - key < window if causal else abs(query - key) <= window // 2

    pairs = sum(sees(q, k) for q in range(sequence) for k in range(sequence))
    core = AttentionCore(3, 1, 8, 4, causal, window=window, chunk=chunk)
    assert core.keys_per_query(sequence) == pytest.approx(pairs / sequence)
    assert core.flops_per_token(sequence) == pytest.approx(2 * 3 * 12 * pairs / sequence)


def test_an_indexer_bounds_the_keys_and_scores_them_all() -> None:
    sparse = LatentAttention(
        hidden=64,
        heads=4,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        indexer_heads=2,
        indexer_head_dim=4,
        indexer_top=8,
    )
    attention, index = Block(hidden=64, mixer=sparse).cores()
    assert attention.flops_per_token(1000) == pytest.approx(2 * 4 * (16 + 8) * 8, rel=0.01)
    assert index.flops_per_token(1000) == 2 * 2 * 4 * 1001 / 2


def test_a_recurrence_costs_each_token_the_same_however_long_the_sequence() -> None:
    for mixer in (
        DeltaNet(hidden=64, key_heads=4, value_heads=8, key_head_dim=8, value_head_dim=16),
        Mamba2(hidden=64, heads=8, head_dim=16, state=32),
        Mamba(hidden=64, inner=128, state=16, dt_rank=4),
    ):
        core = mixer.core()
        assert core.flops_per_token(4096) == core.flops_per_token(65536)
        assert mixer.core(2).flops_per_token(4096) >= core.flops_per_token(4096) / 2


def test_equal_layers_are_described_once_and_counted_where_they_are() -> None:
    one, other = blocks()[:2]
    stack = Stack.of([one, one, other, (3, one), (1, other)])
    assert stack.blocks == (one, other)
    assert stack.runs == ((2, one), (1, other), (3, one), (1, other))
    assert stack.kinds == ((5, one), (2, other))
    assert stack.layers == 7
    assert stack.between(1, 4) == ((2, one), (1, other))
    assert stack.parameters() == 5 * one.parameters() + 2 * other.parameters() + 64


def test_layers_are_windowed_and_sparse_where_the_dimensions_say_so() -> None:
    model = Model.transformer(
        hidden=64,
        layers=8,
        heads=4,
        vocab=100,
        sequence=32,
        gated_mlp=True,
        experts=4,
        experts_per_token=1,
        moe_every=2,
        sliding_window=8,
        full_attention_every=4,
    )
    seen = [
        (block.attention is not None and block.attention.core().window, block.mixture is not None)
        for count, block in model.runs
        for _ in range(count)
    ]
    assert seen == [(8, False), (8, True), (8, False), (None, True)] * 2


@pytest.mark.parametrize("changes", [{}, {"kv_lora_rank": 0, "q_lora_rank": 0}])
def test_a_model_read_back_from_its_json_is_the_same(changes: dict[str, Any]) -> None:
    if changes:
        changes = changes | {"qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "sliding_window": 64}
    model = Model.transformer(**(DEEPSEEK_V3 | changes))
    again = Model.model_validate_json(model.model_dump_json())
    assert again == model
    assert hash(again) == hash(model)
    assert Model.model_validate(DEEPSEEK_V3 | changes) == model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dense_layers": 61}, "dense_layers: 61 dense layers of 61"),
        ({"moe_every": 62}, "moe_every: every 62th of 61 layers"),
        ({"kv_lora_rank": 0}, "q_lora_rank: 1536, but no latent attention"),
        ({"qk_nope_head_dim": 0}, "kv_lora_rank: kv_lora_rank 512 without the sizes of a head"),
        ({"shared_ffn": 4096}, "shared_experts: 1 shared experts and shared_ffn 4096"),
        ({"full_attention_every": 4}, "full_attention_every: every 4th layer, but no sliding"),
        ({"experts": 0}, "expert_ffn: 2048, but no experts"),
        ({"layers": 10**9}, "layers: found 1000000000"),
        ({"hidden": True}, "hidden: found True"),
        ({"hiden": 4}, "hiden: unknown key; did you mean 'hidden'?"),
    ],
)
def test_dimensions_that_do_not_go_together_are_all_named(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Model.transformer(**(DEEPSEEK_V3 | change))
    assert message in str(caught.value)


def test_parts_of_other_widths_are_refused() -> None:
    narrow = FeedForward(hidden=32, ffn=128, gated=False)
    with pytest.raises(InvalidInput, match="feed_forward: hidden 32 in a block of 64"):
        Block(hidden=64, feed_forward=narrow)
    with pytest.raises(InvalidInput, match=r"blocks\[1\]: hidden 32 in a stack of 64"):
        Stack.of([blocks()[0], Block(hidden=32, feed_forward=narrow)])
    with pytest.raises(InvalidInput, match=r"order\[0\]: block 1 of 1"):
        Stack(hidden=64, blocks=(blocks()[0],), order=((2, 1),))
