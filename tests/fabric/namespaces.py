"""Network namespaces of one run: made, entered, configured, and removed for sure.

A namespace's name starts with its run's marker, which holds the process that made it. What a run
that was killed left behind is found by that, and only that is removed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from railweave.agents import processes

Result = TypeVar("Result")

FOLDER = Path("/run/netns")
ENVIRONMENT = "RAILWEAVE_FABRIC"
_PREFIX = "rwf"
_CLONE_NEWNET = 0x40000000
_GONE_S = 5.0
_numbers = itertools.count()
_libc = ctypes.CDLL("libc.so.6", use_errno=True)


class FabricError(RuntimeError):
    """The fabric could not be made; says which command failed and what it said."""


def new_marker() -> str:
    """A marker for a run of this process."""
    here = processes.process(os.getpid())
    assert here is not None
    return f"{_PREFIX}-{here.pid}-{here.start_ticks}-{next(_numbers)}"


def command(arguments: Iterable[str], lines: Iterable[str] | None = None) -> str:
    """Run a command, with lines for its standard input. Raises FabricError."""
    arguments = list(arguments)
    text = None if lines is None else "".join(f"{line}\n" for line in lines)
    found = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    if found.returncode:
        raise FabricError(f"{' '.join(arguments)}: {found.stderr.strip()} (given: {text})")
    return found.stdout


def ip(lines: Iterable[str], namespace: str | None = None) -> None:
    """Run lines of `ip`, in a namespace. Raises FabricError."""
    command(["ip", *(["-n", namespace] if namespace else []), "-batch", "-"], lines)


def tc(lines: Iterable[str], namespace: str) -> None:
    """Run lines of `tc` in a namespace. Raises FabricError."""
    command(["tc", "-n", namespace, "-batch", "-"], lines)


def counters(namespace: str) -> dict[str, dict[str, int]]:
    """The kernel's counters of a namespace's interfaces: {name: {rx_bytes, tx_packets, ...}}."""
    shown: list[dict[str, Any]] = json.loads(
        command(["ip", "-n", namespace, "-s", "-j", "link", "show"])
    )
    return {
        link["ifname"]: {
            f"{way}_{what}": int(link["stats64"][way][what])
            for way in ("rx", "tx")
            for what in ("bytes", "packets", "dropped")
        }
        for link in shown
    }


def enter(namespace: str) -> None:
    """Move the calling thread into a namespace. Raises OSError."""
    handle = os.open(FOLDER / namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(handle, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(FOLDER / namespace))
    finally:
        os.close(handle)


def within(namespace: str, function: Callable[[], Result]) -> Result:
    """Call a function in a thread that is in the namespace; its result or its exception."""
    found: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            enter(namespace)
            found.append(function())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def set_kernel(namespace: str, values: Mapping[str, str]) -> None:
    """Set `net.` kernel parameters of a namespace, given as paths below /proc/sys/net."""

    def write() -> None:
        for name, value in values.items():
            Path("/proc/sys/net", name).write_text(value)

    within(namespace, write)


def inside(namespace: str) -> list[processes.Process]:
    """The processes in a network namespace."""
    try:
        inode = (FOLDER / namespace).stat().st_ino
    except FileNotFoundError:
        return []
    found = []
    for entry in processes.table().values():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry.pid}/ns/net").st_ino == inode:
                found.append(entry)
    return found


def end(find: Callable[[], list[processes.Process]]) -> None:
    """Kill what is found until nothing is. Raises FabricError naming what would not die."""
    give_up = time.monotonic() + _GONE_S
    while left := [entry for entry in find() if entry.state != "Z"]:
        for entry in left:
            processes.send_signal(entry, signal.SIGKILL)
        if time.monotonic() > give_up:
            raise FabricError(f"processes {[entry.pid for entry in left]} would not die")
        time.sleep(0.005)


def remove(marker: str) -> None:
    """End the run's processes and remove its namespaces; nothing where there are none."""
    names = [name for name in _existing() if name.startswith(f"{marker}-")]
    inodes = {(FOLDER / name).stat().st_ino for name in names}

    def of_the_run() -> list[processes.Process]:
        table = processes.table().values()
        carriers = [e for e in processes.having(ENVIRONMENT, marker, table) if e.pid != os.getpid()]
        found = {entry.pid: entry for entry in carriers}
        for entry in table:
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{entry.pid}/ns/net").st_ino in inodes:
                    found[entry.pid] = entry
        return list(found.values())

    end(of_the_run)
    if names:
        ip(f"netns delete {name}" for name in names)


def remove_abandoned() -> list[str]:
    """Remove what runs left behind whose process is gone; their markers."""
    markers = set()
    for name in _existing():
        prefix, pid, ticks, number = name.split("-", 4)[:4]
        maker = processes.process(int(pid))
        if maker is None or maker.start_ticks != int(ticks) or maker.state == "Z":
            markers.add(f"{prefix}-{pid}-{ticks}-{number}")
    for marker in markers:
        remove(marker)
    return sorted(markers)


def _existing() -> list[str]:
    try:
        return sorted(name for name in os.listdir(FOLDER) if name.startswith(f"{_PREFIX}-"))
    except FileNotFoundError:
        return []
