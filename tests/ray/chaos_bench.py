"""Jobs that are broken on purpose, what they must come to, and who switches their nodes off."""

from __future__ import annotations

import contextlib
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos_program import PROGRAM, expected
from job_bench import TOKEN, Bench
from railweave.agents import processes
from railweave.scheduler.client import JobHandle
from railweave.scheduler.job import Job


@dataclass
class Victim:
    """A job to be broken, and where it works."""

    handle: JobHandle
    folder: Path

    def finish(self) -> None:
        """Let it come to its end."""
        (self.folder / "finish").touch()

    def wrong_results(self, ranks: int) -> list[str]:
        """What is wrong with what its ranks wrote in the end."""
        found = []
        for rank in range(ranks):
            steps, state = (self.folder / f"result-{rank}").read_text().split()
            if state != expected(rank, int(steps)):
                found.append(f"rank {rank} of {self.handle.id} is wrong after {steps} steps")
        return found


def submit(
    bench: Bench, folder: Path, name: str, steps: int, ranks: int = 2, bug_at: int = 0
) -> Victim:
    """Queue a job that may be broken in every way."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    job = Job(
        name=name,
        entrypoint=["python", "-m", "railweave.agents.rehearsal", "-c", PROGRAM],
        devices=ranks,
        working_dir=folder,
        checkpoint_dir=folder / "checkpoints",
        env={"STEPS": str(steps), "BUG_AT": str(bug_at), TOKEN: bench.token},
        grace_s=0.5,
        max_restarts=1000,
        hang_timeout_s=10,
        straggler_ratio=10,
    )
    return Victim(bench.client.submit(job), folder)


@contextlib.contextmanager
def small_disk(folder: Path, size: str = "8m") -> Iterator[bool]:
    """A file system of its own for a folder; False where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass
class Ledger:
    """Sees to it that no device is ever given out twice, by the books and by what really runs."""

    bench: Bench
    wrong: list[str] = field(default_factory=list)

    def look(self) -> None:
        """Note what is wrong at this moment."""
        for node in self.bench.client.status().nodes:
            if sum(node.held.values()) > node.devices:
                self.wrong.append(f"{node.name} has {node.devices} devices, held: {node.held}")
        users: defaultdict[tuple[str, str], dict[str, processes.Process]] = defaultdict(dict)
        for entry in processes.having(TOKEN, self.bench.token, processes.table().values()):
            told = _environment(entry)
            if "RAILWEAVE_DEVICE" in told:
                device = (told["RAILWEAVE_NODE"], told["RAILWEAVE_DEVICE"])
                attempt = f"{told['RAILWEAVE_JOB_ID']} attempt {told['RAILWEAVE_ATTEMPT']}"
                users[device][attempt] = entry
        for device, attempts in users.items():
            # One may have ended, and the other have come, while the others were looked at.
            alive = [name for name, entry in attempts.items() if _lives(entry)]
            if len(alive) > 1:
                self.wrong.append(f"device {device} is used by {' and by '.join(alive)}")


def _environment(entry: processes.Process) -> dict[str, str]:
    try:
        words = Path(f"/proc/{entry.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    parts = (word.decode(errors="replace").partition("=") for word in words)
    return {name: value for name, _, value in parts}


def _lives(entry: processes.Process) -> bool:
    found = processes.process(entry.pid)
    same = found is not None and found.start_ticks == entry.start_ticks
    return found is not None and same and found.state != "Z"
