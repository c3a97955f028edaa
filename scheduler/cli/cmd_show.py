"""`railweave show JOB`: its attempts, its placement and what happened to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import click
from rich.text import Text

from ...placement.constraints_file import constraints_data
from ...placement.drawing.svg import bytes_text
from ...placement.placement import Placement
from ..client import JobHandle
from ..constraint_text import constraint_texts
from ..effective import EffectiveTime, effective_time
from ..progress import read_progress
from ..records import AttemptRecord, EventRecord, JobRecord
from ..timeline import duration_text
from .data import attempt_data, event_data, job_data, time_data
from .output import clock_text, console, json_option, print_json, state_text, table
from .session import connected


@click.command("show")
@click.argument("job_id", metavar="JOB")
@click.option("--time", "with_time", is_flag=True, help="Also where its time went.")
@json_option
def command(job_id: str, with_time: bool, as_json: bool) -> None:
    """Show a job's constraints, its attempts, the newest one's placement and spares, and events.

    --time reads the log of rank 0, in which the job tells its steps.
    """
    with connected() as client:
        job = client.job(job_id)
        record, attempts, events = job.record, job.attempts, job.events()
        constraints = job.spec.constraints
        spent = _spent(job, record, attempts) if with_time else None
    if as_json:
        print_json(
            job_data(record)
            | {
                "constraints": constraints_data(constraints) if constraints else None,
                "attempts": [attempt_data(attempt) for attempt in attempts],
                "events": [event_data(event) for event in events],
            }
            | ({"time": time_data(spent)} if spent else {})
        )
        return
    screen = console()
    screen.print(_heading(record))
    if constraints:
        screen.print(f"constraints: {'; '.join(constraint_texts(constraints)) or 'none'}")
    if attempts:
        screen.print()
        screen.print(attempts_table(attempts))
        screen.print()
        placement = Placement.parse(attempts[-1].placement)
        screen.print(_placement_table(placement))
        if placement.spares:
            screen.print(f"spares: {', '.join(placement.spares)}")
    if spent:
        screen.print()
        screen.print(_time_table(spent))
        if spent.kinds:
            screen.print()
            screen.print(_kinds_table(spent))
    screen.print()
    screen.print(_events_table(events))


def _spent(job: JobHandle, record: JobRecord, attempts: Sequence[AttemptRecord]) -> EffectiveTime:
    logs = {}
    for attempt in attempts:
        # Without its log, what an attempt did counts as training: nothing says otherwise.
        with contextlib.suppress(LookupError):
            logs[attempt.number] = job.logs(rank=0, attempt=attempt.number)
    return effective_time(record, attempts, read_progress(logs), [], time.time())


def _time_table(spent: EffectiveTime) -> object:
    rows = [
        [part.value, duration_text(seconds), f"{seconds / spent.wall_s:.1%}"]
        for part, seconds in spent.parts.items()
        if seconds > 0
    ]
    rows.append(["whole", duration_text(spent.wall_s), f"{spent.ratio:.1%} effective"])
    return table(["time", "took", "share"], rows, right=["took"])


def _kinds_table(spent: EffectiveTime) -> object:
    rows = [
        [cost.kind, cost.count, _took(cost.detect_s), _took(cost.recover_s), cost.lost_steps]
        for cost in spent.kinds
    ]
    columns = ["fault", "times", "to detect", "to recover", "steps lost"]
    return table(columns, rows, right=columns[1:])


def _took(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)


def _heading(job: JobRecord) -> Text:
    return Text.assemble(
        (job.job_id, "bold"),
        "  ",
        state_text(job.state),
        f"  {job.reason}\n{job.devices} devices, priority {job.priority}, {job.life.faults} of at "
        f"most {job.life.max_restarts} restarts used, submitted {clock_text(job.submitted_s)}",
    )


def attempts_table(attempts: Sequence[AttemptRecord]) -> object:
    """Attempts for people: when each ran, what it resumed from, and what broke it."""
    rows = [
        [
            attempt.number,
            clock_text(attempt.started_s),
            _span(attempt.started_s, attempt.running_s),
            _span(attempt.running_s, attempt.fault_seen_s or attempt.ended_s),
            _span(attempt.fault_seen_s, attempt.stopped_s),
            attempt.moved_ranks,
            attempt.resumed_from.rstrip("/").rpartition("/")[2] or "the beginning",
            (attempt.cause or {}).get("message", ""),
        ]
        for attempt in attempts
    ]
    columns = ["attempt", "placed", "to start", "ran", "to stop", "moved ranks", "from", "broke by"]
    return table(columns, rows, right=["attempt", "to start", "ran", "to stop", "moved ranks"])


def _span(begin_s: float | None, end_s: float | None) -> str:
    return "-" if begin_s is None or end_s is None else duration_text(max(0.0, end_s - begin_s))


def _placement_table(placement: Placement) -> object:
    ranks: dict[str, list[str]] = {}
    for rank, (node, device) in enumerate(placement.devices):
        ranks.setdefault(node, []).append(f"{rank}@{device}")
    traffic = ", ".join(
        f"{tier} {bytes_text(size)}" for tier, size in reversed(placement.traffic_bytes.items())
    )
    rows = [[node, " ".join(found)] for node, found in ranks.items()]
    return table(["node", f"rank@device  (bytes a step: {traffic})"], rows)


def _events_table(events: Sequence[EventRecord]) -> object:
    rows = [
        [clock_text(event.time_s), event.attempt or "-", event.kind, event.message]
        for event in events
    ]
    return table(["time", "attempt", "event", "what"], rows, right=["attempt"])
