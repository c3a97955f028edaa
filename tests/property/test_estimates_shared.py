"""What estimates share changes none: places of groups by their axes, and anything kept."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import (
    Cluster,
    Estimator,
    InvalidInput,
    Model,
    Parallelism,
    Workload,
    estimate,
)
from railweave.placement.cost.layout import Layouts
from railweave.placement.cost.spans import ground_of, packed
from railweave.placement.strategies.grid import Grid, sharded

DENSE = {"hidden": 1024, "heads": 16, "kv_heads": 8, "ffn": 4096, "vocab": 32000, "sequence": 2048}
MODELS = [
    Model.transformer(**DENSE, layers=12, gated_mlp=True),
    Model.transformer(
        **DENSE, layers=12, gated_mlp=True, experts=16, experts_per_token=2, dense_layers=2
    ),
]
ORDERS = ["tp-cp-ep-dp-pp", "tp-pp-cp-dp-ep", "pp-dp-tp-ep-cp", "ep-dp-cp-tp-pp", "cp-tp-ep-pp-dp"]


def cluster(kinds: list[str], nodes: int, devices: int) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "lab",
            "rails": devices,
            "tiers": [
                {"name": "tor", "bandwidth": 50e9, "latency": 2e-6},
                {"name": "pod", "bandwidth": 25e9, "latency": 3e-6, "oversubscription": 2},
                {"name": "spine", "bandwidth": 25e9, "latency": 5e-6, "oversubscription": 4},
            ],
            "nodes": [
                {
                    "name": f"n{n}",
                    "accelerator": kinds[n * len(kinds) // nodes],
                    "devices": devices,
                    "domains": {"tor": f"t{n // 3}", "pod": f"p{n // 6}"},
                }
                for n in range(nodes)
            ],
        }
    )


PLACES = [
    cluster(["A100-80G"], 16, 8),
    cluster(["H100-SXM", "A100-80G"], 12, 8),
    cluster(["H100-SXM"], 33, 3),
]


VALUES: dict[str, list[Any]] = {
    "tp": [1, 2, 3, 4, 8],
    "cp": [1, 2, 3, 4],
    "dp": [1, 2, 3, 4, 6, 8],
    "pp": [1, 2, 3, 4],
    "ep": [1, 2, 4, 8],
    "etp": [None, 1, 2],
    "shard": [None, None, 1, 2, 3, 4, 6, 8],
    "virtual_pp": [1, 1, 2],
    "zero": [0, 1, 2, 3],
}


def split_of(seed: int) -> Parallelism:
    """A split whose groups are whole, on 96 ranks at most."""
    chance = random.Random(seed)
    while True:
        split = Parallelism(**{name: chance.choice(values) for name, values in VALUES.items()})
        if split.world_size > 96 or split.tp * split.cp * split.dp % (split.expert_tp * split.ep):
            continue
        whole = split.dp * split.cp % split.shard_size == 0
        if whole and split.expert_dp % split.expert_shard_size == 0:
            return split


splits = st.integers(0, 10**9).map(split_of)


@settings(max_examples=60, deadline=None)
@given(splits, st.sampled_from(ORDERS), st.sampled_from(PLACES), st.integers(0, 5))
def test_groups_lie_where_every_one_of_them_counted_lies(
    split: Parallelism, order: str, place: Cluster, seed: int
) -> None:
    workload = Workload.model_construct(
        model=MODELS[1], parallelism=split, global_batch=1, sequence=2048, rank_order=order
    )
    ground = packed(place)
    if seed:
        devices = [(n.name, d) for n in place.nodes for d in n.usable_devices]
        random.Random(seed).shuffle(devices)
        ground = ground_of(place, devices)
    grid, found = Grid.of(workload), Layouts(ground, place).of(workload)
    for name in ("tp", "cp", "dp", "ep", "etp"):
        assert getattr(found, name) == ground.span_of(getattr(grid, name).ranks), name
    assert found.expert_dp == ground.span_of(grid.edp.ranks)
    parts = sharded(grid.dp, split.shard_size)
    assert (found.shard, found.replicas) == tuple(ground.span_of(one.ranks) for one in parts)
    parts = sharded(grid.edp, split.expert_shard_size)
    expected = tuple(ground.span_of(one.ranks) for one in parts)
    assert (found.expert_shard, found.expert_replicas) == expected
    stages = [stage.ravel() for stage in grid.dense]
    assert found.kinds == tuple(ground.kinds_of(stage) for stage in stages)
    assert found.first_ranks == tuple(int(stage.min()) for stage in stages)
    hops = [(stage, stage + 1) for stage in range(split.pp - 1)]
    if split.pp > 1:
        hops += [(split.pp - 1, 0)] if split.virtual_pp > 1 else []
        pairs = [pair for a, b in hops for pair in zip(stages[a], stages[b], strict=True)]
        assert found.pp.tier == max(ground.span_of(_row(pair)).tier for pair in pairs)
        ends = zip(stages[0], stages[-1], strict=True)
        assert found.ends.tier == max(ground.span_of(_row(pair)).tier for pair in ends)


def _row(pair: Any) -> Any:
    return np.array([pair], dtype=np.int64)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            splits,
            st.sampled_from(MODELS),
            st.sampled_from([1, 2, 4]),
            st.sampled_from(["none", "selective", "full"]),
            st.sampled_from(["bf16", "fp8"]),
        ),
        min_size=2,
        max_size=8,
    ),
    st.sampled_from(PLACES),
)
def test_an_estimate_is_the_same_whatever_was_estimated_before(
    works: list[Any], place: Cluster
) -> None:
    made = []
    for split, model, micro_batch, recompute, precision in works:
        try:
            made.append(
                Workload(
                    model=model,
                    parallelism=split,
                    global_batch=split.dp * micro_batch * split.pp,
                    micro_batch=micro_batch,
                    recompute=recompute,
                    precision=precision,
                )
            )
        except InvalidInput:
            continue
    many = Estimator(place)
    found = [many(workload) for workload in made]
    assert [many(workload) for workload in reversed(made)] == found[::-1]
    for workload, one in zip(made, found, strict=True):
        assert Estimator(place)(workload) == one == estimate(workload, place)
        assert sum(one.breakdown.values()) == pytest.approx(one.step_s, rel=1e-12)
        assert sum(one.memory.values()) == pytest.approx(one.memory_bytes, rel=1e-12)


def test_what_is_forgotten_on_the_way_changes_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    place, chance = PLACES[1], random.Random(3)
    every = [(node.name, device) for node in place.nodes for device in node.usable_devices]
    cases = []
    for seed in range(24):
        split = split_of(seed)
        try:
            work = Workload(
                model=MODELS[seed % 2], parallelism=split, global_batch=split.dp * split.pp
            )
        except InvalidInput:
            continue
        cases += [(work, None), (work, chance.sample(every, len(every)))]
    expected = [Estimator(place)(work, devices) for work, devices in cases]
    assert len(cases) > 8
    monkeypatch.setattr("railweave.placement.cost.estimator._MOST_SHAPES", 3)
    forgetful = Estimator(place)
    for _ in range(2):
        assert [forgetful(work, devices) for work, devices in cases] == expected
