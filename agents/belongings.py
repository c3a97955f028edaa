"""What the processes of an attempt have that can outlive them: shared memory, ports, processes.

Noted while they run, because afterwards nobody can tell whose it was. What was there before them is
not theirs, whatever they do with it. Standard library only, because the guard imports it. Linux.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .processes import Process, process, table

NAME = "belongings.json"
_SHARED = "/dev/shm/"
_LISTENS = "0A"
_IPC_RMID = 0
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Belongings:
    """What was seen so far; it only grows.

    files: shared memory files by path, with device and inode. segments: ids of System V segments.
    ports: TCP ports that were listened on, by the inode of the socket. processes: pid and start
    time of each one seen. foreign: inodes of shared memory files and ids of segments that were
    there before.
    """

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    segments: set[int] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    foreign: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

    @classmethod
    def before(cls) -> Belongings:
        """Of an attempt none of whose processes has been started yet."""
        inodes = set()
        for folder, folders, names in os.walk(_SHARED):
            for name in (*folders, *names):
                with suppress(OSError):
                    inodes.add(os.lstat(os.path.join(folder, name)).st_ino)
        return cls(foreign=(frozenset(inodes), frozenset(_segments())))

    def look(self, processes: Iterable[Process]) -> bool:
        """Take in what these processes have now. Whether there is anything new."""
        before = (len(self.files), len(self.segments), len(self.ports), dict(self.processes))
        pids = {entry.pid: entry.start_ticks for entry in processes if entry.state != "Z"}
        self.processes |= pids
        for pid in pids:
            self._look_at_maps(pid)
            self._look_at_handles(pid)
        for segment, (creator, _) in _segments().items():
            if creator in pids and segment not in self.foreign[1]:
                self.segments.add(segment)
        return before != (len(self.files), len(self.segments), len(self.ports), self.processes)

    def _look_at_maps(self, pid: int) -> None:
        for line in _lines(Path(f"/proc/{pid}/maps")):
            if _SHARED not in line and "/SYSV" not in line:
                continue
            words = line.split(maxsplit=5)
            name = words[5].strip()
            if name.startswith("/SYSV") and int(words[4]) not in self.foreign[1]:
                self.segments.add(int(words[4]))
            elif name.startswith(_SHARED) and not name.endswith(" (deleted)"):
                self._add_file(name)

    def _look_at_handles(self, pid: int) -> None:
        sockets = set()
        try:
            with os.scandir(f"/proc/{pid}/fd") as handles:
                for handle in handles:
                    try:
                        name = os.readlink(handle.path)
                    except OSError:
                        continue
                    if name.startswith(_SHARED) and not name.endswith(" (deleted)"):
                        self._add_file(name)
                    elif name.startswith("socket:["):
                        sockets.add(name[8:-1])
        except OSError:
            return
        if sockets:
            listening = _listening(f"/proc/{pid}/net")
            self.ports |= {inode: listening[inode] for inode in sockets & listening.keys()}

    def _add_file(self, name: str) -> None:
        try:
            found = os.lstat(name)
        except OSError:
            return
        if found.st_ino not in self.foreign[0]:
            self.files[name] = (found.st_dev, found.st_ino)

    def save(self, folder: Path) -> None:
        """Keep it in an attempt's folder, for whoever ends what a killed guard has left."""
        data = {
            "files": {name: list(found) for name, found in self.files.items()},
            "segments": sorted(self.segments),
            "ports": self.ports,
            "processes": self.processes,
        }
        fresh = folder / f".{NAME}.new"
        fresh.write_text(json.dumps(data))
        fresh.replace(folder / NAME)

    @classmethod
    def load(cls, folder: Path) -> Belongings:
        """What was kept in an attempt's folder; empty where nothing was."""
        try:
            data: dict[str, Any] = json.loads((folder / NAME).read_text())
            return cls(
                files={name: (found[0], found[1]) for name, found in data["files"].items()},
                segments=set(data["segments"]),
                ports=dict(data["ports"]),
                processes={int(pid): ticks for pid, ticks in data["processes"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError):
            return cls()

    def alive(self) -> list[Process]:
        """Those of the processes that still run."""
        found = (process(pid) for pid in self.processes)
        return [
            entry
            for entry in found
            if entry is not None
            and entry.start_ticks == self.processes[entry.pid]
            and entry.state != "Z"
        ]

    def remove(self) -> tuple[list[str], list[str]]:
        """Remove the shared memory that nobody else uses.

        Returns what was removed, and what others keep: shared memory that they use, and sockets
        that listen on ports of the attempt because a rank handed them over.
        """
        removed: list[str] = []
        kept: list[str] = []
        files = {name: found for name, found in self.files.items() if _is_still(name, found)}
        users = _users(files) if files else {}
        for name in sorted(files):
            if name in users:
                kept.append(f"{name} is used by process {users[name]}")
            else:
                with suppress(OSError):
                    os.unlink(name)
                    removed.append(name)
        for segment, (_, attached) in _segments().items():
            if segment not in self.segments:
                continue
            if attached:
                kept.append(f"System V segment {segment} is used by {attached} processes")
            elif _libc.shmctl(segment, _IPC_RMID, None) == 0:
                removed.append(f"System V segment {segment}")
        still = _listening("/proc/self/net")
        kept += [
            f"port {port} is still listened on"
            for inode, port in sorted(self.ports.items())
            if still.get(inode) == port
        ]
        return removed, kept


def _is_still(name: str, found: tuple[int, int]) -> bool:
    try:
        now = os.lstat(name)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == found


def _users(files: Iterable[str]) -> dict[str, int]:
    """A process that maps or has open each of those files, by file."""
    wanted = set(files)
    found: dict[str, int] = {}
    for pid in table():
        seen = Belongings()
        seen._look_at_maps(pid)
        seen._look_at_handles(pid)
        found |= dict.fromkeys(wanted & seen.files.keys(), pid)
    return found


def _segments() -> dict[int, tuple[int, int]]:
    """The System V segments of the machine: who made each, and how many are attached to it."""
    rows = [line.split() for line in _lines(Path("/proc/sysvipc/shm"))[1:]]
    return {int(row[1]): (int(row[4]), int(row[6])) for row in rows}


def _listening(folder: str) -> dict[str, int]:
    """The TCP ports that are listened on, by the inode of the socket."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in _lines(Path(folder) / name)[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                found[words[9]] = int(words[1].rpartition(":")[2], 16)
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
