"""How far a rank is: the rank writes it into a small file, and its guard looks at that file.

No round trip and no thread: a report is one write of a kilobyte, and the guard sees it from
outside, also when the rank is blocked in native code or holds its interpreter's lock. Standard
library only, because the guard imports it and ranks pay for the import.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import os
import struct
import threading
import time
import warnings
import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

VARIABLE = "RAILWEAVE_PROGRESS"
"""Environment variable of every rank: where it reports to. Set by its guard."""
KEPT = 32
"""How many of the last reports the file holds."""
_MAGIC = b"RWP1"
# Magic; reports; last and longest time between two; last loss; losses in a row that were no finite
# numbers, the step of the first of them and its wall-clock time; how many entries follow.
_HEAD = struct.Struct("<4sQdddQqdI")
_ENTRY = struct.Struct("<qdd")
_CHECK = struct.Struct("<I")
_READS = 3


@dataclass(frozen=True)
class Entry:
    """One report. clock_s: the rank's monotonic clock; compute_s: None where not given."""

    step: int
    clock_s: float
    compute_s: float | None


@dataclass(frozen=True)
class Progress:
    """What a rank has reported so far.

    reports: how many; entries: the last of them. longest_s: between any two in a row. loss: the
    last one given. bad_losses: how many in a row, up to the last, were NaN or infinite;
    bad_step, bad_since_s: the step of the first of these and its wall-clock time.
    """

    reports: int
    longest_s: float
    loss: float | None
    bad_losses: int
    bad_step: int
    bad_since_s: float
    entries: tuple[Entry, ...]

    @property
    def step(self) -> int | None:
        """The last step reported."""
        return self.entries[-1].step if self.entries else None

    @property
    def typical_s(self) -> float | None:
        """Median time between reports; None before the fourth."""
        clocks = [entry.clock_s for entry in self.entries]
        gaps = [later - earlier for earlier, later in itertools.pairwise(clocks)]
        return _median(gaps) if len(gaps) >= 3 else None

    def compute_s(self, last: int) -> tuple[float | None, int]:
        """Median compute time of the last so many reports that gave one, and how many did."""
        given = [e.compute_s for e in self.entries if e.compute_s is not None][-last:]
        return (_median(given) if given else None, len(given))


def _median(values: list[float]) -> float:
    # The module `statistics` takes longer to import than all the rest of this one.
    ordered = sorted(values)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-1 - middle]) / 2


def read(path: Path) -> Progress | None:
    """What is in a rank's file; None before its first report or when it cannot be read."""
    for _ in range(_READS):  # a report may be under way
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if not data:
            return None
        found = _unpacked(data)
        if found is not None:
            return found
    return None


def _unpacked(data: bytes) -> Progress | None:
    body = len(data) - _CHECK.size
    if body < _HEAD.size or not data.startswith(_MAGIC):
        return None
    if _CHECK.unpack_from(data, body)[0] != zlib.crc32(data[:body]):
        return None
    _, reports, _, longest_s, loss, bad, bad_step, bad_since_s, count = _HEAD.unpack_from(data)
    if count > reports or _HEAD.size + KEPT * _ENTRY.size != body or count > KEPT:
        return None
    entries = tuple(
        Entry(step, clock_s, None if math.isnan(compute_s) else compute_s)
        for step, clock_s, compute_s in (
            _ENTRY.unpack_from(data, _HEAD.size + index * _ENTRY.size) for index in range(count)
        )
    )
    last_loss = loss if math.isfinite(loss) else None
    return Progress(reports, longest_s, last_loss, bad, bad_step, bad_since_s, entries)


class Reporter:
    """The rank's end of its file. Safe to call from many threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file that the guard has made. Raises OSError."""
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags)
        self._mutex = threading.Lock()
        self._entries: deque[tuple[int, float, float]] = deque(maxlen=KEPT)
        self._reports = 0
        self._longest_s = 0.0
        self._loss = math.nan
        self._bad = 0
        self._bad_step = -1
        self._bad_since_s = 0.0

    def report(self, step: int, loss: float | None, compute_s: float | None) -> None:
        """Write a report down. Raises OSError."""
        now = time.monotonic()
        with self._mutex:
            gap_s = now - self._entries[-1][1] if self._entries else 0.0
            self._longest_s = max(self._longest_s, gap_s)
            self._entries.append((step, now, math.nan if compute_s is None else compute_s))
            self._reports += 1
            if loss is not None:
                self._note_loss(step, loss)
            head = _HEAD.pack(
                *(_MAGIC, self._reports, gap_s, self._longest_s, self._loss),
                *(self._bad, self._bad_step, self._bad_since_s, len(self._entries)),
            )
            entries = b"".join(_ENTRY.pack(*entry) for entry in self._entries)
            body = (head + entries).ljust(_HEAD.size + KEPT * _ENTRY.size, b"\0")
            os.pwrite(self._descriptor, body + _CHECK.pack(zlib.crc32(body)), 0)

    def _note_loss(self, step: int, loss: float) -> None:
        self._loss = loss
        if math.isfinite(loss):
            self._bad = 0
            return
        if not self._bad:
            self._bad_step, self._bad_since_s = step, time.time()
        self._bad += 1

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


_reporter: Reporter | None = None
_looked_for = ""


def report(
    step: SupportsIndex,
    loss: SupportsFloat | None = None,
    compute_s: SupportsFloat | None = None,
) -> None:
    """Tell Railweave that this rank has done a step. Costs microseconds; call it in every step.

    step: its number. loss: of this step; a tensor on a device is waited for, so give it only as
    often as it is read anyway. compute_s: seconds that this rank computed in the step, without
    waiting for others; it is what shows a slow rank in a job whose ranks wait for each other.

    Outside of Railweave it does nothing, and a file that cannot be written costs one warning.
    Raises ValueError for a compute_s that is no time, TypeError for a step that is no integer.
    """
    number = operator.index(step)
    seconds = None if compute_s is None else float(compute_s)
    if seconds is not None and not 0 <= seconds < math.inf:
        raise ValueError(f"compute_s is {seconds}; give the seconds computed, 0 or more")
    found = _own_reporter()
    if found is not None:
        try:
            found.report(number, None if loss is None else float(loss), seconds)
        except OSError as error:
            _give_up(error)


def _own_reporter() -> Reporter | None:
    global _reporter, _looked_for
    path = os.environ.get(VARIABLE, "")
    if path != _looked_for:
        _looked_for = path
        if _reporter is not None:
            _reporter.close()
        _reporter = None
        if path:
            try:
                _reporter = Reporter(path)
            except OSError as error:
                _give_up(error)
    return _reporter


def _give_up(error: OSError) -> None:
    global _reporter
    _reporter = None
    warnings.warn(f"steps are not reported to Railweave any more: {error}", stacklevel=3)


def create(path: Path) -> bool:
    """Make the empty file of a rank, for its guard. False where that cannot be done."""
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
        return True
    return False
