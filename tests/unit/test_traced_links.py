"""What traced paths tell of single links: slow, late and dead ones, and no others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.rounds import path_rounds
from railweave.placement.inference.measurements import Measurement
from railweave.placement.inference.traced_links import (
    LinkFault,
    find_faults,
    traced_links,
)

LEAVES, SPINES = 5, 3


def up(leaf: int, spine: int) -> str:
    return f"leaf{leaf}>spine{spine}"


def down(spine: int, leaf: int) -> str:
    return f"spine{spine}>leaf{leaf}"


def probed(
    slow: Mapping[str, float] = {},
    late: Mapping[str, float] = {},
    dead: frozenset[str] = frozenset(),
) -> list[Measurement]:
    """Probes of all paths of the rounds; links slow or late by a factor, or gone."""
    domains = {f"n{leaf}-{i}": f"l{leaf}" for leaf in range(LEAVES) for i in range(2)}
    found = []
    for a, b in (pair for pairs in path_rounds(domains) for pair in pairs):
        one, other = int(domains[a][1:]), int(domains[b][1:])
        for spine in range(SPINES):
            hops = (f"gateway{one}", up(one, spine), down(spine, other))
            if dead.intersection(hops):
                continue
            rate = 1e9 * min(slow.get(hop, 1.0) for hop in hops)
            trip_s = 1e-4 * sum(late.get(hop, 1.0) for hop in hops[1:])
            found.append(
                Measurement(a=a, b=b, hops=hops, there_bytes_per_s=rate, round_trip_min_s=trip_s)
            )
    return found


def test_a_fabric_that_is_well_has_no_faults() -> None:
    links = traced_links(probed())
    assert len(links) == LEAVES * (1 + 2 * SPINES)
    assert links[up(2, 1)].pairs == (("n2-0", "n3-1"), ("n2-0", "n4-1"))
    assert find_faults(probed()) == find_faults(probed(), probed()) == []


@pytest.mark.parametrize("before", [[], probed()])
@pytest.mark.parametrize("link", [up(1, 0), down(2, 3)])
def test_a_slow_link_is_found_alone_and_by_how_much(link: str, before: list[Measurement]) -> None:
    [change] = find_faults(probed(slow={link: 0.4}), before)
    assert (change.address, change.fault) == (link, LinkFault.SLOW)
    assert change.factor == pytest.approx(0.4)
    assert len(change.pairs) == 2


def test_a_late_link_is_found_alone_and_by_how_much() -> None:
    [change] = find_faults(probed(late={up(0, 2): 3.0}), probed())
    assert (change.address, change.fault, change.factor) == (up(0, 2), LinkFault.LATE, 2.0)


def test_a_dead_link_is_one_that_paths_went_over_before() -> None:
    gone = frozenset({up(4, 1), down(1, 4)})
    found = find_faults(probed(dead=gone), probed())
    assert {change.address for change in found} == gone
    assert {change.fault for change in found} == {LinkFault.DEAD}


def test_probes_that_failed_and_routers_that_say_nothing_make_no_links() -> None:
    silent = Measurement(a="a", b="b", hops=("x", "*", "y"), there_bytes_per_s=1.0)
    failed = Measurement(a="a", b="b", hops=("x", "z"), lost="ends at z")
    assert set(traced_links([silent, failed])) == {"x", "y"}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_every_domain_sends_to_two_and_receives_from_two(sizes: list[int]) -> None:
    domains = {f"d{d}-{i}": f"d{d}" for d, size in enumerate(sizes) for i in range(size)}
    rounds = path_rounds(domains)
    count, shifts = len(sizes), min(len(sizes) - 1, 2)
    sending = [domains[a] for pairs in rounds for a, _ in pairs]
    receiving = [domains[b] for pairs in rounds for _, b in pairs]
    assert sorted(sending) == sorted(receiving) == sorted([f"d{d}" for d in range(count)] * shifts)
    for pairs in rounds:
        used = [domains[node] for pair in pairs for node in pair]
        assert len(used) == len(set(used)) > 0
    assert len(rounds) <= 8
