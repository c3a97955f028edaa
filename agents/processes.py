"""Processes as /proc shows them: who is below whom, and signals that cannot hit a stranger.

Standard library only, because the guard imports it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Process:
    """One row of the process table. `start_ticks` tells it from a later process of the same pid."""

    pid: int
    parent_pid: int
    state: str
    start_ticks: int


def _prctl(option: int, value: int | ctypes.Array[ctypes.c_char]) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def become_subreaper() -> None:
    """Be handed every orphan below this process, however it was detached. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """The name that `ps -o comm` and `top` show; 15 bytes of it are kept."""
    _prctl(_PR_SET_NAME, ctypes.create_string_buffer(name.encode()[:15]))


def detach() -> int:
    """Go on in a process without a parent; returns a pipe to write a byte to when that is ready.

    The process that was started exits 0 as soon as the byte is there, and 1 when the pipe closes
    without one.
    """
    told, ready = os.pipe()
    if os.fork():
        os.close(ready)
        os._exit(0 if os.read(told, 1) else 1)
    os.close(told)
    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    return ready


def be_favoured() -> None:
    """Undo what Ray gives its workers (nice 15, first choice of the OOM killer), where allowed."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("0")


def die_with(parent_pid: int) -> None:
    """Be killed by the kernel when the parent dies; for the moment between fork and exec."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def process(pid: int) -> Process | None:
    """The process of that pid, a zombie included; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may itself hold brackets and blanks.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def table() -> dict[int, Process]:
    """Every process that can be seen, by pid."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {found.pid: found for found in map(process, pids) if found is not None}


def below(roots: Iterable[int], processes: dict[int, Process]) -> list[Process]:
    """The descendants of `roots` in a process table, without the roots, parents first."""
    children: dict[int, list[Process]] = {}
    for entry in processes.values():
        children.setdefault(entry.parent_pid, []).append(entry)
    found: dict[int, Process] = {}
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(0), ()):
            if child.pid not in found:
                found[child.pid] = child
                waiting.append(child.pid)
    return list(found.values())


def own_children() -> list[int]:
    """Pids of this single-threaded process's children, zombies included."""
    pid = os.getpid()
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [entry.pid for entry in table().values() if entry.parent_pid == pid]


def send_signal(target: Process, number: int) -> bool:
    """Signal exactly that process, never a later one of its pid. False when it cannot be."""
    try:
        handle = os.pidfd_open(target.pid)
    except OSError:
        return False
    try:
        found = process(target.pid)
        if found is None or found.start_ticks != target.start_ticks:
            return False
        signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def having(variable: str, value: str, processes: Iterable[Process]) -> list[Process]:
    """Those of `processes` that were started with `variable` set to `value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in processes:
        try:
            environment = Path(f"/proc/{entry.pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(entry)
    return found


def end_all(find: Callable[[], list[Process]], deadline_s: float) -> tuple[int, tuple[int, ...]]:
    """SIGKILL what `find` finds until it finds nothing; for processes that are not our children.

    Returns how many different processes were killed and the pids left after `deadline_s`.
    """
    killed: set[tuple[int, int]] = set()
    give_up = time.monotonic() + deadline_s
    pause_s = 0.002
    while left := [entry for entry in find() if entry.state != "Z"]:
        if time.monotonic() >= give_up:
            return len(killed), tuple(entry.pid for entry in left)
        for entry in left:
            if send_signal(entry, signal.SIGKILL):
                killed.add((entry.pid, entry.start_ticks))
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)
    return len(killed), ()
