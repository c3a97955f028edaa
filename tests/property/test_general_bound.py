"""The general bound: never above the best of all placements, and near it where it can be."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.bounds.laplacian import clique_weight, cut_graph
from railweave.placement.bounds.spectral_bound import spectral_bound
from railweave.placement.jobs.cuts import cut_bytes
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Fabric, Ints
from railweave.placement.jobs.units import unit_graph

relaxed = settings(
    max_examples=examples(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def random_demand(chance: np.random.Generator, ranks: int) -> Demand:
    groups = int(chance.integers(1, 14))
    member = [
        np.sort(chance.choice(ranks, size=int(chance.integers(2, ranks + 1)), replace=False))
        for _ in range(groups)
    ]
    return Demand(
        ranks=ranks,
        form=chance.choice([RING, TREE, PAIRS], groups),
        weight=chance.choice([0.5, 1.0, 3.0, 7.0], groups),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=np.full(ranks, ANY_KIND),
    )


def every_division(ranks: int, rooms: list[int]) -> Iterator[Ints]:
    """All ways to put ranks into domains within their room."""
    if ranks == 0:
        yield np.zeros(0, dtype=np.int64)
        return
    for d, room in enumerate(rooms):
        if room > 0:
            rooms[d] -= 1
            for rest in every_division(ranks - 1, rooms):
                yield np.append(rest, d)
            rooms[d] += 1


def fabric_of(rooms: Ints) -> Fabric:
    """One node a domain, with as many devices as it has room."""
    domains = len(rooms)
    owner = np.repeat(np.arange(domains), rooms)
    return Fabric(
        cluster=None,  # type: ignore[arg-type]  # only the arrays count here
        domain=np.arange(domains).reshape(1, -1),
        kind=np.zeros(domains, dtype=np.int64),
        kinds=("A",),
        slot_node=owner,
        slot_device=np.arange(len(owner)),
        ring_position=np.arange(domains),
        rail=None,
    )


def slots_of(where: Ints, rooms: Ints) -> Ints:
    order = np.argsort(where, kind="stable")
    first = np.cumsum(rooms) - rooms
    slots = np.empty(len(where), dtype=np.int64)
    for d in range(len(rooms)):
        inside = order[where[order] == d]
        slots[inside] = first[d] + np.arange(len(inside))
    return slots


@given(st.integers(0, 10**6), st.integers(2, 7))
@relaxed
def test_no_placement_costs_less_than_the_bound(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    demand = random_demand(chance, ranks)
    rooms = chance.integers(1, ranks + 1, int(chance.integers(2, 4)))
    rooms[0] += max(0, ranks - int(rooms.sum()))
    fabric = fabric_of(rooms)
    best = min(
        float(cut_bytes(fabric, demand, slots_of(where, rooms))[-1])
        for where in every_division(ranks, rooms.tolist())
    )
    found, _ = spectral_bound(unit_graph(demand), rooms, best, 0.1, seed)
    assert found <= best * (1 + 1e-9) + 1e-9
    # Whatever it is told of a placement, even one that does not exist, it is a bound.
    misled, _ = spectral_bound(unit_graph(demand), rooms, 10 * best + 5, 0.1, seed)
    assert misled <= best * (1 + 1e-9) + 1e-9


@given(st.integers(0, 10**6), st.integers(2, 9))
@relaxed
def test_the_cut_graph_never_weighs_more_than_the_traffic(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    demand = random_demand(chance, ranks)
    domains = int(chance.integers(2, 5))
    where = chance.integers(0, domains, ranks)
    rooms = np.bincount(where, minlength=domains) + chance.integers(0, 2, domains)
    relaxed_graph = cut_graph(unit_graph(demand), rooms)
    member = (where[:, None] == np.arange(domains)).astype(np.float64)
    weight = relaxed_graph.base + np.trace(member.T @ relaxed_graph.laplacian @ member) / 2
    cost = float(cut_bytes(fabric_of(rooms), demand, slots_of(where, rooms))[-1])
    assert weight <= cost * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("members", range(2, 12))
@pytest.mark.parametrize("ring", [True, False])
def test_clique_weights_are_the_largest_that_hold(members: int, ring: bool) -> None:
    worst = 0.0
    for parts in range(2, members + 1):
        sizes = [members // parts + (part < members % parts) for part in range(parts)]
        edges = (members**2 - sum(size**2 for size in sizes)) / 2
        worst = max(worst, edges / (parts if ring else parts - 1))
    assert clique_weight(members, ring) == pytest.approx(1 / worst)


def test_two_cliques_that_share_an_edge_are_bounded_near_it() -> None:
    groups = [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11), (5, 6)]
    demand = Demand(
        ranks=12,
        form=np.array([PAIRS, PAIRS, PAIRS]),
        weight=np.array([1.0, 1.0, 0.5]),
        start=np.array([0, 6, 12, 14]),
        member=np.concatenate([np.array(group) for group in groups]),
        kind=np.full(12, ANY_KIND),
    )
    found, _ = spectral_bound(unit_graph(demand), np.array([6, 6]), 1.0, 0.3, 1)
    assert 0.9 <= found <= 1.0
