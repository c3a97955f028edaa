"""What a node checks of itself before ranks start on it: devices, processor, disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from .device_use import read_device_use
from .processes import Process, below, end_all, process, table

_SELF_TEST = Path(__file__).with_name("self_test.py")
_SAID = 300


class NodeCheck(BaseModel):
    """What a node found of itself. wrong: empty where all is well.

    compute_s, disk_s, device_s: how long its computation, its write to the disk, and the
    computation on its devices took; None where that was not reached.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    node: str
    wrong: str = ""
    compute_s: float | None = None
    disk_s: float | None = None
    device_s: float | None = None


def check_node(
    node: str, folder: Path, devices: Sequence[int], limit_s: float, nvml: Any = None
) -> NodeCheck:
    """Check a node, whose own folder is `folder`, for ranks on `devices`; takes `limit_s` at most.

    nvml: pynvml's functions; the library itself by default.
    """
    used = read_device_use(devices, nvml)
    wrong = "; ".join(str(use) for use in used if not use.free)
    if wrong:
        return NodeCheck(node=node, wrong=wrong)
    # The devices by NVML's numbers, whatever the agent's own process may see.
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    lean = [] if used else ["-I", "-S"]  # torch is not in the standard library
    shown = [str(use.device) for use in used]
    running = subprocess.Popen(
        [sys.executable, *lean, str(_SELF_TEST), str(folder), *shown],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        text=True,
    )
    try:
        said, _ = running.communicate(timeout=limit_s)
        told = json.loads(said.splitlines()[-1])
        return NodeCheck.model_validate({**told, "node": node})
    except subprocess.TimeoutExpired:
        _end(running)
        return NodeCheck(node=node, wrong=f"its test of itself was not over within {limit_s:g} s")
    except (ValueError, TypeError, IndexError):
        last = said.strip()[-_SAID:] or "no word"
        wrong = f"its test of itself ended with code {running.returncode}: {last}"
        return NodeCheck(node=node, wrong=wrong)


def _end(running: subprocess.Popen[str]) -> None:
    """End a test with all that it started, as far as the kernel lets it."""

    def left() -> list[Process]:
        own = process(running.pid)
        found = below([running.pid], table())
        return found + ([own] if own else [])

    end_all(left, 1.0)
    if running.stdout is not None:
        running.stdout.close()
    running.poll()
