"""Rails that meet only at the spine, for jobs beyond the exact model: aligned, bounded, exact."""

from __future__ import annotations

import random
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.bounds.rail_bound import most_aligned, rail_bound
from railweave.placement.exact.exact_rails import place_exactly_on_rails
from railweave.placement.jobs.cuts import cut_bytes, fewer
from railweave.placement.jobs.index import Demand, Fabric
from railweave.placement.loops.budget import Budget
from railweave.placement.packing import pack_in_order
from railweave.placement.rails.lanes import in_lanes
from railweave.placement.rails.rail_jobs import found_on_rails
from railweave.placement.rails.rail_walk import walk

relaxed = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def grid(stages: int, replicas: int, tensor: int, experts: int = 0, shuffle: int = 0) -> PCG:
    world = stages * replicas * tensor
    ids = list(range(world))
    if shuffle:
        random.Random(shuffle).shuffle(ids)
    number = np.array(ids).reshape(stages, replicas, tensor)
    groups: list[dict[str, Any]] = []

    def add(op: str, ranks: Any, size: float) -> None:
        name = f"g{len(groups)}"
        groups.append({"name": name, "op": op, "ranks": [int(r) for r in ranks], "bytes": size})

    for s in range(stages):
        for d in range(replicas):
            if tensor > 1:
                add("all_reduce", number[s, d], 50e9)
            if s + 1 < stages:
                for t in range(tensor):
                    add("send_recv", number[s : s + 2, d, t], 3e8)
        for t in range(tensor):
            add("all_reduce", number[s, :, t], 4e9)
            for d in range(0, replicas if experts else 0, experts or 1):
                add("all_to_all", number[s, d : d + experts, t], 2e9)
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def fabric_of(pods: list[int], devices: int, taken: float = 0.0, seed: int = 0) -> Cluster:
    chance = random.Random(seed)
    nodes = []
    for p, size in enumerate(pods):
        for i in range(size):
            count = devices if chance.random() >= taken else chance.randint(1, devices)
            node = {"name": f"p{p}n{i:03}", "accelerator": "A", "devices": devices}
            node["domains"] = {"tor": f"p{p}r{i // 4}", "pod": f"p{p}"}
            node["free_devices"] = sorted(chance.sample(range(devices), count))
            nodes.append(node)
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("tor", "pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "rails", "tiers": tiers, "nodes": nodes}
    return Cluster.parse(data | {"rails": devices, "cross_rail": "spine"})


OPS = ["all_reduce", "all_gather", "all_to_all", "send_recv", "broadcast"]


@st.composite
def any_jobs(draw: st.DrawFn, most: int) -> tuple[PCG, Cluster]:
    """Any groups on partly taken nodes of up to 4 devices, with as many rails or fewer."""
    chance = random.Random(draw(st.integers(0, 10**9)))
    where = fabric_of([chance.randint(1, 3), chance.randint(1, 3)], chance.randint(2, 4), 0.5)
    where = where.model_copy(update={"rails": chance.randint(2, 4)})
    room = sum(len(node.usable_devices) for node in where.nodes)
    world = chance.randint(1, min(room, most))
    groups: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 6)):
        op = chance.choice(OPS)
        if world == 1 and op == "send_recv":
            continue
        count = 2 if op == "send_recv" else chance.randint(1, world)
        ranks = chance.sample(range(world), count)
        algorithm = chance.choice(["auto", "tree"]) if op == "all_reduce" else "auto"
        size = float(chance.randint(1, 9))
        groups.append(
            {
                "name": f"g{len(groups)}",
                "op": op,
                "ranks": ranks,
                "bytes": size,
                "algorithm": algorithm,
            }
        )
    data = {"format": "railweave.pcg/1", "world_size": world, "groups": groups}
    return PCG.parse(data), where


@given(any_jobs(most=14), st.integers(0, 999))
@relaxed
def test_a_walk_knows_what_its_steps_cost(case: tuple[PCG, Cluster], seed: int) -> None:
    pcg, where = case
    fabric = Fabric.of(where)
    if fabric.rail is None:
        return
    demand = Demand.of(pcg, fabric.kinds)
    chance = np.random.default_rng(seed)
    start = chance.permutation(len(fabric.slot_node))[: demand.ranks]
    for block in (1, 2):
        walked = walk(fabric, demand, start, block, 300, seed, heat=1.0)
        assert len(set(walked.slots.tolist())) == demand.ranks
        change = cut_bytes(fabric, demand, walked.slots) - cut_bytes(fabric, demand, start)
        assert walked.change == pytest.approx(float(change @ walked.level_cost), abs=1e-6)
        assert walked.change <= 0.0


@given(any_jobs(most=5))
@relaxed
def test_no_placement_has_fewer_bytes_at_the_spine_than_the_bound(
    case: tuple[PCG, Cluster],
) -> None:
    pcg, where = case
    fabric = Fabric.of(where)
    if fabric.rail is None:
        return
    demand = Demand.of(pcg, fabric.kinds)
    slots, bound, _ = found_on_rails(fabric, demand, Budget(0.02), 1)
    exact = place_exactly_on_rails(fabric, demand, slots, Budget(2.0))
    least = cut_bytes(fabric, demand, exact.slots)[-1]
    assert max(bound, rail_bound(fabric, demand)) <= least * (1 + 1e-9) + 1e-9
    chance = np.random.default_rng(len(pcg.groups))
    for _ in range(20):
        other = chance.permutation(len(fabric.slot_node))[: demand.ranks]
        assert bound <= cut_bytes(fabric, demand, other)[-1] * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (2, 3), (3, 3), (2, 5), (3, 4)])
def test_cells_share_no_more_lines_than_counted(rows: int, columns: int) -> None:
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    for count in range(rows * columns + 1):
        most = max(
            sum(a[0] == b[0] or a[1] == b[1] for a, b in combinations(chosen, 2))
            for chosen in combinations(cells, count)
        )
        assert most_aligned(count, rows, columns) == most


@pytest.mark.parametrize("shuffle", [0, 5, 11])
def test_every_rank_of_a_tensor_group_has_its_own_rail_on_every_node(shuffle: int) -> None:
    job, where = grid(4, 6, 8, shuffle=shuffle), fabric_of([7, 9, 10], 8)
    placement = place(job, where, time_limit_s=0.3)
    lanes = {
        frozenset(placement.devices[rank][1] for rank in group.ranks)
        for group in job.groups
        if len(group.ranks) == 6
    }
    assert lanes == {frozenset({device}) for device in range(8)}
    for group in job.groups:
        if len(group.ranks) == 8:
            assert len({placement.devices[rank][0] for rank in group.ranks}) == 1
    assert placement.gap < 0.25


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4]), st.sampled_from([0, 2]))
@settings(relaxed, max_examples=12)
def test_jobs_with_several_groups_a_node_are_much_better_than_packed(
    seed: int, tensor: int, experts: int
) -> None:
    job = grid(4, 8, tensor, experts, shuffle=seed + 1)
    where = fabric_of([7, 8, 9], 8, taken=0.3, seed=seed)
    fabric = Fabric.of(where)
    demand = Demand.of(job, fabric.kinds)
    packed = pack_in_order(fabric, demand)
    placement = place(job, where, time_limit_s=0.2, seed=seed)
    count = {
        device: slot for slot, device in enumerate(fabric.devices(np.arange(len(fabric.slot_node))))
    }
    slots = np.array([count[device] for device in placement.devices])
    assert placement.traffic_bytes == evaluate(job, where, placement.devices).traffic_bytes
    assert not fewer(cut_bytes(fabric, demand, packed), cut_bytes(fabric, demand, slots))
    assert placement.cross_spine_bytes < 0.7 * cut_bytes(fabric, demand, packed)[-1]


def test_two_tensor_groups_on_a_node_keep_a_half_of_the_rails_each() -> None:
    # 16 pipelines of two stages: each stage on its own half of the rails keeps every ring in lane.
    job, where = grid(2, 16, 4), fabric_of([16, 16], 8)
    placement = place(job, where, time_limit_s=0.5)
    assert placement.cross_spine_bytes == 0.0
    for group in job.groups:
        if len(group.ranks) == 16:
            assert len({placement.devices[rank][1] for rank in group.ranks}) == 1


def test_lanes_put_what_can_be_on_one_rail_and_leave_nodes_alone() -> None:
    job, where = grid(2, 4, 2, shuffle=4), fabric_of([8], 4, taken=0.7, seed=2)
    fabric = Fabric.of(where)
    demand = Demand.of(job, fabric.kinds)
    packed = pack_in_order(fabric, demand)
    lanes = in_lanes(fabric, demand, packed)
    assert cut_bytes(fabric, demand, lanes)[-1] < cut_bytes(fabric, demand, packed)[-1]
    assert (fabric.slot_node[lanes] == fabric.slot_node[packed]).all()
    assert len(set(lanes.tolist())) == demand.ranks


def test_the_best_of_all_placements_is_found_for_a_job_of_few_ranks() -> None:
    job, where = grid(2, 2, 1, shuffle=3), fabric_of([2, 2], 2, taken=0.9, seed=8)
    fabric = Fabric.of(where)
    demand = Demand.of(job, fabric.kinds)
    slots, _, _ = found_on_rails(fabric, demand, Budget(0.05), 0)
    least = min(
        cut_bytes(fabric, demand, np.array(way))[-1]
        for way in permutations(range(len(fabric.slot_node)), demand.ranks)
    )
    assert cut_bytes(fabric, demand, slots)[-1] == pytest.approx(least)
