"""Bounds by prices of parts by their size."""

from __future__ import annotations

import numpy as np
import pytest
from railweave.placement.bounds.bound import spread_bound
from railweave.placement.spread.counts import Counts


def rings(heights: list[int], rooms: list[int], weight: float = 1.0, link: float = 0.0) -> Counts:
    """Classes that cost `weight` for each domain that holds a part of them, in a chain."""
    height = np.array(heights)
    cost = np.zeros((len(heights), int(height.max()) + 1))
    for p, units in enumerate(heights):
        cost[p, 1:units] = weight
    links = np.full(len(heights), link)
    links[-1] = 0.0
    kind = np.full(len(heights), -1, dtype=np.int64)
    none = np.zeros((len(rooms), 0), dtype=np.int64)
    return Counts(height, cost, links, np.array(rooms), kind, none)


def test_a_class_that_fits_into_no_two_rests_counts_as_three_parts() -> None:
    # Every domain holds one class and three units more; the fifth class is in three parts or more.
    problem = rings([8] * 5, [11] * 4)
    assert spread_bound(problem, 3.0, work=0.5) == pytest.approx(3.0)


def test_classes_of_unequal_heights_have_prices_of_their_own() -> None:
    # Sets of three domains hold four classes of 8; the class of 2 fits into what is left.
    problem = rings([8, 8, 8, 8, 2], [11, 11, 12])
    assert spread_bound(problem, 3.0, work=0.5) == pytest.approx(3.0)


def test_a_bound_of_equal_work_is_the_same_again() -> None:
    problem = rings([9] * 6, [13, 12, 12, 11, 10], weight=3.0, link=1.0)
    first, second = (spread_bound(problem, -20.0, work=0.05) for _ in range(2))
    assert first == second


def test_prices_of_sizes_never_tell_less_than_prices_of_units() -> None:
    chance = np.random.default_rng(7)
    for _ in range(20):
        heights = [int(chance.integers(4, 12))] * int(chance.integers(2, 6))
        rooms = (chance.multinomial(sum(heights), np.full(6, 1 / 6)) + 2).tolist()
        problem = rings(heights, rooms, float(chance.integers(1, 9)), float(chance.integers(0, 3)))
        units_only = spread_bound(problem, 1e3, work=1e-9)
        assert spread_bound(problem, 1e3, work=0.05) >= units_only - 1e-9
