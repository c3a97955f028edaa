"""Rounds of probes: nobody is in two pairs at once, and together they reach everybody."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.agents.rounds import all_pairs, hypercube, rounds

COUNTS = st.integers(0, 300)


def assert_disjoint(found: list[list[tuple[int, int]]]) -> None:
    for pairs in found:
        ends = [end for pair in pairs for end in pair]
        assert pairs
        assert len(set(ends)) == len(ends)


@settings(deadline=None)
@given(st.integers(0, 60))
def test_few_nodes_meet_in_every_pair_exactly_once(count: int) -> None:
    found = all_pairs(range(count))
    assert_disjoint(found)
    pairs = [frozenset(pair) for round_ in found for pair in round_]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) // 2
    assert len(found) == (0 if count < 2 else count - 1 + count % 2)


@settings(deadline=None)
@given(COUNTS)
def test_many_nodes_are_all_joined_in_logarithmic_rounds(count: int) -> None:
    found = hypercube(range(count))
    assert_disjoint(found)
    assert len(found) == (max(count, 1) - 1).bit_length()
    graph = nx.Graph(pair for round_ in found for pair in round_)
    graph.add_nodes_from(range(count))
    assert count == 0 or nx.is_connected(graph)
    pairs = [frozenset(pair) for round_ in found for pair in round_]
    assert len(pairs) == len(set(pairs))


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(2, 40))
def test_ordered_by_domain_some_pairs_stay_inside_and_some_cross(size: int, domains: int) -> None:
    names = [(domain, node) for domain in range(domains) for node in range(size)]
    crossing = {a[0] != b[0] for round_ in rounds(names) for a, b in round_}
    assert crossing == {True, False}


@settings(deadline=None)
@given(COUNTS, st.integers(0, 40))
def test_the_size_decides_between_all_pairs_and_few_rounds(count: int, limit: int) -> None:
    names = [f"n{i}" for i in range(count)]
    expected = all_pairs(names) if count <= limit else hypercube(names)
    assert rounds(names, limit) == expected
