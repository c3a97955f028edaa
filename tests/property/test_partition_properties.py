"""Dividing units of any graph: exact gains, room kept, no worse than any start, near the best."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.division.arrange import filled
from railweave.placement.division.coarsen import coarser
from railweave.placement.division.contract_local import contracted, crossing_bytes, fitting_bytes
from railweave.placement.division.local import Local
from railweave.placement.division.partition import partitioned
from railweave.placement.division.polish import polished
from railweave.placement.division.refine import refined
from railweave.placement.jobs.index import ANY_KIND, Demand, Ints
from railweave.placement.jobs.units import unit_graph
from railweave.placement.loops.chance import seeded

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def random_local(chance: np.random.Generator, ranks: int, most_domains: int, kinds: int) -> Local:
    """Groups of any form and size among some of the ranks, and domains with room for them."""
    groups = int(chance.integers(1, 12))
    member = [
        chance.choice(ranks, size=int(chance.integers(2, ranks + 1)), replace=False)
        for _ in range(groups)
    ]
    kind = chance.integers(-1, kinds, ranks) if kinds else np.full(ranks, ANY_KIND)
    demand = Demand(
        ranks=ranks,
        form=chance.integers(0, 3, groups),
        weight=chance.integers(1, 9, groups).astype(np.float64),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=kind,
    )
    units = chance.permutation(ranks)[: int(chance.integers(2, ranks + 1))]
    domains = int(chance.integers(2, most_domains + 1))
    kind_room = np.zeros((domains, kinds), dtype=np.int64)
    room = np.zeros(domains, dtype=np.int64)
    for unit in units:  # enough for every unit, of its own kind, and a little more
        here = int(chance.integers(domains))
        room[here] += 1
        if kinds:
            kind_room[here, max(0, kind[unit])] += 1
    if kinds == 0:
        room += chance.integers(0, 3, domains)
    return Local.of(unit_graph(demand), units, room, kind_room)


def any_start(local: Local) -> Ints:
    return filled(local.room, local.kind_room, local.kind, 1, np.arange(len(local.room)))


@given(st.integers(0, 10**6), st.integers(3, 24), st.sampled_from([0, 0, 2]))
@relaxed
def test_refining_keeps_within_the_room_and_never_costs_more(
    seed: int, ranks: int, kinds: int
) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, ranks, 5, kinds)
    start = any_start(local)
    found, work = refined(local, start)
    assert local.fits(found)
    assert local.bytes_of(found) <= local.bytes_of(start) + 1e-6
    assert work > 0
    walked = polished(local, start, 2000, seed)
    assert local.fits(walked)
    assert local.bytes_of(walked) <= local.bytes_of(start) + 1e-6


@given(st.integers(0, 10**6), st.integers(3, 24))
@relaxed
def test_a_division_that_does_not_fit_is_made_to(seed: int, ranks: int) -> None:
    local = random_local(np.random.default_rng(seed), ranks, 4, 0)
    found, _ = refined(local, np.zeros(len(local.size), dtype=np.int64))
    assert local.fits(found)


@given(st.integers(0, 10**6), st.integers(3, 24))
@relaxed
def test_a_division_costs_the_same_in_any_form_of_the_problem(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, ranks, 4, 0)
    to = np.unique(chance.integers(0, 6, len(local.size)), return_inverse=True)[1]
    larger = contracted(local, to, int(to.max()) + 1)
    linked = local.pairs_as_links(100, 10**6)
    cost: list[tuple[float, ...]] = []
    for _ in range(4):
        where = chance.integers(0, len(local.room), len(larger.size))
        fine = where[to]
        forms = (larger.bytes_of(where), linked.bytes_of(fine), crossing_bytes(larger, where))
        cost.append((local.bytes_of(fine), *forms))
    for found in cost[1:]:  # each form leaves out a constant of its own
        changes = [now - first for now, first in zip(found, cost[0], strict=True)]
        assert changes == pytest.approx([changes[0]] * 4, abs=1e-6)
    assert larger.size.sum() == local.size.sum()


@given(st.integers(0, 10**6), st.integers(10, 60))
@relaxed
def test_units_of_different_labels_or_kinds_are_never_joined(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, ranks, 3, 2)
    label = chance.integers(0, 2, len(local.size))
    found = coarser(local, label, 4, seeded(seed))
    if found is None:
        return
    smaller, to = found
    assert len(smaller.size) < len(local.size)
    assert smaller.size.max() <= 4
    for cluster in range(len(smaller.size)):
        assert len(np.unique(label[to == cluster])) == 1
        assert len(np.unique(local.kind[to == cluster])) == 1


@given(st.integers(0, 10**6), st.integers(3, 7))
@settings(relaxed, max_examples=30)
def test_the_best_division_of_a_small_problem_is_found(seed: int, ranks: int) -> None:
    local = random_local(np.random.default_rng(seed), ranks, 3, 0)
    found, _ = partitioned(local, [any_start(local)], 0.05, seed)
    assert local.fits(found)
    every = (np.array(choice) for choice in product(range(len(local.room)), repeat=len(local.size)))
    best = min(local.bytes_of(where) for where in every if local.fits(where))
    assert local.bytes_of(found) == pytest.approx(best, abs=1e-6)


@given(st.integers(0, 10**6), st.integers(10, 60), st.sampled_from([0, 2]))
@settings(relaxed, max_examples=20)
def test_dividing_is_never_worse_than_a_start_and_the_same_for_a_seed(
    seed: int, ranks: int, kinds: int
) -> None:
    local = random_local(np.random.default_rng(seed), ranks, 4, kinds)
    start = any_start(local)
    found, work = partitioned(local, [start], 0.02, seed)
    assert local.fits(found)
    assert local.bytes_of(found) <= local.bytes_of(start) + 1e-6
    again, same_work = partitioned(local, [start], 0.02, seed)
    assert (again == found).all()
    assert same_work == work
    beside = [partitioned(local, [start], 0.06, seed, threads=2)[0] for _ in range(2)]
    assert (beside[0] == beside[1]).all()
    assert local.bytes_of(beside[0]) <= local.bytes_of(start) + 1e-6


def test_where_everything_is_linked_the_heaviest_links_stand_for_all_until_the_end() -> None:
    chance = np.random.default_rng(3)
    ranks, groups = 260, 600
    place = chance.random((ranks, 2))
    hub = chance.random((groups, 2))
    near = np.argsort(((hub[:, None] - place) ** 2).sum(axis=2), axis=1)
    member = [near[g, : int(chance.integers(4, 60))] for g in range(groups)]
    demand = Demand(
        ranks=ranks,
        form=np.full(groups, 2),
        weight=np.ones(groups),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=np.full(ranks, ANY_KIND),
    )
    room = np.array([60, 70, 80, 90])
    none = np.zeros((4, 0), dtype=np.int64)
    local = Local.of(unit_graph(demand), np.arange(ranks), room, none)
    linked = local.pairs_as_links(256, 10**6)
    light = linked.heaviest_links(20)
    assert len(light.unit_link) < len(linked.unit_link) / 1.5
    assert np.diff(light.unit_link_start).min() >= 20
    by_place = np.repeat(np.arange(4), room)[np.argsort(np.argsort(place[:, 0]))]
    found, _ = partitioned(local, [by_place], 0.3, 1)
    assert local.fits(found)
    together = local.bytes_of(np.zeros(ranks, dtype=np.int64))
    assert local.bytes_of(found) - together < 0.95 * (local.bytes_of(by_place) - together)


@pytest.mark.parametrize("seed", [71, 81])
def test_few_units_from_which_new_divisions_are_all_alike_are_divided_as_well_as_any(
    seed: int,
) -> None:
    """Stages of three units, and room for every unit once: cut between stages is best."""
    chance = np.random.default_rng(seed)
    stages, replicas, noise = 13, 3, 20
    units = np.arange(stages * replicas).reshape(stages, replicas)
    member = [*units, *np.stack([units[:-1].ravel(), units[1:].ravel()], axis=1)]
    form = [0] * stages + [2] * (units[1:].size + noise)
    weight = [6.0] * stages + [1.0] * units[1:].size
    for _ in range(noise):
        member.append(chance.choice(units.size, 2, replace=False))
        weight.append(float(chance.lognormal()))
    number = chance.permutation(units.size)
    demand = Demand(
        ranks=units.size,
        form=np.array(form),
        weight=np.array(weight),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate([np.sort(number[m]) for m in member]),
        kind=np.full(units.size, ANY_KIND),
    )
    none = np.zeros((2, 0), dtype=np.int64)
    local = Local.of(unit_graph(demand), np.arange(units.size), np.array([19, 20]), none)
    found, _ = partitioned(local, [np.repeat([0, 1], local.room)], 0.05, seed)
    assert local.fits(found)
    for order in (number, number[::-1]):
        by_stage = np.empty(units.size, dtype=np.int64)
        by_stage[order] = np.repeat([0, 1], local.room)
        assert local.bytes_of(found) <= local.bytes_of(refined(local, by_stage)[0]) + 1e-6


@given(st.integers(0, 10**6), st.integers(3, 24))
@relaxed
def test_only_a_division_that_fits_costs_a_finite_number(seed: int, ranks: int) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, ranks, 4, int(chance.integers(0, 3)))
    for where in (any_start(local), chance.integers(0, len(local.room), len(local.size))):
        cost = crossing_bytes(local, where) if local.fits(where) else np.inf
        assert fitting_bytes(local, where) == cost
