"""Waiting, shrinking and growing: the cheapest by the numbers, and jobs of other sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement import InvalidInput, Model, Parallelism, Workload
from railweave.scheduler.decision import (
    Choice,
    expected_back_s,
    with_devices_back,
    without_devices,
)
from railweave.scheduler.job import Job

SECONDS = st.floats(0, 1e6)


def test_a_node_that_is_soon_back_is_waited_for_and_a_long_absence_is_not() -> None:
    soon = without_devices(8, [6, 4], 6, back_s=15.0, start_s=20.0, lost_steps_s=5.0)
    assert soon.chosen.choice is Choice.WAIT and soon.chosen.cost_s == 35.0
    late = without_devices(8, [6, 4], 6, back_s=600.0, start_s=20.0, lost_steps_s=5.0)
    assert (late.chosen.choice, late.chosen.devices) == (Choice.SHRINK, 6)
    # 20 s of start, 580 s at three quarters, the steps done again, and the start of the growth.
    assert late.chosen.cost_s == 20.0 + 580.0 / 4 + 5.0 + 20.0
    assert late.to_data()["options"] == [["wait", 0, 620.0], ["shrink", 6, 190.0]]
    assert "wait with 0 devices 620 s, shrink with 6 devices 190 s" in str(late)


@given(
    full=st.integers(1, 64),
    sizes=st.lists(st.integers(0, 80), max_size=5),
    free=st.integers(0, 80),
    refused=st.none() | st.integers(1, 80),
    back_s=SECONDS,
    start_s=SECONDS,
    lost_steps_s=SECONDS,
)
def test_the_cheapest_is_chosen_and_it_can_be_done(
    full: int,
    sizes: list[int],
    free: int,
    refused: int | None,
    back_s: float,
    start_s: float,
    lost_steps_s: float,
) -> None:
    costs = {"back_s": back_s, "start_s": start_s, "lost_steps_s": lost_steps_s}
    found = without_devices(full, sizes, free, refused=refused, **costs)
    assert found.chosen.cost_s == min(option.cost_s for option in found.options)
    assert all(option.cost_s >= 0 for option in found.options)
    if found.chosen.choice is Choice.SHRINK:
        assert found.chosen.devices in sizes and found.chosen.devices <= min(free, full - 1)
        assert refused is None or found.chosen.devices < refused
        # Steps that are never done at a smaller size are no reason to take it.
        assert back_s > start_s


@given(full=st.integers(2, 64), back_s=SECONDS, start_s=SECONDS, more_s=SECONDS)
def test_a_longer_absence_never_makes_waiting_cheaper(
    full: int, back_s: float, start_s: float, more_s: float
) -> None:
    def choice(absence_s: float) -> Choice:
        found = without_devices(
            full, [full - 1], full - 1, back_s=absence_s, start_s=start_s, lost_steps_s=1.0
        )
        return found.chosen.choice

    if choice(back_s) is Choice.SHRINK:
        assert choice(back_s + more_s) is Choice.SHRINK


def test_a_job_grows_where_that_pays_before_the_next_fault() -> None:
    often = with_devices_back(8, 6, horizon_s=60.0, start_s=20.0, lost_steps_s=0.0)
    assert often.chosen.choice is Choice.STAY and often.chosen.cost_s == 15.0
    seldom = with_devices_back(8, 6, horizon_s=3600.0, start_s=20.0, lost_steps_s=0.0)
    assert seldom.chosen.choice is Choice.GROW and seldom.chosen.cost_s == 20.0


@given(st.lists(SECONDS, max_size=9), SECONDS, SECONDS)
def test_an_absence_is_never_expected_to_have_ended_already(
    absences_s: list[float], away_s: float, unknown_s: float
) -> None:
    assert expected_back_s(absences_s, away_s, unknown_s) >= 0
    assert expected_back_s([40.0, 60.0, 50.0], 10.0, 999.0) == 40.0
    assert expected_back_s([40.0, 60.0, 50.0], 80.0, 999.0) == 80.0


def test_a_plain_ring_shrinks_rank_by_rank_and_no_further_than_it_may() -> None:
    job = Job(name="ring", entrypoint="true", devices=4, min_data_parallel=2)
    assert job.smaller_sizes() == [3, 2]
    small = job.with_devices(3)
    assert (small.world_size, small.graph().world_size) == (3, 3)
    assert small.model_dump(exclude={"devices", "min_data_parallel"}) == job.model_dump(
        exclude={"devices", "min_data_parallel"}
    )
    assert job.with_devices(4) is job
    assert Job(name="ring", entrypoint="true", devices=4).smaller_sizes() == []


def workload(dp: int) -> Workload:
    model = Model.transformer(hidden=64, layers=4, heads=4, ffn=256, vocab=512, sequence=32)
    return Workload(model=model, parallelism=Parallelism(tp=2, pp=2, dp=dp), global_batch=12)


def test_a_workload_shrinks_to_degrees_that_its_batch_allows_and_keeps_its_batch() -> None:
    job = Job(name="gpt", entrypoint="true", workload=workload(6), min_data_parallel=2)
    assert job.smaller_sizes() == [4 * degree for degree in (4, 3, 2)]  # 12 samples by 5 ranks: no
    small = job.with_devices(12)
    assert small.workload is not None
    assert small.workload.parallelism.dp == 3 and small.workload.global_batch == 12
    assert small.graph().world_size == 12


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"devices": 4, "min_data_parallel": 5}, "the job's own degree is 4"),
        (
            {"pcg": {"format": "railweave.pcg/1", "world_size": 2, "groups": []}},
            "given beside a pcg",
        ),
    ],
)
def test_a_least_degree_that_means_nothing_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        Job(**{"name": "j", "entrypoint": "true", "min_data_parallel": 2, **fields})
