"""Memory of processes, and kills for want of it, as Linux counts them. Standard library only.

Counters: `oom_kill` in memory.events (cgroup v2), in memory.oom_control (v1), and in /proc/vmstat
for the whole machine (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
"""

from __future__ import annotations

import os
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def memory_cgroup(pid: int) -> Path | None:
    """The folder of the cgroup that limits a process's memory; None where it cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    found: dict[str, Path] = {}
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            found["v1"] = _MOUNT / "memory" / path.lstrip("/")
        elif number == "0":
            found["v2"] = _MOUNT / path.lstrip("/")
    folder = found.get("v1") or found.get("v2")
    return folder if folder is not None and kills_in(folder) is not None else None


def kills_in(cgroup: Path) -> int | None:
    """How many processes of a cgroup were killed for want of memory; None where not counted."""
    for name in ("memory.events", "memory.oom_control"):
        count = _field(cgroup / name, "oom_kill")
        if count is not None:
            return count
    return None


def kills_on_machine() -> int | None:
    """How many processes of this machine were; None where not counted."""
    return _field(Path("/proc/vmstat"), "oom_kill")


def limit_bytes(cgroup: Path) -> int | None:
    """A cgroup's own memory limit; None without one."""
    for name in ("memory.max", "memory.limit_in_bytes"):
        try:
            text = (cgroup / name).read_text().strip()
        except OSError:
            continue
        # Version 1 says "no limit" with the largest multiple of a page.
        return int(text) if text.isdigit() and int(text) < 2**62 else None
    return None


def resident_bytes(pid: int) -> int:
    """What a process holds in memory; 0 where it cannot be seen."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _field(path: Path, name: str) -> int | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == name:
            return int(words[1])
    return None
