"""The journal of one attempt on one node: what happened, one JSON line a change, synced.

Standard library only, because the guard imports it. Whoever wrote the journal holds a lock on it
for life, so the lock tells whether the guard is alive without trusting a pid.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

Status = dict[str, Any]
Record = dict[str, Any]
FINAL_PHASES = ("ended", "stopped")


def empty(job_id: str, attempt: int, node: str) -> Status:
    """A node status (the fields of NodeStatus) before anything has happened."""
    return {
        "job_id": job_id,
        "attempt": attempt,
        "node": node,
        "phase": "unknown",
        "seq": 0,
        "ranks": [],
        "reason": "",
        "findings": [],
    }


def apply(status: Status, record: Record) -> None:
    """Move `status` on by one record; the only place where a status changes."""
    status["seq"] = record["seq"]
    if "phase" in record:
        status["phase"] = record["phase"]
        status["reason"] = record.get("reason", "")
    if "ranks" in record:
        status["ranks"] = [dict(rank) for rank in record["ranks"]]
    for change in record.get("changes", ()):
        for rank in status["ranks"]:
            if rank["rank"] == change["rank"]:
                rank.update(change)
    for what in ("freed", "kept"):
        if what in record:
            status[what] = list(record[what])
    # Beside the ranks, where agents of earlier versions look past it.
    status["findings"] = [*status.get("findings", ()), *record.get("findings", ())]


def read(path: Path) -> list[Record]:
    """The journal's records. A last line that a crash cut short counts as not written."""
    records = []
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("seq"), int):
            records.append(record)
    return records


def replay(status: Status, records: list[Record]) -> Status:
    """`status` after all of `records`."""
    for record in records:
        apply(status, record)
    return status


class Journal:
    """The writing end: locked for as long as this process lives or until `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._unwritten = b""

    @classmethod
    def create(cls, path: Path, first: Record) -> Journal:
        """A new journal, locked and holding `first` before anyone can see it.

        Raises FileExistsError when the attempt has one already: only one guard can win.
        """
        hidden = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            journal = cls(path, descriptor)
            journal.append(first)
            journal.flush()
            os.link(hidden, path)
            sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        finally:
            hidden.unlink()
        return journal

    @classmethod
    def take_over(cls, path: Path) -> Journal | None:
        """The journal of a guard that has died; None while its guard is alive."""
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        journal = cls(path, descriptor)
        journal._unwritten = b"\n"  # ends a line that the dead guard may have left unfinished
        return journal

    def append(self, record: Record) -> None:
        """Add a record; it is on disk after `flush`."""
        record.setdefault("time_s", time.time())
        self._unwritten += json.dumps(record, separators=(",", ":")).encode() + b"\n"

    def flush(self) -> None:
        """Write and sync what was appended. Raises OSError (a full disk); may be tried again."""
        while self._unwritten:
            written = os.write(self._descriptor, self._unwritten)
            self._unwritten = self._unwritten[written:]
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Let go of the lock."""
        os.close(self._descriptor)


def sync_folder(folder: Path) -> None:
    """Make names that were created or removed in `folder` survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
