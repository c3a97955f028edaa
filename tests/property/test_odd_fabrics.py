"""Fabrics of odd shapes: never worse than packing in order, within the bound, best where small."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.evaluate import Evaluator

relaxed = settings(
    max_examples=examples(10),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TIERS = ("tor", "row", "pod", "hall")


def fabric(chance: random.Random, nodes: int, devices: list[int], tiers: int) -> Cluster:
    """Domains of prime sizes, of one node, and with nodes missing, at up to five tiers."""
    inner = TIERS[: tiers - 1]
    listed: list[dict[str, Any]] = []
    number = dict.fromkeys(inner, 0)
    left = {tier: chance.choice([1, 2, 3, 5, 7]) for tier in inner}
    for i in range(nodes):
        for level, tier in enumerate(inner):
            below = inner[level - 1] if level else None
            moved = below is None or left[below] == 0
            if moved:
                left[tier] -= 1
            if left[tier] < 0 or (below and number[below] and left[tier] == 0 and moved):
                number[tier] += 1
                left[tier] = chance.choice([1, 2, 3, 5, 7]) - 1
        domains: dict[str, str] = {}
        path = ""
        for tier in reversed(inner):
            path += f"{tier[0]}{number[tier]}"
            domains[tier] = path
        count = chance.choice(devices)
        node = {"name": f"n{i}", "accelerator": "A", "devices": count, "domains": domains}
        if chance.random() < 0.25:
            node["free_devices"] = sorted(chance.sample(range(count), chance.randint(0, count)))
        if chance.random() < 0.1:
            node["state"] = "faulty"
        listed.append(node)
    spec = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in (*inner, "spine")]
    rails = chance.choice([1, max(devices)])
    data = {"format": "railweave.cluster/1", "name": "odd", "tiers": spec, "nodes": listed}
    cross = chance.choice(["nvlink", "nvlink", "spine"])
    return Cluster.parse(data | {"rails": rails, "cross_rail": cross})


def mixture(chance: random.Random, world: int) -> PCG:
    """Groups of several sizes, so that ranks of different groups have to share nodes."""
    ranks = list(range(world))
    chance.shuffle(ranks)
    groups: list[dict[str, Any]] = []

    def add(op: str, members: list[int], size: float) -> None:
        groups.append({"name": f"g{len(groups)}", "op": op, "ranks": members, "bytes": size})

    width = chance.choice([2, 3, 4])
    for first in range(0, world - 1, width):
        if len(ranks[first : first + width]) > 1:
            add(chance.choice(["all_reduce", "all_gather"]), ranks[first : first + width], 8e9)
    for offset in range(width):
        if len(ranks[offset::width]) > 1:
            op = chance.choice(["all_reduce", "all_to_all", "reduce_scatter"])
            add(op, ranks[offset::width], 2e9)
    for _ in range(world // 4):
        add("send_recv", chance.sample(ranks, 2), float(chance.randint(1, 9)) * 1e8)
    if chance.random() < 0.3:
        add("broadcast", ranks, 1e8)
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def cost(job: PCG, where: Cluster, devices: list[tuple[str, int]]) -> list[float]:
    return list(evaluate(job, where, devices).traffic_bytes.values())[::-1]


def less(left: list[float], right: list[float]) -> bool:
    for one, other in zip(left, right, strict=True):
        if abs(one - other) > 1e-9 * max(one, other):
            return one < other
    return False


@given(st.integers(0, 10**9), st.integers(1, 5), st.sampled_from([[3], [1, 2, 5], [4, 8], [1]]))
@relaxed
def test_on_any_fabric_no_placement_is_worse_than_packing_or_below_the_bound(
    seed: int, tiers: int, devices: list[int]
) -> None:
    chance = random.Random(seed)
    where = fabric(chance, chance.randint(17, 31), devices, tiers)
    free = [(node.name, device) for node in where.nodes for device in node.usable_devices]
    if len(free) < 4:
        return
    job = mixture(chance, chance.randint(len(free) // 2, len(free)))
    placement = place(job, where, time_limit_s=0.1, seed=seed % 7)
    assert len(set(placement.devices)) == job.world_size
    assert set(placement.devices) <= set(free)
    assert not less(cost(job, where, free[: job.world_size]), cost(job, where, placement.devices))
    for _ in range(10):
        other = chance.sample(free, job.world_size)
        assert placement.lower_bound_bytes <= cost(job, where, other)[0] * (1 + 1e-9)
    again = place(job, where, time_limit_s=0.1, seed=seed % 7)
    assert again.devices == placement.devices


@given(st.integers(0, 10**9), st.integers(1, 5), st.sampled_from([[3], [1, 2, 5], [2, 4]]))
@relaxed
def test_small_jobs_are_the_best_of_all_on_any_fabric(
    seed: int, tiers: int, devices: list[int]
) -> None:
    chance = random.Random(seed)
    where = fabric(chance, chance.randint(2, 4), devices, tiers)
    free = [(node.name, device) for node in where.nodes for device in node.usable_devices]
    world = min(5, len(free))
    if world < 2 or len(free) > 9:
        return
    job = mixture(chance, world)
    count = Evaluator(job, where)
    best: list[float] | None = None
    for way in permutations(free, world):
        found = list(count(list(way)).traffic_bytes.values())[::-1]
        best = found if best is None or less(found, best) else best
    assert best is not None
    placement = place(job, where)
    found = cost(job, where, placement.devices)
    assert not less(best, found)
    assert placement.lower_bound_bytes <= best[0] * (1 + 1e-9)
    assert placement.proved_optimal


@pytest.mark.parametrize("missing", range(3))
def test_a_domain_with_a_node_missing_is_left_to_what_fits_it(missing: int) -> None:
    # Three pods of seven nodes, one of them with six; stages of seven nodes fill the whole pods.
    nodes = [
        {"name": f"p{p}n{i}", "accelerator": "A", "devices": 3, "domains": {"tor": f"p{p}"}}
        for p in range(3)
        for i in range(7)
        if (p, i) != (missing, 3)
    ]
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("tor", "spine")]
    where = Cluster.parse(
        {"format": "railweave.cluster/1", "name": "odd", "tiers": tiers, "nodes": nodes}
    )
    groups = []
    for s in range(2):
        for t in range(3):
            ring = [s * 21 + 3 * d + t for d in range(7)]
            groups.append({"name": f"dp{s}{t}", "op": "all_reduce", "ranks": ring, "bytes": 1e9})
        for d in range(7):
            held = [s * 21 + 3 * d + t for t in range(3)]
            groups.append({"name": f"t{s}{d}", "op": "all_reduce", "ranks": held, "bytes": 9e9})
    data = {"format": "railweave.pcg/1", "world_size": 42, "groups": groups}
    placement = place(PCG.parse(data), where)
    assert placement.cross_spine_bytes == 0.0
    assert {name[:2] for name, _ in placement.devices} == {"p0", "p1", "p2"} - {f"p{missing}"}
