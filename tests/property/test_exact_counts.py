"""The exact solver of counts: what brute force finds, closed chains too; never a false proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.exact import exact_counts
from railweave.placement.exact.column_model import best_columns
from railweave.placement.exact.columns import Columns
from railweave.placement.exact.exact_counts import best_spread
from railweave.placement.jobs.index import Ints
from railweave.placement.spread.counts import Counts
from railweave.placement.spread.search import search
from railweave.placement.spread.starts import starts_of

relaxed = settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Counts, Ints]:
    """A small problem of chains, some closed, with a spread that fits."""
    classes, domains = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    height = chance.integers(1, 5, classes)
    closed = classes > 2 and draw(st.booleans())
    if closed:
        height[:] = height[0]
    spread = np.stack([chance.multinomial(h, np.ones(domains) / domains) for h in height])
    cost = np.zeros((classes, int(height.max()) + 1))
    for p in range(classes):
        cost[p, 1 : height[p]] = chance.integers(0, 6)
        cost[p] -= chance.integers(0, 2) * np.arange(cost.shape[1]) ** 2 / 3
    link = chance.integers(0, 4, classes).astype(float)
    link[-1] = link[-1] if closed else 0
    room = spread.sum(axis=0) + chance.integers(0, 3, domains)
    none = np.zeros((domains, 0), dtype=np.int64)
    return Counts(height, cost, link, room, np.full(classes, -1, dtype=np.int64), none), spread


def rows(units: int, most: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to spread `units` over domains that hold at most so many each."""
    for row in product(*(range(min(units, m) + 1) for m in most)):
        if sum(row) == units:
            yield row


def every_spread(problem: Counts) -> Iterator[Ints]:
    options = [list(rows(h, problem.room.tolist())) for h in problem.height.tolist()]
    for chosen in product(*options):
        spread = np.array(chosen)
        if (spread.sum(axis=0) <= problem.room).all():
            yield spread


@given(problems())
@relaxed
def test_the_best_spread_is_that_of_brute_force(case: tuple[Counts, Ints]) -> None:
    problem, spread = case
    least = min(problem.bytes_of(other) for other in every_spread(problem))
    found = best_spread(problem, spread, 1.0)
    assert found is not None
    assert problem.fits(found.spread)
    assert problem.bytes_of(found.spread) == pytest.approx(least, abs=1e-6)
    assert found.bound == pytest.approx(least, abs=1e-6)


@given(problems(), st.floats(1e-5, 1e-2))
@relaxed
def test_with_hardly_any_work_the_bound_still_holds(case: tuple[Counts, Ints], work: float) -> None:
    problem, spread = case
    least = min(problem.bytes_of(other) for other in every_spread(problem))
    found = best_spread(problem, spread, work)
    assert found is not None
    assert found.bound <= least + 1e-6
    assert least - 1e-6 <= problem.bytes_of(found.spread) <= problem.bytes_of(spread) + 1e-6


@pytest.mark.parametrize("work", [1e-5, 1e-4, 1e-3, 1e-2])
def test_a_model_that_there_is_no_work_for_proves_nothing(work: float) -> None:
    # Its least cost is below 0, which is what CP-SAT reports before it begins.
    cost = np.array([[0, 8, 8, 0], [0, 12, 12, 0], [0, 16, 16, 0], [0, 16, 16, 0]]) / 3
    link, room = np.array([1.2, 2.4, 1.2, 0.0]), np.array([2, 6, 5])
    kind, none = np.full(4, -1, dtype=np.int64), np.zeros((3, 0), dtype=np.int64)
    problem = Counts(np.full(4, 3), cost, link, room, kind, none)
    best = np.array([[2, 0, 1], [0, 3, 0], [0, 3, 0], [0, 0, 3]])
    found = best_spread(problem, np.array([[0, 3, 0], [0, 3, 0], [0, 0, 3], [1, 0, 2]]), work)
    assert found is not None and found.bound <= problem.bytes_of(best) + 1e-9


def test_large_problems_and_those_with_kinds_are_left_alone() -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    height, link, free = np.array([257]), np.zeros(1), np.array([-1])
    large = Counts(height, np.zeros((1, 258)), link, np.array([200, 200]), free, none)
    assert best_spread(large, np.array([[200, 57]]), 1.0) is None
    small = replace(large, height=np.array([4]), cost=np.ones((1, 5)))
    kinds = replace(small, kind_room=np.full((2, 1), 40))
    assert best_spread(kinds, np.array([[4, 0]]), 1.0) is None
    assert best_spread(small, np.array([[4, 0]]), 1.0) is not None


def test_more_classes_than_a_word_has_bits_for_are_cut_at_their_lightest_link() -> None:
    classes, room = 26, 32
    height = np.full(classes, 2)
    cost = np.tile([0.0, 50.0, 0.0], (classes, 1))
    link = 10.0 + np.abs(np.arange(classes) - 14.0)
    link[-1] = 0.0
    none = np.zeros((2, 0), dtype=np.int64)
    free = np.full(classes, -1, dtype=np.int64)
    problem = Counts(height, cost, link, np.array([room, room]), free, none)
    start = np.zeros((classes, 2), dtype=np.int64)
    start[:12, 0] = start[12:, 1] = 2
    found = best_spread(problem, start, 1.0)
    assert found is not None and problem.fits(found.spread)
    linked = float((link * height).sum())
    assert problem.bytes_of(found.spread) + linked == pytest.approx(20.0)
    assert found.bound == pytest.approx(problem.bytes_of(found.spread))


@given(problems(), st.sampled_from([0.01, 0.3, 3.0]))
@relaxed
def test_the_model_of_columns_chooses_what_brute_force_finds(
    case: tuple[Counts, Ints], over: float
) -> None:
    problem, _ = case
    spreads = list(every_spread(problem))
    columns = np.unique(np.concatenate([other.T for other in spreads]), axis=0)
    classes = np.arange(problem.classes)
    joined = np.minimum(columns, np.roll(columns, -1, axis=1)) @ problem.link
    paid = problem.cost[classes, columns].sum(axis=1) - joined
    touched = (columns > 0).astype(np.int64) + (columns == problem.height)
    least = min(problem.bytes_of(other) for other in spreads)
    limit = least + over * max(1.0, abs(least))
    found = best_columns(columns, paid, touched, problem.height, problem.room, limit, 1.0)
    assert found.spread is not None and problem.fits(found.spread)
    assert problem.bytes_of(found.spread) == pytest.approx(least, abs=1e-6)
    assert least - 1e-6 <= found.bound <= least


def test_where_sums_of_columns_are_too_many_a_model_proves_the_best_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def counted(*args: object) -> object:
        asked.append(args)
        return best_columns(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(exact_counts, "best_columns", counted)
    classes, units = 8, 7
    room = np.array([2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6, 6, 8, 8])
    height = np.full(classes, units)
    cost = np.full((classes, units + 1), 44.0)
    cost[:, [0, units]] = 0.0
    cost[[0, -1]] *= 45.4 / 44.0
    link = np.append(np.full(classes - 1, 1.0), 0.0)
    none = np.zeros((len(room), 0), dtype=np.int64)
    problem = Counts(height, cost, link, room, np.full(classes, -1, dtype=np.int64), none)
    start = search(problem, starts_of(problem), 0.05, 1)
    assert problem.fits(start)
    found = best_spread(problem, start, 1.0)
    assert found is not None and problem.fits(found.spread)
    assert asked
    assert found.bound == pytest.approx(problem.bytes_of(found.spread), rel=1e-9)


@given(st.integers(0, 10**6), st.booleans())
@relaxed
def test_columns_within_a_limit_are_all_those_that_brute_force_finds(
    seed: int, closed: bool
) -> None:
    chance = np.random.default_rng(seed)
    classes, tall = int(chance.integers(3 if closed else 1, 5)), int(chance.integers(2, 5))
    cost = chance.integers(-4, 5, (classes, tall)).astype(float)
    link = chance.integers(0, 4, classes).astype(float)
    link[-1] = 1.0 + link[-1] if closed else 0.0
    rooms = np.sort(chance.integers(1, 7, int(chance.integers(2, 4))))
    total = int(chance.integers(1, rooms.sum() + 1))
    columns = Columns(cost, link, rooms, total)
    every = np.array([c for c in product(range(tall), repeat=classes) if sum(c) <= rooms.max()])
    joined = np.minimum(every, np.roll(every, -1, axis=1)) @ link
    paid = cost[np.arange(classes), every].sum(axis=1) - joined
    beside = columns.rest[every.sum(axis=1)]
    limit = float(np.quantile(paid + beside, chance.random()))
    found = columns.within(limit)
    assert found is not None
    inside = paid + beside <= limit
    assert found[0].tolist() == every[inside].tolist()
    assert found[1] == pytest.approx(paid[inside])
