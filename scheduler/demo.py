"""The demo: a real training job is placed on a probed network, loses a node, and finishes.

Everything in it is real: the Ray nodes, the probes, the training, the node's end. Only the network
is not one: all nodes are on this machine, told apart by their labels.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from ..placement.cluster import Cluster
from ..placement.evaluate import evaluate
from ..placement.pcg import PCG
from ..placement.placement import Placement
from .account import Mark, Recovery, recoveries
from .client import Client, JobHandle
from .comparison import packed_devices
from .embedded import EMBEDDED_SILENT_S, EmbeddedCluster, EmbeddedNode
from .home import background_cluster, home, record_path
from .job import Job
from .lifecycle import JobState
from .progress import Progress, read_progress
from .records import AttemptRecord
from .report import JobReport, write_report
from .service import start_daemon
from .settings import Reprobe

# In this order, packing the ranks sends both the data-parallel rings and the pipeline over the
# spine. There is a node more than the job needs.
NODES = tuple(
    EmbeddedNode(name, 2, domains={"pod": pod})
    for name, pod in [
        ("n0", "east"),
        ("n1", "west"),
        ("n2", "west"),
        ("n3", "east"),
        ("n4", "west"),
    ]
)
TP, PP, DP = 2, 2, 2
BATCH = 8
SAVE_EVERY = 20
STEPS_BEYOND_CHECKPOINT = 3
_POLL_S = 0.2
_LONGEST_S = 180.0


class DemoFailed(RuntimeError):
    """A step of the demo did not go as it should; the message says which and why."""


class Screen(Protocol):
    """Where the demo shows how far it is."""

    def phase(self, title: str) -> None:
        """A new phase begins; the one before is done."""

    def say(self, line: str) -> None:
        """Something worth a line happened in this phase."""

    def training(self, attempt: int, step: int, steps: int, loss: float | None) -> None:
        """How far training is."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo came to. packed_traffic_bytes: bytes a step by tier, packed in order."""

    job_id: str
    state: JobState
    attempts: list[AttemptRecord]
    recoveries: list[Recovery]
    packed_traffic_bytes: dict[str, float]
    report: Path
    took_s: float


@dataclass
class _Followed:
    """The log of rank 0 by attempt, read while it can be: a node that dies takes its logs along."""

    logs: dict[int, str] = field(default_factory=dict)

    def read(self, job: JobHandle, attempt: int) -> Progress:
        with contextlib.suppress(LookupError):
            self.logs[attempt] = job.logs(rank=0, attempt=attempt)
        return self.progress

    @property
    def progress(self) -> Progress:
        return read_progress(self.logs)


def example_script() -> Path:
    """The training script, which is in the source checkout. Raises DemoFailed without one."""
    script = Path(__file__).resolve().parents[1] / "examples" / "train_gpt.py"
    if not script.is_file():
        raise DemoFailed(
            f"the demo trains examples/train_gpt.py of the source checkout, and {script} is not "
            "there; clone the repository and run `make run` in it"
        )
    if find_spec("torch") is None:
        raise DemoFailed("the demo trains with PyTorch; pip install 'railweave[torch]'")
    return script


def run_demo(screen: Screen, report: Path, steps: int, keep: bool) -> DemoResult:
    """Run the demo; everything it started has ended when it returns or raises, unless `keep`.

    report: where the HTML report goes. keep: leave the cluster and the daemon running, for the
    other commands to look at. Raises DemoFailed, and whatever a part of it raises.
    """
    began_s = time.monotonic()
    script = example_script()
    if keep and background_cluster() is not None:
        raise DemoFailed("an embedded cluster is running already; end it with: railweave down")
    with contextlib.ExitStack() as stack:
        pcg = stack.enter_context(_described(script, steps))
        screen.phase(f"A Ray cluster of {len(NODES)} nodes in two pods, on this machine")
        state_dir = home() / "embedded" if keep else None
        cluster = EmbeddedCluster(NODES, state_dir=state_dir).start(screen.say)
        stack.enter_context(cluster)
        cluster.use()
        result = _Demo(screen, cluster, script, pcg, steps).run(report, began_s)
        if keep:
            cluster.detach(record_path())
            screen.say("left running: look with `railweave status`, end it with `railweave down`")
        else:
            screen.phase("Ending everything")
    return result


@contextlib.contextmanager
def _described(script: Path, steps: int) -> Iterator[subprocess.Popen[str]]:
    """Have the script print its communication graph, while the cluster starts."""
    command = [sys.executable, os.fspath(script), *_sizes(), "--steps", str(steps), "--describe"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def _sizes() -> list[str]:
    """The options of the script that decide what its ranks send."""
    return ["--tp", str(TP), "--dp", str(DP), "--pp", str(PP), "--batch", str(BATCH)]


class _Demo:
    def __init__(
        self,
        screen: Screen,
        cluster: EmbeddedCluster,
        script: Path,
        described: subprocess.Popen[str],
        steps: int,
    ) -> None:
        self._screen = screen
        self._cluster = cluster
        self._script = script
        self._described = described
        self._steps = steps
        self._followed = _Followed()
        self._marks: list[Mark] = []
        self._seen_seq = 0

    def run(self, report: Path, began_s: float) -> DemoResult:
        screen = self._screen
        screen.phase("Daemon, and an agent on every node")
        start_daemon(
            self._cluster.state_dir / "daemon",
            silent_s=EMBEDDED_SILENT_S,
            reprobe=Reprobe(every_s=0),
        )
        with Client() as client:
            screen.phase("Probing the network between the nodes")
            fabric = client.probe(screen.say)
            pcg = self._graph()
            screen.phase(f"Placing {pcg.world_size} ranks, tp={TP} x dp={DP} x pp={PP}")
            packed = evaluate(pcg, fabric, packed_devices(pcg, fabric)).traffic_bytes
            job = client.submit(self._job(pcg))
            self._until(job, lambda: bool(job.attempts), "it is placed")
            screen.phase("Training")
            self._train_beyond_checkpoint(job)
            victim = self._victim(fabric, job.attempts[-1])
            screen.phase(f"Node {victim} loses power")
            self._marks.append(Mark(time.time(), f"{victim} loses power"))
            killed = self._cluster.kill_node(victim)
            screen.say(f"{killed} processes gone at once")
            screen.phase("Recovery")
            self._until(job, lambda: len(job.attempts) > 1, "the job is placed again")
            screen.phase("Training on, from the checkpoint")
            self._until(job, lambda: job.state.final, "the job has ended")
            result = self._result(job, packed, report, began_s)
            write_report(report, self._report(job, fabric, pcg, packed))
        if result.state is not JobState.SUCCEEDED:
            raise DemoFailed(f"the job ended as {result.state}; the report {report} says why")
        return result

    def _graph(self) -> PCG:
        text, _ = self._described.communicate(timeout=60)
        if self._described.returncode != 0:
            raise DemoFailed(f"{self._script} --describe failed; its message is above")
        return PCG.parse(json.loads(text), f"{self._script.name} --describe")

    def _job(self, pcg: PCG) -> Job:
        options = [*_sizes(), "--steps", str(self._steps), "--save-every", str(SAVE_EVERY)]
        return Job(
            name="train-gpt",
            entrypoint=("python", os.fspath(self._script), *options),
            pcg=pcg,
            max_restarts=2,
            working_dir=os.fspath(self._script.parent),
            grace_s=1.0,
        )

    def _train_beyond_checkpoint(self, job: JobHandle) -> None:
        """Return once a checkpoint is complete and some steps that are not in it are done."""

        def beyond() -> bool:
            progress = self._followed.progress
            if not progress.saves:
                return False
            return progress.samples[-1].step >= progress.saves[-1].step + STEPS_BEYOND_CHECKPOINT

        self._until(job, beyond, "training is beyond a checkpoint")

    def _victim(self, fabric: Cluster, attempt: AttemptRecord) -> str:
        """A node of the job that an idle one of its own pod can replace; not that of rank 0."""
        devices = Placement.parse(attempt.placement).devices
        used = list(dict.fromkeys(node for node, _ in devices))
        pods = {node.name: node.domains["pod"] for node in fabric.nodes}
        idle = {pods[name] for name in pods if name not in used}
        others = [node for node in used[1:] if pods[node] in idle]
        return (others or used)[-1]

    def _until(self, job: JobHandle, condition: Callable[[], bool], what: str) -> None:
        """Follow the job until a condition holds. Raises DemoFailed when it cannot any more."""
        give_up = time.monotonic() + _LONGEST_S
        while True:
            record, attempts = job.record, job.attempts
            if attempts:
                progress = self._followed.read(job, attempts[-1].number)
                done = progress.of(attempts[-1].number)
                step = done[-1].step if done else 0
                loss = done[-1].loss if done else None
                self._screen.training(attempts[-1].number, step, self._steps, loss)
            for event in job.events(self._seen_seq):
                self._seen_seq = event.seq
                self._screen.say(event.message)
            if condition():
                return
            if record.state.final:
                raise DemoFailed(f"before {what}, the job ended: {job.explain()}")
            if time.monotonic() > give_up:
                raise DemoFailed(f"{_LONGEST_S:g} s passed before {what}: {job.explain()}")
            time.sleep(_POLL_S)

    def _result(
        self, job: JobHandle, packed: dict[str, float], report: Path, began_s: float
    ) -> DemoResult:
        attempts = job.attempts
        for attempt in attempts:
            self._followed.read(job, attempt.number)
        return DemoResult(
            job_id=job.id,
            state=job.state,
            attempts=attempts,
            recoveries=recoveries(attempts, self._followed.progress, self._marks),
            packed_traffic_bytes=packed,
            report=report,
            took_s=time.monotonic() - began_s,
        )

    def _report(
        self, job: JobHandle, fabric: Cluster, pcg: PCG, packed: Mapping[str, float]
    ) -> JobReport:
        return JobReport(
            job=job.record,
            attempts=job.attempts,
            events=job.events(),
            now_s=time.time(),
            entrypoint=self._job(pcg).entrypoint,
            cluster=fabric,
            pcg=pcg,
            packed_traffic_bytes=packed,
            progress=self._followed.progress,
            marks=self._marks,
        )
