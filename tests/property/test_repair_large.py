"""Repairs of jobs too large for all placements: near what a long search finds, and as quick."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from railweave.placement import (
    PCG,
    Cluster,
    Placement,
    clos_8_rail,
    evaluate,
    occupied,
    repair,
)
from railweave.placement.constraining.constrained_packing import pack
from railweave.placement.constraints import Constraints
from railweave.placement.repairs import relocation


def grid(stages: int, replicas: int, tensor: int) -> PCG:
    groups: list[dict[str, Any]] = []

    def rank(s: int, d: int, t: int) -> int:
        return (s * replicas + d) * tensor + t

    for s in range(stages):
        for d in range(replicas):
            ranks = [rank(s, d, t) for t in range(tensor)]
            groups.append({"name": f"tp{s}/{d}", "op": "all_reduce", "ranks": ranks, "bytes": 9e9})
            for t in range(tensor if s + 1 < stages else 0):
                ends = [rank(s, d, t), rank(s + 1, d, t)]
                name = f"pp{s}/{d}/{t}"
                groups.append({"name": name, "op": "send_recv", "ranks": ends, "bytes": 5e8})
        for t in range(tensor):
            ranks = [rank(s, d, t) for d in range(replicas)]
            groups.append({"name": f"dp{s}/{t}", "op": "all_reduce", "ranks": ranks, "bytes": 3e9})
    world = stages * replicas * tensor
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def packed(pcg: PCG, cluster: Cluster, seed: int) -> Placement:
    """In order onto four fifths of the nodes, so that spares lie among them."""
    chance = random.Random(seed)
    kept = {n.name for n in cluster.nodes if chance.random() < 0.8}
    less = cluster.with_nodes(tuple(node for node in cluster.nodes if node.name in kept))
    devices = pack(Constraints(), pcg, less)
    assert devices is not None
    return Placement(devices, evaluate(pcg, cluster, devices).traffic_bytes, 0.0, False)


@pytest.mark.parametrize(("lost_nodes", "seed"), [(1, 0), (8, 1), (8, 2), (20, 3)])
def test_the_spares_cost_at_most_a_twentieth_more_than_a_long_search_finds(
    lost_nodes: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = occupied(clos_8_rail(12, units_per_pod=3), 0.1, seed)
    pcg = grid(8, 16, 8)
    before = packed(pcg, cluster, seed)
    nodes = sorted({name for name, _ in before.devices})
    lost = random.Random(seed).sample(nodes, lost_nodes)
    found = repair(before, pcg, cluster, lost)
    assert found.moved == found.forced and len(found.forced) == 8 * lost_nodes
    assert not {name for name, _ in found.placement.devices} & set(lost)
    monkeypatch.setattr(relocation, "_MOST_MOVES", 3_000_000)
    long = repair(before, pcg, cluster, lost)
    assert found.placement.cross_spine_bytes <= 1.05 * long.placement.cross_spine_bytes


def test_further_moves_never_make_a_repair_dearer() -> None:
    cluster = occupied(clos_8_rail(6, units_per_pod=2), 0.1, seed=5)
    pcg = grid(4, 12, 8)
    before = packed(pcg, cluster, seed=5)
    lost = sorted({name for name, _ in before.devices})[:3]
    costs = []
    for most in (0, 8, 64):
        found = repair(before, pcg, cluster, lost, max_moves=most)
        assert len(found.moved) - len(found.forced) <= most
        costs.append(found.placement.cross_spine_bytes)
    assert costs == sorted(costs, reverse=True)


def test_64_lost_nodes_of_a_job_on_16000_devices_are_replaced_without_a_search() -> None:
    cluster = clos_8_rail(100, units_per_pod=10)
    pcg = grid(16, 112, 8)
    devices = [(node.name, index) for node in cluster.nodes[:1792] for index in range(8)]
    before = Placement(devices, evaluate(pcg, cluster, devices).traffic_bytes, 0.0, False)
    lost = random.Random(4).sample([node.name for node in cluster.nodes[:1792]], 64)
    repair(before, pcg, cluster, lost[:9])  # loops are compiled
    took = []
    for count in (1, 8, 64):
        began = time.process_time()
        found = repair(before, pcg, cluster, lost[:count])
        took.append(time.process_time() - began)
        assert found.moved == found.forced and len(found.moved) == 8 * count
    assert max(took) < 5
