"""Dividing anew what some domains hold: saves in all what it saves there, and all is placed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.division.local import Local
from railweave.placement.division.partition import partitioned
from railweave.placement.division.some_domains import tied_domains, within_domains
from railweave.placement.jobs.index import ANY_KIND, Demand
from railweave.placement.jobs.units import unit_graph

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def random_local(chance: np.random.Generator, ranks: int, domains: int, kinds: int) -> Local:
    """Groups of any form among some of the ranks; ranks of one kind or of several."""
    member = [
        chance.choice(ranks, size=int(chance.integers(2, ranks + 1)), replace=False)
        for _ in range(int(chance.integers(1, 14)))
    ]
    kind = chance.integers(0, kinds, ranks) if kinds else np.full(ranks, ANY_KIND)
    demand = Demand(
        ranks=ranks,
        form=chance.integers(0, 3, len(member)),
        weight=chance.integers(1, 9, len(member)).astype(np.float64),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=kind,
    )
    room = chance.integers(1, 9, domains)
    kind_room = np.full((domains, kinds), 9)
    some = np.arange(int(chance.integers(2, ranks + 1)))
    return Local.of(unit_graph(demand), some, room, kind_room)


@given(st.integers(0, 10**6), st.integers(3, 30), st.integers(2, 6), st.sampled_from([0, 2]))
@relaxed
def test_what_some_domains_save_the_whole_saves(
    seed: int, ranks: int, domains: int, kinds: int
) -> None:
    chance = np.random.default_rng(seed)
    local = random_local(chance, ranks, domains, kinds)
    where = chance.integers(0, domains, len(local.size))
    chosen = tied_domains(local, where, chance)
    assert len(chosen) == len(np.unique(chosen)) and np.isin(chosen, where).any()
    part, units = within_domains(local, where, chosen)
    assert (part.room == local.room[chosen]).all()
    assert (part.size == local.size[units]).all() and (part.kind == local.kind[units]).all()
    costs: list[tuple[float, float]] = []
    for _ in range(4):
        inside = chance.integers(0, len(chosen), len(units))
        other = where.copy()
        other[units] = chosen[inside]
        costs.append((part.bytes_of(inside), local.bytes_of(other)))
    for here, whole in costs[1:]:
        assert here - costs[0][0] == pytest.approx(whole - costs[0][1], abs=1e-6)


def test_links_alone_are_divided_within_the_room_and_the_same_for_a_seed() -> None:
    chance = np.random.default_rng(2)
    side = 12
    units = np.arange(side * side).reshape(side, side)
    across = np.stack([units[:, :-1].ravel(), units[:, 1:].ravel()])
    down = np.stack([units[:-1].ravel(), units[1:].ravel()])
    pairs = chance.permutation(units.size)[np.concatenate([across, down], axis=1)].T
    demand = Demand(
        ranks=units.size,
        form=np.full(len(pairs), 2),
        weight=np.ones(len(pairs)),
        start=np.arange(len(pairs) + 1) * 2,
        member=np.sort(pairs, axis=1).ravel(),
        kind=np.full(units.size, ANY_KIND),
    )
    room = np.array([36, 36, 36, 36, 20])
    none = np.zeros((len(room), 0), dtype=np.int64)
    local = Local.of(unit_graph(demand), np.arange(units.size), room, none)
    start = np.repeat(np.arange(len(room)), room)[: units.size]
    found, work = partitioned(local, [start], 0.2, 3)
    assert local.fits(found)
    # Four squares of six by six cut 24 of the pairs, each of which weighs two.
    assert local.bytes_of(found) <= 48.0
    again, same = partitioned(local, [start], 0.2, 3)
    assert (again == found).all() and same == work
