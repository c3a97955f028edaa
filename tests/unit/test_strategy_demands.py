"""What strategies ask of a cluster: a published table's magnitudes, from the models' own shapes."""

from __future__ import annotations

import time

import pytest
from railweave.placement import (
    Model,
    Op,
    Parallelism,
    StrategyDemand,
    Workload,
    build_pcg,
    clos_8_rail,
    estimate,
    strategy_demands,
)
from railweave.placement.cost.flops import training_flops_per_token
from railweave.placement.models.catalog import CATALOG

GPT = Model.from_catalog("gpt3-175b-megatron-v51200")
CLUSTER = clos_8_rail(units=7)
"""1,120 A100 of 80 GB, eight a node, with a NIC each."""
GB, MB = 1e9, 1e6


def gpt(**split: object) -> Workload:
    return Workload(
        model=GPT,
        parallelism=Parallelism(**{"tp": 8, "pp": 16, "dp": 8} | split),  # type: ignore[arg-type]
        global_batch=1536,
        recompute="full",
    )


def demands(workload: Workload, **more: object) -> dict[str, StrategyDemand]:
    found = strategy_demands(workload, **more)  # type: ignore[arg-type]
    return {one.strategy: one for one in found}


def test_tensor_parallelism_sends_hundreds_of_gigabytes_in_a_node_and_less_with_more_stages() -> (
    None
):
    found = demands(gpt())["tensor"]
    assert found.ranks == 8
    assert 100 * GB < found.bytes_a_rank < 1000 * GB
    layers = {
        pp: demands(gpt(pp=pp, dp=8, vocabulary_parallel=False))["tensor"].bytes_a_rank
        for pp in (4, 8, 16)
    }
    assert layers[4] == pytest.approx(2 * layers[8], rel=1e-3)
    assert layers[4] == pytest.approx(4 * layers[16], rel=1e-3)
    # 6 all-reduces of 2 s b h a layer and micro-batch with full recomputation.
    one = 6 * 2 * 2048 * 12288 * 2 * 7 / 8 * 6 * 192
    assert layers[16] == pytest.approx(one, rel=1e-3)


def test_pipelines_send_megabytes_at_a_time_between_two_ranks() -> None:
    found = demands(gpt(sequence_parallel=False))["pipeline"]
    assert (found.operations, found.ranks) == ((Op.SEND_RECV,), 2)
    assert found.bytes_a_call == 2 * 2048 * 12288  # 50 MB
    assert demands(gpt())["pipeline"].bytes_a_call == 2 * 2048 * 12288 / 8
    assert found.calls == 2 * 192


def test_data_parallelism_sends_gigabytes_once_a_step_in_many_groups() -> None:
    found = demands(gpt(zero=0), cluster=CLUSTER)["data"]
    assert (found.operations, found.ranks, found.groups) == ((Op.ALL_REDUCE,), 8, 128)
    assert GB < found.bytes_a_rank < 10 * GB
    assert found.calls == 1
    assert found.between_s is not None and 10 < found.between_s < 100


def test_sharding_gathers_hundreds_of_gigabytes_over_the_stages_in_a_node() -> None:
    for pp in (2, 4, 16):
        found = demands(gpt(tp=1, pp=pp, dp=1024 // pp, zero=3, shard=8))["sharding"]
        assert (found.operations, found.ranks) == ((Op.ALL_GATHER,), 8)
        assert found.bytes_a_call == pytest.approx(350 * GB / pp, rel=0.06)


def test_experts_send_hundreds_of_gigabytes_among_a_hundred_ranks() -> None:
    stages = (8, 8, 8, 8, 8, 8, 7, 6)
    workload = Workload(
        model=Model.from_catalog("deepseek-v3"),
        parallelism=Parallelism(pp=8, dp=128, ep=128, stage_layers=stages),
        global_batch=4096,
        sequence=4096,
    )
    found = strategy_demands(workload)
    assert found[0].strategy == "expert"
    assert (found[0].operations, found[0].ranks) == ((Op.ALL_TO_ALL,), 128)
    assert 100 * GB < found[0].bytes_a_rank < 1000 * GB
    # Tokens x experts a token x hidden x 2 bytes, four times a layer and micro-batch.
    size = 4096 * 8 * 7168 * 2
    assert found[0].bytes_a_call == size
    assert found[0].bytes_a_rank == pytest.approx(size * 127 / 128 * 4 * 32 * 8)


def test_a_model_of_175_billion_parameters_takes_314_zettaflop_for_300_billion_tokens() -> None:
    own = training_flops_per_token(GPT, 2048) * 300e9
    assert 6 * GPT.parameters * 300e9 == pytest.approx(314e21, rel=0.005)
    assert own == pytest.approx(314e21, rel=0.02)
    core = 3 * GPT.block(0).cores()[0].flops_per_token(2048) * GPT.layers * 300e9
    assert own - core == pytest.approx(314e21, rel=0.005)  # without the scores of attention


def test_that_is_about_34_days_on_1024_a100() -> None:
    found = estimate(gpt(), CLUSTER)
    assert found.fits
    assert found.days(300e9) == pytest.approx(34, rel=0.1)


def split_for(model: Model) -> dict[str, int]:
    heads = {b.attention.heads for _, b in model.kinds if b.attention is not None}
    split = {"tp": 2 if all(count % 2 == 0 for count in heads) else 1, "dp": 4, "cp": 2}
    return split | ({"ep": 2} if model.experts % 2 == 0 and model.experts else {})


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_every_model_of_the_catalog_has_a_graph(name: str) -> None:
    model = Model.from_catalog(name)
    sequence = min(model.sequence or 2048, 2048) // 4 * 4
    workload = Workload(
        model=model,
        parallelism=Parallelism(**split_for(model)),  # type: ignore[arg-type]
        global_batch=8,
        sequence=sequence,
    )
    kinds = {str(group.kind) for group in build_pcg(workload).groups}
    assert {"cp", "dp"} <= kinds
    assert ("ep" in kinds) == ("ep" in split_for(model))


def test_the_time_to_build_a_mixture_on_sixteen_thousand_ranks_does_not_explode() -> None:
    workload = Workload(
        model=Model.from_catalog("deepseek-v3"),
        parallelism=Parallelism(
            tp=2, cp=2, pp=16, dp=256, ep=64, etp=2, stage_layers=(*(4,) * 15, 1)
        ),
        global_batch=8192,
        sequence=4096,
    )
    start = time.process_time()
    pcg = build_pcg(workload)
    assert time.process_time() - start < 5
    assert pcg.world_size == 16_384
    assert len(pcg.groups) > 90_000
