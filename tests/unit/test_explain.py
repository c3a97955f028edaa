"""Explanations say what a person would ask next."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.scheduler.explain import explain, ordinal
from railweave.scheduler.lifecycle import JobState, Life
from railweave.scheduler.records import AttemptRecord, JobRecord

PLACED = {"devices": [["n0", 0], ["n1", 1], ["n0", 1]]}
CAUSE = {"message": "rank 2 on node n1 ended with exit code 3", "last_lines": ["out of luck"]}


def job(state: JobState, reason: str = "", **life: Any) -> JobRecord:
    return JobRecord("gpt-1", 1, "gpt", 0, 3, {}, Life(state, **life), reason, 0, 0, None)


def attempt(number: int, cause: dict[str, Any] | None = None) -> AttemptRecord:
    return AttemptRecord("gpt-1", number, PLACED, None, "", 0, 1.0, None, None, None, None, cause)


def test_a_waiting_job_says_where_it_stands_and_for_what_it_waits() -> None:
    text = explain(job(JobState.PENDING), [], 2, "behind big-1 in the queue", "")
    assert text == "gpt-1 is PENDING, 2nd in the queue: behind big-1 in the queue"


def test_a_running_job_says_where() -> None:
    text = explain(job(JobState.RUNNING, attempt=1), [attempt(1)], None, "", "")
    assert text == "gpt-1 is RUNNING: attempt 1 on n0 (0, 1), n1 (1)"


def test_a_launching_job_says_what_is_being_done() -> None:
    text = explain(job(JobState.LAUNCHING, attempt=1), [attempt(1)], None, "", "reserving devices")
    assert text.endswith("n1 (1): reserving devices")


def test_a_failed_job_shows_every_cause_and_the_last_lines() -> None:
    text = explain(
        job(JobState.FAILED, CAUSE["message"], attempt=2),
        [attempt(1, {"message": "node n3 is lost"}), attempt(2, CAUSE)],
        None,
        "",
        "",
    )
    assert text.splitlines() == [
        "gpt-1 is FAILED: rank 2 on node n1 ended with exit code 3",
        "attempt 1 broke: node n3 is lost",
        "attempt 2 broke: rank 2 on node n1 ended with exit code 3",
        "its last lines:",
        "  out of luck",
    ]


def test_a_recovering_job_says_what_broke_and_what_it_waits_for() -> None:
    stopping = explain(
        job(JobState.RECOVERING, attempt=1, holds_devices=True), [attempt(1, CAUSE)], None, "", ""
    )
    assert stopping.startswith("gpt-1 is RECOVERING: attempt 1 broke and is being stopped")
    waiting = explain(job(JobState.RECOVERING, attempt=1), [attempt(1, CAUSE)], 1, "no devices", "")
    assert waiting.startswith("gpt-1 is RECOVERING, first in the queue: no devices")
    assert "attempt 1 broke: rank 2" in waiting


def test_a_finished_job_says_after_how_much() -> None:
    text = explain(job(JobState.SUCCEEDED, attempt=2), [attempt(1), attempt(2)], None, "", "")
    assert text == "gpt-1 is SUCCEEDED after 2 attempts"


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"), (121, "121st")],
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text
