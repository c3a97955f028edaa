"""Searching spreads: exact sharing of two classes, coarse steps, and the whole search."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.jobs.index import Ints
from railweave.placement.spread.class_pairs import share_classes
from railweave.placement.spread.coarse_counts import coarsened, coarsest, refined
from railweave.placement.spread.counts import Counts
from railweave.placement.spread.search import search
from railweave.placement.spread.starts import starts_of

relaxed = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def problems(
    draw: st.DrawFn, most_classes: int = 3, most_domains: int = 4, scale: int = 1
) -> tuple[Counts, Ints]:
    """A small problem of chains with a spread that fits."""
    classes = draw(st.integers(1, most_classes))
    domains = draw(st.integers(2, most_domains))
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    height = chance.integers(2, 5, classes) * scale
    closed = classes > 2 and draw(st.booleans())
    spread = np.stack([chance.multinomial(h, np.ones(domains) / domains) for h in height])
    cost = np.zeros((classes, int(height.max()) + 1))
    for p in range(classes):
        cost[p, 1 : height[p]] = chance.integers(0, 6)
        cost[p] -= chance.integers(0, 2) * np.arange(cost.shape[1]) ** 2 / scale
    link = chance.integers(0, 4, classes).astype(float)
    link[-1] = link[-1] if closed else 0
    room = spread.sum(axis=0) + chance.integers(0, 3, domains) * scale
    none = np.zeros((domains, 0), dtype=np.int64)
    return Counts(height, cost, link, room, np.full(classes, -1, dtype=np.int64), none), spread


def rows(units: int, most: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to spread `units` over domains that hold at most so many each."""
    for row in product(*(range(m + 1) for m in most)):
        if sum(row) == units:
            yield row


def least_of(problem: Counts) -> float:
    """The cost of the best spread, by trying all."""
    options = [list(rows(h, problem.room.tolist())) for h in problem.height.tolist()]
    tried = (np.array(chosen) for chosen in product(*options))
    return min(problem.bytes_of(s) for s in tried if (s.sum(axis=0) <= problem.room).all())


@given(problems(), st.data())
@relaxed
def test_two_classes_share_their_places_in_the_best_way(
    case: tuple[Counts, Ints], data: st.DataObject
) -> None:
    problem, spread = case
    classes = problem.classes
    pair = np.array(data.draw(st.permutations(range(classes + 1)))[:2])
    p, q = sorted(pair.tolist())
    free = problem.room - spread.sum(axis=0)
    held = spread[p] + (free if q == classes else spread[q])
    least = np.inf
    for row in rows(int(spread[p].sum()), held.tolist()):
        other = spread.copy()
        other[p] = row
        if q < classes:
            other[q] = held - other[p]
        if (other <= problem.height[:, None]).all():
            least = min(least, problem.bytes_of(other))
    shared = spread.copy()
    change, _ = share_classes(
        shared,
        problem.cost,
        problem.link,
        problem.room,
        pair,
        np.ones(classes + 1, dtype=np.int64),
        1,
        10**9,
    )
    assert problem.fits(shared)
    assert problem.bytes_of(shared) == pytest.approx(least, abs=1e-6)
    assert problem.bytes_of(spread) + change == pytest.approx(least, abs=1e-6)


@given(problems(most_classes=5, most_domains=6, scale=40))
@relaxed
def test_a_spread_in_coarse_steps_becomes_one_that_fits_at_about_its_cost(
    case: tuple[Counts, Ints],
) -> None:
    problem, _ = case
    step = coarsest(problem)
    coarse = coarsened(problem, step)
    starts = [start for start in starts_of(coarse) if coarse.fits(start)]
    assert starts
    for start in starts:
        fine = refined(problem, start, step)
        assert problem.fits(fine)
        if (problem.height % step == 0).all():
            assert problem.bytes_of(fine) == pytest.approx(coarse.bytes_of(start))


def test_steps_are_only_as_coarse_as_leaves_room_for_all() -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    free = np.full(1, -1, dtype=np.int64)

    def chosen(height: int, rooms: tuple[int, int]) -> int:
        cost = np.zeros((1, height + 1))
        one = np.array([height])
        return coarsest(Counts(one, cost, np.zeros(1), np.array(rooms), free, none))

    assert chosen(700, (400, 400)) == 8
    assert chosen(790, (399, 399)) == 4  # 2 x 49 steps of 8 do not hold 99
    assert chosen(798, (399, 399)) == 1
    assert chosen(60, (40, 40)) == 1


@given(problems(), st.integers(0, 5))
@relaxed
def test_small_problems_are_searched_to_the_best_spread_and_alike_each_time(
    case: tuple[Counts, Ints], seed: int
) -> None:
    problem, spread = case
    found = search(problem, [spread], 0.02, seed)
    assert problem.fits(found)
    assert problem.bytes_of(found) == pytest.approx(least_of(problem), abs=1e-6)
    assert (found == search(problem, [spread], 0.02, seed)).all()


@given(problems(most_classes=6, most_domains=6, scale=40), st.integers(0, 5))
@relaxed
def test_a_search_of_hardly_any_work_is_no_worse_than_its_starts(
    case: tuple[Counts, Ints], seed: int
) -> None:
    problem, spread = case
    found = search(problem, [spread], 1e-4, seed)
    assert problem.fits(found)
    assert problem.bytes_of(found) <= problem.bytes_of(spread) + 1e-6
