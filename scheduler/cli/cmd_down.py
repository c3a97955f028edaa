"""`railweave down`: end the daemon, the agents, and an embedded cluster."""

from __future__ import annotations

import os

import click

from ..client import Client
from ..connection import NoCluster, NoDaemon
from ..home import background_cluster, record_path
from ..lifecycle import JobState
from ..service import stop_daemon
from .main import Failed
from .output import console
from .session import use_cluster

_ACTIVE = [state for state in JobState if not state.final]
_MOST_NAMES = 5


@click.command("down")
@click.option("--cancel-jobs", is_flag=True, help="Cancel the jobs that are not over.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds the jobs may take to end.",
)
def command(cancel_jobs: bool, timeout_s: float) -> None:
    """Stop the daemon and the agents, and end the embedded cluster of `railweave up --embedded`.

    Refused while jobs are queued or running, unless --cancel-jobs. The store stays, so that the
    next `railweave up` knows the jobs of before.
    """
    screen = console()
    cluster = None if os.environ.get("RAY_ADDRESS") else background_cluster()
    use_cluster()
    try:
        with Client() as client:
            active = client.jobs(_ACTIVE)
            if active and not cancel_jobs:
                names = ", ".join(f"{job.job_id} ({job.state})" for job in active[:_MOST_NAMES])
                more = f" and {len(active) - _MOST_NAMES} more" if len(active) > _MOST_NAMES else ""
                raise Failed(
                    f"{len(active)} jobs are not over: {names}{more}. Wait for them, or cancel "
                    "them with: railweave down --cancel-jobs"
                )
        stop_daemon(cancel_jobs=True, timeout_s=timeout_s)
        screen.print("the daemon and the agents have ended")
    except (NoDaemon, NoCluster) as error:
        if cluster is None:
            raise
        if cluster.durable and not cluster.head_runs and not cancel_jobs:
            raise Failed(
                "the head of the embedded cluster has ended, and jobs may run all the same. Start "
                "it again with: railweave up --embedded, or end everything with: railweave down "
                "--cancel-jobs"
            ) from error
        screen.print(f"no daemon to end: {error}")
    if cluster is not None:
        cluster.stop()
        record_path().unlink(missing_ok=True)
        screen.print("the embedded cluster has ended")
