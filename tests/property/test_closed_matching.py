"""Matching the places of a closed chain: what counts demand, and home again where that can be."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement.jobs.index import Ints
from railweave.placement.spread.matching import match_chain

relaxed = settings(max_examples=60, deadline=None, derandomize=True)


def apart(one: Ints, other: Ints) -> int:
    return int((one != other).sum())


@given(st.integers(0, 10**6), st.integers(3, 6), st.integers(2, 4), st.integers(1, 6))
@relaxed
def test_neighbours_are_apart_only_where_counts_make_them(
    seed: int, classes: int, domains: int, height: int
) -> None:
    chance = np.random.default_rng(seed)
    places = [chance.integers(0, domains, height) for _ in range(classes)]
    label = np.arange(domains)[None, :]
    ordered = match_chain(places, [True] * classes, label)
    held = [np.bincount(row, minlength=domains) for row in places]
    for p in range(classes - 1):
        assert sorted(ordered[p].tolist()) == sorted(places[p].tolist())
        together = int(np.minimum(held[p], held[p + 1]).sum())
        assert apart(ordered[p], ordered[p + 1]) == height - together


def test_units_that_left_return_to_where_they_began() -> None:
    rows = [[0, 0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1, 2], [0, 1, 1, 1, 1, 2, 2]]
    rows += [[0, 0, 0, 1, 1, 1, 2]]
    places = [np.array(row) for row in rows]
    ordered = match_chain(places, [True] * 4, np.arange(3)[None, :])
    assert apart(ordered[-1], ordered[0]) == 0
