"""Step estimates: what they are made of, and how they follow the place."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from estimate_inputs import GPT3, SMALL, cluster, workload
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement import (
    Estimator,
    Infeasible,
    InvalidInput,
    Model,
    estimate,
)
from railweave.placement.cost.compute import DeviceModel
from railweave.placement.cost.constants import CONSTANTS
from railweave.placement.cost.schedule import bubble_s
from railweave.placement.cost.work import Dispatch


def test_utilisation_falls_as_chips_outgrow_their_memory_bandwidth() -> None:
    """LLaMA-7B on cards of one memory, 148 to 443 TFLOP/s: 71 to 54 % in the published chart."""
    model = Model.transformer(
        hidden=4096, layers=32, heads=32, ffn=11008, vocab=32000, sequence=4096, gated_mlp=True
    )
    used = [
        estimate(workload(model, 256, tp=1, dp=8, micro_batch=2), cluster(1, chip)).mfu
        for chip in ("chip-148T", "chip-298T", "chip-443T")
    ]
    assert used[0] > used[1] > used[2]
    assert used[0] / used[2] == pytest.approx(0.713 / 0.54, rel=0.15)
    assert used[0] == pytest.approx(0.713, rel=0.1)


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(["none", "selective", "full"]),
    precision=st.sampled_from(["bf16", "fp16", "fp8"]),
    micro_batch=st.sampled_from([1, 2, 4]),
)
def test_the_parts_of_a_step_add_up_and_none_is_negative(
    tp: int, pp: int, zero: int, recompute: str, precision: str, micro_batch: int
) -> None:
    dp = 64 // (tp * pp)
    found = PLACE(
        workload(
            MODEL, 64 * micro_batch, tp=tp, pp=pp, dp=dp, zero=zero, recompute=recompute,
            precision=precision, micro_batch=micro_batch,
        )
    )  # fmt: skip
    assert math.fsum(found.breakdown.values()) == pytest.approx(found.step_s, rel=1e-12)
    assert math.fsum(found.memory.values()) == pytest.approx(found.memory_bytes, rel=1e-12)
    assert min(found.breakdown.values()) >= 0
    assert min(found.memory.values()) >= 0
    assert 0 < found.mfu < 1
    assert found.tokens_per_s * found.step_s == pytest.approx(64 * micro_batch * 1024)


MODEL = Model.transformer(**SMALL)
PLACE = Estimator(cluster(8, "H100-SXM"))


def test_ranks_in_order_are_what_no_devices_mean() -> None:
    place = cluster(2)
    in_order = [(node.name, index) for node in place.nodes for index in range(8)]
    work = workload(tp=4, pp=2, dp=2)
    assert estimate(work, place, in_order) == estimate(work, place)


def test_tensor_parallel_ranks_scattered_over_nodes_take_longer() -> None:
    place = cluster(2)
    in_order = [(node.name, index) for node in place.nodes for index in range(8)]
    random.Random(0).shuffle(in_order)
    work = workload(Model.transformer(**GPT3), tp=8, dp=2)
    scattered = estimate(work, place, in_order)
    assert scattered.step_s > estimate(work, place).step_s
    assert (
        scattered.breakdown["tensor_parallel"]
        > 2 * estimate(work, place).breakdown["tensor_parallel"]
    )


def test_oversubscription_slows_what_crosses_it() -> None:
    work = workload(Model.transformer(**GPT3), 64, tp=8, dp=4, zero=1)
    even = [{"name": "spine", "bandwidth": 25e9, "latency": 2e-6}]
    thin = [even[0] | {"oversubscription": 8}]
    wide = estimate(work, cluster(4, tiers=even)).breakdown
    narrow = estimate(work, cluster(4, tiers=thin)).breakdown
    assert narrow["data_parallel"] > 3 * wide["data_parallel"]
    assert narrow["tensor_parallel"] == wide["tensor_parallel"]


def test_nodes_joined_by_scale_up_links_are_one_island() -> None:
    tiers = [
        {"name": "rack", "bandwidth": 900e9, "latency": 1e-6, "scale_up": True},
        {"name": "spine", "bandwidth": 50e9, "latency": 2e-6},
    ]
    nodes = [
        {"name": f"n{n}", "accelerator": "GB200", "devices": 4, "domains": {"rack": f"r{n // 4}"}}
        for n in range(8)
    ]
    joined = cluster(1, tiers=tiers, nodes=nodes, rails=4)
    apart = cluster(1, tiers=tiers[1:], rails=4, nodes=[node | {"domains": {}} for node in nodes])
    work = workload(Model.transformer(**(GPT3 | {"heads": 128, "hidden": 16384})), tp=16, dp=2)
    wide, narrow = estimate(work, joined).breakdown, estimate(work, apart).breakdown
    assert narrow["tensor_parallel"] > 2 * wide["tensor_parallel"]


def test_the_slowest_stage_of_mixed_devices_is_named() -> None:
    nodes = [
        {"name": "a", "accelerator": "A100-80G", "devices": 8},
        {"name": "v", "accelerator": "V100", "devices": 8},
    ]
    found = estimate(workload(Model.transformer(**GPT3), 64, tp=8, pp=2), cluster(1, nodes=nodes))
    assert (found.slowest_stage, found.slowest_rank) == (1, 8)
    alike = estimate(workload(Model.transformer(**GPT3), 64, tp=8, pp=2), cluster(2))
    assert found.step_s > 1.5 * alike.step_s


def test_recomputation_costs_time_and_saves_memory() -> None:
    place, model = cluster(1), Model.transformer(**SMALL)
    kinds = ("none", "selective", "full")
    found = [
        estimate(workload(model, tp=8, recompute=kind, precision="fp16"), place) for kind in kinds
    ]
    assert found[0].step_s < found[1].step_s < found[2].step_s
    assert found[0].memory_bytes > found[1].memory_bytes > found[2].memory_bytes


def test_less_fusion_takes_longer_and_more_memory() -> None:
    place = cluster(1)
    model = Model.transformer(**(SMALL | {"hidden": 4096, "heads": 32}))
    none, elements, all_of_it = (
        estimate(workload(model, tp=8, fusion=fusion), place)
        for fusion in ("none", "elementwise", "attention")
    )
    assert none.step_s > elements.step_s > all_of_it.step_s
    assert none.memory_bytes >= elements.memory_bytes > all_of_it.memory_bytes


def test_fp8_makes_large_steps_faster_but_not_twice() -> None:
    place, model = cluster(8, "H100-SXM", 50e9), Model.transformer(**GPT3)
    wide = estimate(workload(model, 64, tp=8, pp=8, virtual_pp=3), place).step_s
    narrow = estimate(workload(model, 64, tp=8, pp=8, virtual_pp=3, precision="fp8"), place).step_s
    assert 1.2 < wide / narrow < 2


def test_an_uneven_stage_sets_the_pace_and_waits_for_the_others_once() -> None:
    assert bubble_s("1f1b", [(3, 1.0, 0.3), (1, 2.0, 0.6)], 1) == 3.0


@given(
    m=st.integers(1, 16384),
    n=st.integers(1, 16384),
    k=st.integers(1, 16384),
)
def test_a_matrix_product_never_beats_its_roofline(m: int, n: int, k: int) -> None:
    seconds = DEVICE.product_s(m, n, k)
    assert seconds >= 2 * m * n * k / 312e12
    assert seconds >= 2 * (m * k + k * n + m * n) / 2039e9
    assert DEVICE.product_s(m, n, 2 * k) > seconds


DEVICE = DeviceModel(cluster(1).accelerator("A100-80G"), "bf16", CONSTANTS)


def test_days_cost_and_energy_follow_from_the_step() -> None:
    found = estimate(workload(tp=8, batch=64), cluster(1))
    tokens = 1e9
    seconds = tokens / found.tokens_per_s
    assert found.days(tokens) == pytest.approx(seconds / 86400)
    assert found.device_hours(tokens) == pytest.approx(seconds / 3600 * 8)
    assert found.cost(tokens, 2.0) == pytest.approx(2 * found.device_hours(tokens))
    kwh = found.device_hours(tokens) * 400 * 1.3 / 1000
    assert found.energy_kwh(tokens, pue=1.3) == pytest.approx(kwh)


def test_energy_of_a_device_of_unknown_power_is_asked_for() -> None:
    found = estimate(workload(tp=8, batch=64), cluster(1, "chip-148T"))
    with pytest.raises(InvalidInput, match="power_w"):
        found.energy_kwh(1e9)
    assert found.energy_kwh(1e9, power_w=300) > 0


def test_a_cluster_too_small_is_refused_with_what_is_short() -> None:
    with pytest.raises(Infeasible, match=r"16 ranks on 8 free devices.*8 too few"):
        estimate(workload(tp=8, dp=2), cluster(1))


def test_devices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no node 'nowhere'"):
        estimate(workload(tp=1), cluster(1), [("nowhere", 0)])
    with pytest.raises(InvalidInput, match="device 8 of n000; it has 8"):
        estimate(workload(tp=1), cluster(1), [("n000", 8)])


def test_a_job_that_does_not_fit_is_estimated_and_says_so() -> None:
    found = estimate(workload(Model.transformer(**GPT3), 8, tp=8), cluster(1))
    assert not found.fits
    assert found.memory_bytes > found.memory_limit_bytes


def test_stages_with_more_layers_set_the_pace() -> None:
    model = Model.transformer(**GPT3)
    uneven = workload(model, 64, tp=8, pp=4, stage_layers=(22, 28, 24, 22))
    found = estimate(uneven, cluster(4))
    assert (found.slowest_stage, found.slowest_rank) == (1, 8)
    assert found.step_s > estimate(workload(model, 64, tp=8, pp=4), cluster(4)).step_s


def test_putting_off_weight_gradients_fills_part_of_the_bubble() -> None:
    model = Model.transformer(**GPT3)
    plain, filled = (
        estimate(workload(model, 64, tp=8, pp=8, schedule=schedule), cluster(8)).breakdown
        for schedule in ("1f1b", "zero-bubble")
    )
    assert 0.6 * plain["bubble"] < filled["bubble"] < 0.8 * plain["bubble"]
    assert filled["compute"] == plain["compute"]


def test_hybrid_sharding_gathers_within_nodes_and_holds_more() -> None:
    model = Model.transformer(**(GPT3 | {"layers": 12}))
    place = cluster(4, "H100-SXM", 5e9)
    whole, hybrid = (
        estimate(workload(model, 32, dp=32, zero=3, shard=shard), place) for shard in (32, 8)
    )
    assert hybrid.breakdown["data_parallel"] < whole.breakdown["data_parallel"]
    assert hybrid.memory["optimizer"] == 4 * whole.memory["optimizer"]


@pytest.mark.parametrize("form", ["ring", "all-to-all"])
def test_context_parallel_attention_communicates_in_either_form(form: str) -> None:
    model = Model.transformer(**(SMALL | {"sequence": 8192}))
    found = estimate(workload(model, 8, cp=8, context_form=form), cluster(1, "H100-SXM"))
    assert found.breakdown["context_parallel"] > 0


MIXTURE = Model.transformer(**SMALL, gated_mlp=True, experts=64, experts_per_token=8)


def test_tokens_travel_to_experts_on_other_ranks_alone() -> None:
    place = cluster(4, "H100-SXM", 50e9)
    for ep, away in ((1, False), (8, True), (32, True)):
        found = estimate(workload(MIXTURE, 64, dp=32, ep=ep), place)
        assert (found.breakdown["expert_parallel"] > 0) == away
    near, far = (estimate(workload(MIXTURE, 64, dp=32, ep=ep), place) for ep in (8, 32))
    assert far.breakdown["expert_parallel"] > near.breakdown["expert_parallel"]
    assert far.memory["weights"] < near.memory["weights"]


def test_narrow_dispatch_takes_less_time() -> None:
    place = cluster(4, "H100-SXM", 50e9)
    model = Model.transformer(
        **(SMALL | {"hidden": 4096, "heads": 32}), gated_mlp=True, experts=64, experts_per_token=8
    )
    wide, narrow = (
        estimate(workload(model, 64, dp=32, ep=32, fp8_dispatch=narrow), place).breakdown
        for narrow in (False, True)
    )
    assert narrow["expert_parallel"] < 0.9 * wide["expert_parallel"]


def test_a_token_reaches_the_expected_number_of_islands() -> None:
    """The published expectation M (1 - C(E - E/M, k) / C(E, k)), here M = 8, E = 256, k = 8."""
    part = Dispatch(1.0, 256, 8).part_to_islands(8)
    missed = math.prod((224 - i) / (256 - i) for i in range(8))
    assert part * 8 * 7 / 8 == pytest.approx(7 * (1 - missed))
    assert Dispatch(1.0, 64, 1).part_to_islands(8) == pytest.approx(1.0)


def test_gathering_inputs_again_takes_time() -> None:
    place, model = cluster(1, "H100-SXM"), Model.transformer(**GPT3)
    once, again = (
        estimate(workload(model, 8, tp=8, regather_inputs=again), place).breakdown
        for again in (False, True)
    )
    assert again["tensor_parallel"] == pytest.approx(1.25 * once["tensor_parallel"], rel=0.05)


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "llama-3.1-8b",
        "mixtral-8x7b",
        "deepseek-v3",
        "nemotron-3-nano",
        "t5-11b",
        "vit-b-16",
    ],
)
def test_a_single_stage_holds_exactly_the_parameters_of_its_model(name: str) -> None:
    model = Model.from_catalog(name)
    sequence = min(model.sequence or 512, 512)
    found = estimate(workload(model, 8, dp=8, zero=0, sequence=sequence), cluster(1))
    assert found.memory["weights"] == 2 * (model.parameters + model.prediction_parameters)


def test_an_estimator_that_forgets_answers_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    place = cluster(8)
    works = [workload(tp=tp, dp=64 // tp, batch=64) for tp in (1, 2, 4, 8)]
    expected = [Estimator(place)(work) for work in works]
    monkeypatch.setattr("railweave.placement.cost.estimator._MOST_SHAPES", 2)
    forgetful = Estimator(place)
    assert [forgetful(work) for work in works for _ in range(2)] == [
        found for found in expected for _ in range(2)
    ]
    assert [forgetful(work) for work in works] == expected


def test_a_result_can_be_changed_without_changing_the_next() -> None:
    place, work = cluster(1), workload(tp=8)
    first = estimate(work, place)
    first.memory.clear()
    first.breakdown.clear()
    assert estimate(work, place).memory
    assert estimate(work, place).breakdown


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ("n0", "devices: 1 problem\n  found 'n0'; give a list"),
        ([("n000", 0), None], r"devices\[1\]: found None; give \(node name, device number\)"),
        ([("n000", "0"), ("n000", 1)], r"devices\[0\]: found \('n000', '0'\)"),
        ([("n000", 0), ("n000", 0)], r"devices\[1\]: device 0 of n000, which rank 0 has"),
        ([("n000", 0), ("n000", 8)], r"devices\[1\]: device 8 of n000; it has 8"),
    ],
)
def test_devices_that_are_none_are_refused_with_their_rank(devices: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        estimate(workload(tp=2), cluster(1), devices)


@pytest.mark.parametrize("value", [None, "1e12", -1.0, float("nan"), float("inf"), True, [1]])
def test_tokens_prices_and_powers_are_finite_numbers(value: Any) -> None:
    found = estimate(workload(tp=8), cluster(1))
    for asked in (
        lambda: found.days(value),
        lambda: found.device_hours(value),
        lambda: found.cost(1e12, value),
        lambda: found.energy_kwh(value),
        lambda: found.energy_kwh(1e12, pue=value),
    ):
        with pytest.raises(InvalidInput, match="give a finite number"):
            asked()


def test_what_is_no_workload_or_cluster_is_refused() -> None:
    with pytest.raises(InvalidInput, match="workload: found None; give a Workload"):
        estimate(None, cluster(1))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="cluster: found 'c'; give a Cluster"):
        estimate(workload(tp=2), "c")  # type: ignore[arg-type]
