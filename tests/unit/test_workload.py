"""Parameter counts, the rules of a split, and volumes worked out by hand."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import (
    PCG,
    InvalidInput,
    Model,
    Op,
    Parallelism,
    Workload,
    build_pcg,
    stage_parameters,
)

GPT2 = {"hidden": 768, "layers": 12, "heads": 12, "vocab": 50257, "sequence": 1024}
LLAMA2_70B = {
    "hidden": 8192,
    "layers": 80,
    "heads": 64,
    "kv_heads": 8,
    "ffn": 28672,
    "vocab": 32000,
    "sequence": 4096,
    "gated_mlp": True,
}


def test_gpt_dimensions_give_the_published_size() -> None:
    assert Model.transformer(**GPT2).parameters == 124_439_808


def test_llama_dimensions_give_the_published_size() -> None:
    model = Model.transformer(**LLAMA2_70B)
    assert model.parameters == model.active_parameters == 68_976_648_192


def test_the_size_formula_of_the_megatron_paper_holds_but_for_the_last_norm() -> None:
    h, layers, vocab, s = 12288, 96, 51200, 2048
    model = Model.transformer(hidden=h, layers=layers, heads=96, vocab=vocab, sequence=s)
    formula = 12 * layers * h**2 * (1 + 13 / (12 * h) + (vocab + s) / (12 * layers * h))
    assert model.parameters == round(formula) + 2 * h


DENSE_AND_PLAIN_MIXTURES = [
    "gpt2",
    "gpt2-xl",
    "gpt3-175b",
    "gpt3-175b-megatron-v51200",
    "llama-2-7b",
    "llama-2-13b",
    "llama-2-70b",
    "llama-3-8b",
    "llama-3-70b",
    "llama-3.1-405b",
    "llama-3.2-1b",
    "mistral-7b-v0.1",
    "mixtral-8x7b",
    "mixtral-8x22b-v0.1",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "grok-1",
]


@pytest.mark.parametrize("name", DENSE_AND_PLAIN_MIXTURES)
def test_parameters_equal_an_independent_count_to_the_unit(name: str, shared: Path) -> None:
    entry = json.loads((shared / "facts/models.json").read_text())[name]
    config = entry["config"]
    gpt = config.get("norm") == "ln"
    model = Model.transformer(
        name=name,
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        ffn=config.get("moe_intermediate_size", config["intermediate_size"]),
        vocab=config["vocab_size"],
        sequence=config.get("learned_positions", 4096),
        gated_mlp=not gpt,
        tied_embeddings=config.get("tied_embeddings", False),
        qk_norm=config.get("qk_norm", False),
        norms_per_layer=config.get("norms_per_layer", 2),
        experts=config.get("num_experts", 0),
        experts_per_token=config.get("experts_per_token", 0),
    )
    assert model.parameters == entry["counted_total"]
    assert model.active_parameters == entry["counted_active_incl_embeddings"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 0}, "hidden: found 0"),
        ({"layers": -1}, "layers: found -1"),
        ({"heads": 7}, "heads: 7 heads do not divide hidden 768"),
        ({"heads": 0}, "heads: found 0"),
        ({"kv_heads": 5}, "kv_heads: 5 kv_heads do not divide 12 heads"),
        ({"experts": 4}, "experts_per_token: 0 experts a token of 4; give 1 to 4"),
        ({"experts_per_token": 2}, "experts_per_token: 2 experts a token, but no experts"),
        ({"norm": "batch"}, "norm: found 'batch'"),
    ],
)
def test_a_model_that_cannot_be_says_why(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Model.transformer(**(GPT2 | change))
    assert message in str(caught.value)


def small(**changes: Any) -> Workload:
    """h 8, 4 layers, 2 heads, ffn 32, vocabulary 10, sequence 4; 2 bytes an element."""
    model = Model.transformer(
        hidden=8, layers=4, heads=2, vocab=10, sequence=4, **changes.pop("model", {})
    )
    split = {"tp": 2, "pp": 2, "dp": 2} | changes.pop("parallelism", {})
    return Workload(
        **(
            {
                "model": model,
                "parallelism": Parallelism(**split),
                "global_batch": 12,
                "micro_batch": 2,
            }
            | changes
        )
    )


def volumes(pcg: PCG) -> dict[str, dict[str, float]]:
    """Bytes of the groups by the first two words of their names, then by the rest."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for group in pcg.groups:
        kind, op, *rest = group.name.split("/")
        found[f"{kind}/{op}"]["/".join(rest)] = group.bytes
    return found


# One activation: 2 bytes x sequence 4 x micro-batch 2 x hidden 8 = 128. Micro-batches: 12/(2 x 2).
ACTIVATION, MICRO_BATCHES, LAYERS_A_STAGE = 128, 3, 2
# A layer on one of two ranks: attention 4*8*8/2 + 3*8/2 + 8, MLP 2*8*32/2 + 32/2 + 8, norms 4*8.
LAYER_HALF = (128 + 12 + 8) + (256 + 16 + 8) + 32
FIRST_STAGE = 2 * LAYER_HALF + 5 * 8 + 4 * 8  # half of the embedding, positions
LAST_STAGE = 2 * LAYER_HALF + 16 + 5 * 8  # last norm, half of the tied embedding's copy


def test_each_rank_holds_its_share_of_its_stage() -> None:
    workload = small()
    assert stage_parameters(workload, 0) == FIRST_STAGE
    assert stage_parameters(workload, 1) == LAST_STAGE


# Every micro-batch, the embedding and the head sum once more: stage 0 has one of them, and stage 1.
TENSOR = (4 * LAYERS_A_STAGE + 1) * MICRO_BATCHES * ACTIVATION


def test_tensor_parallel_volumes_are_four_operations_a_layer_and_micro_batch() -> None:
    found = volumes(build_pcg(small()))
    assert set(found["tp/all_gather"].values()) == {TENSOR}
    assert set(found["tp/reduce_scatter"].values()) == {TENSOR}
    assert len(found["tp/all_gather"]) == 4  # 2 stages x 2 replicas
    found = volumes(build_pcg(small(parallelism={"sequence_parallel": False})))
    assert set(found["tp/all_reduce"].values()) == {TENSOR}
    assert "tp/all_gather" not in found


def test_full_recompute_adds_half_of_the_layers_tensor_parallel_traffic() -> None:
    found = volumes(build_pcg(small(recompute="full")))["tp/all_gather"]
    assert found["pp0/dp0"] == TENSOR + 2 * LAYERS_A_STAGE * MICRO_BATCHES * ACTIVATION
    assert volumes(build_pcg(small(recompute="selective")))["tp/all_gather"]["pp0/dp0"] == TENSOR


def test_inputs_gathered_again_are_one_gather_more_for_each_sum_of_the_backward_pass() -> None:
    found = volumes(build_pcg(small(regather_inputs=True)))
    more = 2 * LAYERS_A_STAGE * MICRO_BATCHES * ACTIVATION
    assert found["tp/all_gather"]["pp0/dp0"] == TENSOR + more
    assert found["tp/all_gather"]["pp1/dp0"] == TENSOR + more + MICRO_BATCHES * ACTIVATION
    assert set(found["tp/reduce_scatter"].values()) == {TENSOR}


def test_a_loss_over_a_divided_vocabulary_sums_three_numbers_a_token_on_the_last_stage() -> None:
    found = volumes(build_pcg(small()))["tp-loss/all_reduce"]
    assert found == {f"pp1/dp{dp}": 3 * 4 * 4 * 2 * MICRO_BATCHES for dp in range(2)}


def test_ranks_that_have_the_whole_vocabulary_send_nothing_for_it() -> None:
    whole = {"vocabulary_parallel": False, "sequence_parallel": False}
    found = volumes(build_pcg(small(parallelism=whole)))
    assert set(found["tp/all_reduce"].values()) == {4 * LAYERS_A_STAGE * MICRO_BATCHES * ACTIVATION}
    assert "tp-loss/all_reduce" not in found
    assert stage_parameters(small(parallelism=whole), 0) == FIRST_STAGE + 5 * 8
    assert found["embedding/all_reduce"]["dp0/tp0"] == 2 * 10 * 8


def test_with_a_split_sequence_gradients_of_what_every_rank_has_whole_are_summed_once() -> None:
    found = volumes(build_pcg(small()))["tp-norms/all_reduce"]
    # Two norms and the two biases after sums over ranks, 4 x 8 + 2 x 8 a layer; the final norm.
    assert found["pp0/dp0"] == 2 * LAYERS_A_STAGE * 48
    assert found["pp1/dp0"] == 2 * (LAYERS_A_STAGE * 48 + 16)
    apart = volumes(build_pcg(small(parallelism={"sequence_parallel": False})))
    assert "tp-norms/all_reduce" not in apart


def test_pipeline_volumes_are_an_activation_a_boundary_micro_batch_and_direction() -> None:
    whole = MICRO_BATCHES * ACTIVATION
    found = volumes(build_pcg(small()))
    assert set(found["pp/forward"].values()) == {whole / 2}  # shared out over two ranks
    assert found["pp/forward"].keys() == found["pp/backward"].keys()
    assert len(found["pp/forward"]) == 4
    found = volumes(build_pcg(small(parallelism={"sequence_parallel": False})))
    assert set(found["pp/forward"].values()) == {whole}


def test_an_interleaved_schedule_passes_each_boundary_more_often_and_wraps_around() -> None:
    found = volumes(
        build_pcg(small(parallelism={"virtual_pp": 2}, global_batch=16, micro_batch=2))
    )["pp/forward"]
    assert found["pp0-pp1/dp0/tp0"] == 2 * 4 * ACTIVATION / 2
    assert found["pp1-pp0/dp0/tp0"] == 1 * 4 * ACTIVATION / 2


def test_backward_edges_run_against_forward_edges() -> None:
    by_name = {group.name: group for group in build_pcg(small()).groups}
    forward = by_name["pp/forward/pp0-pp1/dp1/tp0"]
    assert by_name["pp/backward/pp0-pp1/dp1/tp0"].ranks == forward.ranks[::-1]


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (0, {"dp/all_reduce": 1}),
        (1, {"dp/reduce_scatter": 1, "dp/all_gather": 1}),
        (2, {"dp/reduce_scatter": 1, "dp/all_gather": 1}),
        (3, {"dp/reduce_scatter": 1, "dp/all_gather": 2}),
    ],
)
def test_data_parallel_volumes_follow_the_zero_stage(zero: int, expected: dict[str, int]) -> None:
    found = volumes(build_pcg(small(parallelism={"zero": zero})))
    kinds = {kind: sizes for kind, sizes in found.items() if kind.startswith("dp/")}
    assert kinds.keys() == expected.keys()
    for kind, times in expected.items():
        assert kinds[kind]["pp0/tp0"] == times * 2 * FIRST_STAGE
        assert kinds[kind]["pp1/tp1"] == times * 2 * LAST_STAGE


def test_parameters_shared_out_after_every_micro_batch_are_gathered_for_each() -> None:
    split = {"zero": 3, "reshard_parameters": True}
    found = volumes(build_pcg(small(parallelism=split)))
    assert found["dp/all_gather"]["pp0/tp0"] == MICRO_BATCHES * 2 * 2 * FIRST_STAGE
    assert found["dp/reduce_scatter"]["pp0/tp0"] == MICRO_BATCHES * 2 * FIRST_STAGE


def test_gradients_in_four_bytes_double_their_part_alone() -> None:
    found = volumes(build_pcg(small(fp32_gradients=True)))
    assert found["dp/reduce_scatter"]["pp0/tp0"] == 4 * FIRST_STAGE
    assert found["dp/all_gather"]["pp0/tp0"] == 2 * FIRST_STAGE
    assert found["embedding/all_reduce"]["dp0/tp0"] == 4 * 5 * 8


def test_tied_embeddings_are_reduced_between_the_first_and_the_last_stage() -> None:
    pcg = build_pcg(small())
    group = {group.name: group for group in pcg.groups}["embedding/all_reduce/dp0/tp0"]
    assert (group.op, group.ranks, group.bytes) == (Op.ALL_REDUCE, (0, 4), 2 * 5 * 8)
    apart = build_pcg(small(model={"tied_embeddings": False}))
    assert not any(group.name.startswith("embedding") for group in apart.groups)


def test_a_vocabulary_that_does_not_divide_is_padded() -> None:
    workload = small(model={"tied_embeddings": True})
    odd = Model.transformer(hidden=8, layers=4, heads=2, vocab=11, sequence=4)
    padded = workload.model_copy(update={"model": odd})
    assert stage_parameters(padded, 0) == FIRST_STAGE + 8


def test_every_mixture_expert_is_reduced_by_the_data_parallel_ranks() -> None:
    dense = stage_parameters(small(), 0)
    mixture = stage_parameters(small(model={"experts": 4, "experts_per_token": 1}), 0)
    assert mixture == dense + 2 * (3 * (256 + 16 + 8) + 8 * 4)


def test_without_splits_there_is_no_traffic() -> None:
    alone = small(parallelism={"tp": 1, "pp": 1, "dp": 1})
    assert build_pcg(alone).groups == ()
    assert build_pcg(alone).world_size == 1


def ranks_of(pcg: PCG, name: str) -> tuple[int, ...]:
    return {group.name: group.ranks for group in pcg.groups}[name]


@pytest.mark.parametrize(
    ("order", "tp", "dp"),
    [
        ("tp-cp-ep-dp-pp", (0, 1), (0, 2)),
        ("tp-pp-dp", (0, 1), (0, 4)),
        ("dp-tp-pp", (0, 2), (0, 1)),
        ("pp-dp-tp", (0, 4), (0, 2)),
    ],
)
def test_the_rank_order_says_which_ranks_are_neighbours(
    order: str, tp: tuple[int, ...], dp: tuple[int, ...]
) -> None:
    pcg = build_pcg(small(rank_order=order))
    assert ranks_of(pcg, "tp/all_gather/pp0/dp0") == tp
    assert ranks_of(pcg, "dp/all_gather/pp0/tp0") == dp


def test_what_is_built_is_a_valid_pcg_file() -> None:
    for order in ("tp-cp-ep-dp-pp", "pp-tp-dp"):
        pcg = build_pcg(small(rank_order=order, parallelism={"virtual_pp": 2}, global_batch=8))
        assert PCG.parse(json.loads(json.dumps(pcg.to_data()))) == pcg


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        ({"parallelism": {"tp": 3}}, ["tp 3 does not divide heads 2", "ffn 32", "sequence 4"]),
        ({"parallelism": {"pp": 3}}, ["4 layers over pp 3 x virtual_pp 1 = 3 stages is 1.33333"]),
        ({"global_batch": 10}, ["global_batch 10 over dp 2 x micro_batch 2 is 2.5", "8 or 12"]),
        (
            {"parallelism": {"virtual_pp": 2}},
            ["3 micro-batches over pp 2", "make global_batch a multiple of 8"],
        ),
        ({"parallelism": {"pp": 1, "virtual_pp": 2}}, ["virtual_pp 2 with pp 1"]),
        ({"parallelism": {"reshard_parameters": True}}, ["with zero 1; use zero 3"]),
        ({"rank_order": "tp-dp"}, ["found 'tp-dp'; name each of tp, cp, ep, dp, pp once"]),
        ({"rank_order": "tp-tp-dp-pp"}, ["found 'tp-tp-dp-pp'"]),
        ({"rank_order": "tp-dp-pp-zz"}, ["found 'tp-dp-pp-zz'"]),
        ({"sequence": 8}, ["sequence 8 over the model's 4 learned positions"]),
        ({"micro_batch": 0}, ["micro_batch: found 0"]),
        ({"recompute": "some"}, ["recompute: found 'some'"]),
        ({"batch": 4}, ["batch: unknown key"]),
    ],
)
def test_a_broken_rule_is_told_with_the_number_that_breaks_it(
    change: dict[str, Any], messages: list[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        small(**change)
    for message in messages:
        assert message in str(caught.value)


def test_all_broken_rules_are_told_together() -> None:
    with pytest.raises(InvalidInput) as caught:
        small(parallelism={"tp": 3, "pp": 3}, global_batch=7, rank_order="x")
    places = [problem.place for problem in caught.value.problems]
    assert places == [
        "parallelism.tp",
        "parallelism.tp",
        "parallelism.tp",
        "parallelism.pp",
        "parallelism.tp",
        "global_batch",
        "rank_order",
    ]


def test_heads_shared_by_queries_may_be_fewer_than_the_ranks() -> None:
    model = Model.transformer(**LLAMA2_70B)
    for tp, kv_heads_a_rank in ((8, 1), (16, 1), (4, 2)):
        per_rank = model.layer_parameters(tp)
        queries = 2 * 8192 * 8192 // tp
        keys = 2 * 8192 * 128 * kv_heads_a_rank
        assert per_rank == queries + keys + 3 * 8192 * 28672 // tp + 2 * 8192
    with pytest.raises(InvalidInput, match="tp 32 and kv_heads 12: neither divides the other"):
        Workload(
            model=Model.transformer(
                hidden=96, layers=1, heads=96, kv_heads=12, vocab=8, sequence=32
            ),
            parallelism=Parallelism(tp=32),
            global_batch=1,
        )


def test_a_fault_of_a_nested_value_is_told_with_its_place() -> None:
    data = small().model_dump()
    data["model"]["stack"]["blocks"][0]["mixer"]["kv_heads"] = 5
    data["parallelism"]["tp"] = 0
    with pytest.raises(InvalidInput) as caught:
        Workload(**data)
    place = "model.stack.blocks[0].mixer.attention.kv_heads"
    assert f"{place}: 5 kv_heads do not divide 2 heads" in str(caught.value)
    assert "parallelism.tp: found 0" in str(caught.value)


def test_a_workload_survives_json() -> None:
    workload = small()
    assert Workload.model_validate_json(workload.model_dump_json()) == workload
    assert workload.sequence == 4  # the model's own


def test_the_time_to_build_sixteen_thousand_ranks_does_not_explode() -> None:
    model = Model.transformer(hidden=12288, layers=96, heads=96, vocab=51200, sequence=2048)
    workload = Workload(
        model=model, parallelism=Parallelism(tp=8, pp=16, dp=128), global_batch=1536
    )
    start = time.process_time()
    pcg = build_pcg(workload)
    assert time.process_time() - start < 10
    assert pcg.world_size == 16_384
    assert len(pcg.groups) == 3 * 2048 + 128 + 2 * 15 * 1024 + 2 * 128 + 1024
