"""Guards as their runner meets them: asked while they live, cleared up after when they do not."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

from . import journal
from .belongings import Belongings
from .guard import JOURNAL_NAME, MARKER
from .journal import FINAL_PHASES, Journal, Status
from .logs import last_lines, log_path
from .processes import Process, below, end_all, having, table
from .spec import Spec

SWEEP_S = 10.0
"""How long the processes of an attempt get to go when they are killed."""


def ask_guard(folder: Path, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
    """The guard's answer; None when there is no guard or it does not answer in time."""
    spec = Spec.read(folder)
    if spec is None:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(spec.socket)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def close_unstarted(folder: Path) -> None:
    """Take the journal's place, so that a guard which is only now starting gives up."""
    record = {"seq": 1, "phase": "stopped", "reason": "stopped before its guard was up"}
    with contextlib.suppress(FileExistsError):
        Journal.create(folder / JOURNAL_NAME, record).close()


def close_if_dead(folder: Path) -> tuple[int, tuple[int, ...]]:
    """End what a dead guard left behind and close its journal; nothing while it lives.

    Returns how many processes were killed and which would not go.
    """
    taken = Journal.take_over(folder / JOURNAL_NAME)
    spec = Spec.read(folder)
    if taken is None or spec is None:
        return 0, ()
    try:
        status = journal.replay(journal.empty("", 0, ""), journal.read(folder / JOURNAL_NAME))
        if status["phase"] in FINAL_PHASES:
            return 0, ()
        belongings = Belongings.load(folder)
        killed, survivors = end_all(lambda: _left(spec.marker, belongings), SWEEP_S)
        if not survivors:
            freed, kept = belongings.remove()
            taken.append({**_end_of_dead(status, folder), "freed": freed, "kept": kept})
            taken.flush()
            Path(spec.socket).unlink(missing_ok=True)
        return killed, survivors
    finally:
        taken.close()


def _end_of_dead(status: Status, folder: Path) -> journal.Record:
    """The last record of an attempt whose guard cannot write it any more."""
    changes = [
        {
            "rank": rank["rank"],
            "exited_s": time.time(),
            "signal": int(signal.SIGKILL),
            "error": "ended together with its guard, which died",
            "last_lines": last_lines(log_path(folder, rank["rank"])),
        }
        for rank in status["ranks"]
        if not rank.get("error") and rank.get("exited_s") is None
    ]
    reason = "its guard died; what was left of it was ended"
    return {"seq": status["seq"] + 1, "changes": changes, "phase": "stopped", "reason": reason}


def _left(marker: str, belongings: Belongings) -> list[Process]:
    """The processes of an attempt whose guard is gone, and everything below them.

    Most carry its marker; those that have cleared their environment are known from before.
    """
    processes = table()
    carriers = [*having(MARKER, marker, processes.values()), *belongings.alive()]
    found = {entry.pid: entry for entry in carriers}
    found |= {entry.pid: entry for entry in below(found, processes)}
    return list(found.values())
