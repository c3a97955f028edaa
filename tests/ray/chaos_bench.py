"""Jobs that are broken on purpose, what they must come to, and who switches their nodes off."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from job_bench import TOKEN, Bench
from railweave.scheduler.client import Client, JobHandle
from railweave.scheduler.job import Job

SAVE_EVERY = 5
# Each step folds its number into the state, so a step that is lost or done twice changes the end.
# The work of a step is done in small pieces, since an interpreter takes signals between them.
# It goes on until it is told to finish: how fast it is breaking depends on who else is there.
PROGRAM = """
import contextlib, hashlib, os, pathlib, sys, time
from railweave.agents import report
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.checkpoint_history import CheckpointError
from railweave.agents.checkpoint_keep import Keep, prune
from railweave.agents.notes import note
sys.stdout.reconfigure(line_buffering=True)
rank, steps = int(os.environ["RANK"]), int(os.environ["STEPS"])
bug_at = int(os.environ.get("BUG_AT", "0"))
checkpoints = Checkpointer()
step, state, block = 0, b"", bytes(1 << 16)
if path := os.environ["RAILWEAVE_RESUME_FROM"]:
    stored = checkpoints.load(path)
    step, state = int(stored[:8]), stored[8:]
finish = pathlib.Path("finish")
while step < steps or not finish.exists():
    step += 1
    began = time.monotonic()
    for _ in range(40):
        hashlib.sha256(block)
    state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    compute_s = time.monotonic() - began
    time.sleep(0.05)
    if step == bug_at:
        raise ZeroDivisionError("the fault of the job itself")
    print(f"step={step} time_s={time.time()}")
    report(step, loss=1 / step, compute_s=compute_s)
    if step % SAVE_EVERY == 0:
        try:
            checkpoints.save(step, b"%08d" % step + state)
            if rank == 0:
                checkpoints.commit(step, timeout_s=3)
                print(f"saved step={step}")
                prune(checkpoints.directory, Keep(last=3))
        except CheckpointError as error:
            note("checkpoint-failed", f"step {step}: {error}", step=step)
            with contextlib.suppress(CheckpointError, OSError):
                checkpoints.discard(step)
done = pathlib.Path(f"result-{rank}.part")
done.write_text(f"{step} {state.hex()}")
done.rename(f"result-{rank}")
""".replace("SAVE_EVERY", str(SAVE_EVERY))


def expected(rank: int, steps: int) -> str:
    """What a rank of a job that nothing has befallen writes in the end."""
    state = b""
    for step in range(1, steps + 1):
        state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    return state.hex()


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
        straggler_ratio=6,
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
    """Sees to it that no device is ever held twice and no damaged checkpoint is resumed."""

    wrong: list[str] = field(default_factory=list)

    def look(self, client: Client) -> None:
        for node in client.status().nodes:
            if sum(node.held.values()) > node.devices:
                self.wrong.append(f"{node.name} has {node.devices} devices, held: {node.held}")
