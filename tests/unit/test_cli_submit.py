"""What `railweave submit` makes of its options; with a cluster: tests/ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from railweave.scheduler.cli import cmd_submit
from railweave.scheduler.cli.main import DONE, WRONG_INPUT, run
from railweave.scheduler.job import Job


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that would have been queued."""
    found: list[Job] = []

    def submit(job: Job) -> Any:
        found.append(job)
        return SimpleNamespace(id="job-1", record=None)

    @contextmanager
    def connected() -> Iterator[Any]:
        yield SimpleNamespace(submit=submit)

    monkeypatch.setattr(cmd_submit, "connected", connected)
    return found


def test_a_job_may_be_told_with_how_many_replicas_it_goes_on(queued: list[Job]) -> None:
    assert run(["submit", "--devices", "8", "--min-dp", "2", "--", "true"]) == DONE
    assert run(["submit", "--tp", "2", "--dp", "4", "--min-dp", "3", "--", "true"]) == DONE
    assert run(["submit", "--devices", "8", "--", "true"]) == DONE
    ring, split, whole = queued
    assert (ring.world_size, ring.smaller_sizes()) == (8, [7, 6, 5, 4, 3, 2])
    assert (split.world_size, split.smaller_sizes()) == (8, [])  # 32 samples by 3 replicas: no
    assert whole.smaller_sizes() == []


def test_a_least_degree_above_its_own_is_refused(
    queued: list[Job], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "--devices", "4", "--min-dp", "5", "--", "true"]) == WRONG_INPUT
    assert "the job's own degree is 4" in capsys.readouterr().err and queued == []
