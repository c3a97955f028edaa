"""Layers over stages: given, even, and balanced against every other way."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import Parallelism
from railweave.placement.strategies.division import balanced, piece_layers, starts


def ways(layers: int, pieces: int) -> list[tuple[int, ...]]:
    found = []
    for cuts in combinations_with_replacement(range(layers + 1), pieces - 1):
        counts = tuple(b - a for a, b in pairwise((0, *cuts, layers)))
        if all(counts[1:-1]):
            found.append(counts)
    return found


def worst(costs: list[float], first: float, last: float, counts: tuple[int, ...]) -> float:
    sums = [sum(costs[a:b]) for a, b in starts(counts)]
    sums[0] += first
    sums[-1] += last
    return max(sums)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=7),
    st.floats(0, 10),
    st.floats(0, 10),
    st.integers(1, 4),
)
def test_a_balanced_division_has_the_least_worst_stage_of_all(
    costs: list[float], first: float, last: float, pieces: int
) -> None:
    found = tuple(balanced(costs, first, last, pieces))
    every = ways(len(costs), pieces)
    if not every:
        assert found == ()
        return
    assert found in every
    least = min(worst(costs, first, last, counts) for counts in every)
    assert worst(costs, first, last, found) == pytest.approx(least, rel=1e-9)


def test_equal_layers_are_divided_evenly() -> None:
    assert balanced([1.0] * 32, 0.0, 0.0, 8) == [4] * 8
    assert balanced([1.0] * 32, 0.0, 2.0, 8) == [4, 4, 4, 4, 4, 5, 5, 2]


@pytest.mark.parametrize(
    ("layers", "split", "pieces"),
    [
        (8, {"pp": 4}, (2, 2, 2, 2)),
        (7, {"pp": 4, "head_as_layer": True}, (2, 2, 2, 1)),
        (6, {"pp": 4, "head_as_layer": True, "embedding_as_layer": True}, (1, 2, 2, 1)),
        (8, {"pp": 2, "virtual_pp": 2}, (2, 2, 2, 2)),
        (8, {"pp": 3, "stage_layers": (3, 4, 1)}, (3, 4, 1)),
    ],
)
def test_each_stage_has_its_layers(
    layers: int, split: dict[str, int], pieces: tuple[int, ...]
) -> None:
    assert piece_layers(layers, Parallelism(**split)) == pieces
