"""Re-probing: the same few pairs for ever, every link among them, and no link twice at a time."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.inference import (
    HealthBook,
    ProbeKind,
    ProbeRound,
    Rewatching,
    watch_rounds,
    watched_pairs,
)
from railweave.placement.inference.numbers import meeting
from simulated_network import SimulatedNetwork

Paths = dict[str, tuple[str, ...]]


@st.composite
def networks(draw: st.DrawFn) -> Paths:
    """Nodes in up to three levels of domains of any sizes."""
    depth = draw(st.integers(0, 2))
    count = draw(st.integers(2, 40))
    inner = [draw(st.integers(0, 12)) for _ in range(count)]
    above = [draw(st.integers(0, 3)) for _ in range(13)]
    levels = [[f"l{leaf}", f"p{above[leaf]}"][:depth] for leaf in inner]
    return {f"n{i}": tuple(path) for i, path in enumerate(levels)}


@given(networks())
def test_every_node_and_the_links_of_every_domain_are_watched(paths: Paths) -> None:
    pairs = watched_pairs(paths)
    assert len(set(pairs)) == len(pairs) <= 10 * len(paths) + 28
    assert all(a < b for a, b in pairs)
    partners = Counter(end for pair in pairs for end in pair)
    assert all(partners[node] >= min(3, len(paths) - 1) for node in paths)
    depth = len(next(iter(paths.values())))
    for tier in range(depth):
        members = defaultdict(set)
        for node, path in paths.items():
            members[path[tier:]].add(node)
        for domain, inside in members.items():
            # Where the next domain holds another, pairs meet there.
            peers = {p[tier:] for p in paths.values() if p[tier + 1 :] == domain[1:]}
            if len(peers) > 1:
                outwards = {
                    end
                    for a, b in pairs
                    if meeting(paths[a], paths[b]) == tier + 1
                    for end in (a, b)
                    if end in inside
                }
                assert len(outwards) >= min(2, len(inside))


@given(networks())
def test_no_node_and_no_way_out_of_a_domain_is_in_two_pairs_of_a_round(paths: Paths) -> None:
    pairs = watched_pairs(paths)
    rounds = watch_rounds(pairs, paths)
    for kind in (ProbeKind.LATENCY, ProbeKind.BANDWIDTH):
        asked = [pair for each in rounds if each.kind is kind for pair in each.pairs]
        assert sorted(asked) == sorted(pairs)
    for each in rounds:
        ends = [end for pair in each.pairs for end in pair]
        assert len(ends) == len(set(ends))
        if each.kind is ProbeKind.BANDWIDTH:
            ways = [
                (tier, paths[end][tier])
                for a, b in each.pairs
                for tier in range(meeting(paths[a], paths[b]))
                for end in (a, b)
            ]
            assert len(ways) == len(set(ways))


@pytest.mark.parametrize(
    ("shape", "most_rounds"), [((8, 16), 32), ((8, 16, 16), 60), ((16, 8, 16), 60)]
)
def test_a_sweep_takes_few_rounds_however_many_nodes_there_are(
    shape: tuple[int, ...], most_rounds: int
) -> None:
    net = SimulatedNetwork.regular(shape, [1e-6] * len(shape))
    assert len(watch_rounds(watched_pairs(net.paths), net.paths)) <= most_rounds


def test_a_sweep_that_a_budget_ends_is_gone_on_with() -> None:
    rounds = [ProbeRound(k, ProbeKind.LATENCY, ((f"a{k}", f"b{k}"),)) for k in range(5)]
    first = Rewatching(rounds)
    for _ in range(3):
        asked = first.next_round()
        assert asked is not None
        first.add(asked, [], 0.1)
    assert first.next_round() is rounds[3]  # asked for, but not run
    second = Rewatching(rounds, first.at)
    seen = []
    while asked := second.next_round():
        seen.append(asked.number)
        second.add(asked, [], 0.1)
    assert seen == [3, 4, 0, 1, 2]
    assert Rewatching([], 3).next_round() is None


@pytest.mark.parametrize("shape", [(2, 4), (4, 8)])
def test_what_is_watched_tells_a_slow_node_from_slow_links_of_its_domain(
    shape: tuple[int, int],
) -> None:
    def found_with(degraded: dict[object, float]) -> set[str]:
        net = SimulatedNetwork.regular(shape, [3e-6, 5e-6], seed=3, missing=0.0)
        book = HealthBook(("leaf", "spine"), net.paths)
        rounds = watch_rounds(watched_pairs(net.paths), net.paths)
        for sweep in range(40):
            if sweep == 28:
                net.degraded = degraded  # type: ignore[assignment]
            for asked in rounds:
                book.observe(net.probe(asked), 60.0 * sweep)
        return {each.named for each in book.findings(3000.0)}

    net = SimulatedNetwork.regular(shape, [3e-6, 5e-6], seed=3)
    node = net.names[0]
    leaf = net.paths[node][0]
    crossing = {
        (a, b): 0.4
        for a in net.names
        for b in net.names
        if a < b and (net.paths[a][0] == leaf) != (net.paths[b][0] == leaf)
    }
    assert found_with({}) == set()
    assert found_with({node: 0.4}) == {f"node {node}"}
    # Of two domains, either may be at fault.
    links = "links between the domains of spine" if shape[0] == 2 else f"links out of leaf {leaf}"
    assert found_with(dict(crossing)) == {links}
