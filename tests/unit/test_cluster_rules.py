"""What depends on the cluster: each rule broken by itself, with its number; loads of ranks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from railweave.placement import (
    Cluster,
    Model,
    Parallelism,
    Workload,
    check,
    estimate,
    stage_flops,
    stage_loads,
    stage_parameters,
)
from railweave.placement.cost.flops import training_flops_per_token
from railweave.placement.models.catalog import CATALOG
from railweave.placement.strategies.loads import layer_flops


def cluster(nodes: int = 8, devices: int = 8, kind: str = "A100-80G", **more: Any) -> Cluster:
    tiers = [{"name": "spine", "bandwidth": 25e9, "latency": 7e-6}]
    named = [
        {"name": f"n{index}", "accelerator": kind, "devices": devices, "domains": {}}
        for index in range(nodes)
    ]
    data = {"format": "railweave.cluster/1", "name": "lab", "tiers": tiers, "rails": 8}
    return Cluster.parse(data | {"nodes": named} | more)


LLAMA_8B = Model.from_catalog("llama-3-8b")


def workload(model: Model = LLAMA_8B, batch: int = 64, **given: Any) -> Workload:
    split = {key: given.pop(key) for key in list(given) if key in Parallelism.model_fields}
    return Workload(
        **{
            "model": model,
            "parallelism": Parallelism(**split),
            "global_batch": batch,
            "sequence": 4096,
        }
        | given
    )


def told(found: list[Any], rule: str) -> str:
    (finding,) = [finding for finding in found if finding.rule == rule]
    return str(finding.problem)


def test_what_fits_and_is_balanced_breaks_no_rule() -> None:
    assert check(workload(tp=8, dp=8), cluster()) == []


def test_a_lack_of_devices_is_told_with_how_many_are_short() -> None:
    found = check(workload(tp=8, dp=16), cluster())
    assert [finding.must for finding in found] == [True, False]
    assert "128 ranks on 64 free devices: 64 too few" in told(found, "devices_suffice")


def test_tensor_groups_wider_than_a_node_are_told_with_its_width() -> None:
    found = check(workload(tp=16, dp=4), cluster())
    text = told(found, "tensor_groups_in_scale_up_domains")
    assert text == "parallelism.tp: tp 16, but the widest node has 8 free devices; use tp 8 at most"
    assert not any(finding.must for finding in found)


def test_tensor_groups_that_do_not_fill_nodes_are_told_with_the_room_there_is() -> None:
    found = check(workload(tp=4, dp=4), cluster(nodes=3, devices=6))
    text = told(found, "tensor_groups_in_scale_up_domains")
    assert "4 groups of tp 4, but node domains have room for 3 whole ones" in text


def test_wider_scale_up_domains_count_as_such() -> None:
    wide = {"name": "rack", "bandwidth": 450e9, "latency": 2e-6, "scale_up": True}
    spine = {"name": "spine", "bandwidth": 25e9, "latency": 7e-6}
    nodes = [
        {"name": f"n{i}", "accelerator": "GB200", "devices": 4, "domains": {"rack": f"r{i // 8}"}}
        for i in range(16)
    ]
    plain = cluster().to_data()
    found = check(
        workload(tp=16, dp=4), Cluster.parse(plain | {"tiers": [wide, spine], "nodes": nodes})
    )
    assert not [one for one in found if one.rule == "tensor_groups_in_scale_up_domains"]


def test_a_precision_that_the_devices_lack_is_told_with_those_they_have() -> None:
    text = told(check(workload(tp=8, dp=8, precision="fp8"), cluster()), "precision_is_native")
    assert "fp8, but A100-80G has bf16, fp16" in text
    assert check(workload(tp=8, dp=8, precision="fp8"), cluster(kind="H100-SXM")) == []


@pytest.mark.parametrize(
    ("given", "largest", "fix"),
    [
        ({"tp": 1, "dp": 64, "zero": 0}, "(optimizer 96.4", "use zero 1"),
        ({"tp": 2, "dp": 8, "micro_batch": 8}, "(activations", "use more recompute or micro_batch"),
        ({"tp": 1, "zero": 1}, "(optimizer 96.4", "use a larger tp or pp"),
    ],
)
def test_memory_that_is_short_is_told_by_stage_and_part_with_what_to_change(
    given: dict[str, Any], largest: str, fix: str
) -> None:
    found = check(workload(sequence=2048, **given), cluster())
    text = told(found, "memory_suffices")
    assert "a rank of stage 0 needs" in text and "GB of 85.9" in text
    assert largest in text and fix in text


def test_memory_is_short_exactly_where_the_estimate_says_that_it_does_not_fit() -> None:
    for micro_batch in (1, 2, 4, 8):
        for zero in (0, 1, 3):
            one = workload(tp=2, dp=32, zero=zero, micro_batch=micro_batch, batch=256)
            broken = any(finding.must for finding in check(one, cluster()))
            assert broken != estimate(one, cluster()).fits


def test_unbalanced_stages_are_told_with_a_division_that_is_better_by_what_it_says() -> None:
    one = workload(tp=1, pp=8, dp=8)
    (finding,) = check(one, cluster())
    assert not finding.must
    text = str(finding.problem)
    assert "stage 7 takes" in text and "x the mean; stage_layers (" in text
    layers = tuple(int(count) for count in text.split("(")[1].split(")")[0].split(","))
    better = workload(tp=1, pp=8, dp=8, stage_layers=layers)
    assert check(better, cluster()) == []
    before, after = (
        max(load.micro_batch_s for load in stage_loads(each, cluster())) for each in (one, better)
    )
    assert f"{1 - after / before:.0%} less" in text


def test_flops_of_equal_stages_are_the_models_own() -> None:
    for model, split in (
        (LLAMA_8B, {"tp": 4, "pp": 4, "dp": 2, "cp": 2}),
        (Model.from_catalog("mixtral-8x7b"), {"tp": 2, "pp": 4, "dp": 4, "ep": 4}),
        (Model.from_catalog("deepseek-v3"), {"tp": 2, "dp": 8, "ep": 16, "etp": 1}),
    ):
        one = workload(model, **split)
        ranks = one.parallelism.world_size // one.parallelism.pp
        whole = sum(each.forward + each.backward for each in stage_flops(one)) * ranks
        own = training_flops_per_token(model, 4096) * 4096 * one.global_batch
        assert whole == pytest.approx(own, rel=1e-9)


def test_ranks_that_do_not_share_out_the_sequence_repeat_what_each_has_whole() -> None:
    model = Model.from_catalog("mixtral-8x7b")
    alone = stage_flops(workload(model, tp=2, dp=4))[0].forward
    again = stage_flops(workload(model, tp=2, dp=4, sequence_parallel=False))[0].forward
    routers = 2 * model.layers * model.hidden * model.experts * 4096 * 64 / 4
    assert again - alone == pytest.approx(routers / 2)


def test_recomputation_repeats_the_forward_pass_or_the_attention_alone() -> None:
    plain, selective, full = (
        stage_flops(workload(pp=4, recompute=how)) for how in ("none", "selective", "full")
    )
    assert plain[0].repeated == 0
    assert full[0].repeated == full[0].forward
    heads = 2 * LLAMA_8B.hidden * LLAMA_8B.vocab * 4096 * 64
    assert full[3].repeated == pytest.approx(full[3].forward - heads)
    core = LLAMA_8B.block(0).cores()[0].flops_per_token(4096)
    assert selective[0].repeated == pytest.approx(8 * core * 4096 * 64)


def test_earlier_stages_hold_activations_of_more_micro_batches() -> None:
    loads = stage_loads(workload(tp=2, pp=8, dp=4), cluster())
    held = [load.memory["activations"] for load in loads]
    assert held == sorted(held, reverse=True)
    steps = [a - b for a, b in pairwise(held)]
    assert steps[1:-1] == pytest.approx([steps[1]] * (len(steps) - 2))
    for load in loads:
        assert load.parameters == stage_parameters(workload(tp=2, pp=8, dp=4), load.stage)
        assert load.memory_bytes == pytest.approx(sum(load.memory.values()))
        assert load.layers == (4,)
    most = max(load.memory_bytes for load in loads)
    assert estimate(workload(tp=2, pp=8, dp=4), cluster()).memory_bytes == most


def test_layers_of_a_model_cost_what_its_stages_do() -> None:
    one = workload(Model.from_catalog("deepseek-v3"), pp=1, dp=8, ep=8)
    layers, first, last = layer_flops(one)
    assert len(layers) == one.model.layers
    whole = (sum(layers) + first + last) * one.micro_batches
    assert whole == pytest.approx(stage_flops(one)[0].forward)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_two_counts_of_a_stages_parameters_agree(name: str) -> None:
    model = Model.from_catalog(name)
    half = model.layers // 2
    heads = {b.attention.heads for _, b in model.kinds if b.attention is not None}
    for split in ({"tp": 1, "pp": 2}, {"tp": 2, "pp": 2, "dp": 4}):
        if any(count % split["tp"] for count in heads):
            continue
        one = workload(
            model,
            batch=8,
            zero=0,
            stage_layers=(half, model.layers - half),
            ep=split.get("dp", 1) if model.experts else 1,
            sequence=min(model.sequence or 2048, 2048) // 8 * 8,
            **split,
        )
        for load in stage_loads(one, cluster()):
            assert load.memory["weights"] == 2 * load.parameters
