"""Tensor-parallel groups as units: the least bytes of all placements that keep them whole."""

from __future__ import annotations

import random
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.constraints import Constraints
from railweave.placement.jobs.tensor_groups import split_groups

relaxed = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def light_groups(seed: int) -> tuple[PCG, Cluster]:
    """Pairs that weigh little beside the rings across them, on nodes with odd devices left."""
    chance = random.Random(seed)
    stages, replicas = chance.choice([(1, 4), (2, 2), (1, 5), (5, 1), (2, 3)])
    groups: list[dict[str, Any]] = []

    def rank(stage: int, replica: int, part: int) -> int:
        return part * stages * replicas + stage * replicas + replica

    def add(name: str, op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size})

    for s, d in product(range(stages), range(replicas)):
        add(f"tp{s}/{d}", "all_reduce", [rank(s, d, 0), rank(s, d, 1)], chance.choice([1.0, 4.0]))
        if s + 1 < stages:
            for part in range(2):
                ends = [rank(s, d, part), rank(s + 1, d, part)]
                add(f"pp{s}/{d}/{part}", "send_recv", ends, chance.choice([2.0, 5.0]))
    for s, part in product(range(stages), range(2)):
        op = chance.choice(["all_reduce", "all_gather", "all_to_all"])
        if replicas > 1:
            add(f"dp{s}/{part}", op, [rank(s, d, part) for d in range(replicas)], 6.0)
    nodes = []
    units = stages * replicas
    while units > 0 or len(nodes) < 2:
        free = chance.randint(1, 4)
        pod = f"p{chance.randrange(3)}"
        nodes.append(
            {
                "name": f"n{len(nodes)}",
                "accelerator": "A",
                "devices": 4,
                "domains": {"pod": pod},
                "free_devices": sorted(chance.sample(range(4), free)),
            }
        )
        units -= free // 2
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("pod", "spine")]
    cluster = {"format": "railweave.cluster/1", "name": "left", "tiers": tiers, "nodes": nodes}
    world = 2 * stages * replicas
    pcg = {"format": "railweave.pcg/1", "world_size": world, "groups": groups}
    return PCG.parse(pcg), Cluster.parse(cluster)


def least_whole(pcg: PCG, cluster: Cluster) -> float:
    """Fewest spine bytes of all placements with every pair on one node."""
    pairs = [g.ranks for g in pcg.groups if g.name.startswith("tp")]
    places = [
        (node.name, devices)
        for node in cluster.nodes
        for devices in zip(node.usable_devices[::2], node.usable_devices[1::2], strict=False)
    ]
    pod = {node.name: node.domains["pod"] for node in cluster.nodes}
    room: dict[str, int] = {}
    for name, _ in places:
        room[pod[name]] = room.get(pod[name], 0) + 1
    of_pod = {p: [place for place in places if pod[place[0]] == p] for p in room}
    least = float("inf")
    for chosen in product(sorted(room), repeat=len(pairs)):
        if any(chosen.count(p) > room[p] for p in set(chosen)):
            continue
        devices: list[tuple[str, int]] = [("", 0)] * pcg.world_size
        taken = dict.fromkeys(room, 0)
        for ranks, p in zip(pairs, chosen, strict=True):
            name, both = of_pod[p][taken[p]]
            taken[p] += 1
            for rank, device in zip(ranks, both, strict=True):
                devices[rank] = (name, device)
        least = min(least, evaluate(pcg, cluster, devices).cross_spine_bytes)
    return least


@given(st.integers(0, 10**6))
@relaxed
def test_the_bytes_are_the_least_of_all_that_keep_groups_whole(seed: int) -> None:
    pcg, cluster = light_groups(seed)
    least = least_whole(pcg, cluster)
    found = place(pcg, cluster, 0.3)
    assert split_groups(pcg, cluster, found.devices) == []
    assert found.cross_spine_bytes == pytest.approx(least, abs=1e-6)
    assert found.proved_optimal
    assert found.lower_bound_bytes == pytest.approx(least, abs=1e-6)


def test_where_the_request_lifts_the_rule_the_bytes_may_be_fewer_but_never_more() -> None:
    fewer = 0
    for seed in range(6):
        pcg, cluster = light_groups(seed)
        whole = place(pcg, cluster, 0.3)
        lifted = Constraints(split_tensor_groups=True)
        split = place(pcg, cluster, 0.3, constraints=lifted)
        assert split.cross_spine_bytes <= whole.cross_spine_bytes + 1e-6
        fewer += split.cross_spine_bytes < whole.cross_spine_bytes - 1e-6
    assert fewer


def test_groups_that_do_not_all_fit_are_split_with_a_note() -> None:
    pcg, cluster = light_groups(3)
    single = [
        node.model_copy(update={"free_devices": node.usable_devices[:1]}) for node in cluster.nodes
    ]
    more = [
        node.model_copy(update={"name": f"{node.name}{i}"})
        for node in single
        for i in range(pcg.world_size)
    ]
    more[0] = more[0].model_copy(update={"free_devices": (0, 1)})
    found = place(pcg, cluster.with_nodes(tuple(more)), 0.3)
    assert any("split" in note for note in found.notes)


def test_groups_that_overlap_or_differ_in_size_are_no_units() -> None:
    pcg, cluster = light_groups(1)
    pairs = [g for g in pcg.groups if g.name.startswith("tp")]
    for one, other in list(combinations(pairs, 2))[:1]:
        joined = one.model_copy(update={"ranks": (*one.ranks, *other.ranks)})
        odd = pcg.model_copy(update={"groups": (*pcg.groups, joined)})
        found = place(odd, cluster, 0.3)
        assert found.lower_bound_bytes <= found.cross_spine_bytes
