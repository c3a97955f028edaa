"""What the daemon reckons with when it decides how a job goes on, from what it has seen so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from ..agents.checkpoint_pace import mtbf_s
from .core import Core
from .decision import expected_back_s
from .records import AttemptRecord, EventRecord, JobRecord

# From a launch until all ranks run, until the job has shown how long that takes; and from there to
# its first step: imports, rendezvous, loading.
_LAUNCH_S = 10.0
_FIRST_STEP_S = 20.0
_MOST_EVENTS = 100_000


class Outlook:
    """Times to come, in seconds, by the store's history."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def back_s(self, nodes: Iterable[str]) -> float:
        """Until when those of these nodes that are out are expected to be back."""
        core, now_s = self._core, self._core.now_s()
        away = core.store.quarantined()
        absences_s = self.absences_s()
        ends = []
        for node in set(nodes) & away.keys():
            found = away[node]
            if found.until_s is not None:
                ends.append(max(0.0, found.until_s - now_s))
            else:
                away_s = max(0.0, now_s - found.since_s)
                ends.append(expected_back_s(absences_s, away_s, core.settings.return_s))
        return max(ends, default=core.settings.return_s)

    def absences_s(self) -> list[float]:
        """How long nodes were out that are used again."""
        since: dict[str, float] = {}
        found = []
        for event in self._core.store.events(None, 0, _MOST_EVENTS):
            node = str(event.data.get("node"))
            if event.kind == "quarantined" and event.data.get("until_s") is None:
                since[node] = event.time_s
            elif event.kind == "released" and node in since:
                found.append(max(0.0, event.time_s - since.pop(node)))
        return found

    def usual_absence_s(self) -> float | None:
        """How long nodes usually were out; None where none has come back yet."""
        absences_s = self.absences_s()
        return sorted(absences_s)[len(absences_s) // 2] if absences_s else None

    def lost_steps_s(self, job_id: str) -> float:
        """Half of the time between two checkpoints: what a stop at any moment costs."""
        times = [event.time_s for event in self._checkpoints(job_id)]
        gaps = [b - a for a, b in pairwise(times) if b > a]
        return median(gaps) / 2 if gaps else 0.0

    def step_s(self, job_id: str) -> float | None:
        """How long a step takes, checkpoints included; None where the job has not shown it."""
        paces = []
        for one, next_one in pairwise(self._checkpoints(job_id)):
            steps = _step(next_one) - _step(one)
            if one.attempt == next_one.attempt and steps > 0:
                paces.append((next_one.time_s - one.time_s) / steps)
        return median(paces) if paces and median(paces) > 0 else None

    def last_checkpoint(self, job_id: str, number: int) -> int:
        """The event of an attempt's last checkpoint; 0 where there is none."""
        found = [each.seq for each in self._checkpoints(job_id) if each.attempt == number]
        return max(found, default=0)

    def horizon_s(self, job: JobRecord, attempts: Sequence[AttemptRecord]) -> float:
        """Until the job's next fault."""
        spans = [(each.running_s, each.fault_seen_s) for each in attempts]
        run_s = sum(max(0.0, end - start) for start, end in spans if start and end)
        return mtbf_s(job.devices, job.life.faults, run_s)

    def _checkpoints(self, job_id: str) -> list[EventRecord]:
        return [each for each in self._core.store.events(job_id) if each.kind == "checkpoint"]


def start_s(attempts: Sequence[AttemptRecord]) -> float:
    """How long a launch of a job takes until its first step."""
    spans = [each.running_s - each.started_s for each in attempts if each.running_s]
    return max(spans, default=_LAUNCH_S) + _FIRST_STEP_S


def _step(event: EventRecord) -> int:
    step = event.data.get("step")
    return step if isinstance(step, int) else 0
