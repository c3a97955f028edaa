"""`railweave show JOB`: its attempts, its placement and what happened to it."""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.text import Text

from ...placement.constraints_file import constraints_data
from ...placement.placement import Placement
from ...placement.svg import bytes_text
from ..constraint_text import constraint_texts
from ..records import AttemptRecord, EventRecord, JobRecord
from ..timeline import duration_text
from .data import attempt_data, event_data, job_data
from .output import clock_text, console, json_option, print_json, state_text, table
from .session import connected


@click.command("show")
@click.argument("job_id", metavar="JOB")
@json_option
def command(job_id: str, as_json: bool) -> None:
    """Show a job's constraints, its attempts, the newest one's placement and spares, and events."""
    with connected() as client:
        job = client.job(job_id)
        record, attempts, events = job.record, job.attempts, job.events()
        constraints = job.spec.constraints
    if as_json:
        print_json(
            job_data(record)
            | {
                "constraints": constraints_data(constraints) if constraints else None,
                "attempts": [attempt_data(attempt) for attempt in attempts],
                "events": [event_data(event) for event in events],
            }
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
    screen.print()
    screen.print(_events_table(events))


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
