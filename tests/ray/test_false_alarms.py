"""With the settings that people get, a machine whose processors are all taken raises no alarm."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.job import Job
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.service import start_daemon, stop_daemon
from waiting import wait_until

RUN_S = float(os.environ.get("RAILWEAVE_FALSE_ALARMS_S", "1800"))
ALARMS = {
    *("out_of_reach", "quarantined", "node_fault", "agent_restarted", "adopted", "leftover"),
    *("device_error", "device_warning", "disk_full", "clock_jump", "network_bad"),
}
RANK = """
import os, sys, time, hashlib
from railweave.agents import report
step, block = 0, bytes(1 << 14)
while not os.path.exists("finish"):
    step += 1
    began = time.monotonic()
    while time.monotonic() - began < 0.02:
        hashlib.sha256(block)
    report(step, loss=1 / step, compute_s=time.monotonic() - began)
    time.sleep(0.1)
"""


@pytest.fixture
def client(session_cluster: EmbeddedCluster) -> Iterator[Client]:
    ray.shutdown()
    session_cluster.use()
    start_daemon(session_cluster.state_dir / "daemon-by-default")
    with Client() as client:
        yield client
    stop_daemon()


@pytest.mark.soak
@pytest.mark.timeout(RUN_S + 600)
def test_half_an_hour_under_full_load_raises_no_alarm(client: Client, tmp_path: Path) -> None:
    wait_until(
        lambda: len([n for n in client.status().nodes if n.devices and n.state == "ok"]) == 5,
        120,
        "every node is well",
    )
    before = max((event.seq for event in client.events()), default=0)
    entrypoint = ["python", "-c", RANK]
    jobs = [
        client.submit(Job(name=f"j{n}", entrypoint=entrypoint, devices=2, working_dir=tmp_path))
        for n in range(3)
    ]
    with contextlib.ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(hog.wait)
            stack.callback(hog.kill)
        over_s = time.monotonic() + RUN_S
        while (left_s := over_s - time.monotonic()) > 0:
            # Returns when something happens: an alarm is seen at once, not after half an hour.
            for event in client.events(before, min(left_s, 10.0)):
                before = event.seq
                assert event.kind not in ALARMS, f"{event.kind}: {event.message}"
            for job in jobs:
                assert len(job.attempts) < 2, job.attempts[0].cause
        (tmp_path / "finish").touch()
        for job in jobs:
            assert job.wait(120) is JobState.SUCCEEDED
            assert len(job.attempts) == 1
