"""Grids with random edges across them: their stages are found, and what that gives as starts."""

from __future__ import annotations

import numpy as np
import pytest
from railweave.placement import clos_8_rail, occupied
from railweave.placement.division.local import Local
from railweave.placement.jobs.index import PAIRS, RING, Demand, Fabric, Ints
from railweave.placement.jobs.units import UnitGraph, unit_graph
from railweave.placement.spread.counted_starts import counted_starts
from railweave.placement.spread.loose_chains import loose_chains
from railweave.placement.spread.room import Room


def noisy_grid(seed: int, stages: int, replicas: int) -> tuple[UnitGraph, Ints]:
    """Rings of stages, pipeline edges and as many random ones; the stage of each unit."""
    chance = np.random.default_rng(seed)
    number = chance.permutation(stages * replicas).reshape(stages, replicas)
    pairs = np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)
    random = np.stack([chance.permutation(stages * replicas) for _ in range(2)], axis=1)
    random = random[random[:, 0] != random[:, 1]]
    ends = np.concatenate([pairs, random])
    weight = [np.full(stages, 40.0), np.full(len(pairs), 4.0), chance.lognormal(0, 1, len(random))]
    demand = Demand(
        ranks=stages * replicas,
        form=np.array([RING] * stages + [PAIRS] * len(ends)),
        weight=np.concatenate(weight),
        start=np.concatenate([[0], np.cumsum([replicas] * stages + [2] * len(ends))]),
        member=np.concatenate([np.sort(number, axis=1).ravel(), np.sort(ends, axis=1).ravel()]),
        kind=np.full(stages * replicas, -1, dtype=np.int64),
    )
    stage_of = np.empty(stages * replicas, dtype=np.int64)
    stage_of[number] = np.arange(stages)[:, None]
    return unit_graph(demand), stage_of


@pytest.mark.parametrize(("seed", "stages", "replicas"), [(1, 4, 24), (2, 8, 12), (3, 12, 8)])
def test_the_stages_of_a_grid_are_found_under_random_edges(
    seed: int, stages: int, replicas: int
) -> None:
    graph, stage_of = noisy_grid(seed, stages, replicas)
    chains = loose_chains(graph)
    assert chains is not None
    order = [int(stage_of[members[0]]) for members in chains.members]
    assert order in (list(range(stages)), list(range(stages))[::-1])
    for stage, members in zip(order, chains.members, strict=True):
        assert (np.sort(members) == np.flatnonzero(stage_of == stage)).all()
    assert (chains.link[:-1] >= 4.0).all()
    assert chains.link[-1] == 0.0


def test_random_edges_alone_make_no_chains() -> None:
    chance = np.random.default_rng(5)
    ends = np.sort(np.stack([chance.permutation(60), chance.permutation(60)], axis=1), axis=1)
    ends = ends[ends[:, 0] != ends[:, 1]]
    demand = Demand(
        ranks=60,
        form=np.full(len(ends), PAIRS),
        weight=np.ones(len(ends)),
        start=2 * np.arange(len(ends) + 1),
        member=ends.ravel(),
        kind=np.full(60, -1, dtype=np.int64),
    )
    assert loose_chains(unit_graph(demand)) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_starts_from_counts_fit_and_cost_much_less_than_filling_in_order(seed: int) -> None:
    graph, _ = noisy_grid(seed, 8, 12)
    cluster = occupied(clos_8_rail(9, units_per_pod=1), 0.3, seed)
    room = Room.of(Fabric.of(cluster), 8)
    domains = room.inside[-1][0]
    starts, work = counted_starts(graph, room, len(room.room) - 1, domains, 0.5, seed)
    assert starts
    assert 0 < work < 0.5
    none = np.zeros((len(domains), 0), dtype=np.int64)
    local = Local.of(graph, np.arange(graph.units), room.room[-1][domains], none)
    assert all(local.fits(start) for start in starts)
    in_order = np.repeat(np.arange(len(domains)), local.room)[: graph.units]
    together = local.bytes_of(np.zeros(graph.units, dtype=np.int64))
    assert min(map(local.bytes_of, starts)) - together < 0.6 * (local.bytes_of(in_order) - together)
