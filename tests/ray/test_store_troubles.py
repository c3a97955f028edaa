"""The store locked or full, and two daemons at once: running jobs go on, nothing runs twice."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from job_bench import Bench, call, kill, rank_pids
from railweave.agents.fleet import NAMESPACE
from railweave.scheduler.daemon import Daemon
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.messages import ON_HEAD
from railweave.scheduler.settings import Settings
from waiting import wait_until

FAILS_ONCE = "if attempt == 1: until('never')\nuntil('go')"


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Another program holds the store's write lock."""
    connection = sqlite3.connect(store, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
    finally:
        connection.close()


def test_a_fault_while_the_store_is_locked_is_taken_in_when_it_is_free_again(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    job = bench.submit(FAILS_ONCE, max_restarts=2)
    bench.until(job, JobState.RUNNING)
    pids, pid = rank_pids(job), bench.client.status().pid
    with locked(cluster.state_dir / "daemon" / "railweave.db"):
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: not set(bench.alive()) & set(pids.values()), 60, "the ranks are ended")
        # The controller meets the lock before, with what it has to tell of the ranks.
        with pytest.raises(Exception, match="database is locked"):
            bench.submit("pass", devices=1)
        assert job.state is JobState.RUNNING
    bench.until(job, JobState.RUNNING, 120)
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    assert bench.client.status().pid == pid
    assert [attempt.number for attempt in job.attempts] == [1, 2]
    assert bench.kinds(job).count("fault") == bench.kinds(job).count("stopped") == 1


def test_with_a_full_disk_jobs_run_on_and_what_happened_is_written_once_there_is_room(
    bench: Bench,
) -> None:
    job = bench.submit(FAILS_ONCE, max_restarts=2)
    bench.until(job, JobState.RUNNING)
    pids, pid = rank_pids(job), bench.client.status().pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(Exception, match=r"(?i)full|disk I/O|too large"):
            bench.submit("pass", devices=1)
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: not set(bench.alive()) & set(pids.values()), 60, "the ranks are ended")
        assert job.state is JobState.RUNNING  # nothing of it could be written down
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    wait_until(lambda: len(job.attempts) == 2, 90, "the job is placed again")
    bench.until(job, JobState.RUNNING, 90)
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    assert bench.client.status().pid == pid and job.record.life.faults == 1


def test_of_two_daemons_one_acts_and_a_running_job_is_not_run_twice(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    job = bench.submit("until('go')")
    bench.until(job, JobState.RUNNING)
    pids = rank_pids(job)
    settings = Settings(state_dir=str(cluster.state_dir / "daemon"), probation_s=0.5, silent_s=20.0)
    second = (
        ray.remote(Daemon)
        .options(name="second-daemon", namespace=NAMESPACE, num_cpus=0, resources=ON_HEAD)
        .remote(settings.model_dump_json())
    )
    try:
        assert '"fenced":""' in call(second, "status").replace(" ", "")
        wait_until(lambda: bench.client.status().fenced, 60, "the first is fenced off")
        assert job.state is JobState.RUNNING and rank_pids(job) == pids
        # Ray starts the first one anew; it takes the store back, and the second is fenced off.
        kill(bench.client.status().pid)
        wait_until(lambda: not bench.client.status().fenced, 60, "the first has the store again")
        wait_until(
            lambda: '"fenced":""' not in call(second, "status").replace(" ", ""),
            60,
            "the second is fenced off",
        )
    finally:
        ray.kill(second, no_restart=True)
    assert rank_pids(job) == pids
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED
    assert len(job.attempts) == 1 and bench.kinds(job).count("succeed") == 1
