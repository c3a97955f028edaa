"""Walks over single units: within the room, never dearer, repeatable, near the best."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.division.arrange import filled
from railweave.placement.division.contract_local import contracted
from railweave.placement.division.local import Local
from railweave.placement.division.unit_walk import walked
from railweave.placement.jobs.index import Demand, Ints
from railweave.placement.jobs.units import unit_graph
from railweave.placement.loops.chance import seeded

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def random_local(chance: np.random.Generator, ranks: int, kinds: int) -> Local:
    """Groups of any form and size, some partly elsewhere, and domains with little to spare."""
    groups = int(chance.integers(1, 14))
    member = [
        chance.choice(ranks, int(chance.integers(2, 7)), replace=False) for _ in range(groups)
    ]
    kind = chance.integers(-1, kinds, ranks)
    demand = Demand(
        ranks=ranks,
        form=chance.integers(0, 3, groups),
        weight=chance.integers(1, 9, groups).astype(np.float64),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=kind,
    )
    units = chance.permutation(ranks)[: int(chance.integers(2, ranks + 1))]
    domains = int(chance.integers(2, 5))
    kind_room = np.zeros((domains, kinds), dtype=np.int64)
    room = np.zeros(domains, dtype=np.int64)
    for unit in units:
        here = int(chance.integers(domains))
        room[here] += 1
        if kinds:
            kind_room[here, max(0, kind[unit])] += 1
    room += chance.integers(0, 2, domains)
    return Local.of(unit_graph(demand), units, room, kind_room)


def any_start(local: Local) -> Ints:
    return filled(local.room, local.kind_room, local.kind, 1, np.arange(len(local.room)))


@given(st.integers(0, 10**6), st.sampled_from([0, 0, 2]), st.sampled_from([0.01, 0.3, 3.0]))
@relaxed
def test_a_walk_keeps_within_the_room_never_costs_more_and_is_the_same_for_a_seed(
    seed: int, kinds: int, heat: float
) -> None:
    local = random_local(np.random.default_rng(seed), 20, kinds)
    start = any_start(local)
    found, work = walked(local, start, 3000, heat, seeded(seed))
    assert local.fits(found)
    assert local.bytes_of(found) <= local.bytes_of(start) + 1e-6
    again, same_work = walked(local, start, 3000, heat, seeded(seed))
    assert (again == found).all()
    assert same_work == work


@given(st.integers(0, 10**6))
@relaxed
def test_a_walk_over_sets_of_units_keeps_within_the_room_and_never_costs_more(seed: int) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, 24, 0)
    start = any_start(local)
    pair = 8 * start + chance.integers(0, 8, len(start))
    _, first, to = np.unique(pair, return_index=True, return_inverse=True)
    larger = contracted(local, to, len(first))
    found, _ = walked(larger, start[first], 3000, 0.3, seeded(seed))
    assert larger.fits(found)
    assert local.bytes_of(found[to]) <= local.bytes_of(start) + 1e-6


@given(st.integers(0, 10**6), st.sampled_from([0, 2]))
@settings(relaxed, max_examples=30)
def test_walks_find_the_best_division_of_a_few_units(seed: int, kinds: int) -> None:
    local = random_local(np.random.default_rng(seed), 7, kinds)
    start = any_start(local)
    walks = [walked(local, start, 4000, 1.0, seeded(seed + more))[0] for more in range(4)]
    every = (np.array(choice) for choice in product(range(len(local.room)), repeat=len(start)))
    best = min(local.bytes_of(where) for where in every if local.fits(where))
    assert min(local.bytes_of(found) for found in walks) == pytest.approx(best, abs=1e-6)
