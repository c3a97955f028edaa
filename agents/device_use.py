"""Who uses a node's NVIDIA devices now, and how much of their memory is free."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

FREE_SHARE = 0.9
"""What of a device's memory must be free before a rank starts on it; the driver keeps a part."""


@dataclass(frozen=True)
class DeviceUse:
    """One device: its memory, and the processes that compute on it."""

    device: int
    free_bytes: int
    total_bytes: int
    pids: tuple[int, ...] = ()

    @property
    def free(self) -> bool:
        """Whether nothing computes on it and next to all of its memory can be had."""
        return not self.pids and self.free_bytes >= FREE_SHARE * self.total_bytes

    def __str__(self) -> str:
        text = (
            f"device {self.device} has {self.free_bytes / 2**30:.1f} of "
            f"{self.total_bytes / 2**30:.1f} GiB of memory free"
        )
        if not self.pids:
            return text
        shown = ", ".join(map(str, self.pids))
        many = len(self.pids) > 1
        return f"{text}, process{'es' if many else ''} {shown} use{'' if many else 's'} it"


def read_device_use(devices: Collection[int], binding: Any = None) -> list[DeviceUse]:
    """The use of those devices; nothing on a node without NVML.

    binding: has pynvml's functions; the library itself by default. A device that does not answer
    has no free memory.
    """
    try:
        nvml = binding or importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no module, no library or no driver: the node declares its devices
        return []
    try:
        return [_use_of(nvml, device) for device in sorted(devices)]
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _use_of(nvml: Any, device: int) -> DeviceUse:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(device)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:
        return DeviceUse(device, 0, 1)
    pids: tuple[int, ...] = ()
    with contextlib.suppress(nvml.NVMLError):
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        pids = tuple(sorted(int(each.pid) for each in running))
    return DeviceUse(device, int(memory.free), int(memory.total), pids)
