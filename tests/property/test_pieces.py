"""Walks in pieces: within the room, never dearer, and whole nets change places."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.division.arrange import filled
from railweave.placement.division.local import Local
from railweave.placement.division.pieces import heaviest_nets, moved_in_pieces
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, Demand
from railweave.placement.jobs.units import unit_graph

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def jobs(form: list[int], weight: list[float], member: list[list[int]], room: list[int]) -> Local:
    """A job of units of no kind, whose groups are these, and domains with so much room."""
    ranks = 1 + max(max(ranks) for ranks in member)
    demand = Demand(
        ranks=ranks,
        form=np.array(form),
        weight=np.array(weight, dtype=np.float64),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate(member),
        kind=np.full(ranks, ANY_KIND),
    )
    none = np.zeros((len(room), 0), dtype=np.int64)
    return Local.of(unit_graph(demand), np.arange(ranks), np.array(room), none)


@given(st.integers(0, 10**6), st.integers(6, 40), st.integers(2, 5))
@relaxed
def test_a_walk_in_pieces_keeps_within_the_room_and_never_costs_more(
    seed: int, ranks: int, domains: int
) -> None:
    chance = np.random.default_rng(seed)
    groups = int(chance.integers(1, 12))
    member = [
        chance.choice(ranks, int(chance.integers(2, ranks + 1)), replace=False).tolist()
        for _ in range(groups)
    ]
    member.append(list(range(ranks)))
    form = [*chance.integers(0, 3, groups).tolist(), RING]
    weight = [*chance.integers(1, 9, groups).astype(float).tolist(), 1.0]
    room = np.bincount(chance.integers(0, domains, ranks), minlength=domains)
    local = jobs(form, weight, member, (room + chance.integers(0, 4, domains)).tolist())
    start = filled(local.room, local.kind_room, local.kind, 1, chance.permutation(domains))
    net = heaviest_nets(local)
    if net is None:
        net = np.full(ranks, -1, dtype=np.int64)
    for unit in np.flatnonzero(net >= 0).tolist():
        members = local.net_member[local.net_start[net[unit]] : local.net_start[net[unit] + 1]]
        assert unit in members and len(members) <= local.room.max()
    found, work = moved_in_pieces(local, start, net, seed, chance)
    assert local.fits(found)
    assert local.bytes_of(found) <= local.bytes_of(start) + 1e-6
    assert work >= 0


def test_whole_nets_change_places_where_no_unit_alone_can() -> None:
    rings = [list(range(6 * i, 6 * i + 6)) for i in range(4)]
    pairs = [[u, u + 12] for u in range(12)]
    form, weight = [RING] * 4 + [PAIRS] * 12, [10.0] * 4 + [3.0] * 12
    local = jobs(form, weight, rings + pairs, [12, 12])
    net = heaviest_nets(local)
    assert net is not None and len(np.unique(net)) == 4
    apart = np.repeat([0, 0, 1, 1], 6)
    chance = np.random.default_rng(1)
    found = [moved_in_pieces(local, apart, net, seed, chance)[0] for seed in range(4)]
    together = np.repeat([0, 1, 0, 1], 6)
    assert local.bytes_of(together) < local.bytes_of(apart)
    assert all(local.bytes_of(each) == local.bytes_of(together) for each in found)


def test_units_without_nets_have_no_pieces() -> None:
    chain = [[u, u + 1] for u in range(9)]
    assert heaviest_nets(jobs([PAIRS] * 9, [1.0] * 9, chain, [5, 5])) is None
    wide = jobs([RING], [1.0], [list(range(10))], [5, 5])
    assert heaviest_nets(wide) is None
