"""`python -m benchmarks.detection`: how soon faults are noticed and a job trains on, by default.

On a Ray cluster of four nodes on this machine, with a spare. Each fault is brought about several
times on a job that tells its steps; noticed is when the history has it, trained on when the next
attempt has done its first step. Figures of a busy machine are not those of an idle one.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from railweave.agents.fleet import NAMESPACE, agent_name
from railweave.scheduler.client import Client, JobHandle
from railweave.scheduler.embedded import EmbeddedCluster, EmbeddedNode
from railweave.scheduler.job import Job
from railweave.scheduler.records import AttemptRecord
from railweave.scheduler.service import start_daemon, stop_daemon

NODES = ("a0", "a1", "b0", "b1")
STEP_S = 0.1
_PATIENCE_S = 120.0
# A rank computes for a tenth of a second a step, and twice as long once a file tells it to. Steps
# grow from attempt to attempt, as those of a job do that resumes.
_PROGRAM = f"""
import os, pathlib, time
from railweave.agents import report
rank, attempt = int(os.environ["RANK"]), int(os.environ["RAILWEAVE_ATTEMPT"])
for step in range(1000 * attempt, 1_000_000):
    told = pathlib.Path(f"slow-{{attempt}}").exists()
    slow = rank == 1 and told
    time.sleep({STEP_S} * (1 + slow))
    report(step, compute_s={STEP_S} * (1 + slow))
    print(f"step={{step}} time_s={{time.time()}}", flush=True)
    waits = time.monotonic() + {STEP_S} * (told and not slow)
    time.sleep(max(0.0, waits - time.monotonic()))
"""


class Trial:
    """A job on a cluster, and what is done to it."""

    def __init__(self, cluster: EmbeddedCluster, client: Client, folder: Path) -> None:
        self.cluster = cluster
        self.client = client
        self.folder = folder
        self.job: JobHandle = client.submit(
            Job(
                name="detection",
                entrypoint=["python", "-c", _PROGRAM],
                devices=2,
                working_dir=str(folder),
                max_restarts=1000,
                straggler_ratio=1.5,
                grace_s=1.0,
            )
        )

    def training(self, attempt: int) -> float:
        """Wait until an attempt has done its first step; when that was."""

        def first() -> float | None:
            if len(self.job.attempts) < attempt:
                return None
            for line in _log(self.job, attempt).splitlines():
                if line.startswith("step="):
                    return float(line.rpartition("=")[2])
            return None

        return _until(first, "the job trains")

    def ready(self) -> None:
        """Wait until every node can be used."""

        def well() -> bool:
            for record in self.client.node_records():
                if record.out is not None and record.out.value != "lost":
                    self.client.release(record.name)
            nodes = [node for node in self.client.status().nodes if node.devices]
            return len(nodes) == len(NODES) and all(node.state == "ok" for node in nodes)

        _until(well, "every node is well")

    def pid(self, rank: int) -> int:
        """The process of a rank."""
        attempt = self.job.attempts[-1]
        actor: Any = ray.get_actor(agent_name(self.node(rank)), NAMESPACE)
        status = ray.get(actor.status.remote(self.job.id, attempt.number), timeout=30)
        return int(next(each.pid for each in status.ranks if each.rank == rank))

    def node(self, rank: int) -> str:
        """Where a rank is."""
        return str(self.job.attempts[-1].placement["devices"][rank][0])


def _log(job: JobHandle, attempt: int) -> str:
    try:
        return job.logs(0, attempt)
    except LookupError:
        return ""


def _until(found: Callable[[], Any], what: str) -> Any:
    give_up = time.monotonic() + _PATIENCE_S
    while not (value := found()):
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(0.02)
    return value


# Each breaks something of the job and returns what mends it.


def _kill_rank(trial: Trial) -> Callable[[], None]:
    os.kill(trial.pid(1), signal.SIGKILL)
    return lambda: None


def _stop_rank(trial: Trial) -> Callable[[], None]:
    os.kill(trial.pid(1), signal.SIGSTOP)
    return lambda: None


def _slow_rank(trial: Trial) -> Callable[[], None]:
    mark = trial.folder / f"slow-{len(trial.job.attempts)}"
    mark.touch()
    return mark.unlink


def _kill_node(trial: Trial) -> Callable[[], None]:
    node = trial.cluster.node(trial.node(1))
    trial.cluster.kill_node(node.name)
    return lambda: trial.cluster.add_node(node)


def _stop_node(trial: Trial) -> Callable[[], None]:
    node = trial.node(1)
    trial.cluster.stop_node(node)

    def mend() -> None:
        trial.cluster.resume_node(node)

    return mend


FAULTS: dict[str, tuple[Callable[[Trial], Callable[[], None]], float]] = {
    "rank killed": (_kill_rank, 1.0),
    "rank stopped": (_stop_rank, 10.0),
    "rank twice as slow": (_slow_rank, 20 * 2 * STEP_S),
    "node killed": (_kill_node, 3.0),
    "node stopped": (_stop_node, 10.0),
}
"""What is done, and within how many seconds it is to be noticed."""


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table; 1 when something was noticed too late."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each fault comes")
    parser.add_argument("--fault", nargs="+", choices=FAULTS, default=list(FAULTS))
    options = parser.parse_args(arguments)
    late = False
    nodes = [EmbeddedNode(name, 1, domains={"pod": name[0]}) for name in NODES]
    with (
        tempfile.TemporaryDirectory(prefix="railweave-detection-") as folder,
        EmbeddedCluster(nodes, state_dir=folder) as cluster,
    ):
        cluster.use()
        start_daemon(Path(folder, "daemon"), probation_s=0.5)
        try:
            with Client() as client:
                work = Path(folder, "work")
                work.mkdir()
                trial = Trial(cluster, client, work)
                trial.training(1)
                print("| fault | promised, s | noticed after, s | told as | trained on after, s |")
                print("| --- | ---: | ---: | --- | ---: |")
                for name in options.fault:
                    late |= not _row(trial, name, options.times)
                trial.job.cancel()
                trial.job.wait(60)
            stop_daemon()
        finally:
            ray.shutdown()
    return 1 if late else 0


def _row(trial: Trial, name: str, times: int) -> bool:
    """Bring a fault about several times and print its line; whether all were noticed in time."""
    bring_about, limit_s = FAULTS[name]
    noticed, going, kinds = [], [], set()
    for _ in range(times):
        trial.ready()
        attempt = len(trial.job.attempts)
        trial.training(attempt)
        began_s = time.time()
        mend = bring_about(trial)
        over: AttemptRecord = _until(lambda n=attempt: _broken(trial.job, n), f"{name} is noticed")
        assert over.fault_seen_s is not None and over.cause is not None
        noticed.append(over.fault_seen_s - began_s)
        kinds.add(str(over.cause["kind"]))
        going.append(trial.training(attempt + 1) - over.fault_seen_s)
        mend()
    cells = [name, f"{limit_s:g}", _spread(noticed), ", ".join(sorted(kinds)), _spread(going)]
    print("| " + " | ".join(cells) + " |", flush=True)
    return max(noticed) < limit_s


def _broken(job: JobHandle, attempt: int) -> AttemptRecord | None:
    record = job.attempts[attempt - 1]
    return record if record.cause and record.fault_seen_s is not None else None


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} (at most {max(values):.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
