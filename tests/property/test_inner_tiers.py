"""Irregular jobs inwards of the spine: of divisions that cost the same there, the best inside."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import place
from railweave.placement.division.irregular import place_irregular
from railweave.placement.division.local import Local
from railweave.placement.division.partition import best_partitions
from railweave.placement.division.polish import polished
from railweave.placement.exact.cheapest_homes import cheapest_homes
from railweave.placement.jobs.cuts import cut_bytes, fewer
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Fabric, Floats, Ints
from railweave.placement.jobs.units import unit_graph
from railweave.placement.loops.budget import Budget
from railweave.placement.spread.room import Room

from benchmarks import families


def random_demand(chance: np.random.Generator, ranks: int) -> Demand:
    """Groups of two to four ranks and of two weights, so that many divisions cost the same."""
    groups = int(chance.integers(ranks // 2, 2 * ranks))
    most = min(4, ranks)
    member = [
        np.sort(chance.choice(ranks, int(chance.integers(2, most + 1)), replace=False))
        for _ in range(groups)
    ]
    return Demand(
        ranks=ranks,
        form=chance.choice([RING, TREE, PAIRS], groups),
        weight=chance.choice([1.0, 2.0], groups),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=np.full(ranks, ANY_KIND),
    )


def fabric_of(racks: list[list[int]]) -> Fabric:
    """Nodes of one device; `racks[pod]` lists how many each rack of the pod has."""
    pod = np.repeat(np.arange(len(racks)), [sum(inside) for inside in racks])
    sizes = [nodes for inside in racks for nodes in inside]
    rack = np.repeat(np.arange(len(sizes)), sizes)
    nodes = np.arange(len(pod))
    return Fabric(
        cluster=None,  # type: ignore[arg-type]  # only the arrays count here
        domain=np.stack([nodes, rack, pod]),
        kind=np.zeros(len(pod), dtype=np.int64),
        kinds=("A",),
        slot_node=nodes,
        slot_device=np.zeros(len(pod), dtype=np.int64),
        ring_position=nodes,
        rail=None,
    )


def best_of_all(fabric: Fabric, demand: Demand) -> Floats:
    """The bytes of the best placement of all; nodes of a rack are alike."""
    rack = fabric.domain[1]
    first = np.array([np.flatnonzero(rack == r)[0] for r in range(rack[-1] + 1)])
    room = np.bincount(rack)
    best: Floats | None = None
    for choice in product(range(len(room)), repeat=demand.ranks):
        where = np.array(choice)
        if (np.bincount(where, minlength=len(room)) > room).any():
            continue
        slots = np.empty(demand.ranks, dtype=np.int64)
        for r in np.unique(where).tolist():
            inside = np.flatnonzero(where == r)
            slots[inside] = first[r] + np.arange(len(inside))
        cost = cut_bytes(fabric, demand, slots)
        if best is None or fewer(cost, best):
            best = cost
    assert best is not None
    return best


@pytest.mark.parametrize("seed", range(12))
def test_a_small_job_is_best_at_the_spine_and_then_in_its_pods(seed: int) -> None:
    chance = np.random.default_rng(seed)
    fabric = fabric_of([[2, 1], [1, 2], [2]][: int(chance.integers(2, 4))])
    demand = random_demand(chance, int(chance.integers(4, 6)))
    node = np.full(demand.ranks, -1, dtype=np.int64)
    place_irregular(fabric, unit_graph(demand), Room.of(fabric, 1), Budget(0.1), seed, node)
    assert len(np.unique(node)) == demand.ranks
    found = cut_bytes(fabric, demand, node)
    assert found.tolist() == pytest.approx(best_of_all(fabric, demand).tolist())


@given(st.integers(0, 10**6), st.integers(4, 20))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_walk_inwards_never_costs_more_outside(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    demand = random_demand(chance, ranks)
    domains = int(chance.integers(3, 7))
    above = np.sort(chance.integers(0, 3, domains))
    above = np.unique(above, return_inverse=True)[1]
    where = chance.integers(0, domains, ranks)
    room = np.bincount(where, minlength=domains) + chance.integers(0, 2, domains)
    none = np.zeros((domains, 0), dtype=np.int64)
    graph = unit_graph(demand)
    local = Local.of(graph, np.arange(ranks), room, none)
    found = polished(local, where, 3000, seed, 0.5, above)
    assert local.fits(found)

    def cost(division: Ints) -> Floats:
        wide = Local.of(graph, np.arange(ranks), np.bincount(above, room), none[:0])
        return np.array([local.bytes_of(division), wide.bytes_of(above[division])])

    assert not fewer(cost(where), cost(found))


@given(st.integers(0, 10**6), st.integers(4, 24))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_divisions_of_equal_cost_differ_in_more_than_names(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    demand = random_demand(chance, ranks)
    room = chance.integers(1, 1 + ranks // 2, 4)
    room[0] += max(0, ranks - int(room.sum()))
    none = np.zeros((4, 0), dtype=np.int64)
    local = Local.of(unit_graph(demand), np.arange(ranks), room, none)
    start = np.repeat(np.arange(4), room)[:ranks]
    found, _ = best_partitions(local, [start], 0.02, seed)
    costs = [local.bytes_of(where) for where in found]
    assert costs == pytest.approx([costs[0]] * len(costs))
    assert costs[0] <= local.bytes_of(start) + 1e-6
    assert all(local.fits(where) for where in found)
    together = {(where[:, None] == where).tobytes() for where in found}
    assert len(together) == len(found)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 2))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_parts_get_the_cheapest_homes_of_all(seed: int, rows: int, more: int) -> None:
    chance = np.random.default_rng(seed)
    columns = rows + more
    cost = chance.integers(-9, 9, (rows, columns)).astype(np.float64)
    barred = chance.random((rows, columns)) < 0.3
    barred[np.arange(rows), chance.permutation(columns)[:rows]] = False
    cost[barred] = np.inf
    home = cheapest_homes(cost)
    assert len(np.unique(home)) == rows
    ways = (cost[np.arange(rows), list(way)].sum() for way in permutations(range(columns), rows))
    assert cost[np.arange(rows), home].sum() == min(ways)


def test_a_job_proved_at_the_spine_is_placed_well_inside_its_pods() -> None:
    made = families.instance("b-context", 3101)
    placement = place(made.pcg, made.cluster, time_limit_s=1.0, seed=3101)
    between_leaves = placement.traffic_bytes[made.cluster.tiers[-2].name]
    assert placement.proved_optimal
    # Another partitioner has 280 GB there with as few bytes at the spine.
    assert between_leaves <= 0.8 * 280e9
