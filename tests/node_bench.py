"""One node for tests: a runner, a process that stands in for the raylet, and what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from railweave.agents import journal
from railweave.agents.attempt import NodeLaunch, NodePhase, NodeStatus
from railweave.agents.processes import Process, having, table
from railweave.agents.runner import Runner
from waiting import wait_until

TOKEN = "RAILWEAVE_TEST_TOKEN"


class NodeBench:
    """A node whose rank processes can all be found by a token in their environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.token = uuid.uuid4().hex
        self.raylet = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.runner = Runner(self.state_dir, "n0", self.raylet.pid)

    def launch_of(
        self, *command: str, ranks: int | list[Any] = 1, attempt: int = 1, **more: Any
    ) -> NodeLaunch:
        """A launch of `command`; a number of ranks puts local ranks 0.. on devices 0.."""
        if isinstance(ranks, int):
            ranks = [
                {"rank": r, "local_rank": r, "device": r, "env": {"RANK": str(r)}}
                for r in range(ranks)
            ]
        data = {
            "job_id": "job",
            "attempt": attempt,
            "node": "n0",
            "command": command,
            "working_dir": str(self.folder),
            "env": {TOKEN: self.token},
            "ranks": ranks,
            "grace_s": 0.2,
        }
        return NodeLaunch.model_validate({**data, **more})

    def launch(self, *command: str, **more: Any) -> NodeStatus:
        return self.runner.launch(self.launch_of(*command, **more))

    def python(self, code: str, **more: Any) -> NodeStatus:
        """Launch ranks that run `code`."""
        return self.launch(sys.executable, "-S", "-c", code, **more)

    def alive(self) -> list[Process]:
        """Every living process that a rank of this bench is or has started."""
        return [p for p in having(TOKEN, self.token, table().values()) if p.state != "Z"]

    def ended(self, attempt: int = 1, deadline_s: float = 20.0) -> NodeStatus:
        """The attempt's status once it has come to its end."""

        def final() -> NodeStatus | None:
            status = self.runner.status("job", attempt, wait_s=0.0)
            return status if status.phase in (NodePhase.ENDED, NodePhase.STOPPED) else None

        return wait_until(final, deadline_s, f"attempt {attempt} has ended")

    def wait_for_file(self, name: str, deadline_s: float = 10.0) -> str:
        """The text of a file in the working directory once it is there and holds a line."""
        path = self.folder / name
        return wait_until(
            lambda: path.exists() and path.read_text().endswith("\n") and path.read_text(),
            deadline_s,
            f"{name} is written",
        )

    def guard_pid(self, attempt: int = 1, job_id: str = "job") -> int:
        path = self.state_dir / "jobs" / job_id / f"attempt-{attempt}" / "journal.jsonl"
        return int(journal.read(path)[0]["guard"]["pid"])

    def gone(self, pid: int) -> bool:
        """Whether a process is dead; one that only waits to be collected counts as dead."""
        found = table().get(pid)
        return found is None or found.state == "Z"

    def close(self) -> None:
        guards = [self.guard_pid(attempt, job_id) for job_id, attempt in self.runner.held()]
        for job_id, attempt in self.runner.held():
            self.runner.stop(job_id, attempt, 0.0)
        self.runner.close()
        self.raylet.kill()
        self.raylet.wait()
        for pid in guards:
            wait_until(lambda pid=pid: self.gone(pid), 5.0, f"guard {pid} has exited")
        left = self.alive()
        for entry in left:
            os.kill(entry.pid, signal.SIGKILL)
        assert not left, f"processes outlived the test: {left}"


@contextmanager
def node_bench(folder: Path) -> Iterator[NodeBench]:
    bench = NodeBench(folder)
    try:
        yield bench
    finally:
        bench.close()
