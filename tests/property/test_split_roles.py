"""What a domain pays for atoms of split blocks whose roles talk all with all."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, place
from railweave.placement.jobs.gather import Gathered
from railweave.placement.jobs.index import Demand
from railweave.placement.jobs.units import contract, unit_graph
from railweave.placement.spread.split_counts import SplitCounts, split_counts
from railweave.placement.spread.structure import find_chains


def counted(
    blocks: int, size: int, replicas: float, tokens: float, all_of_it: float
) -> SplitCounts:
    """Rings of `size` atoms as blocks, and one of every block in each all-to-all."""
    groups: list[dict[str, Any]] = []
    for b in range(blocks):
        ranks = [b * size + a for a in range(size)]
        groups.append({"name": f"r{b}", "op": "all_reduce", "ranks": ranks, "bytes": replicas})
    for a in range(size):
        ranks = [b * size + a for b in range(blocks)]
        groups.append({"name": f"p{a}", "op": "all_to_all", "ranks": ranks, "bytes": tokens})
    every = list(range(blocks * size))
    groups.append({"name": "all", "op": "all_reduce", "ranks": every, "bytes": all_of_it})
    text = {"format": "railweave.pcg/1", "world_size": blocks * size, "groups": groups}
    atoms = unit_graph(Demand.of(PCG.parse(text), ()))
    block_of = np.arange(blocks * size) // size
    graph = contract(atoms, block_of)
    chains = find_chains(graph, leave_nets=True)
    assert chains is not None
    own = np.arange(atoms.units)
    split = split_counts(
        Gathered(own, 1, atoms, block_of, size, graph, chains, 1.0, 1.0, []), chains
    )
    assert split is not None
    return split


def domain_pays(blocks: int, size: int, ring: float, pair: float, every: float) -> list[float]:
    """`[y]`: the least over all choices of y atoms, tried one by one."""
    found = []
    for y in range(blocks * size + 1):
        least = np.inf
        for atoms in combinations(range(blocks * size), y):
            held = np.zeros((blocks, size))
            held.ravel()[list(atoms)] = 1
            in_block, of_role = held.sum(axis=1), held.sum(axis=0)
            cost = ring * ((in_block > 0) & (in_block < size)).sum()
            cost += pair * (of_role * (blocks - of_role)).sum()
            least = min(least, cost + every * (0 < y < blocks * size))
        found.append(least)
    return found


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.sampled_from([(3, 3), (3, 4), (4, 3)]),
    replicas=st.floats(0.1, 20.0),
    tokens=st.floats(0.1, 20.0),
    all_of_it=st.floats(0.1, 5.0),
)
def test_it_is_the_least_over_all_choices_of_atoms(
    sizes: tuple[int, int], replicas: float, tokens: float, all_of_it: float
) -> None:
    blocks, size = sizes
    split = counted(blocks, size, replicas, tokens, all_of_it)
    ring = 2 * (size - 1) / size * replicas
    every = 2 * (blocks * size - 1) / (blocks * size) * all_of_it
    expected = domain_pays(blocks, size, ring, tokens / blocks, every)
    paid = split.counts(0.0, np.array([blocks * size])).cost[0]
    assert paid.tolist() == pytest.approx(expected)


def test_whole_replicas_of_experts_that_reach_over_all_domains_are_proved_best() -> None:
    """Rings of four that say far more than the all-to-all across 64 of them, on unequal pods."""
    groups: list[dict[str, Any]] = []
    for b in range(64):
        ranks = [4 * b + a for a in range(4)]
        groups.append({"name": f"r{b}", "op": "all_reduce", "ranks": ranks, "bytes": 1400.0})
    for a in range(4):
        ranks = [4 * b + a for b in range(64)]
        groups.append({"name": f"p{a}", "op": "all_to_all", "ranks": ranks, "bytes": 600.0})
    for c in range(0, 256, 16):
        for a in range(4):
            ranks = [c + a + 4 * k for k in range(4)]
            groups.append({"name": f"c{c}/{a}", "op": "all_reduce", "ranks": ranks, "bytes": 20.0})
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 256, "groups": groups})
    nodes = [
        {"name": f"p{p}n{i}", "accelerator": "A", "devices": 2, "domains": {"pod": f"p{p}"}}
        for p, count in enumerate([80, 80, 79, 78, 77, 77, 20])
        for i in range(count)
    ]
    tiers = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    found = place(pcg, Cluster.parse(data), time_limit_s=0.5)
    assert found.cross_spine_bytes <= 1.05 * found.lower_bound_bytes
