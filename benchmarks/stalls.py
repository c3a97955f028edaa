"""`python -m benchmarks.stalls`: how long a save stops the training, by way of saving and size.

Blocking and in the background with Railweave, beside `torch.save` of the same state to the same
disk with the fsync that makes it last. Ratios are of medians, in one run, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.checkpoint_background import BackgroundSaves
from railweave.agents.checkpoint_history import Check
from railweave.agents.checkpoint_keep import Keep, prune

WAYS = ("torch.save", "blocking", "background")


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--sizes-mb", nargs="+", type=float, default=[2.5, 25.0, 250.0])
    parser.add_argument("--saves", type=int, default=20)
    options = parser.parse_args(arguments)
    print("| state | " + " | ".join(f"{way}, ms" for way in WAYS) + " | background / blocking |")
    print("| ---: |" + " ---: |" * (len(WAYS) + 1))
    for size_mb in options.sizes_mb:
        stall_s = measured(size_mb * 1e6, options.saves)
        cells = [f"{size_mb:g} MB", *(f"{1e3 * stall_s[way]:.2f}" for way in WAYS)]
        cells.append(f"{stall_s['background'] / stall_s['blocking']:.0%}")
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


def measured(size_bytes: float, saves: int) -> dict[str, float]:
    """The median stall of each way in seconds, for a state of that many bytes."""
    parts = 39
    state = {f"part {n}": torch.randn(int(size_bytes / 4 / parts)) for n in range(parts)}
    took_s: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="railweave-stalls-") as folder:
        plain = Checkpointer(Path(folder, "blocking"), 0, 1, 1)
        background = Checkpointer(Path(folder, "background"), 0, 1, 1)
        with BackgroundSaves(background, keep=Keep(last=2)) as writer:
            for step in range(1, saves + 1):
                took_s["torch.save"].append(timed(_torch_save, Path(folder, "state.pt"), state))
                took_s["blocking"].append(timed(_blocking, plain, step, state))
                took_s["background"].append(writer.save(step, state).total_s)
                writer.finish()
    return {way: statistics.median(each) for way, each in took_s.items()}


def timed(action: Callable[..., None], *arguments: Any) -> float:
    """Seconds of wall time that the action takes."""
    began_s = time.perf_counter()
    action(*arguments)
    return time.perf_counter() - began_s


def _torch_save(path: Path, state: dict[str, Any]) -> None:
    with path.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _blocking(checkpoints: Checkpointer, step: int, state: dict[str, Any]) -> None:
    checkpoints.save(step, state)
    checkpoints.commit(step)
    prune(checkpoints.directory, 2, check=Check.SIZES)


if __name__ == "__main__":
    raise SystemExit(main())
