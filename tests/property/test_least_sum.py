"""The cheapest whole numbers that make given sums: those that brute force finds."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.exact.least_sum import OverPrices, Sums, _model, least_sum
from railweave.placement.jobs.index import Ints
from railweave.placement.loops.budget import Status, new_model
from railweave.placement.loops.settled import settled

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def drawn(seed: int, scale: float) -> tuple[Sums, Ints]:
    """Sums that some choice makes, and that choice."""
    chance = np.random.default_rng(seed)
    things = int(chance.integers(2, 6))
    times = chance.integers(1, 4, things)
    chosen = chance.integers(0, times + 1)
    equal = chance.integers(-2, 4, (int(chance.integers(1, 3)), things))
    within = chance.integers(-2, 4, (int(chance.integers(0, 3)), things))
    room = within @ chosen + chance.integers(0, 3, len(within))
    cost = (chance.integers(-5, 6, things) + chance.choice([0.0, 1 / 3])) * scale
    return Sums(cost, equal, equal @ chosen, within, room, times), chosen


def cheapest(sums: Sums) -> float:
    every = np.array(list(product(*(range(most + 1) for most in sums.times.tolist()))))
    able = (every @ sums.equal.T == sums.total).all(axis=1)
    able &= (every @ sums.within.T <= sums.room).all(axis=1)
    return float((every[able] @ sums.cost).min())


@given(
    st.integers(0, 10**6),
    st.sampled_from([1.0, 1e-7, 1e11]),
    st.sampled_from([-0.5, 0.0, 1e-3, 0.4, 5.0]),
)
@relaxed
def test_the_least_sum_is_that_of_brute_force(seed: int, scale: float, over: float) -> None:
    sums, _ = drawn(seed, scale)
    least = cheapest(sums)
    limit = least + over * scale
    found = least_sum(sums, limit, 1.0)
    assert found.bound <= least + 1e-9 * scale
    assert found.bound == pytest.approx(min(limit, least), abs=1e-6 * scale)
    if over > 1e-6:
        assert found.best and found.often is not None
        assert (sums.equal @ found.often == sums.total).all()
        assert (sums.within @ found.often <= sums.room).all()
        assert (found.often <= sums.times).all()
        assert sums.cost @ found.often == pytest.approx(least, abs=1e-6 * scale)
    if over < -1e-6:
        assert found.often is None


@pytest.mark.parametrize("work", [0.0, 1e-6, 1e-4, 1e-3])
def test_with_hardly_any_work_no_more_is_said_than_holds(work: float) -> None:
    for seed in range(40):
        sums, _ = drawn(seed, 1.0)
        least = cheapest(sums)
        found = least_sum(sums, least + 2.0, work)
        assert found.bound <= least + 1e-9
        assert found.often is None or sums.cost @ found.often >= least - 1e-9


def test_a_sum_that_nothing_makes_is_proved_to_be_none() -> None:
    even = Sums(
        np.ones(2),
        np.array([[2, 4]]),
        np.array([7]),
        np.zeros((0, 2), dtype=np.int64),
        np.zeros(0, dtype=np.int64),
        np.array([9, 9]),
    )
    assert least_sum(even, 50.0, 1.0).bound == 50.0


def test_side_by_side_the_same_is_found_each_time_and_no_thread_is_left() -> None:
    before = threading.active_count()
    answers = set()
    for _ in range(5):
        model = new_model()
        some = [model.new_int_var(0, 9, "") for _ in range(12)]
        model.add(sum((3 + k % 5) * one for k, one in enumerate(some)) == 101)
        model.minimize(sum((7 * k) % 11 * one for k, one in enumerate(some)))
        ended = settled(model, 1.0)
        assert ended.status is Status.OPTIMAL
        answers.add((ended.work, tuple(ended.solver.value(one) for one in some)))
    assert len(answers) == 1
    assert threading.active_count() == before


def test_what_has_no_solution_is_told_so_and_costs_all_the_work() -> None:
    model = new_model()
    some = [model.new_int_var(0, 9, "") for _ in range(3)]
    model.add(2 * some[0] + 4 * some[1] + 6 * some[2] == 7)
    model.minimize(sum(some))
    ended = settled(model, 0.5)
    assert ended.status is Status.INFEASIBLE
    assert ended.work == 0.5


def test_whole_numbers_of_a_model_stay_small_however_dear_room_is() -> None:
    """With coefficients of 1e10 CP-SAT was met to call a model infeasible that had solutions."""
    sums = Sums(
        cost=np.array([-1e9, 1.0]),
        equal=np.array([[1, 1]]),
        total=np.array([3]),
        within=np.array([[1, 0]]),
        room=np.array([2]),
        times=np.array([3, 3]),
    )
    least = -2e9 + 1.0
    for over in (1e-3, 1.0, 1e3):
        priced = OverPrices.of(sums)
        assert priced is not None
        limit = least + over
        model, _ = _model(sums, priced, limit - priced.base, priced.unit(limit))
        numbers = [
            abs(number)
            for each in [*(row.linear for row in model.proto.constraints), model.proto.objective]
            for number in each.coeffs
        ]
        assert max(numbers) <= 2e9
        assert least_sum(sums, limit, 0.1).bound <= least + 1e-9 * abs(least)
