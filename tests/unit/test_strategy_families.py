"""Volumes of what the slow count leaves out, by hand: calls and overlap, towers, encoders, latent
attention, recurrent mixers, predicted tokens; and placing of such a graph."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import (
    Group,
    Kind,
    Model,
    Parallelism,
    Workload,
    build_pcg,
    clos_8_rail,
    evaluate,
    place,
    stage_parameters,
)
from railweave.placement.models import Embedding, Stack

H, SEQ, BATCH = 64, 32, 8
PLAIN = {
    "hidden": H,
    "layers": 4,
    "heads": 8,
    "vocab": 100,
    "sequence": SEQ,
    "gated_mlp": True,
    "ffn": 96,
}
ACTIVATION = 2 * SEQ * H  # one sample a micro-batch


def groups(model: Any, batch: int = BATCH, **given: Any) -> dict[str, Group]:
    return {group.name: group for group in build_pcg(workload(model, batch, **given)).groups}


def workload(model: Any, batch: int = BATCH, **given: Any) -> Workload:
    split = {key: given.pop(key) for key in list(given) if key in Parallelism.model_fields}
    return Workload(
        model=Model.transformer(**model) if isinstance(model, dict) else model,
        parallelism=Parallelism(**split),
        global_batch=batch,
        **given,
    )


def test_calls_are_counted_and_the_backward_half_of_sums_can_hide() -> None:
    found = groups(PLAIN, tp=2, sequence_parallel=False)["tp/all_reduce/pp0/dp0"]
    assert found.kind is Kind.TP
    assert found.count == BATCH * (4 * 4 + 2)
    # Of 18 a micro-batch, two a layer and the head's are sums of input gradients.
    assert found.overlap == pytest.approx(9 / 18)
    found = groups(PLAIN, tp=2, regather_inputs=True)["tp/all_gather/pp0/dp0"]
    assert found.kind is Kind.SP
    assert found.overlap == pytest.approx(9 / 27)


def test_rings_hide_and_exchanges_of_heads_do_not() -> None:
    assert groups(PLAIN, cp=2)["cp/all_gather/pp0/dp0/tp0"].overlap == 1
    found = groups(PLAIN, cp=2, context_form="all-to-all")["cp/all_to_all/pp0/dp0/tp0"]
    assert (found.overlap, found.count) == (0, BATCH * 4 * 8)


def test_sends_hide_between_the_first_and_last_rounds_of_interleaved_stages() -> None:
    plain = groups(PLAIN, pp=2)["pp/forward/pp0-pp1/dp0/tp0"]
    assert (plain.overlap, plain.count) == (0, BATCH)
    found = groups(PLAIN, pp=2, virtual_pp=2)["pp/forward/pp0-pp1/dp0/tp0"]
    assert found.count == 2 * BATCH
    assert found.overlap == pytest.approx(1 - (2 * 1 + 1 * 2) / (2 * BATCH))


def test_gradients_hide_but_for_one_layers() -> None:
    assert groups(PLAIN, dp=2, pp=2)["dp/reduce_scatter/pp0/tp0"].overlap == pytest.approx(1 / 2)
    assert groups(PLAIN, dp=2)["dp/all_gather/pp0/tp0"].overlap == pytest.approx(3 / 4)


def test_latent_attention_sends_its_expanded_keys_and_values_round() -> None:
    latent = PLAIN | {
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
    }
    found = groups(latent, cp=2, tp=2)
    width = 8 // 2 * (8 + 4 + 8)
    assert found["cp/all_gather/pp0/dp0/tp0"].bytes == 2 * BATCH * 4 * 2 * SEQ * width
    # Compressions are whole on every rank, and with a split sequence their gradients are summed.
    whole = H * (16 + 4) + 16 + 2 * H
    assert found["tp-norms/all_reduce/pp0/dp0/cp0"].bytes == 2 * (4 * whole + H)


def test_an_encoder_runs_on_the_first_stage_and_its_output_travels() -> None:
    config = {
        "model_type": "t5",
        "d_model": H,
        "d_kv": 8,
        "d_ff": 128,
        "num_layers": 3,
        "num_decoder_layers": 4,
        "num_heads": 8,
        "vocab_size": 100,
        "n_positions": SEQ,
    }
    model = Model.from_hf(config)
    found = groups(model, tp=2, pp=2, sequence=SEQ, sequence_parallel=False)
    assert found["pp/forward/pp0-pp1/dp0/tp0"].bytes == BATCH * 2 * ACTIVATION
    # Stage 0: 3 encoder layers of two sums, 2 decoder layers of three (with cross-attention), each
    # forward and backward, and the look-up; stage 1: 2 decoder layers and the head.
    sums = [2 * (3 * 2 + 2 * 3) + 1, 2 * 2 * 3 + 1]
    for stage, count in enumerate(sums):
        assert found[f"tp/all_reduce/pp{stage}/dp0"].bytes == count * BATCH * ACTIVATION
    whole = workload(model, pp=2, sequence=SEQ)
    held = stage_parameters(whole, 0) + stage_parameters(whole, 1)
    tied = model.embedding_parameters if model.tied_embeddings else 0
    assert held == model.parameters + tied


def test_a_trained_tower_sums_over_its_own_tokens_on_the_first_stage() -> None:
    text = Model.transformer(**PLAIN)
    tower = Model.transformer(**PLAIN | {"hidden": 32, "layers": 2, "heads": 4})
    data = {name: getattr(text, name) for name in Model.model_fields}
    stack = {name: getattr(tower.stack, name) for name in Stack.model_fields}
    vision = {
        "name": "vision",
        "embedding": Embedding(hidden=32, positions=16),
        "stack": Stack(**stack),
        "sequence": 16,
    }
    model = Model(**data | {"towers": (vision,)})
    split = {"tp": 2, "pp": 2, "sequence_parallel": False}
    without = groups(model, **split)["tp/all_reduce/pp0/dp0"].bytes
    found = groups(model, tower_inputs=3, **split)
    images = 2 * 3 * 16 * 32
    assert found["tp/all_reduce/pp0/dp0"].bytes - without == BATCH * 2 * 4 * images
    one, other = (stage_parameters(workload(model, pp=2, tower_inputs=n), 0) for n in (3, 0))
    assert one - other == model.tower_parameters


def test_recurrent_mixers_change_places_in_either_form() -> None:
    config = {
        "model_type": "mamba2",
        "hidden_size": H,
        "num_hidden_layers": 2,
        "state_size": 16,
        "head_dim": 8,
        "num_heads": 16,
        "expand": 2,
        "n_groups": 1,
        "vocab_size": 100,
    }
    model = Model.from_hf(config)
    found = groups(model, cp=2, sequence=SEQ)["cp/all_to_all/pp0/dp0/tp0"]
    inner, tokens = 128, SEQ // 2
    inwards = 2 * inner + 2 * 16 + 16
    assert found.bytes == BATCH * 2 * 2 * 2 * tokens * (inwards + inner)


def test_predicted_tokens_are_work_of_the_last_stage_with_a_copy_of_the_embedding() -> None:
    ahead = PLAIN | {"prediction_layers": 1}
    split = {"tp": 2, "pp": 2, "sequence_parallel": False}
    plain, found = groups(PLAIN, **split), groups(ahead, **split)
    name = "tp/all_reduce/pp1/dp0"
    # One layer more, one look-up and one head.
    assert found[name].bytes - plain[name].bytes == BATCH * ACTIVATION * (4 + 2)
    assert (
        found["tp-loss/all_reduce/pp1/dp0"].bytes == 2 * plain["tp-loss/all_reduce/pp1/dp0"].bytes
    )
    assert found["embedding/all_reduce/dp0/tp0"].bytes == 2 * 50 * H
    with_copy, without = (stage_parameters(workload(model, pp=2), 1) for model in (ahead, PLAIN))
    model = Model.transformer(**ahead)
    assert with_copy - without == model.prediction_parameters + 100 * H


def test_a_stage_of_experts_keeps_a_placement_that_the_evaluator_counts_the_same() -> None:
    mixture = PLAIN | {"experts": 8, "experts_per_token": 2, "expert_ffn": 32}
    pcg = build_pcg(workload(mixture, batch=32, tp=2, cp=2, pp=2, dp=4, ep=8, zero=3, shard=8))
    cluster = clos_8_rail(units=2, nodes_per_unit=4)
    found = place(pcg, cluster, time_limit_s=0.5, seed=0)
    assert evaluate(pcg, cluster, found.devices).traffic_bytes == found.traffic_bytes
    where = [name for name, _ in found.devices]
    for group in pcg.groups:
        if group.kind in (Kind.TP, Kind.SP):
            assert len({where[rank] for rank in group.ranks}) == 1
