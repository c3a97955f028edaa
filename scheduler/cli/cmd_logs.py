"""`railweave logs JOB`: what a rank printed."""

from __future__ import annotations

import sys

import click

from .main import Failed
from .session import connected


@click.command("logs")
@click.argument("job_id", metavar="JOB")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--attempt", type=click.IntRange(min=1), help="The newest by default.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job is over.")
def command(job_id: str, rank: int, attempt: int | None, follow: bool) -> None:
    """Print the output of a rank, standard output and standard error together."""
    with connected() as client:
        job = client.job(job_id)
        try:
            for text in job.read_logs(rank, attempt, follow):
                sys.stdout.write(text)
                sys.stdout.flush()
        except LookupError as error:
            raise Failed(str(error.args[0] if error.args else error)) from error
