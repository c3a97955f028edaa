"""Small jobs where nodes have odd numbers of devices left: no worse than a plain rule inwards."""

from __future__ import annotations

import random
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.constraints import Constraints


def fragmented(seed: int) -> tuple[PCG, Cluster]:
    """Pairs, stages and replicas for one rack of several; nodes with 0 to 8 devices left."""
    chance = random.Random(seed)
    nodes: list[dict[str, Any]] = []
    for rack in range(4):
        for number in range(14):
            free = sorted(chance.sample(range(8), chance.choice([0, 1, 2, 3, 3, 5, 5, 7, 8])))
            name = f"r{rack}n{number}"
            domains = {"rack": f"r{rack}", "pod": f"p{rack // 2}"}
            node = {"name": name, "accelerator": "A", "devices": 8, "domains": domains}
            nodes.append(node | {"free_devices": free})
    groups: list[dict[str, Any]] = []

    def add(op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": f"g{len(groups)}", "op": op, "ranks": ranks, "bytes": size})

    for pair in range(21):
        add("all_reduce", [2 * pair, 2 * pair + 1], 137.6e9)
    for stage in range(3):
        for part in range(2):
            add("all_reduce", [(stage * 7 + d) * 2 + part for d in range(7)], 1.5e9)
            for d in range(7 if stage < 2 else 0):
                ends = [((stage + s) * 7 + d) * 2 + part for s in range(2)]
                add("send_recv", ends, 0.5e9)
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")]
    cluster = {"format": "railweave.cluster/1", "name": "left", "tiers": tiers, "nodes": nodes}
    pcg = {"format": "railweave.pcg/1", "world_size": 42, "groups": groups}
    return PCG.parse(pcg), Cluster.parse(cluster)


def tightest_rack_in_order(pcg: PCG, cluster: Cluster) -> list[tuple[str, int]] | None:
    """Ranks in order onto the emptiest nodes first of the tightest rack that holds them."""
    racks: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for node in cluster.nodes:
        racks.setdefault(node.domains["rack"], []).append((node.name, node.usable_devices))
    fitting = [r for r in racks.values() if sum(len(d) for _, d in r) >= pcg.world_size]
    if not fitting:
        return None
    rack = min(fitting, key=lambda r: sum(len(d) for _, d in r))
    rack.sort(key=lambda node: -len(node[1]))
    return [(name, device) for name, devices in rack for device in devices][: pcg.world_size]


@pytest.mark.parametrize("seed", range(6))
def test_a_small_job_on_odd_leftovers_beats_filling_the_tightest_rack(seed: int) -> None:
    pcg, cluster = fragmented(seed)
    rule = tightest_rack_in_order(pcg, cluster)
    found = place(pcg, cluster, 0.5, constraints=Constraints(split_tensor_groups=True))
    assert rule is not None
    filled = list(evaluate(pcg, cluster, rule).traffic_bytes.values())[::-1]
    placed = list(found.traffic_bytes.values())[::-1]
    assert placed <= [value * (1 + 1e-9) for value in filled]
