"""Jobs that may run with fewer devices: when they shrink, and when they grow again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

from ..agents.checkpoint_pace import mtbf_s
from .core import Core
from .decision import Choice, Decision, expected_back_s, with_devices_back, without_devices
from .job import Job
from .ledger import Supply
from .lifecycle import JobEvent, JobState, Outcome
from .nodes import Nodes
from .records import AttemptRecord, JobRecord

# From a launch until all ranks run, until the job has shown how long that takes; and from there to
# its first step: imports, rendezvous, loading.
_LAUNCH_S = 10.0
_FIRST_STEP_S = 20.0
_MOST_EVENTS = 100_000


class Elastic:
    """Decides sizes; every decision that changes is an event of the job with its numbers.

    stop: ends the attempt of a job that is to grow. fits: whether it has a place then.
    """

    def __init__(
        self,
        core: Core,
        nodes: Nodes,
        stop: Callable[[str], Awaitable[None]],
        fits: Callable[[JobRecord], Awaitable[bool]],
    ) -> None:
        self._core = core
        self._nodes = nodes
        self._stop = stop
        self._fits = fits
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._told: dict[str, tuple[int, Choice, int]] = {}
        self._grow_since: dict[str, tuple[int, int, float]] = {}
        core.on_final.append(self._forget)

    def sized(self, job: JobRecord, supply: Supply) -> JobRecord:
        """A waiting job as it is to be placed now: with fewer devices where that is decided."""
        free = sum(supply.free.values())
        refused = self._core.refused_size(job.job_id)
        fits = free >= job.devices and refused is None
        if job.state is not JobState.RECOVERING or fits:
            return job
        sizes = self._sizes_of(job)
        if not sizes:
            return job
        attempts = self._core.store.attempts(job.job_id)
        decided = without_devices(
            job.devices,
            sizes,
            free,
            refused=refused,
            back_s=self._back_s(attempts),
            start_s=_start_s(attempts),
            lost_steps_s=self._lost_steps_s(job.job_id),
        )
        self._tell(job, decided)
        if decided.chosen.choice is Choice.SHRINK:
            return replace(job, devices=decided.chosen.devices)
        return job

    async def tend(self) -> None:
        """Let jobs grow again that run with fewer devices than they want."""
        small = [job for job in self._core.store.jobs([JobState.RUNNING]) if self._is_small(job)]
        if not small or self._core.store.waiting():
            return  # who waits has nothing at all yet
        for job in small:
            await self._tend(job)

    async def _tend(self, job: JobRecord) -> None:
        core, job_id, number = self._core, job.job_id, job.life.attempt
        attempts = core.store.attempts(job_id)
        now = len(attempts[-1].placement["devices"])
        supply = self._nodes.ledger().supply()
        if sum(supply.free.values()) + now < job.devices:
            self._grow_since.pop(job_id, None)
            return
        decided = with_devices_back(
            job.devices,
            now,
            horizon_s=self._horizon_s(job, attempts),
            start_s=_start_s(attempts),
            lost_steps_s=0.0,  # it is done after a checkpoint
        )
        self._tell(job, decided)
        if decided.chosen.choice is not Choice.GROW:
            return
        last = self._last_checkpoint(job_id, number)
        since = self._grow_since.setdefault(job_id, (number, last, core.tick_s()))
        waited_s = core.tick_s() - since[2]
        if since[0] == number and last <= since[1] and waited_s < core.settings.grow_wait_s:
            return
        if not await self._fits(job):
            return
        why = f"grows from {now} to {job.devices} devices"
        data = decided.to_data() | {"waited_s": round(waited_s, 1)}
        self._grow_since.pop(job_id, None)
        taken = core.advance(job_id, JobEvent.RESIZE, why, attempt=number, data=data)
        if taken.outcome is Outcome.CHANGED:
            await self._stop(job_id)

    def _is_small(self, job: JobRecord) -> bool:
        if not self._sizes_of(job):
            return False
        attempt = self._core.store.attempt(job.job_id, job.life.attempt)
        return attempt is not None and len(attempt.placement["devices"]) < job.devices

    def _sizes_of(self, job: JobRecord) -> tuple[int, ...]:
        """The numbers of devices below its own that a job can run with."""
        if job.job_id not in self._sizes:
            spec = self._core.store.spec(job.job_id)
            # Most jobs are none of these, and large ones take long to read.
            may = "min_data_parallel" in spec
            self._sizes[job.job_id] = tuple(Job.parse(spec).smaller_sizes()) if may else ()
        return self._sizes[job.job_id]

    def _tell(self, job: JobRecord, decided: Decision) -> None:
        told = (job.life.attempt, decided.chosen.choice, decided.chosen.devices)
        if self._told.get(job.job_id) != told:
            self._told[job.job_id] = told
            self._core.note(
                "decision",
                str(decided),
                job_id=job.job_id,
                attempt=job.life.attempt,
                data=decided.to_data(),
            )

    def _back_s(self, attempts: list[AttemptRecord]) -> float:
        """Until when the nodes that the last attempt has lost are expected to be back."""
        core, now_s = self._core, self._core.now_s()
        away = core.store.quarantined()
        used = {str(node) for node, _ in attempts[-1].placement["devices"]}
        ends = []
        for node in used & away.keys():
            found = away[node]
            if found.until_s is not None:
                ends.append(max(0.0, found.until_s - now_s))
            else:
                away_s = max(0.0, now_s - found.since_s)
                unknown_s = core.settings.return_s
                ends.append(expected_back_s(self._absences_s(), away_s, unknown_s))
        return max(ends, default=core.settings.return_s)

    def _absences_s(self) -> list[float]:
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

    def _lost_steps_s(self, job_id: str) -> float:
        """Half of the time between two checkpoints: what a stop at any moment costs."""
        times = [e.time_s for e in self._core.store.events(job_id) if e.kind == "checkpoint"]
        gaps = [b - a for a, b in pairwise(times) if b > a]
        return sorted(gaps)[len(gaps) // 2] / 2 if gaps else 0.0

    def _last_checkpoint(self, job_id: str, number: int) -> int:
        """The event of an attempt's last checkpoint; 0 where there is none."""
        events = self._core.store.events(job_id)
        found = [e.seq for e in events if e.kind == "checkpoint" and e.attempt == number]
        return max(found, default=0)

    def _horizon_s(self, job: JobRecord, attempts: list[AttemptRecord]) -> float:
        spans = [(each.running_s, each.fault_seen_s) for each in attempts]
        run_s = sum(max(0.0, end - start) for start, end in spans if start and end)
        return mtbf_s(job.devices, job.life.faults, run_s)

    def _forget(self, job_id: str) -> None:
        self._sizes.pop(job_id, None)
        self._told.pop(job_id, None)
        self._grow_since.pop(job_id, None)


def _start_s(attempts: list[AttemptRecord]) -> float:
    """How long a launch of this job takes until its first step."""
    spans = [each.running_s - each.started_s for each in attempts if each.running_s]
    return max(spans, default=_LAUNCH_S) + _FIRST_STEP_S
