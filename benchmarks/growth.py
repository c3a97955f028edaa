"""How the solver's time and memory grow with the cluster; one process for each size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from railweave.placement import clos_8_rail, evaluate, occupied, place

from .instances import Instance, grid_pcg
from .measure import Clock

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
SHAPES = {1_000: (8, 14), 3_000: (8, 43), 10_000: (16, 72), 30_000: (16, 215), 100_000: (32, 360)}
"""Stages and replicas of nodes: about 92 % of each cluster."""


def instance(devices: int, seed: int) -> Instance:
    """A dense job on a cluster of about `devices` devices, 2 % of its nodes busy and 1 % faulty."""
    stages, replicas = SHAPES[devices]
    cluster = clos_8_rail(round(devices / 160) or 1, units_per_pod=4 if devices < 10_000 else 20)
    pcg = grid_pcg(stages, replicas, data_bytes=3e9, pipeline_bytes=0.5e9)
    return Instance(f"growth-{devices}", occupied(cluster, 0.02, seed), pcg)


def measured(devices: int, seed: int = 0) -> dict[str, Any]:
    """Wall time and peak memory of one `place()` call, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(devices), str(seed)],
        cwd=Path(__file__).resolve().parents[1],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_bytes() -> int:
    """The most memory of this process; `getrusage` tells its parent's where that had more."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _measure(devices: int, seed: int) -> dict[str, Any]:
    small = instance(1_000, seed)
    place(small.pcg, small.cluster, time_limit_s=1.0, seed=seed)  # compiles what is compiled once
    made = instance(devices, seed)
    before = peak_bytes()
    clock = Clock()
    placement = place(made.pcg, made.cluster, time_limit_s=1.0, seed=seed)
    seconds, cpu_seconds = clock.read()
    spine = list(evaluate(made.pcg, made.cluster, placement.devices).traffic_bytes.values())[-1]
    return {
        "devices": sum(node.devices for node in made.cluster.nodes),
        "ranks": made.pcg.world_size,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "input_bytes": before,
        "peak_bytes": peak_bytes(),
        "ratio": spine / placement.lower_bound_bytes if placement.lower_bound_bytes else None,
    }


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]), int(sys.argv[2]))))
