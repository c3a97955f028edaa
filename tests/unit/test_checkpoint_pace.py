"""How often to save: the closed form is the optimum of the exact model, and ranks follow it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.checkpoint_pace import DEVICE_MTBF_S, Pace, best_interval_s, mtbf_s


def wall_s(interval_s: float, cost_s: float, mtbf_s: float) -> float:
    """Time for one second of training with faults at random, all costs in: Daly's exact model."""
    return mtbf_s * math.expm1((interval_s + cost_s) / mtbf_s) / interval_s


def least_wall_s(cost_s: float, mtbf_s: float) -> float:
    """The least of it over all intervals, by golden section on the logarithm."""
    low, high = math.log(1e-3 * cost_s), math.log(50 * mtbf_s)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(200):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if wall_s(math.exp(left), cost_s, mtbf_s) < wall_s(math.exp(right), cost_s, mtbf_s):
            high = right
        else:
            low = left
    return wall_s(math.exp(low), cost_s, mtbf_s)


@given(cost_s=st.floats(1e-3, 1e3), faults_a_save=st.floats(1e-7, 0.5))
def test_the_interval_loses_the_least_time_of_all(cost_s: float, faults_a_save: float) -> None:
    between_s = cost_s / faults_a_save
    found = wall_s(best_interval_s(cost_s, between_s), cost_s, between_s)
    assert found <= least_wall_s(cost_s, between_s) * 1.002


def test_the_interval_is_youngs_where_faults_are_rare_and_never_above_the_time_between_faults() -> (
    None
):
    assert best_interval_s(1.0, 1e9) == pytest.approx(math.sqrt(2e9), rel=1e-4)
    assert best_interval_s(10.0, 4.0) == 4.0
    with pytest.raises(ValueError, match="above 0"):
        best_interval_s(0.0, 1.0)


def test_the_time_between_faults_follows_what_a_job_has_seen() -> None:
    hours = DEVICE_MTBF_S / 3600
    assert hours == pytest.approx(50_700, rel=0.01)
    assert mtbf_s(16384) == pytest.approx(54 * 86400 / 419)
    assert mtbf_s(16384, faults=0, run_s=86400) > mtbf_s(16384)
    assert mtbf_s(8, faults=999, run_s=1e9) == pytest.approx(1e6, rel=0.3)
    with pytest.raises(ValueError, match="no sense"):
        mtbf_s(0)


def test_the_pace_follows_the_time_of_a_step_the_cost_of_a_save_and_the_faults() -> None:
    pace = Pace(mtbf_s=5000.0, first_steps=7)
    assert (pace.interval_s, pace.steps_until_next()) == (None, 7)
    now_s = 100.0
    for _ in range(5):
        pace.stepped(now_s)
        now_s += 2.0
    pace.stalled(1.0)
    now_s += 1.0
    pace.stepped(now_s)  # the stall does not count as a slow step
    expected_s = best_interval_s(1.0, 5000.0)
    assert pace.interval_s == pytest.approx(expected_s)
    assert pace.steps_until_next() == round(expected_s / 2.0) == 50
    pace.wrote(400.0)
    assert pace.interval_s == 400.0, "one save must be written before the next"
    assert pace.steps_until_next() == 200
    for _ in range(40):
        pace.wrote(0.5)
    pace.longest_s = 10.0
    assert pace.steps_until_next() == 5


def test_a_fixed_pace_stays_fixed() -> None:
    pace = Pace(every_steps=25)
    pace.stepped(0.0)
    pace.stalled(9.0)
    assert pace.steps_until_next() == 25
    with pytest.raises(ValueError, match="every_steps is 0"):
        Pace(every_steps=0)
    with pytest.raises(ValueError, match="must all"):
        Pace(mtbf_s=0)


@pytest.mark.parametrize("told", ["", "nonsense", "-5", "nan", "inf", "0"])
def test_without_a_usable_number_from_railweave_the_size_of_the_job_decides(told: str) -> None:
    assert Pace.for_job(1024, told).mtbf_s == mtbf_s(1024)
    assert Pace.for_job(1024, "120.5").mtbf_s == 120.5
