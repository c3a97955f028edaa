"""Errors of NVIDIA devices as they come: Xid events, ECC counters, remapped rows, NVLinks.

A counter that an error raised before the watch began is no news; what it raises afterwards is.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .troubles import Kind, Trouble
from .xid import Blame, xid

LOOK_S = 5.0
"""How often counters are read; events are asked for at every look."""


@dataclass(frozen=True)
class DeviceCounters:
    """What a device counts. None: this device or driver does not tell.

    uncorrected: ECC errors since the driver was loaded. remap_failed: whether a row of memory could
    not be remapped. links: the NVLinks that are up.
    """

    uncorrected: int | None = None
    remap_failed: bool | None = None
    links: frozenset[int] = frozenset()


def counted(
    device: int, before: DeviceCounters, now: DeviceCounters, since_s: float
) -> list[Trouble]:
    """What has gone wrong with a device between two readings. Pure."""
    found = []
    more = (now.uncorrected or 0) - (before.uncorrected or 0)
    if before.uncorrected is not None and more > 0:
        text = f"device {device} has {more} more uncorrected ECC errors ({now.uncorrected} in all)"
        found.append(_broken(device, text, since_s, "ecc"))
    if now.remap_failed and before.remap_failed is False:
        text = f"device {device} could not remap a faulty row of its memory"
        found.append(_broken(device, text, since_s, "remap"))
    if gone := before.links - now.links:
        text = f"device {device} has lost NVLink {', '.join(map(str, sorted(gone)))}"
        found.append(_broken(device, text, since_s, "nvlink"))
    return found


def of_xid(device: int, number: int, since_s: float) -> Trouble:
    """What an Xid event says. Pure."""
    known = xid(number)
    kind = Kind.DEVICE_ERROR if known.blame is Blame.DEVICE else Kind.DEVICE_WARNING
    return Trouble(
        kind=kind,
        message=f"device {device} reports Xid {number}: {known.meaning}",
        since_s=since_s,
        device=device,
        data={"xid": number, "blame": known.blame.value},
    )


class DeviceWatch:
    """Watches a node's devices through NVML; says nothing on a node without it.

    binding: has pynvml's functions; the library itself by default.
    """

    def __init__(self, binding: Any = None) -> None:
        self._nvml = binding
        self._handles: dict[int, Any] = {}
        self._events: Any = None
        self._counters: dict[int, DeviceCounters] = {}
        self._lost: set[int] = set()
        self._look_at = 0.0
        try:
            if self._nvml is None:
                self._nvml = importlib.import_module("pynvml")
            self._nvml.nvmlInit()
        except Exception:  # no module, no library or no driver: inventories tell which
            self._nvml = None
        else:
            self._begin()

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def look(self, now: float) -> list[Trouble]:
        """What has gone wrong since the last look. now: monotonic seconds."""
        if self._nvml is None:
            return []
        found = self._happened()
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            for device, handle in self._handles.items():
                if device not in self._lost:
                    found += self._read_again(device, handle)
        return found

    def _begin(self) -> None:
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            for index in range(nvml.nvmlDeviceGetCount()):
                with contextlib.suppress(nvml.NVMLError):
                    self._handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            self._events = nvml.nvmlEventSetCreate()
            for handle in self._handles.values():
                with contextlib.suppress(nvml.NVMLError):
                    nvml.nvmlDeviceRegisterEvents(
                        handle, nvml.nvmlEventTypeXidCriticalError, self._events
                    )
        for device, handle in self._handles.items():
            with contextlib.suppress(nvml.NVMLError):
                self._counters[device] = self._read(handle)

    def _happened(self) -> list[Trouble]:
        found: list[Trouble] = []
        while self._events is not None:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = self._nvml.nvmlDeviceGetUUID(event.device)
            except self._nvml.NVMLError:  # NVMLError_Timeout: nothing has happened
                break
            for device, handle in self._handles.items():
                with contextlib.suppress(self._nvml.NVMLError):
                    if self._nvml.nvmlDeviceGetUUID(handle) == uuid:
                        found.append(of_xid(device, int(event.eventData), time.time()))
        return found

    def _read_again(self, device: int, handle: Any) -> list[Trouble]:
        now_s = time.time()
        try:
            now = self._read(handle)
        except self._nvml.NVMLError as error:
            self._lost.add(device)
            return [_broken(device, f"device {device} cannot be read: {error}", now_s, "lost")]
        before = self._counters.get(device, now)
        self._counters[device] = now
        return counted(device, before, now, now_s)

    def _read(self, handle: Any) -> DeviceCounters:
        """Raises NVMLError when the device is gone."""
        nvml = self._nvml
        nvml.nvmlDeviceGetUUID(handle)
        uncorrected = self._told(
            lambda: nvml.nvmlDeviceGetTotalEccErrors(
                handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            )
        )
        remapped = self._told(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        links = set()
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            state = self._told(partial(nvml.nvmlDeviceGetNvLinkState, handle, link))
            if state is None:
                break
            if state:
                links.add(link)
        return DeviceCounters(
            uncorrected=None if uncorrected is None else int(uncorrected),
            remap_failed=None if remapped is None else bool(remapped[3]),
            links=frozenset(links),
        )

    def _told(self, ask: Callable[[], Any]) -> Any:
        """What a device tells; None where it, or the driver, does not know the question."""
        try:
            return ask()
        except self._nvml.NVMLError as error:
            if isinstance(error, getattr(self._nvml, "NVMLError_GpuIsLost", ())):
                raise
            return None


def _broken(device: int, text: str, since_s: float, what: str) -> Trouble:
    return Trouble(
        kind=Kind.DEVICE_ERROR, message=text, since_s=since_s, device=device, data={"what": what}
    )
