"""Jobs beyond the exact model: valid, never worse than packing, and above a bound that holds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.bounds.bound import spread_bound
from railweave.placement.bounds.shape_bound import shape_bound
from railweave.placement.jobs.cuts import cut_bytes, fewer
from railweave.placement.jobs.index import Demand, Fabric, Ints
from railweave.placement.jobs.large import place_large
from railweave.placement.loops.budget import Budget
from railweave.placement.packing import pack_in_order
from railweave.placement.spread.counts import Counts
from railweave.placement.spread.pairing import pair_cells, share_all

relaxed = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def grids(draw: st.DrawFn) -> tuple[PCG, Cluster]:
    """A grid job, its ranks numbered in any order, on a cluster where it fits but only just."""
    tensor = draw(st.sampled_from([1, 2, 4]))
    stages, replicas = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    world = tensor * stages * replicas
    number = draw(st.permutations(range(world)))
    ranks = np.array(number).reshape(stages, replicas, tensor)
    groups: list[dict[str, Any]] = []

    def add(op: str, members: Ints, size: float) -> None:
        name = f"g{len(groups)}"
        groups.append({"name": name, "op": op, "ranks": members.tolist(), "bytes": size})

    tensor_bytes, data_bytes = draw(st.integers(0, 50)) * 1e9, draw(st.integers(0, 9)) * 1e9
    pipe_bytes = draw(st.integers(0, 9)) * 1e8
    for s in range(stages):
        heavier = 1 + draw(st.integers(0, 1))
        for d in range(replicas):
            add("all_reduce", ranks[s, d], tensor_bytes)
        for t in range(tensor):
            add(draw(st.sampled_from(["all_reduce", "all_gather"])), ranks[s, :, t], data_bytes)
            if draw(st.booleans()):
                add("all_to_all", ranks[s, :, t], data_bytes / heavier)
            for d in range(replicas):
                if s + 1 < stages:
                    add("send_recv", ranks[s : s + 2, d, t], pipe_bytes * heavier)
    devices = draw(st.sampled_from([4, 8]))
    chance = random.Random(draw(st.integers(0, 999)))
    nodes: list[dict[str, Any]] = []
    room = 0
    while room < world:
        pod, rack = chance.randrange(3), chance.randrange(3)
        free = devices if chance.random() < 0.7 else chance.randrange(devices)
        room += free // tensor * tensor
        nodes.append(
            {
                "name": f"n{len(nodes)}",
                "accelerator": "A",
                "devices": devices,
                "domains": {"rack": f"p{pod}r{rack}", "pod": f"p{pod}"},
                "free_devices": sorted(chance.sample(range(devices), free)),
            }
        )
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")]
    cluster = {"format": "railweave.cluster/1", "name": "grid", "tiers": tiers, "nodes": nodes}
    pcg = {"format": "railweave.pcg/1", "world_size": world, "groups": groups}
    return PCG.parse(pcg), Cluster.parse(cluster)


@given(grids(), st.integers(0, 3))
@relaxed
def test_a_grid_job_is_placed_validly_within_its_bound(job: tuple[PCG, Cluster], seed: int) -> None:
    pcg, cluster = job
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    found = place_large(fabric, demand, Budget(0.05), seed)
    assert len(set(found.slots.tolist())) == pcg.world_size
    traffic = list(evaluate(pcg, cluster, fabric.devices(found.slots)).traffic_bytes.values())
    assert cut_bytes(fabric, demand, found.slots)[-1] == pytest.approx(traffic[-1], rel=1e-9)
    # The bound holds for placements that have nothing to do with the one found.
    chance = random.Random(seed)
    for _ in range(20):
        slots = np.array(chance.sample(range(len(fabric.slot_node)), pcg.world_size))
        assert cut_bytes(fabric, demand, slots)[-1] >= found.bound_bytes * (1 - 1e-9)
    packed = pack_in_order(fabric, demand)
    assert cut_bytes(fabric, demand, packed)[-1] >= found.bound_bytes * (1 - 1e-9)
    placement = place(pcg, cluster, time_limit_s=0.1, seed=seed)
    assert placement.lower_bound_bytes >= found.bound_bytes * (1 - 1e-9)
    assert found.bound_bytes <= placement.cross_spine_bytes * (1 + 1e-9)
    best = cut_bytes(fabric, demand, _slots_of(fabric, placement.devices))
    assert not fewer(cut_bytes(fabric, demand, packed), best)


def _slots_of(fabric: Fabric, devices: list[tuple[str, int]]) -> Ints:
    every = fabric.devices(np.arange(len(fabric.slot_node)))
    number = {device: slot for slot, device in enumerate(every)}
    return np.array([number[device] for device in devices])


@st.composite
def spreads(draw: st.DrawFn) -> tuple[Counts, Ints]:
    classes, domains = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    height = chance.integers(1, 5, classes)
    closed = classes > 2 and draw(st.booleans())
    if closed and draw(st.booleans()):
        height[:] = height[0]
    spread = np.stack([chance.multinomial(h, np.ones(domains) / domains) for h in height])
    cost = np.zeros((classes, int(height.max()) + 1))
    for p, h in enumerate(height.tolist()):
        cost[p, 1:h] = chance.integers(0, 5)
        cost[p] -= chance.integers(0, 2) * np.arange(cost.shape[1]) ** 2
    link = chance.integers(0, 4, classes).astype(float)
    if closed and (height == height[0]).all() and draw(st.booleans()):
        cost[:], link[:-1] = cost[0], link[0]
    link[-1] = link[-1] if closed else 0
    for p in range(classes - 1):
        if height[p] != height[p + 1]:
            link[p] = 0
    room = spread.sum(axis=0) + chance.integers(0, 3, domains)
    none = np.zeros((domains, 0), dtype=np.int64)
    kind = np.full(classes, -1, dtype=np.int64)
    return Counts(height, cost, link, room, kind, none), spread


def every_spread(problem: Counts) -> list[Ints]:
    """All spreads that fit."""
    columns: list[Ints] = []
    found: list[Ints] = []

    def extend(p: int, left: Ints) -> None:
        if p == problem.classes:
            found.append(np.stack(columns))
            return
        for row in _shares(int(problem.height[p]), left.tolist()):
            columns.append(np.array(row))
            extend(p + 1, left - columns[-1])
            columns.pop()

    extend(0, problem.room.copy())
    return found


def _shares(units: int, room: list[int]) -> list[list[int]]:
    if len(room) == 1:
        return [[units]] if units <= room[0] else []
    return [
        [first, *rest]
        for first in range(min(units, room[0]) + 1)
        for rest in _shares(units - first, room[1:])
    ]


@given(spreads())
@relaxed
def test_no_spread_costs_less_than_the_bound(case: tuple[Counts, Ints]) -> None:
    problem, spread = case
    least = min(problem.bytes_of(other) for other in every_spread(problem))
    for found in (problem.bytes_of(spread), problem.bytes_of(spread) + 5.0):
        assert spread_bound(problem, found, work=0.03) <= least + 1e-6


@given(spreads())
@relaxed
def test_two_domains_share_what_they_hold_in_the_best_way(case: tuple[Counts, Ints]) -> None:
    problem, spread = case
    if problem.domains != 2:
        return
    assert pair_cells(problem) >= 0
    shared = spread.copy()
    order, every = np.arange(2), np.ones(2, dtype=np.int64)
    change, _ = share_all(shared, problem.cost, problem.link, problem.room, order, every, 5, 10**9)
    assert problem.fits(shared)
    assert problem.bytes_of(spread) + change == pytest.approx(problem.bytes_of(shared))
    # Where the chain is closed, what they hold of the first class stays.
    closed = problem.link[-1] > 0
    possible = [s for s in every_spread(problem) if not closed or (s[0] == spread[0]).all()]
    least = min(problem.bytes_of(other) for other in possible)
    assert problem.bytes_of(shared) == pytest.approx(least)


@st.composite
def even_spreads(draw: st.DrawFn) -> tuple[Counts, Ints]:
    """Chains of equal classes with rings, as `shape_bound` takes them."""
    classes, domains, height = (
        draw(st.integers(1, 4)),
        draw(st.integers(2, 3)),
        draw(st.integers(2, 5)),
    )
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    spread = np.stack([chance.multinomial(height, np.ones(domains) / domains)] * classes)
    cost = np.zeros((classes, height + 1))
    cost[:, 1:height] = chance.integers(0, 5, (classes, 1))
    link = np.full(classes, float(chance.integers(1, 4)))
    link[-1] = chance.integers(0, 4) if classes > 2 else 0
    room = spread.sum(axis=0) + chance.integers(0, 4, domains)
    none = np.zeros((domains, 0), dtype=np.int64)
    kind = np.full(classes, -1, dtype=np.int64)
    return Counts(np.full(classes, height), cost, link, room, kind, none), spread


@given(even_spreads())
@relaxed
def test_no_spread_costs_less_than_the_bound_of_its_shapes(case: tuple[Counts, Ints]) -> None:
    problem, spread = case
    constant = float(problem.link.sum() * problem.height[0])
    found = problem.bytes_of(spread) + constant
    bound = shape_bound(problem, constant, found, work=0.1)
    least = min(problem.bytes_of(other) for other in every_spread(problem)) + constant
    assert bound <= least + 1e-6
