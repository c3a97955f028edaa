"""`railweave jobs`: the jobs and where they are in their lives."""

from __future__ import annotations

import time

import click

from ..lifecycle import JobState
from ..records import JobRecord
from ..timeline import duration_text
from .data import job_data
from .output import clock_text, console, json_option, print_json, state_text, table
from .session import connected


@click.command("jobs")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in JobState], case_sensitive=False),
    help="Only jobs in this state; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Only the newest so many.")
@json_option
def command(states: tuple[str, ...], limit: int | None, as_json: bool) -> None:
    """List jobs in the order of their submission."""
    with connected() as client:
        jobs = client.jobs([JobState(state) for state in states], limit)
    if as_json:
        print_json([job_data(job) for job in jobs])
    elif not jobs:
        console().print("no jobs")
    else:
        console().print(
            table(
                ["job", "state", "devices", "priority", "attempt", "submitted", "took", "reason"],
                [_row(job) for job in jobs],
                right=["devices", "priority", "attempt", "took"],
            )
        )


def _row(job: JobRecord) -> list[object]:
    took_s = (job.ended_s or time.time()) - job.submitted_s
    return [
        job.job_id,
        state_text(job.state),
        job.devices,
        job.priority,
        job.life.attempt or "-",
        clock_text(job.submitted_s),
        duration_text(max(0.0, took_s)),
        job.reason,
    ]
