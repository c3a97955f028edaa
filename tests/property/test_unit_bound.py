"""The bound by single ranks: never above the least cost, and met where sets fit whole."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, place
from railweave.placement.bounds.unit_bound import unit_bound
from railweave.placement.jobs.cuts import cut_bytes
from railweave.placement.jobs.gather import Gathered
from railweave.placement.jobs.index import Demand, Fabric, Ints
from railweave.placement.jobs.units import contract, unit_graph
from railweave.placement.spread.structure import find_chains

GRIDS = st.sampled_from([(1, 2, 2), (1, 2, 3), (1, 4, 2), (1, 2, 4), (2, 2, 2), (2, 1, 4)])


def pods(rooms: list[int]) -> Cluster:
    nodes = [
        {"name": f"n{i}", "accelerator": "A", "devices": size, "domains": {"pod": f"p{i}"}}
        for i, size in enumerate(rooms)
    ]
    tiers = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    return Cluster.parse(data)


def job(sizes: tuple[int, int, int], inner: str, data: float, inside: float, onward: float) -> PCG:
    """Stages of replicas of sets: an all-reduce over each stage, and `inner` over each set."""
    stages, replicas, width = sizes
    each = replicas * width
    groups: list[dict[str, Any]] = []

    def add(name: str, op: str, ranks: list[int], size: float, **more: Any) -> None:
        if len(ranks) > 1:
            groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size} | more)

    more = {"algorithm": "tree"} if inner == "tree" else {}
    op = {"ring": "all_reduce", "tree": "all_reduce", "pairs": "all_to_all"}[inner]
    for i in range(stages):
        add(f"dp/{i}", "all_reduce", [i * each + r for r in range(each)], data)
        for j in range(replicas):
            ranks = [i * each + j * width + k for k in range(width)]
            add(f"cp/{i}/{j}", op, ranks, inside, **more)
        for r in range(each if i + 1 < stages else 0):
            add(f"pp/{i}/{r}", "send_recv", [i * each + r, (i + 1) * each + r], onward)
    text = {"format": "railweave.pcg/1", "world_size": stages * each, "groups": groups}
    return PCG.parse(text)


def in_sets(demand: Demand, atom_of: Ints) -> Gathered:
    """The job in atoms that are blocks, too."""
    atoms = contract(unit_graph(demand), atom_of)
    own, size = np.arange(atoms.units), demand.ranks // atoms.units
    chains = find_chains(atoms)
    assert chains is not None
    return Gathered(atom_of, size, atoms, own, 1, atoms, chains, 0.3, 0.3, [(1.0, 1.0)])


def least_bytes(fabric: Fabric, demand: Demand, rooms: list[int]) -> float:
    best = np.inf
    first = np.searchsorted(fabric.slot_node, np.arange(len(rooms)))
    for where in product(range(len(rooms)), repeat=demand.ranks):
        counts = np.bincount(where, minlength=len(rooms))
        if (counts <= rooms).all():
            used = [0] * len(rooms)
            slots = np.empty(demand.ranks, dtype=np.int64)
            for rank, domain in enumerate(where):
                slots[rank] = first[domain] + used[domain]
                used[domain] += 1
            best = min(best, float(cut_bytes(fabric, demand, slots)[-1]))
    return best


@settings(max_examples=40, deadline=None)
@given(
    sizes=GRIDS,
    inner=st.sampled_from(["ring", "tree", "pairs"]),
    data=st.floats(0.1, 10.0),
    inside=st.floats(0.1, 10.0),
    onward=st.floats(0.1, 10.0),
    rooms=st.lists(st.integers(1, 8), min_size=2, max_size=3),
)
def test_the_bound_is_never_above_the_least_cost(
    sizes: tuple[int, int, int],
    inner: str,
    data: float,
    inside: float,
    onward: float,
    rooms: list[int],
) -> None:
    pcg = job(sizes, inner, data, inside, onward)
    rooms[0] += max(0, pcg.world_size - sum(rooms))
    cluster = pods(rooms)
    fabric = Fabric.of(cluster)
    demand = Demand.of(pcg, fabric.kinds)
    least = least_bytes(fabric, demand, rooms)
    gathered = in_sets(demand, np.arange(pcg.world_size) // sizes[2])
    for known in (least, 2 * least + 1.0):
        assert unit_bound(fabric, demand, gathered, known, 0.2) <= least * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("inner", ["ring", "tree", "pairs"])
def test_what_sets_cost_counts_where_ranks_alone_would_be_spread_at_will(inner: str) -> None:
    """Two sets of three in rooms for two, two and two: both must be split, each in some domain."""
    pcg = job((1, 2, 3), inner, 1.0, 6.0, 1.0)
    fabric = Fabric.of(pods([2, 2, 2]))
    demand = Demand.of(pcg, fabric.kinds)
    least = least_bytes(fabric, demand, [2, 2, 2])
    alone = unit_bound(fabric, demand, in_sets(demand, np.arange(6) // 3), least, 0.2)
    rings = 3 * 2 * 5 / 6
    assert rings + 3.0 < alone <= least * (1 + 1e-9)


def test_jobs_of_loosely_held_sets_that_fit_whole_are_near_their_bound() -> None:
    """Context-parallel rings of four in nodes of eight, whose replicas say far more."""
    pcg = job((8, 24, 4), "ring", 17.0, 4.0, 0.13)
    nodes = [
        {"name": f"p{p}n{i}", "accelerator": "A", "devices": 8, "domains": {"pod": f"p{p}"}}
        for p, count in enumerate([20, 18, 14, 13, 11, 9, 9, 5])
        for i in range(count)
    ]
    tiers = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    found = place(pcg, Cluster.parse(data), time_limit_s=0.5)
    assert found.cross_spine_bytes <= 1.02 * found.lower_bound_bytes
