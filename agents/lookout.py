"""What a guard sees of its ranks from outside: steps, output, CPU time, state. Linux.

Standard library only, because the guard imports it. The clock is the caller's.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import memory
from .logs import last_lines, log_path
from .processes import below, table
from .progress import Progress, read

LOOK_S = 1.0
"""How often a guard looks at its ranks."""
COMPUTE_STEPS = 20
"""Over how many of the last steps compute times are compared."""
STOPPED_S = 4.0
"""How long a rank must have been stopped; tools that look into a process stop it for less."""
NAN_LOSS_VARIABLE = "RAILWEAVE_NAN_LOSS_LIMIT"
"""Environment variable of the ranks: how many losses in a row break an attempt; 0: none."""
NAN_LOSS_LIMIT = 10
_STOPPED_LOOKS = 4
# A large process takes a while to die after the kernel has counted it.
_OOM_LOOKS = 10
_TREE_S = 5.0
_LINES_AFTER_S = 5.0
_BUSY = 0.02
_IO_BYTES_PER_S = 1e6
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def progress_path(folder: Path, rank: int) -> Path:
    """Where a rank reports its steps, in its attempt's folder."""
    return folder / f"rank-{rank}.progress"


@dataclass
class _Rank:
    """One rank as it was last seen; times are the caller's clock in seconds.

    moved_at: when anything showed that it lives: a report, output, or files read or written;
    before its first report also CPU time of it or of what it has started.
    """

    pid: int
    first_at: float
    moved_at: float
    reported_at: float
    progress: Progress | None = None
    state: str = ""
    log_bytes: int = 0
    io_bytes: int = 0
    io_at: float = 0.0
    cpu_s: float = 0.0
    cpu_share: float | None = None
    own_at: float = 0.0
    tree_cpu_s: dict[int, float] = field(default_factory=dict)
    tree_at: float = 0.0
    stopped_looks: int = 0
    stopped_at: float = 0.0
    stopped_since_s: float = 0.0
    found: set[str] = field(default_factory=set)
    resident_bytes: int = 0
    cgroup: Path | None = None
    kills: deque[int | None] = field(default_factory=lambda: deque(maxlen=_OOM_LOOKS))


class Lookout:
    """The ranks of one attempt on one node.

    folder: the attempt's, with its logs and what ranks report. bad_losses: how many losses in a
    row that are no finite numbers are a finding; 0: none.
    """

    def __init__(self, folder: Path, nan_loss_limit: int = NAN_LOSS_LIMIT) -> None:
        self._folder = folder
        self._nan_loss_limit = nan_loss_limit
        self._ranks: dict[int, _Rank] = {}
        self._kills: deque[int | None] = deque([memory.kills_on_machine()], maxlen=_OOM_LOOKS)

    def look(self, pids: Mapping[int, int], now: float) -> None:
        """See how the ranks are. pids: running ranks by pid."""
        running = {rank: pid for pid, rank in pids.items()}
        for rank in set(self._ranks) - set(running):
            del self._ranks[rank]
        for rank, pid in running.items():
            seen = self._ranks.get(rank)
            if seen is None:
                seen = self._ranks[rank] = _Rank(pid, now, now, now, own_at=now, tree_at=now)
            self._look_at(rank, seen, now)
        self._look_below(now)
        self._kills.append(memory.kills_on_machine())

    def _look_at(self, rank: int, seen: _Rank, now: float) -> None:
        found = read(progress_path(self._folder, rank))
        if found is not None and (seen.progress is None or found.reports != seen.progress.reports):
            seen.progress = found
            seen.reported_at = seen.moved_at = now
        size = _size(log_path(self._folder, rank))
        if size != seen.log_bytes:
            seen.log_bytes = size
            seen.moved_at = now
        io_bytes = _io_bytes(seen.pid)
        if io_bytes - seen.io_bytes >= _IO_BYTES_PER_S * max(now - seen.io_at, LOOK_S):
            seen.moved_at = now
        seen.io_bytes, seen.io_at = io_bytes, now
        own = _state_and_cpu(seen.pid)
        if own is not None:
            seen.state, cpu_s = own
            if now - seen.own_at >= LOOK_S / 2:
                seen.cpu_share = max(0.0, cpu_s - seen.cpu_s) / (now - seen.own_at)
                seen.cpu_s, seen.own_at = cpu_s, now
                if seen.progress is None and seen.cpu_share >= _BUSY:
                    seen.moved_at = now
            self._note_stop(seen, now)
        seen.resident_bytes = memory.resident_bytes(seen.pid) or seen.resident_bytes
        cgroup = memory.memory_cgroup(seen.pid)
        if cgroup is not None and cgroup != seen.cgroup:
            seen.cgroup = cgroup
            seen.kills.clear()
        if seen.cgroup is not None:
            seen.kills.append(memory.kills_in(seen.cgroup))

    def _note_stop(self, seen: _Rank, now: float) -> None:
        # Looks are counted too: a guard that was itself stopped must not take that for the rank's.
        if seen.state != "T":
            seen.stopped_looks = 0
            return
        if not seen.stopped_looks:
            seen.stopped_at, seen.stopped_since_s = now, time.time()
        seen.stopped_looks += 1

    def _look_below(self, now: float) -> None:
        """CPU time of ranks that report nothing, and of all they have started."""
        due = [
            seen
            for seen in self._ranks.values()
            if seen.progress is None and now - max(seen.tree_at, seen.moved_at) >= _TREE_S
        ]
        if not due:
            return
        processes = table()
        for seen in due:
            pids = [seen.pid, *(entry.pid for entry in below([seen.pid], processes))]
            cpu_s = _cpu_of(pids)
            known = seen.tree_cpu_s
            used_s = sum(cpu_s[pid] - known.get(pid, 0.0) for pid in cpu_s)
            if not known or used_s >= _BUSY * (now - seen.tree_at):
                seen.moved_at = now
            seen.tree_cpu_s, seen.tree_at = cpu_s, now

    def findings(self, now: float) -> list[dict[str, Any]]:
        """What is wrong with running ranks, the fields of Finding; each thing is told once."""
        found = []
        for rank, seen in sorted(self._ranks.items()):
            told = seen.progress
            if told is not None and 0 < self._nan_loss_limit <= told.bad_losses:
                what = f"has had no finite loss for {told.bad_losses} steps in a row"
                found += self._finding(
                    "nan_loss", rank, seen, what, told.bad_since_s, told.bad_step
                )
            stopped_s = now - seen.stopped_at
            if seen.stopped_looks >= _STOPPED_LOOKS and stopped_s >= STOPPED_S:
                what = (
                    f"has been stopped for {stopped_s:.0f} s: its process {seen.pid} is in state T"
                )
                step = told.step if told else None
                found += self._finding("stopped", rank, seen, what, seen.stopped_since_s, step)
        return found

    def out_of_memory(self, rank: int) -> list[dict[str, Any]]:
        """The finding about a rank that was killed, if it was for want of memory.

        Where its cgroup counts, that decides; else a kill anywhere on the machine.
        """
        seen = self._ranks.get(rank)
        own = memory.kills_in(seen.cgroup) if seen and seen.cgroup else None
        if seen is not None and seen.cgroup is not None and own is not None:
            killed, where = own - (seen.kills[0] or 0), "in its cgroup"
            limit = memory.limit_bytes(seen.cgroup)
        else:
            now, before = memory.kills_on_machine(), self._kills[0]
            killed = 0 if now is None or before is None else now - before
            where, limit = "on this machine", None
        if killed <= 0:
            return []
        what = f"was killed for want of memory: the kernel killed {killed} {where}"
        if seen is None:
            seen = _Rank(0, 0.0, 0.0, 0.0)
        if seen.resident_bytes:
            what += f", its process held {seen.resident_bytes / 2**30:.2f} GiB when last seen"
        if limit is not None:
            what += f", the limit is {limit / 2**30:.2f} GiB"
        last = read(progress_path(self._folder, rank))
        step = last.step if last else None
        return self._finding("out_of_memory", rank, seen, what, time.time(), step)

    def _finding(
        self, kind: str, rank: int, seen: _Rank, what: str, since_s: float, step: int | None
    ) -> list[dict[str, Any]]:
        if kind in seen.found:
            return []
        seen.found.add(kind)
        return [
            {
                "kind": kind,
                "rank": rank,
                "what": what,
                "since_s": since_s,
                "step": step,
                "last_lines": last_lines(log_path(self._folder, rank)),
            }
        ]

    def vitals(self, now: float) -> list[dict[str, Any]]:
        """The fields of Vitals of each running rank, as plain values."""
        return [self._vitals(rank, seen, now) for rank, seen in sorted(self._ranks.items())]

    def _vitals(self, rank: int, seen: _Rank, now: float) -> dict[str, Any]:
        age_s = now - seen.reported_at if seen.progress else None
        quiet_s = now - seen.moved_at
        still = max(quiet_s, age_s or 0.0) >= _LINES_AFTER_S
        return {
            "rank": rank,
            "state": seen.state,
            "quiet_s": quiet_s,
            "cpu_share": seen.cpu_share,
            "report_age_s": age_s,
            "last_lines": last_lines(log_path(self._folder, rank)) if still else [],
            **_told(seen.progress),
        }


def vitals_at_end(folder: Path, rank: int) -> dict[str, Any]:
    """What a rank that has exited had reported: the fields of Vitals that outlive it."""
    return {"rank": rank, "state": "X", **_told(read(progress_path(folder, rank)))}


def _told(told: Progress | None) -> dict[str, Any]:
    if told is None:
        return {}
    compute_s, compute_steps = told.compute_s(COMPUTE_STEPS)
    return {
        "reports": told.reports,
        "step": told.step,
        "typical_s": told.typical_s,
        "longest_s": told.longest_s,
        "compute_s": compute_s,
        "compute_steps": compute_steps,
        "loss": told.loss,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _io_bytes(pid: int) -> int:
    """Bytes that a process has read and written by system calls; 0 where it cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


def _state_and_cpu(pid: int) -> tuple[str, float] | None:
    """A process's state letter, and its CPU seconds with all of its threads."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0].decode(), (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _cpu_of(pids: Iterable[int]) -> dict[int, float]:
    found = {pid: _state_and_cpu(pid) for pid in pids}
    return {pid: seen[1] for pid, seen in found.items() if seen is not None}
