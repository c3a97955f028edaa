"""Blocks that must be split: bounds below every placement, spreads that fit, parts that add up."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from effort import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate
from railweave.placement.bounds.chain_bound import chain_bound
from railweave.placement.jobs.cuts import cut_bytes
from railweave.placement.jobs.gather import gather
from railweave.placement.jobs.index import PAIRS, RING, Demand, Fabric, Floats, Ints
from railweave.placement.jobs.large import place_large
from railweave.placement.loops.budget import Budget
from railweave.placement.spread.room import Room
from railweave.placement.spread.split_blocks import hosted, parts_of_blocks
from railweave.placement.spread.split_counts import split_counts
from railweave.placement.spread.split_search import filled_up, improved
from railweave.placement.spread.structured import counts_in

relaxed = settings(
    max_examples=examples(30),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def experts_job(
    stages: int,
    blocks: int,
    size: int,
    tensor: int,
    *,
    expert_bytes: float,
    replica_bytes: float,
    data_bytes: float,
    pipe_bytes: float,
    tensor_bytes: float = 1e5,
    op: str = "all_to_all",
    together: int = 1,
    wrap_bytes: float = 0.0,
) -> PCG:
    """Blocks of `size` units of `tensor` ranks; replica rings join `together` units a block.

    wrap_bytes: from the last stage back to the first.
    """
    groups: list[dict[str, Any]] = []
    number = np.arange(stages * blocks * size * tensor).reshape(stages, blocks, size, tensor)

    def add(kind: str, ranks: Ints, amount: float) -> None:
        name = f"g{len(groups)}"
        groups.append({"name": name, "op": kind, "ranks": ranks.ravel().tolist(), "bytes": amount})

    for s in range(stages):
        for b in range(blocks):
            add(op, number[s, b], expert_bytes)
            for e in range(size if tensor > 1 else 0):
                add("all_reduce", number[s, b, e], tensor_bytes)
        for t in range(tensor):
            add("all_reduce", number[s, :, :, t], data_bytes)
            for e in range(0, size, together):
                add("all_gather", number[s, :, e : e + together, t], replica_bytes)
            for b, e in itertools.product(range(blocks), range(size)):
                if s + 1 < stages:
                    add("send_recv", number[s : s + 2, b, e, t], pipe_bytes)
                elif stages > 2:
                    add("send_recv", number[[s, 0], b, e, t], wrap_bytes)
    groups = [g for g in groups if g["bytes"] > 0 and len(g["ranks"]) > 1]
    return PCG.parse(
        {"format": "railweave.pcg/1", "world_size": number.size, "groups": groups},
    )


def pods_of(rooms: list[list[int]], devices: int) -> Cluster:
    """A pod for each list, with a node for each entry, of which so many devices are free."""
    nodes = [
        {
            "name": f"p{j}n{n}",
            "accelerator": "A",
            "devices": devices,
            "domains": {"pod": f"p{j}"},
            "free_devices": list(range(free)),
        }
        for j, free_by_node in enumerate(rooms)
        for n, free in enumerate(free_by_node)
    ]
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("pod", "spine")]
    return Cluster.parse(
        {"format": "railweave.cluster/1", "name": "pods", "tiers": tiers, "nodes": nodes}
    )


def bytes_of_all(demand: Demand, where: Ints) -> Floats:
    """Bytes between domains of many placements `[placement, rank]`, from the accounting alone."""
    total = np.zeros(len(where))
    for g in range(demand.groups):
        at = np.sort(where[:, demand.members(g)], axis=1)
        parts = 1 + (np.diff(at, axis=1) != 0).sum(axis=1)
        if demand.form[g] == PAIRS:
            apart = (at[:, :, None] != at[:, None, :]).sum(axis=(1, 2))
            total += demand.weight[g] * apart
        elif demand.form[g] == RING:
            total += demand.weight[g] * np.where(parts > 1, parts, 0)
        else:
            total += demand.weight[g] * (parts - 1)
    return total


def every_division(ranks: int, room: Ints) -> Ints:
    """All ways to put ranks into domains with room for them."""
    grids = np.indices((len(room),) * ranks).reshape(ranks, -1).T
    held = np.stack([(grids == j).sum(axis=1) for j in range(len(room))], axis=1)
    return grids[(held <= room).all(axis=1)]


@st.composite
def tight_jobs(draw: st.DrawFn) -> tuple[PCG, Cluster]:
    """A job of at most nine ranks in blocks, on two or three pods with little room to spare."""
    size = draw(st.sampled_from([1, 2, 3, 4]))
    tensor = draw(st.sampled_from([1, 1, 2]))
    shapes = [
        (s, b)
        for s, b in ((1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (1, 4), (3, 1), (4, 1), (3, 3), (4, 2))
        if s * b * size * tensor <= 9
    ]
    stages, blocks = draw(st.sampled_from(shapes))
    amount = st.integers(0, 20).map(float)
    pcg = experts_job(
        stages,
        blocks,
        size,
        tensor,
        expert_bytes=draw(amount),
        replica_bytes=draw(amount),
        data_bytes=draw(amount),
        pipe_bytes=draw(amount),
        tensor_bytes=draw(st.sampled_from([1.0, 500.0])),
        wrap_bytes=draw(amount),
        op=draw(st.sampled_from(["all_to_all", "all_to_all", "all_gather", "broadcast"])),
        together=draw(st.sampled_from([1, 1, 2])) if size % 2 == 0 else 1,
    )
    pods = draw(st.integers(2, 3 if pcg.world_size < 9 else 2))
    rooms: list[list[int]] = [[] for _ in range(pods)]
    devices = draw(st.sampled_from([tensor, tensor, 2 * tensor]))
    while sum(free // tensor for pod in rooms for free in pod) * tensor < pcg.world_size:
        rooms[draw(st.integers(0, pods - 1))].append(draw(st.integers(1, devices)))
    return pcg, pods_of([pod or [0] for pod in rooms], devices)


@given(tight_jobs())
@relaxed
def test_no_placement_of_ranks_has_fewer_bytes_than_the_bound(job: tuple[PCG, Cluster]) -> None:
    pcg, cluster = job
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    gathered = gather(fabric, demand)
    assume(gathered.chains is not None)
    assert gathered.chains is not None
    room = Room.of(fabric, gathered.atom)
    problem = counts_in(
        gathered.chains,
        gathered.chains.height,
        room,
        fabric.levels - 1,
        room.inside[-1][0],
        gathered.block,
    )
    split = split_counts(gathered, gathered.chains)
    free = np.bincount(fabric.slot_domain[-1])
    least = float(bytes_of_all(demand, every_division(pcg.world_size, free)).min())
    for cost in (least, 2 * least + 1):
        bound = chain_bound(fabric, gathered, gathered.chains, problem, split, cost, work=0.01)
        assert bound <= least * (1 + 1e-9)


@given(tight_jobs())
@relaxed
def test_a_job_that_must_be_split_is_placed_above_its_bound(job: tuple[PCG, Cluster]) -> None:
    pcg, cluster = job
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(0.05), 0)
    assert len(set(found.slots.tolist())) == pcg.world_size
    traffic = list(evaluate(pcg, cluster, fabric.devices(found.slots)).traffic_bytes.values())
    assert cut_bytes(fabric, demand, found.slots)[-1] == pytest.approx(traffic[-1], rel=1e-9)
    free = np.bincount(fabric.slot_domain[-1])
    least = float(bytes_of_all(demand, every_division(pcg.world_size, free)).min())
    assert found.bound_bytes <= least * (1 + 1e-9) <= traffic[-1] * (1 + 2e-9)


@given(
    st.integers(2, 3),
    st.integers(3, 4),
    st.lists(st.integers(1, 9).map(float), min_size=3, max_size=3),
    st.sampled_from(["all_to_all", "all_gather", "broadcast"]),
)
@relaxed
def test_a_domain_pays_the_least_of_all_choices_of_atoms(
    size: int, blocks: int, amounts: list[float], op: str
) -> None:
    assume(size * blocks <= 9)
    pcg = experts_job(
        2,
        blocks,
        size,
        1,
        expert_bytes=1e4,
        replica_bytes=amounts[0],
        data_bytes=amounts[1],
        pipe_bytes=amounts[2],
        op=op,
    )
    fabric = Fabric.of(pods_of([[1] * size * blocks] * 2, 1))
    gathered = gather(fabric, Demand.of(pcg, fabric.kinds))
    assert gathered.chains is not None and gathered.block == size
    split = split_counts(gathered, gathered.chains)
    assert split is not None
    cost = split.counts(0.0, np.array([9, 9])).cost[0]
    # One stage alone, in two domains: each pays its share, and the shares make up the whole.
    one = experts_job(
        1,
        blocks,
        size,
        1,
        expert_bytes=1e4,
        replica_bytes=amounts[0],
        data_bytes=amounts[1],
        pipe_bytes=0,
        op=op,
    )
    demand = Demand.of(one, fabric.kinds)
    where = every_division(size * blocks, np.array([9, 9]))
    held = (where == 0).sum(axis=1)
    paid = bytes_of_all(demand, where)
    height = size * blocks
    constant = split.constant - float((split.link * split.height).sum())
    for y in range(height + 1):
        least = float(paid[held == y].min())
        assert cost[y] + cost[height - y] + constant / 2 <= least * (1 + 1e-9) + 1e-9
    if op != "broadcast":
        half = cost[size] + cost[height - size]
        assert half == pytest.approx(float(paid[held == size].min()))


@given(st.integers(0, 10**6), st.integers(2, 5))
@relaxed
def test_parts_of_blocks_add_up_to_the_spread(seed: int, size: int) -> None:
    chance = np.random.default_rng(seed)
    domains = int(chance.integers(2, 7))
    heights = size * chance.integers(1, 6, 3)
    spread = np.stack([chance.multinomial(h, np.ones(domains) / domains) for h in heights])
    whole, parts = parts_of_blocks(spread, size)
    for p, blocks in enumerate(parts):
        assert (blocks.sum(axis=1) == size).all()
        assert (whole[p] * size + blocks.sum(axis=0) == spread[p]).all()
        assert (whole[p] == spread[p] // size).all()
    hosts = hosted(parts, whole, np.ones(3))
    for blocks, found in zip(parts, hosts, strict=True):
        assert (blocks[np.arange(len(blocks)), found] == blocks.max(axis=1, initial=0)).all()


def test_parts_that_complete_each_other_make_one_block() -> None:
    _, parts = parts_of_blocks(np.array([[3, 2, 1, 2, 4]]), 4)
    assert sorted((blocks > 0).sum() for blocks in parts[0]) == [2, 2]


@given(st.integers(0, 10**6))
@relaxed
def test_spreads_with_splits_fit_and_only_get_cheaper(seed: int) -> None:
    chance = np.random.default_rng(seed)
    size, domains = int(chance.integers(2, 5)), int(chance.integers(2, 5))
    pcg = experts_job(
        3, 3, size, 1, expert_bytes=1e3, replica_bytes=50.0, data_bytes=20.0, pipe_bytes=30.0
    )
    needed = pcg.world_size
    rooms = chance.multinomial(needed + int(chance.integers(0, 4)), np.ones(domains) / domains)
    fabric = Fabric.of(pods_of([[1] * int(r) for r in rooms], 1))
    gathered = gather(fabric, Demand.of(pcg, fabric.kinds))
    assume(gathered.chains is not None and gathered.block > 1)
    assert gathered.chains is not None
    split = split_counts(gathered, gathered.chains)
    assert split is not None
    plain = split.counts(0.0, rooms)
    start = np.zeros((3, domains), dtype=np.int64)
    whole = filled_up(start, plain, gathered.block)
    assert plain.fits(whole)
    found = improved(split, rooms, whole, 0.02, seed)
    assert plain.fits(found)
    before, after = (
        plain.bytes_of(x) + split.mended(x, parts_of_blocks(x, size)[1]) for x in (whole, found)
    )
    assert after <= before + 1e-6


def test_forced_splits_are_chosen_with_the_counts() -> None:
    # 60 nodes free in pods of 4k + 3, 4k + 1, 4k + 2 and 4k + 2: whole blocks miss two.
    rooms = np.array([15, 13, 14, 18])
    pcg = experts_job(
        3, 5, 4, 2, expert_bytes=1e3, replica_bytes=30.0, data_bytes=20.0, pipe_bytes=5.0
    )
    cluster = pods_of([[2] * int(r) for r in rooms], 2)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(1.0), 0)
    spine = cut_bytes(fabric, demand, found.slots)[-1]
    assert found.method == "counts"
    assert found.bound_bytes <= spine <= 1.05 * found.bound_bytes


def test_expert_groups_that_fit_no_pod_are_spread_by_counts() -> None:
    pcg = experts_job(
        4, 4, 8, 2, expert_bytes=1e3, replica_bytes=30.0, data_bytes=20.0, pipe_bytes=5.0
    )
    cluster = pods_of([[2] * 7 for _ in range(19)], 2)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(1.0), 0)
    spine = cut_bytes(fabric, demand, found.slots)[-1]
    assert found.method == "counts"
    assert found.bound_bytes <= spine <= 1.25 * found.bound_bytes


def test_groups_between_two_sets_are_bounded_as_what_they_are() -> None:
    # One group over two rings of three: with whole rings it costs 12, with single ranks less.
    sets = [(range(6), 2.0), ((0, 1), 1.0), ((2, 3), 1.0), ((4, 5), 1.0)]
    sets += [((0, 2, 4), 2.0), ((1, 3, 5), 2.0)]
    groups = [
        {
            "name": f"g{i}",
            "op": "all_reduce" if i else "all_to_all",
            "ranks": list(ranks),
            "bytes": size,
        }
        for i, (ranks, size) in enumerate(sets)
    ]
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 6, "groups": groups})
    fabric = Fabric.of(pods_of([[1, 2, 2], [3]], 4))
    demand = Demand.of(pcg, fabric.kinds)
    least = float(bytes_of_all(demand, every_division(6, np.array([5, 3]))).min())
    found = place_large(fabric, demand, Budget(0.05), 0)
    assert found.bound_bytes <= least * (1 + 1e-9)


def test_stages_in_a_ring_are_bounded_with_the_link_that_closes_it() -> None:
    pcg = experts_job(
        6,
        4,
        2,
        2,
        expert_bytes=1e4,
        replica_bytes=0.0,
        data_bytes=20.0,
        pipe_bytes=100.0,
        wrap_bytes=100.0,
    )
    cluster = pods_of([[2] * 26, [2] * 24], 2)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(0.3), 0)
    spine = cut_bytes(fabric, demand, found.slots)[-1]
    # Every split of the ring of stages crosses it twice or leaves none out.
    assert found.bound_bytes <= spine <= 1.01 * found.bound_bytes


def test_a_ladder_of_two_blocks_a_stage_is_seen_whole() -> None:
    # Rings of two blocks are links like those of the pipeline, and both must be counted.
    pcg = experts_job(
        16, 2, 4, 2, expert_bytes=1e4, replica_bytes=90.0, data_bytes=60.0, pipe_bytes=5.0
    )
    cluster = pods_of([[2] * 76, [2] * 60], 2)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(0.2), 0)
    assert cut_bytes(fabric, demand, found.slots)[-1] == pytest.approx(found.bound_bytes)
