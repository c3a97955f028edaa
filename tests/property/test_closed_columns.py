"""Bounds of closed chains: exact for each domain, and never above what a spread costs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement.bounds.bound import spread_bound
from railweave.placement.bounds.joint_columns import JointColumns
from railweave.placement.spread.counts import Counts


@st.composite
def closed_chains(draw: st.DrawFn) -> Counts:
    """Three or four classes of one to three units in a ring, on two or three domains."""
    classes = draw(st.integers(3, 4))
    height = np.array([draw(st.integers(1, 3)) for _ in range(classes)])
    most = int(height.max())
    weight = st.floats(0.1, 5.0)
    cost = np.array([[0.0, *(draw(weight) for _ in range(most))] for _ in range(classes)])
    link = np.array([draw(weight) for _ in range(classes)])
    room = [draw(st.integers(1, 6)) for _ in range(draw(st.integers(2, 3)))]
    room[0] += max(0, int(height.sum()) - sum(room))
    none = np.zeros((len(room), 0), dtype=np.int64)
    kinds = np.full(classes, -1, dtype=np.int64)
    return Counts(height, cost, link, np.array(room), kinds, none)


def columns_of(problem: Counts) -> list[tuple[int, ...]]:
    return list(product(*(range(h + 1) for h in problem.height.tolist())))


def column_cost(problem: Counts, column: tuple[int, ...], prices: np.ndarray) -> float:
    units = np.array(column)
    joined = np.minimum(units, np.roll(units, -1))
    classes = np.arange(problem.classes)
    alone = problem.cost[classes, units] - prices[classes, units]
    return float(alone.sum() - (joined * problem.link).sum())


@settings(max_examples=60, deadline=None)
@given(problem=closed_chains(), seed=st.integers(0, 10**6))
def test_the_cheapest_columns_are_those_that_trying_all_finds(problem: Counts, seed: int) -> None:
    columns = JointColumns(problem)
    prices = np.random.default_rng(seed).uniform(-2, 2, columns.cost.shape)
    total = int(problem.height.sum())
    least = {0: 0.0}
    for room in columns.rooms.tolist():
        after: dict[int, float] = {}
        for column in columns_of(problem):
            if max(column) > columns.tall or sum(column) > room:
                continue
            here = column_cost(problem, column, prices)
            for used, before in least.items():
                both = used + sum(column)
                after[both] = min(after.get(both, np.inf), before + here)
        least = after
    value, spread = columns.cheapest(prices)
    assert value == pytest.approx(least[total])
    assert spread.sum() == total
    assert (spread.sum(axis=0) <= problem.room).all()
    classes = np.arange(problem.classes)[:, None]
    assert columns.paid(spread) - prices[classes, spread].sum() == pytest.approx(value)


@settings(max_examples=60, deadline=None)
@given(problem=closed_chains())
def test_no_spread_of_a_closed_chain_costs_less_than_its_bound(problem: Counts) -> None:
    each = [
        [part for part in product(range(h + 1), repeat=problem.domains) if sum(part) == h]
        for h in problem.height.tolist()
    ]
    spreads = (np.array(rows) for rows in product(*each))
    least = min(problem.bytes_of(one) for one in spreads if problem.fits(one))
    for found in (least, least + 3.0):
        assert spread_bound(problem, found, 0.1) <= least + 1e-9 * max(1.0, abs(least))


def test_the_link_that_closes_a_chain_of_unequal_classes_counts() -> None:
    """Six stages of four, of which one reduces more, on three domains of eight."""
    cost = np.zeros((6, 5))
    cost[:, 1:4] = 1.0
    cost[0, 1:4] = 2.0
    none = np.zeros((3, 0), dtype=np.int64)
    kinds = np.full(6, -1, dtype=np.int64)
    ring = Counts(np.full(6, 4), cost, np.full(6, 1.0), np.array([8, 8, 8]), kinds, none)
    # Two whole stages in each domain: three of six links of four are saved.
    best = -12.0
    assert ring.bytes_of(np.repeat(4 * np.eye(3, dtype=np.int64), 2, axis=0)) == best
    assert spread_bound(ring, best, 1.0) == pytest.approx(best)
