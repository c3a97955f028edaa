"""Jobs that may run with fewer devices: when they shrink, and when they grow again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from .core import Core
from .decided import Decided
from .decision import Choice, with_devices_back, without_devices
from .job import Job
from .ledger import Supply
from .lifecycle import JobEvent, JobState, Outcome
from .nodes import Nodes
from .outlook import Outlook, start_s
from .records import AttemptRecord, JobRecord


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
        self._outlook = Outlook(core)
        self._nodes = nodes
        self._stop = stop
        self._fits = fits
        self._sizes: dict[str, tuple[int, ...]] = {}
        self._decided = Decided(core)
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
            back_s=self._outlook.back_s(_nodes_of(attempts)),
            start_s=start_s(attempts),
            lost_steps_s=self._outlook.lost_steps_s(job.job_id),
        )
        self._decided.tell(job, decided)
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
            horizon_s=self._outlook.horizon_s(job, attempts),
            start_s=start_s(attempts),
            lost_steps_s=0.0,  # it is done after a checkpoint
        )
        self._decided.tell(job, decided)
        if decided.chosen.choice is not Choice.GROW:
            return
        last = self._outlook.last_checkpoint(job_id, number)
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

    def _forget(self, job_id: str) -> None:
        self._sizes.pop(job_id, None)
        self._grow_since.pop(job_id, None)


def _nodes_of(attempts: Sequence[AttemptRecord]) -> set[str]:
    return {str(node) for node, _ in attempts[-1].placement["devices"]}
