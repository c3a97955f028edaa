"""The training-like program that tests break on purpose, and what it must come to all the same."""

from __future__ import annotations

import hashlib

SAVE_EVERY, WORK_S = 5, 0.004
# Each step folds its number into the state, so a step that is lost or done twice changes the end.
# The work of a step is little, and done in small pieces, as signals are taken in between them.
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
step, state, block = 0, b"", bytes(1 << 14)
if path := os.environ["RAILWEAVE_RESUME_FROM"]:
    stored = checkpoints.load(path)
    step, state = int(stored[:8]), stored[8:]
finish = pathlib.Path("finish")
while step < steps or not finish.exists():
    step += 1
    began = time.monotonic()
    while time.monotonic() - began < WORK_S:
        hashlib.sha256(block)
    state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    compute_s = time.monotonic() - began
    time.sleep(0.1)
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
""".replace("SAVE_EVERY", str(SAVE_EVERY)).replace("WORK_S", str(WORK_S))


def expected(rank: int, steps: int) -> str:
    """What a rank of a job that nothing has befallen writes in the end."""
    state = b""
    for step in range(1, steps + 1):
        state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    return state.hex()
