"""Jobs of tests on the shared cluster: their ranks, and what is killed in between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import ray
from railweave.agents import processes
from railweave.agents.fleet import NAMESPACE, agent_name
from railweave.scheduler.client import Client, JobHandle
from railweave.scheduler.job import Job
from railweave.scheduler.lifecycle import JobState
from waiting import wait_until

TOKEN = "RAILWEAVE_TEST_JOB"
# Every rank writes its environment, then does what the test asks of its rank and attempt.
RANK = """
import json, os, pathlib, signal, sys, time
sys.stdout.reconfigure(line_buffering=True)
rank, attempt = int(os.environ["RANK"]), int(os.environ["RAILWEAVE_ATTEMPT"])
def until(name):
    while not os.path.exists(name):
        time.sleep(0.02)
print("rank", rank, "of attempt", attempt)
me = pathlib.Path(f"env-{attempt}-{rank}.json")
me.with_suffix(".part").write_text(json.dumps(dict(os.environ)))
me.with_suffix(".part").rename(me)
"""


class Bench:
    """A client, and a folder for the jobs of one test."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.token = str(folder)

    def submit(self, deed: str, devices: int = 4, **more: Any) -> JobHandle:
        fields = {
            "name": "test",
            "entrypoint": ["python", "-c", RANK + deed],
            "devices": devices,
            "working_dir": self.folder,
            "checkpoint_dir": self.folder / "checkpoints",
            "env": {TOKEN: self.token},
            "grace_s": 1.0,
        }
        return self.client.submit(Job(**(fields | more)))

    def until(self, job: JobHandle, state: JobState, deadline_s: float = 60) -> None:
        def there() -> bool:
            found = job.state
            assert found is state or not found.final, job.explain()
            return found is state

        wait_until(there, deadline_s, f"{job.id} is {state}")

    def ends(self, job: JobHandle, timeout_s: float = 90) -> JobState:
        return job.wait(timeout_s)

    def environment(self, attempt: int, rank: int) -> dict[str, str]:
        path = self.folder / f"env-{attempt}-{rank}.json"
        wait_until(path.exists, 30, f"rank {rank} of attempt {attempt} has written {path.name}")
        found: dict[str, str] = json.loads(path.read_text())
        return found

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def alive(self) -> list[int]:
        """Pids of all processes that any rank of this test is or has started."""
        found = processes.having(TOKEN, self.token, processes.table().values())
        return sorted(entry.pid for entry in found if entry.state != "Z")

    def kinds(self, job: JobHandle) -> list[str]:
        return [event.kind for event in job.events()]


def all_well(client: Client) -> bool:
    nodes = client.status().nodes
    with_devices = [node for node in nodes if node.devices]
    return len(with_devices) == 5 and all(node.state == "ok" for node in nodes)


def all_used(client: Client) -> bool:
    """Whether all nodes are well; those that are set aside for what a test did are used again."""
    for record in client.node_records():
        if record.out is not None and record.out.value != "lost":
            client.release(record.name)
    return all_well(client)


def call(actor: Any, method: str, *arguments: Any) -> Any:
    return ray.get(getattr(actor, method).remote(*arguments), timeout=30)


def rank_pids(job: JobHandle) -> dict[int, int]:
    """The pid of each rank, as the agents of its nodes tell it."""
    attempt = job.attempts[-1]
    found = {}
    for node in {node for node, _ in attempt.placement["devices"]}:
        agent = ray.get_actor(agent_name(node), NAMESPACE)
        status = call(agent, "status", job.id, attempt.number)
        found |= {rank.rank: rank.pid for rank in status.ranks}
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: (p := processes.process(pid)) is None or p.state == "Z", 30, "it is dead")
