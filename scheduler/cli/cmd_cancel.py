"""`railweave cancel JOB`: stop it everywhere."""

from __future__ import annotations

import click

from ..lifecycle import JobState
from .data import job_data
from .main import Failed
from .output import console, json_option, print_json
from .session import connected


@click.command("cancel")
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Return when the job is over.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), help="Seconds to wait.")
@json_option
def command(job_id: str, wait: bool, timeout_s: float | None, as_json: bool) -> None:
    """Stop a job; its processes are ended on every node. A job that is over stays as it is."""
    with connected() as client:
        job = client.job(job_id)
        job.cancel()
        if wait:
            job.wait(timeout_s)
        record = job.record
    if as_json:
        print_json(job_data(record))
    else:
        console().print(f"{record.job_id} is {record.state}")
    if record.state.final and record.state is not JobState.CANCELLED:
        raise Failed(f"{job_id} had already ended as {record.state}")
