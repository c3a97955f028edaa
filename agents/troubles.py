"""What an agent finds wrong with its node itself: broken devices, a full disk, a clock that jumped.

The newest travel with each sign of life, numbered, so that the daemon takes each in once.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

JUMP_S = 1.0
"""How far the clock must move by itself; time servers slew it by half a millisecond a second."""
LEAST_FREE_BYTES = 256 * 2**20
LEAST_FREE_SHARE = 0.01
_MOST_KEPT = 32


class Kind(StrEnum):
    """What is wrong; also the kind of the event in the history."""

    DEVICE_ERROR = "device_error"
    """A device is broken: nothing should be started on it."""
    DEVICE_WARNING = "device_warning"
    """A device reports something that is no reason to give it up."""
    DISK_FULL = "disk_full"
    """The disk of the node's folder has next to no room left."""
    CLOCK_JUMP = "clock_jump"
    """The wall clock was set, forwards or backwards."""
    UNKNOWN = "unknown"
    """Told by a newer agent, which has a name for it."""

    @classmethod
    def _missing_(cls, value: object) -> Kind | None:
        return cls.UNKNOWN if isinstance(value, str) else None


class Trouble(BaseModel):
    """Something wrong with a node. device: its index, for what is wrong with one.

    since_s: wall-clock seconds of the node. data: numbers and short texts for the event.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: Kind
    message: str
    since_s: float
    device: int | None = None
    data: dict[str, Any] = {}


class Troubles:
    """The newest troubles of a node, numbered from 1. Safe to use from several threads.

    source: tells this process's numbers from those of the agent before.
    """

    def __init__(self) -> None:
        self.source = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._count = 0
        self._kept: deque[tuple[int, Trouble]] = deque(maxlen=_MOST_KEPT)
        self._mutex = threading.Lock()

    def add(self, *found: Trouble) -> None:
        """Take in what was found."""
        with self._mutex:
            for trouble in found:
                self._count += 1
                self._kept.append((self._count, trouble))

    def told(self) -> tuple[tuple[str, int, dict[str, Any]], ...]:
        """The newest as (source, number, the fields of Trouble), first to last."""
        with self._mutex:
            return tuple(
                (self.source, number, trouble.model_dump(mode="json"))
                for number, trouble in self._kept
            )


def steady_s() -> float:
    """A clock that nobody can set and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ClockWatch:
    """Tells when the wall clock moved otherwise than a clock that cannot be set. Pure."""

    def __init__(self, wall_s: float, still_s: float) -> None:
        self._offset_s = wall_s - still_s

    def look(self, wall_s: float, still_s: float) -> Trouble | None:
        """The jump since the last look, if there was one."""
        offset_s = wall_s - still_s
        jump_s, self._offset_s = offset_s - self._offset_s, offset_s
        if abs(jump_s) < JUMP_S:
            return None
        way = "forwards" if jump_s > 0 else "backwards"
        return Trouble(
            kind=Kind.CLOCK_JUMP,
            message=f"its clock was set {way} by {abs(jump_s):.1f} s",
            since_s=wall_s,
            data={"jump_s": round(jump_s, 3)},
        )


class DiskWatch:
    """Tells when the disk of a folder runs out of room, once each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = False

    def look(self, wall_s: float) -> Trouble | None:
        """The trouble when there has come to be too little room since the last look."""
        try:
            disk = shutil.disk_usage(self._folder)
        except OSError:
            return None
        least_bytes = min(LEAST_FREE_BYTES, LEAST_FREE_SHARE * disk.total)
        if disk.free > 2 * least_bytes:
            self._told = False
        if disk.free > least_bytes or self._told:
            return None
        self._told = True
        return Trouble(
            kind=Kind.DISK_FULL,
            message=(
                f"the disk of {self._folder} has {disk.free / 2**20:.0f} MiB left of "
                f"{disk.total / 2**30:.1f} GiB; make room there"
            ),
            since_s=wall_s,
            data={"free_bytes": disk.free, "total_bytes": disk.total},
        )
