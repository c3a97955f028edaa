"""The lifecycle table, row by row where a promise hangs on it."""

from __future__ import annotations

import pytest
from railweave.scheduler.lifecycle import TABLE, JobEvent, JobState, Life, Outcome, step


def walk(*events: tuple[JobEvent, int | None], max_restarts: int = 3) -> Life:
    life = Life(max_restarts=max_restarts)
    for event, attempt in events:
        taken = step(life, event, attempt)
        assert taken.outcome is Outcome.CHANGED, (life, event, taken)
        life = taken.life
        life.check()
    return life


def test_the_table_answers_every_event_in_every_state() -> None:
    states = {state for state, _ in TABLE}
    assert states == set(JobState)
    assert all(set(row) == set(JobEvent) for row in TABLE.values())
    assert {(s, h) for s, h in TABLE if s is JobState.RECOVERING} == {
        (JobState.RECOVERING, True),
        (JobState.RECOVERING, False),
    }


def test_a_job_that_runs_through_succeeds() -> None:
    life = walk((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1), (JobEvent.SUCCEED, 1))
    assert life == Life(JobState.SUCCEEDED, attempt=1)


def test_a_job_too_short_to_be_seen_running_succeeds() -> None:
    assert walk((JobEvent.LAUNCH, 1), (JobEvent.SUCCEED, 1)).state is JobState.SUCCEEDED


def test_devices_stay_held_after_a_fault_until_the_attempt_is_verified_stopped() -> None:
    broken = walk((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1), (JobEvent.FAULT, 1))
    assert (broken.state, broken.holds_devices) == (JobState.RECOVERING, True)
    assert step(broken, JobEvent.LAUNCH, 2).outcome is Outcome.REFUSED
    stopped = step(broken, JobEvent.STOPPED, 1).life
    assert (stopped.state, stopped.holds_devices) == (JobState.RECOVERING, False)
    assert step(stopped, JobEvent.LAUNCH, 2).life.attempt == 2


def test_the_fault_after_the_last_restart_ends_in_failed_once_stopped() -> None:
    spent = walk(
        (JobEvent.LAUNCH, 1),
        (JobEvent.FAULT, 1),
        (JobEvent.STOPPED, 1),
        (JobEvent.LAUNCH, 2),
        (JobEvent.FAULT, 2),
        max_restarts=1,
    )
    assert (spent.state, spent.ending) == (JobState.STOPPING, JobState.FAILED)
    assert step(spent, JobEvent.STOPPED, 2).life.state is JobState.FAILED


def test_no_restart_at_all_when_none_is_allowed() -> None:
    spent = walk((JobEvent.LAUNCH, 1), (JobEvent.FAULT, 1), max_restarts=0)
    assert (spent.state, spent.ending) == (JobState.STOPPING, JobState.FAILED)


def test_calling_off_a_launch_costs_no_restart() -> None:
    life = walk((JobEvent.LAUNCH, 1), (JobEvent.CALL_OFF, 1))
    assert (life.state, life.faults, life.attempt) == (JobState.PENDING, 0, 1)
    life = walk(
        (JobEvent.LAUNCH, 1),
        (JobEvent.FAULT, 1),
        (JobEvent.STOPPED, 1),
        (JobEvent.LAUNCH, 2),
        (JobEvent.CALL_OFF, 2),
    )
    assert (life.state, life.faults, life.holds_devices) == (JobState.RECOVERING, 1, False)


@pytest.mark.parametrize(
    "events",
    [
        ((JobEvent.LAUNCH, 1),),
        ((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1)),
        ((JobEvent.LAUNCH, 1), (JobEvent.FAULT, 1)),
    ],
)
def test_cancelling_holds_the_devices_until_the_attempt_is_stopped(
    events: tuple[tuple[JobEvent, int], ...],
) -> None:
    stopping = walk(*events, (JobEvent.CANCEL, None))
    assert (stopping.state, stopping.holds_devices) == (JobState.STOPPING, True)
    assert step(stopping, JobEvent.FAULT, 1).life == stopping
    assert step(stopping, JobEvent.STOPPED, 1).life.state is JobState.CANCELLED


def test_cancelling_a_job_without_devices_ends_it_at_once() -> None:
    assert walk((JobEvent.CANCEL, None)).state is JobState.CANCELLED
    recovering = walk((JobEvent.LAUNCH, 1), (JobEvent.FAULT, 1), (JobEvent.STOPPED, 1))
    assert step(recovering, JobEvent.CANCEL).life.state is JobState.CANCELLED


def test_a_job_that_can_never_be_placed_fails() -> None:
    assert walk((JobEvent.REJECT, None)).state is JobState.FAILED


def test_a_report_names_its_attempt() -> None:
    running = walk((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1))
    assert step(running, JobEvent.FAULT).outcome is Outcome.REFUSED
    assert step(running, JobEvent.FAULT, 2).outcome is Outcome.REFUSED
    assert "does not exist" in step(running, JobEvent.FAULT, 2).why


def test_a_verdict_against_the_job_ends_it_once_the_broken_attempt_is_stopped() -> None:
    broken = walk((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1), (JobEvent.FAULT, 1))
    given_up = step(broken, JobEvent.GIVE_UP, 1).life
    assert (given_up.state, given_up.holds_devices) == (JobState.STOPPING, True)
    assert step(given_up, JobEvent.GIVE_UP, 1).outcome is Outcome.UNCHANGED
    assert step(given_up, JobEvent.STOPPED, 1).life.state is JobState.FAILED


def test_there_is_no_verdict_on_an_attempt_that_is_whole() -> None:
    running = walk((JobEvent.LAUNCH, 1), (JobEvent.RUNNING, 1))
    assert step(running, JobEvent.GIVE_UP, 1).outcome is Outcome.REFUSED
