"""Plans: what a user may rely on, from the ranking to what is said when nothing fits."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from railweave.placement import (
    Cluster,
    Infeasible,
    InvalidInput,
    Limits,
    Model,
    Plan,
    build_pcg,
    check,
    estimate,
    evaluate,
    occupied,
    plan,
)
from railweave.placement.planning.baselines import MEGATRON, PLAIN
from railweave.placement.planning.planned import Run
from railweave.placement.planning.search import degrees_of
from railweave.placement.planning.seats import devices_in_order

GPT_7B = {"hidden": 4096, "layers": 32, "heads": 32, "vocab": 51200, "sequence": 2048}
MIXTURE = {
    "hidden": 2048, "layers": 8, "heads": 16, "kv_heads": 4, "ffn": 8192, "vocab": 32000,
    "sequence": 4096, "gated_mlp": True, "experts": 16, "experts_per_token": 2, "expert_ffn": 2048,
}  # fmt: skip


def cluster(count: int, accelerator: str = "H100-SXM", **changes: Any) -> Cluster:
    data: dict[str, Any] = {
        "format": "railweave.cluster/1",
        "name": "test",
        "rails": 8,
        "tiers": [
            {"name": "pod", "bandwidth": 50e9, "latency": 2e-6},
            {"name": "spine", "bandwidth": 50e9, "latency": 5e-6, "oversubscription": 4},
        ],
        "nodes": [
            {
                "name": f"n{n:03d}",
                "accelerator": accelerator,
                "devices": 8,
                "domains": {"pod": f"p{n // 4}"},
            }
            for n in range(count)
        ],
    }
    return Cluster.parse(data | changes)


@pytest.fixture(scope="module")
def dense() -> Plan:
    return plan(Model.transformer(**GPT_7B), cluster(4), global_batch=64, time_limit_s=0.2)


@pytest.fixture(scope="module")
def mixture() -> Plan:
    return plan(Model.transformer(**MIXTURE), cluster(4), global_batch=64, time_limit_s=0.2)


@pytest.mark.parametrize("name", ["dense", "mixture"])
def test_strategies_are_ranked_by_their_step_on_their_own_devices(
    name: str, request: pytest.FixtureRequest
) -> None:
    found: Plan = request.getfixturevalue(name)
    where = cluster(4)
    times = [one.estimate.step_s for one in found.strategies]
    assert times == sorted(times)
    assert len({degrees_of(one.workload) for one in found.strategies}) == len(times) == 10
    for one in found.strategies:
        devices = one.placement.devices
        assert len(set(devices)) == len(devices) == 32
        again = estimate(one.workload, where, devices)
        assert again.step_s == pytest.approx(one.estimate.step_s, rel=1e-12)
        assert again.fits
        traffic = evaluate(build_pcg(one.workload), where, devices).traffic_bytes
        assert one.placement.traffic_bytes == traffic
        assert one.estimate.step_s <= one.in_order_s * (1 + 1e-12)
        assert not any(finding.must for finding in check(one.workload, where))
    assert [one.placed for one in found.strategies] == [True] * 5 + [False] * 5


@pytest.mark.parametrize("name", ["dense", "mixture"])
def test_it_is_never_slower_than_the_rules_of_thumb(
    name: str, request: pytest.FixtureRequest
) -> None:
    found: Plan = request.getfixturevalue(name)
    assert [rule.name for rule in found.rules_of_thumb] == [PLAIN, MEGATRON]
    for rule in found.rules_of_thumb:
        assert rule.strategy is not None and rule.times_as_long is not None
        assert rule.strategy.estimate.step_s >= found.best.estimate.step_s
        assert rule.times_as_long >= 1
    plain, megatron = (rule.strategy for rule in found.rules_of_thumb if rule.strategy)
    assert plain.workload.parallelism.tp == plain.workload.parallelism.pp == 1
    assert megatron.workload.parallelism.zero == 1


def test_the_megatron_rule_takes_tensor_parallelism_to_the_node_then_stages_until_it_fits() -> None:
    found = plan(
        Model.from_catalog("gpt3-175b"),
        cluster(64, "A100-80G"),
        global_batch=512,
        sequence=2048,
        time_limit_s=0.1,
        keep=1,
        limits=Limits(tp=8, cp=1, zero=1, schedules="1f1b"),
        training={"software": "megatron"},
    )
    chosen = found.rules_of_thumb[1].strategy
    assert chosen is not None
    split = chosen.workload.parallelism
    assert split.tp == 8 and split.pp > 1
    assert split.dp * split.pp * split.tp <= 512
    assert found.best.estimate.step_s <= chosen.estimate.step_s


def test_a_runner_up_loses_by_parts_that_take_longer(dense: Plan) -> None:
    best = dense.best.estimate
    assert dense.best.why == ""
    for one in dense.strategies[1:]:
        if one.why in ("as fast", "slower by rounding"):
            assert one.estimate.step_s == pytest.approx(best.step_s, rel=1e-6)
            continue
        more = sum(one.estimate.breakdown.values()) - sum(best.breakdown.values())
        assert more > 0
        told = [float(text) for text in re.findall(r"\+([\d.e-]+) s", one.why)]
        largest = max(one.estimate.breakdown[n] - best.breakdown[n] for n in best.breakdown)
        assert told and max(told) == pytest.approx(largest, rel=5e-3)


def test_neighbours_are_slower_or_ruled_out_by_a_named_limit(dense: Plan) -> None:
    changes = {near.change.split()[0] for near in dense.neighbours}
    assert {"tp", "pp", "cp", "micro-batch", "recompute"} <= changes
    assert any(near.limit == "memory" or near.limit == "rule" for near in dense.neighbours)
    for near in dense.neighbours:
        assert near.outcome
        if near.step_s is None:
            assert near.limit in ("memory", "rule")
            assert near.limit == "rule" or "too much" in near.outcome
        else:
            assert near.step_s >= dense.best.in_order_s * (1 - 1e-9)


def test_the_counts_add_up_and_say_what_became_of_the_strategies(dense: Plan) -> None:
    counts = dict(dense.considered)
    considered = counts.pop("considered")
    assert considered == sum(counts.values()) > 1000
    assert counts["estimated"] == sum(point.fits for point in dense.points)
    assert counts["bound"] > 0 and counts["memory"] > 0


def test_the_same_arguments_give_the_same_plan(dense: Plan) -> None:
    again = plan(Model.transformer(**GPT_7B), cluster(4), global_batch=64, time_limit_s=0.2)
    assert again.to_data() == dense.to_data()
    assert [s.placement.devices for s in again.strategies] == [
        s.placement.devices for s in dense.strategies
    ]


def test_of_hundreds_of_thousands_of_strategies_few_are_worked_out() -> None:
    found = plan(
        Model.from_catalog("gpt3-175b"),
        cluster(128, "A100-80G"),
        global_batch=1536,
        sequence=2048,
        time_limit_s=0.1,
        keep=1,
    )
    assert found.considered["considered"] > 200_000
    assert len(found.points) < found.considered["considered"] / 50


def test_only_free_devices_are_used_wherever_they_are() -> None:
    where = occupied(cluster(12), 0.4, seed=3, faulty_fraction=0.1)
    free = {(node.name, d) for node in where.nodes for d in node.usable_devices}
    found = plan(Model.transformer(**GPT_7B), where, global_batch=64, time_limit_s=0.2, keep=2)
    assert found.free_devices == len(free)
    for one in found.strategies:
        assert set(one.placement.devices) <= free


def test_devices_in_order_are_those_that_an_estimate_takes() -> None:
    chance = random.Random(5)
    nodes = [
        {
            "name": f"n{n}",
            "accelerator": "A100-80G",
            "devices": 8,
            "domains": {"pod": f"p{chance.randrange(3)}"},
            "free_devices": sorted(chance.sample(range(8), chance.choice([4, 8]))),
        }
        for n in range(8)
    ]
    where = cluster(1, nodes=nodes)
    order = devices_in_order(where, 16)
    found = plan(
        Model.transformer(**GPT_7B), where, global_batch=64, devices=16, keep=3, time_limit_s=0.1
    )
    for one in found.strategies:
        packed = estimate(one.workload, where)
        assert estimate(one.workload, where, order).step_s == packed.step_s == one.in_order_s


def test_as_many_devices_as_asked_for() -> None:
    found = plan(
        Model.transformer(**GPT_7B),
        cluster(4),
        global_batch=64,
        devices=16,
        keep=1,
        time_limit_s=0.1,
    )
    assert found.best.estimate.devices == len(found.best.placement.devices) == 16
    with pytest.raises(Infeasible, match="33 devices asked for, 32 are free"):
        plan(Model.transformer(**GPT_7B), cluster(4), global_batch=64, devices=33)


def test_where_no_strategy_uses_all_devices_it_says_how_many_it_uses() -> None:
    where = cluster(1, nodes=[{"name": "n", "accelerator": "H100-SXM", "devices": 7,
                              "domains": {"pod": "p"}}])  # fmt: skip
    found = plan(
        Model.transformer(**GPT_7B),
        where,
        global_batch=64,
        time_limit_s=0.1,
        limits=Limits(pp=1),
    )
    assert found.best.estimate.devices < 7
    assert any("of the 7 free devices" in note for note in found.notes)
    rule = found.rules_of_thumb[0].strategy
    assert rule is None or rule.estimate.step_s >= found.best.estimate.step_s


def test_limits_hold_for_every_strategy() -> None:
    limits = Limits(
        tp=(2, 4), pp=2, zero=1, recompute="full", most_micro_batch=2, schedules="1f1b",
        sequence_parallel=False, cp=1, uneven_stages=False, memory_share=0.8,
    )  # fmt: skip
    found = plan(
        Model.transformer(**GPT_7B), cluster(4), global_batch=64, limits=limits, time_limit_s=0.1
    )
    for one in found.strategies:
        split = one.workload.parallelism
        assert split.tp in (2, 4) and (split.pp, split.cp, split.zero) == (2, 1, 1)
        assert not split.sequence_parallel and split.stage_layers is None
        assert one.workload.recompute == "full" and one.workload.micro_batch <= 2
        assert one.estimate.memory_bytes <= 0.8 * one.estimate.memory_limit_bytes


def test_tensor_parallelism_stays_inside_the_scale_up_domain_and_may_fill_a_wide_one() -> None:
    tiers = [
        {"name": "nvl", "bandwidth": 900e9, "latency": 1e-6, "scale_up": True},
        {"name": "spine", "bandwidth": 50e9, "latency": 5e-6},
    ]
    nodes = [
        {"name": f"n{n}", "accelerator": "GB200", "devices": 4, "domains": {"nvl": f"d{n // 4}"}}
        for n in range(8)
    ]
    where = cluster(1, tiers=tiers, nodes=nodes, rails=4)
    model = Model.transformer(**GPT_7B)
    found = plan(model, where, global_batch=64, time_limit_s=0.1, limits=Limits(tp=(8, 16, 32)))
    assert {one.workload.parallelism.tp for one in found.strategies} == {8, 16}
    narrow = plan(model, cluster(4), global_batch=64, time_limit_s=0.1, keep=20)
    assert max(one.workload.parallelism.tp for one in narrow.strategies) <= 8


def test_when_nothing_fits_it_says_what_memory_is_short_and_what_would_fit() -> None:
    model = Model.from_catalog("gpt3-175b")
    with pytest.raises(Infeasible) as error:
        plan(model, cluster(1, "A100-80G"), global_batch=64, sequence=2048)
    text = str(error.value)
    assert re.search(r"needs [\d.]+ GB on 85.9 GB, [\d.]+ GB too much \(optimizer", text), text
    more = re.search(r"It would fit on (\d+) devices: (.*), ([\d.]+) GB of 85.9 GB", text)
    assert more is not None, text
    enough = int(more[1])
    found = plan(
        model, cluster(enough // 8, "A100-80G"), global_batch=64, sequence=2048, keep=1,
        time_limit_s=0.1,
    )  # fmt: skip
    assert found.best.estimate.fits


def test_long_samples_that_do_not_fit_are_told_the_length_that_does() -> None:
    small = Model.transformer(**GPT_7B | {"hidden": 2048, "heads": 16, "sequence": 2**20})
    with pytest.raises(Infeasible, match=r"With a sequence of \d+ it would fit here"):
        plan(small, cluster(1, "V100", nodes=[
            {"name": "n", "accelerator": "V100", "devices": 2, "domains": {"pod": "p"}}
        ]), global_batch=2, limits=Limits(most_cp=1))  # fmt: skip


def test_what_no_strategy_could_satisfy_is_refused_with_what_to_change() -> None:
    model = Model.transformer(**GPT_7B)
    with pytest.raises(InvalidInput, match="sequence 4096 over the model's 2048"):
        plan(model, cluster(1), global_batch=8, sequence=4096)
    with pytest.raises(
        InvalidInput, match=r"training.micro_batch.*use fp32_gradients, fp8_dispatch"
    ):
        plan(model, cluster(1), global_batch=8, training={"micro_batch": 2})
    with pytest.raises(InvalidInput, match=r"training\.precision"):
        plan(model, cluster(1), global_batch=8, training={"precision": "bf16"})
    odd: list[tuple[str, Any, str]] = [
        ("keep", 0, "keep: found 0; give a whole number from 1"),
        ("keep", None, "keep: found None"),
        ("devices", 1.5, "devices: found 1.5; give a whole number from 1"),
        ("devices", "8", "devices: found '8'"),
        ("time_limit_s", float("nan"), "time_limit_s: found nan; give seconds"),
        ("seed", -1, "seed: found -1"),
        ("limits", 3, "limits: found 3; give Limits"),
        ("training", 3, "training: found 3; give fields of Workload by name"),
    ]
    for name, value, told in odd:
        asked: dict[str, Any] = {"global_batch": 8, name: value}
        with pytest.raises(InvalidInput, match=told):
            plan(model, cluster(1), **asked)
    with pytest.raises(InvalidInput, match="model: found 'gpt'; give a Model"):
        plan("gpt", cluster(1), global_batch=8)  # type: ignore[arg-type]
    with pytest.raises(Infeasible, match="no strategy within the limits satisfies the rules"):
        plan(model, cluster(1), global_batch=8, limits=Limits(tp=3))


def test_clusters_of_several_kinds_get_a_plan_on_the_kind_that_is_fastest() -> None:
    nodes = [
        {
            "name": f"n{n}",
            "accelerator": "H100-SXM" if n < 2 else "A100-80G",
            "devices": 8,
            "domains": {"pod": f"p{n // 2}"},
        }
        for n in range(4)
    ]
    where = cluster(1, nodes=nodes)
    found = plan(
        Model.transformer(**GPT_7B),
        where,
        global_batch=64,
        time_limit_s=0.2,
        keep=4,
        mix_kinds=False,
    )
    assert any("see mix_kinds" in note for note in found.notes)
    kinds = {
        where.node(name).accelerator
        for one in found.strategies
        for name, _ in one.placement.devices
    }
    assert len({where.node(n).accelerator for n, _ in found.best.placement.devices}) == 1
    assert found.best.pcg.required_accelerators() == dict.fromkeys(range(16), "H100-SXM")
    assert kinds <= {"H100-SXM", "A100-80G"}


def test_a_pipeline_over_several_kinds_gives_each_stage_layers_to_match_and_its_own_kind() -> None:
    nodes = [
        {
            "name": f"n{n}",
            "accelerator": "H100-SXM" if n % 2 else "A100-80G",
            "devices": 4,
            "domains": {"pod": "p"},
        }
        for n in range(4)
    ]
    where = cluster(1, nodes=nodes, rails=4)
    ask: dict[str, Any] = {
        "global_batch": 32,
        "limits": Limits(zero=1, micro_batch=1, cp=1, schedules="1f1b", recompute="none"),
        "training": {"software": "megatron"},
        "time_limit_s": 0.2,
        "keep": 4,
    }
    model = Model.transformer(**GPT_7B)
    found = plan(model, where, **ask)
    best = found.best
    alone = plan(model, where, mix_kinds=False, **ask).best
    assert best.estimate.step_s < alone.estimate.step_s
    kinds = {name: where.node(name).accelerator for name, _ in best.placement.devices}
    needed = best.pcg.required_accelerators()
    assert {kinds[name] for name, _ in best.placement.devices} == {"A100-80G", "H100-SXM"}
    for rank, (name, _) in enumerate(best.placement.devices):
        assert needed[rank] == kinds[name]
    split = best.workload.parallelism
    assert split.stage_layers is not None
    layers: dict[str, list[int]] = {}
    ranks = split.world_size // split.pp
    for stage, count in enumerate(split.stage_layers):
        layers.setdefault(needed[stage * ranks], []).append(count)
    assert min(layers["H100-SXM"]) > max(layers["A100-80G"])
    [even] = [near for near in found.neighbours if near.change == "even stages"]
    assert even.step_s is None or even.step_s > best.estimate.step_s
    assert "A100-80G" in str(best) and "H100-SXM" in str(best)


def test_a_whole_training_is_told_in_days_money_and_energy(dense: Plan) -> None:
    run = Run(tokens=1e12, price_per_device_hour=2.0, pue=1.3)
    told = dense.to_data(run)["strategies"][0]["run"]
    best = dense.best.estimate
    assert told["days"] == pytest.approx(1e12 / best.tokens_per_s / 86400)
    assert told["cost"] == pytest.approx(2.0 * told["device_hours"])
    assert told["energy_kwh"] == pytest.approx(told["device_hours"] * 0.7 * 1.3)
    assert best.tokens_per_s * best.step_s == pytest.approx(64 * 2048)
