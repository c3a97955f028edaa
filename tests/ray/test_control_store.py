"""Ray's control store dies and comes back: running jobs, the daemon and its nodes do not notice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from job_bench import Bench, rank_pids
from railweave.agents import processes
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import EmbeddedCluster, EmbeddedNode
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.service import start_daemon, stop_daemon
from waiting import wait_until

STORE = "gcs_server"


def words(pid: int, what: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode().split("\0")[:-1]
    except OSError:  # it has ended
        return []


def control_store() -> processes.Process:
    """Ray's control store of the cluster that this process started."""
    mine = processes.below([os.getpid()], processes.table())
    (found,) = (e for e in mine if os.path.basename([*words(e.pid, "cmdline"), ""][0]) == STORE)
    return found


@contextmanager
def killed_and_started_again(down: Path) -> Iterator[None]:
    """The control store is killed at once; inside of the block it runs again, as a supervisor does.

    `ray start --block` ends its node when a part of it dies, so it is stopped for as long.
    """
    store = control_store()
    above = processes.process(store.parent_pid)
    assert above is not None
    command = words(store.pid, "cmdline")
    environment = dict(word.split("=", 1) for word in words(store.pid, "environ"))
    processes.send_signal(above, signal.SIGSTOP)
    processes.send_signal(store, signal.SIGKILL)
    with down.open("wb") as said:
        again = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    try:
        yield
    finally:
        again.kill()
        again.wait()


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_jobs_run_on_and_new_ones_start_after_the_control_store_was_killed(
    nothing_left: Path, tmp_path: Path
) -> None:
    state_dir = nothing_left / "durable"
    nodes = [EmbeddedNode("a0", 2), EmbeddedNode("a1", 2)]
    kept = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    try:
        with EmbeddedCluster(nodes, state_dir=state_dir, durable=True) as cluster:
            cluster.use()
            start_daemon(state_dir / "daemon", silent_s=20.0)
            with Client() as client:
                wait_until(lambda: len(well(client)) == 2, 120, "both nodes are well")
                bench = Bench(client, tmp_path)
                job = bench.submit("until('go')")
                bench.until(job, JobState.RUNNING, 120)
                pids, daemon = rank_pids(job), client.status().pid
                with killed_and_started_again(tmp_path / "gcs.log"):
                    later = bench.submit("pass", devices=2)
                    assert client.status().pid == daemon
                    assert rank_pids(job) == pids
                    bench.touch("go")
                    assert bench.ends(job, 120) is JobState.SUCCEEDED, job.explain()
                    assert bench.ends(later, 120) is JobState.SUCCEEDED, later.explain()
                    assert len(job.attempts) == 1 and len(well(client)) == 2
                    assert "quarantined" not in [event.kind for event in client.events()]
                    stop_daemon()
                    ray.shutdown()
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]
        os.environ.update(kept)


def well(client: Client) -> list[str]:
    return [node.name for node in client.status().nodes if node.devices and node.state == "ok"]
