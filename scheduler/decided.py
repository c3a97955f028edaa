"""Decisions on how a job goes on, written down with their numbers when they change."""

from __future__ import annotations

from typing import Any

from .core import Core
from .decision import Choice, Decision
from .records import JobRecord


class Decided:
    """What was decided last for each job; used on the daemon's event loop only."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._last: dict[str, tuple[int, Choice, int]] = {}
        core.on_final.append(self._forget)

    def tell(self, job: JobRecord, decided: Decision, **more: Any) -> None:
        """Make an event `decision` of a decision that differs from the last one of the attempt."""
        chosen = decided.chosen
        told = (job.life.attempt, chosen.choice, chosen.devices)
        if self._last.get(job.job_id) != told:
            self._last[job.job_id] = told
            self._core.note(
                "decision",
                str(decided),
                job_id=job.job_id,
                attempt=job.life.attempt,
                data={**decided.to_data(), **more},
            )

    def _forget(self, job_id: str) -> None:
        self._last.pop(job_id, None)
