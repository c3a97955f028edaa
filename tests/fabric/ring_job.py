"""A training-like job on torch's gloo: each step an all-reduce, each fifth step a checkpoint.

Ends at the step at which all ranks see the file `stop` in the working folder; its only weight is
then the number of steps that every rank has taken, however often it was started again.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.progress import report

_WAIT = timedelta(seconds=60)
_ELEMENTS = 16 * 1024
_EVERY = 5
_STEP_S = 0.05


def main() -> None:
    """Train until told to stop, from the newest checkpoint on."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=_WAIT)
    rank, size = dist.get_rank(), dist.get_world_size()
    checkpoints = Checkpointer()
    step, weight = 0, 0.0
    if where := os.environ["RAILWEAVE_RESUME_FROM"]:
        state = checkpoints.load(where)
        step, weight = state["step"], state["weight"]
    over = False
    while not over:
        step += 1
        gradient = torch.full((_ELEMENTS,), float(rank + 1))
        gradient[-1] = float(Path("stop").exists())
        dist.all_reduce(gradient)
        weight += float(gradient[0]) / (size * (size + 1) / 2)
        over = gradient[-1].item() == size
        if step % _EVERY == 0 or over:
            checkpoints.save(step, {"step": step, "weight": weight})
            if rank == 0:
                checkpoints.commit(step, timeout_s=60)
        report(step, loss=1 / step)
        time.sleep(_STEP_S)
    print(f"weight {weight:g} after {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
