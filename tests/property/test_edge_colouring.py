"""Edge colouring: proper, and at the least possible maximum at every vertex."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.paths.edge_colouring import (
    ProperColouring,
    balanced_colours,
    cp_sat_colours,
    greedy_colours,
    least_max_load,
    max_load,
    max_weight_load,
    proper_colours,
)

LEFT = 8  # left vertices are 0..7, right vertices 8..15
Edges = list[tuple[int, int]]


def bipartite(max_size: int, side: int = LEFT) -> st.SearchStrategy[Edges]:
    edge = st.tuples(st.integers(0, side - 1), st.integers(LEFT, LEFT + side - 1))
    return st.lists(edge, max_size=max_size)


def degrees(edges: Edges) -> Counter[int]:
    return Counter(vertex for edge in edges for vertex in edge)


@given(bipartite(120))
def test_a_colouring_with_as_many_colours_as_the_largest_degree_is_proper(edges: Edges) -> None:
    colours = max(degrees(edges).values(), default=1)
    colouring = proper_colours(edges, colours)
    assert all(0 <= colour < colours for colour in colouring)
    assert max_load(edges, colouring) <= 1


@given(bipartite(150), st.integers(1, 9), st.randoms(use_true_random=False))
def test_every_vertex_carries_no_more_of_a_colour_than_its_degree_forces(
    edges: Edges, colours: int, random: object
) -> None:
    weights = [float(random.randint(1, 9)) for _ in edges]  # type: ignore[attr-defined]
    colouring = balanced_colours(edges, colours, weights)
    assert all(0 <= colour < colours for colour in colouring)
    degree = degrees(edges)
    loads = Counter(
        (vertex, colour) for edge, colour in zip(edges, colouring, strict=True) for vertex in edge
    )
    assert all(load <= -(-degree[vertex] // colours) for (vertex, _), load in loads.items())
    assert max_load(edges, colouring) == least_max_load(edges, colours)


@given(bipartite(6, side=3), st.integers(1, 3))
def test_no_colouring_at_all_has_a_smaller_maximum(edges: Edges, colours: int) -> None:
    best = min(max_load(edges, c) for c in product(range(colours), repeat=len(edges)))
    assert best == least_max_load(edges, colours)
    assert best == max_load(edges, balanced_colours(edges, colours))


@given(bipartite(60), st.data())
def test_trading_two_colours_along_an_alternation_keeps_a_colouring_proper(
    edges: Edges, data: st.DataObject
) -> None:
    colours = max(degrees(edges).values(), default=1) + 1
    colouring = ProperColouring(edges, colours)
    for _ in range(5 if edges else 0):
        index = data.draw(st.integers(0, len(edges) - 1))
        colour = colouring.colouring[index]
        other = data.draw(st.sampled_from([c for c in range(colours) if c != colour]))
        chain = colouring.alternation(index, other)
        assert len(set(chain)) == len(chain)
        colouring.exchange(chain, colour, other)
        assert colouring.colouring[index] == other
        assert max_load(edges, colouring.colouring) <= 1


@given(bipartite(40), st.integers(1, 6))
def test_greedy_uses_every_edge_and_is_never_below_the_least(edges: Edges, colours: int) -> None:
    colouring = greedy_colours(edges, colours)
    assert len(colouring) == len(edges)
    assert max_load(edges, colouring) >= least_max_load(edges, colours)


@pytest.mark.parametrize("colours", [1, 2, 4])
def test_the_integer_program_agrees_with_the_colouring(colours: int) -> None:
    edges = [(i % 5, LEFT + (i * i + i // 3) % 6) for i in range(40)]
    found = cp_sat_colours(edges, colours)
    assert max_load(edges, found) == max_load(edges, balanced_colours(edges, colours))


def test_the_integer_program_gives_a_colour_to_no_edges() -> None:
    assert cp_sat_colours([], 4) == []


def test_greedy_can_be_above_the_least_where_the_colouring_is_not() -> None:
    edges = [(0, 8), (1, 10), (1, 9), (0, 9)]
    assert max_load(edges, greedy_colours(edges, 2)) == 2
    assert max_load(edges, balanced_colours(edges, 2)) == 1


def test_the_heaviest_connections_of_a_switch_are_kept_apart() -> None:
    edges = [(0, LEFT + i) for i in range(8)]
    weights = [9.0, 1.0, 9.0, 1.0, 1.0, 9.0, 1.0, 9.0]
    colouring = balanced_colours(edges, 4, weights)
    assert max_load(edges, colouring) == 2
    assert max_weight_load(edges, colouring, weights) == 10.0


def test_a_vertex_with_too_many_edges_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="vertex 0 has more than 2 edges"):
        proper_colours([(0, 8), (0, 9), (0, 10)], 2)
