"""What the daemon knows of jobs that were broken on purpose, gathered for the judgement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..client import Client, JobHandle
from ..progress import read_progress
from ..records import EventRecord
from .evidence import Done, History, Report, judge


def last_event(client: Client) -> int:
    """The number of the newest event there is; 0 before the first."""
    events = _events(client, 0)
    return events[-1].seq if events else 0


def judged(
    client: Client,
    done: Sequence[Done],
    jobs: Iterable[JobHandle],
    after: int,
    since_s: float = 0.0,
) -> Report:
    """What came of faults, by the history of these jobs and of the cluster after event `after`.

    since_s: as in `judge`.
    """
    cluster = [event for event in _events(client, after) if event.job_id is None]
    return judge(done, {job.id: _history(job, after) for job in jobs}, cluster, since_s)


def _history(job: JobHandle, after: int) -> History:
    attempts = job.attempts
    logs = {}
    for attempt in attempts:
        # A log can be gone with its node; then the attempt counts as going once it ran.
        with suppress(LookupError):
            logs[attempt.number] = job.logs(rank=0, attempt=attempt.number)
    progress = read_progress(logs)
    going: dict[int, float] = {}
    for attempt in attempts:
        steps = progress.of(attempt.number)
        first_s = steps[0].time_s if steps else None
        if (going_s := attempt.running_s if first_s is None else first_s) is not None:
            going[attempt.number] = going_s
    return History(attempts, job.events(after), going)


def _events(client: Client, after: int) -> list[EventRecord]:
    found: list[EventRecord] = []
    while more := client.events(found[-1].seq if found else after):
        found += more
    return found
