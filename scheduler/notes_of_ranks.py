"""What ranks note, brought into the job's history: each note once, also over a daemon's restart."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ray.exceptions import RayError

from ..agents.notes import KINDS, Note
from .core import Core
from .link import within

_ANSWER_S = 15.0
_MOST_EVENTS = 100_000
_log = logging.getLogger(__name__)


class NotesOfRanks:
    """The notes that were taken so far; what it must remember stands in the events themselves."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._bytes: dict[tuple[str, str, int], int] = {}
        self._lines: dict[tuple[str, str, int], int] = {}
        self._busy: set[str] = set()

    def new(self, node: str, noted: Iterable[tuple[str, int, int]]) -> bool:
        """Whether `take` has something to do."""
        return node not in self._busy and any(
            size_bytes > self._bytes.get((node, job_id, attempt), 0)
            for job_id, attempt, size_bytes in noted
        )

    async def take(self, node: str, actor: Any, noted: Iterable[tuple[str, int, int]]) -> None:
        """Read what a node's ranks have noted since; an agent out of reach is asked again."""
        self._busy.add(node)
        try:
            await self._take(node, actor, noted)
        finally:
            self._busy.discard(node)

    async def _take(self, node: str, actor: Any, noted: Iterable[tuple[str, int, int]]) -> None:
        for job_id, attempt, size_bytes in noted:
            key = (node, job_id, attempt)
            if size_bytes <= self._bytes.get(key, 0):
                continue
            try:
                after = self._taken(key)
                call = actor.read_notes.remote(job_id, attempt, after)
                found: list[Note] = await within(call, _ANSWER_S)
            except LookupError:
                self._bytes[key] = size_bytes  # of a job that this store does not know
                continue
            except (RayError, TimeoutError) as error:
                _log.warning("notes of %s on %s not read yet: %s", job_id, node, error)
                continue
            for note in found:
                data = {**note.data, "node": node, "line": note.index}
                self._core.note(note.kind, note.message, job_id=job_id, attempt=attempt, data=data)
                self._lines[key] = note.index + 1
            self._bytes[key] = size_bytes

    def _taken(self, key: tuple[str, str, int]) -> int:
        """How many lines are in the history. Raises LookupError for an unknown job."""
        if key not in self._lines:
            node, job_id, attempt = key
            self._core.store.job(job_id)
            events = self._core.store.events(job_id, 0, _MOST_EVENTS)
            lines = [
                int(event.data["line"]) + 1
                for event in events
                if event.kind in KINDS
                and event.attempt == attempt
                and event.data.get("node") == node
            ]
            self._lines[key] = max(lines, default=0)
        return self._lines[key]
