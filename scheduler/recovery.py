"""Attempts under way: what their controllers report, and controllers that were lost."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from ..agents.fleet import NAMESPACE
from .controller import find_controller
from .core import Core
from .fault import Fault, FaultKind
from .launcher import Launcher, call_off, hand_over
from .lifecycle import JobEvent, JobState, Outcome
from .link import off_loop, within
from .messages import (
    AttemptPlan,
    Happened,
    Report,
    Standing,
    controller_name,
)
from .nodes import Nodes
from .quarantine import Why, suspects
from .records import JobRecord
from .reservation import release, reservation_name, reservations
from .verdict import Decision, Verdict, broken_attempts, judge

_STANDING_S = 10.0
_EXPLAIN_THE_END = (Decision.JOB_AT_FAULT, Decision.NO_PROGRESS)
_log = logging.getLogger(__name__)


class Recovery:
    """Takes in reports and keeps every job that holds devices in the hands of a controller."""

    def __init__(self, core: Core, nodes: Nodes, launcher: Launcher) -> None:
        self._core = core
        self._nodes = nodes
        self._launcher = launcher
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._background: set[asyncio.Task[None]] = set()
        core.on_final.append(self._end_controller_later)

    async def report(self, report: Report) -> None:
        """Take in what a controller reports; doing it twice is the same as doing it once."""
        async with self._locks[report.job_id]:
            if report.happened is Happened.RUNNING:
                self._core.advance(
                    report.job_id,
                    JobEvent.RUNNING,
                    "every rank is running",
                    attempt=report.attempt,
                    happened_s=report.at_s,
                )
            elif report.happened is Happened.FAULT:
                self._fault(report)
            else:
                # Ray first: the ledger must not call devices free that Ray still keeps.
                await release(reservation_name(report.job_id, report.attempt))
                if report.happened is Happened.SUCCEEDED:
                    taken = self._core.advance(
                        report.job_id,
                        JobEvent.SUCCEED,
                        "every rank ended with exit code 0",
                        attempt=report.attempt,
                        happened_s=report.at_s,
                    )
                    if taken.outcome is Outcome.CHANGED:
                        self._suspect(report.job_id)
                else:
                    self._stopped(report)

    def _suspect(self, job_id: str) -> None:
        """Hold it against nodes where a job broke by itself that has now succeeded elsewhere."""
        attempts = self._core.store.attempts(job_id)
        if len(attempts) > 1:
            last = [str(node) for node, _ in attempts[-1].placement.get("devices", ())]
            for node, message in suspects(broken_attempts(attempts), last).items():
                why = f"{job_id} broke there and succeeded elsewhere: {message}"
                self._nodes.fault(node, Why.SUSPECTED, why, job_id)

    def _fault(self, report: Report) -> None:
        fault = report.fault or Fault(
            kind=FaultKind.PART_STOPPED,
            message="it was stopped by someone else than its controller",
            seen_s=report.at_s,
        )
        self._core.advance(
            report.job_id,
            JobEvent.FAULT,
            fault.message,
            attempt=report.attempt,
            cause=fault.model_dump(mode="json"),
            happened_s=fault.seen_s,
        )

    def _stopped(self, report: Report) -> None:
        core = self._core
        life = core.store.job(report.job_id).life
        # A report is repeated where the daemon was killed, or the store full, before it was done.
        origin = f"attempt {report.attempt} of {report.job_id}"
        if life.attempt == report.attempt:
            for node, why in report.lost.items():
                self._nodes.lost(node, why)
            for node, pids in report.survivors.items():
                shown = ", ".join(map(str, pids))
                why = f"processes {shown} of {report.job_id} cannot be ended"
                self._nodes.fault(node, Why.SURVIVORS, why, report.job_id, origin)
            for node, held in report.held.items():
                why = f"not free after {report.job_id}: {'; '.join(held)}"
                self._nodes.fault(node, Why.SURVIVORS, why, report.job_id, origin)
            fault = report.fault
            told = {*report.lost, *report.survivors, *report.held}
            known = fault is not None and fault.kind is FaultKind.DEVICE_ERROR  # from its agent
            if fault and fault.node_at_fault and fault.node not in told and not known:
                self._nodes.fault(fault.node, Why.FAULT, fault.message, report.job_id, origin)
        if life.state in (JobState.LAUNCHING, JobState.RUNNING):
            self._fault(report)
        verdict = self._judge(report)
        if verdict is not None and not self._gave_up(report, verdict):
            self._note_verdict(report, verdict)
        message = f"stopped on every node, {report.killed} processes were ended"
        if report.freed:
            count = sum(map(len, report.freed.values()))
            message += f", {count} pieces of shared memory were removed"
        if report.lost:
            message += f"; lost with their ranks: {', '.join(sorted(report.lost))}"
        taken = core.advance(
            report.job_id,
            JobEvent.STOPPED,
            message,
            attempt=report.attempt,
            cause=report.fault.model_dump(mode="json") if report.fault else None,
            data={
                "killed": report.killed,
                "lost": report.lost,
                "survivors": report.survivors,
                "held": report.held,
                "freed": report.freed,
                "kept": report.kept,
            },
            happened_s=report.at_s,
            reason=verdict.why if verdict and verdict.decision in _EXPLAIN_THE_END else "",
        )
        if verdict is not None and verdict.pause_s and taken.outcome is Outcome.CHANGED:
            asyncio.get_running_loop().call_later(verdict.pause_s, core.changed)

    def _judge(self, report: Report) -> Verdict | None:
        """The verdict on a broken attempt; None where it is over already or ends on request."""
        store = self._core.store
        life = store.job(report.job_id).life
        if report.fault is None or life.attempt != report.attempt or not life.holds_devices:
            return None
        if life.ending is JobState.CANCELLED:
            return None
        attempts = store.attempts(report.job_id)
        # The store has the first sign; the report tells the root cause.
        attempts[-1] = replace(attempts[-1], cause=report.fault.model_dump(mode="json"))
        limits = self._core.settings.limits(life.max_restarts)
        return judge(broken_attempts(attempts), limits)

    def _gave_up(self, report: Report, verdict: Verdict) -> bool:
        """Whether the verdict ended the job, which is written down before its devices are free."""
        if not verdict.decision.final:
            return False
        taken = self._core.advance(
            report.job_id,
            JobEvent.GIVE_UP,
            verdict.why,
            attempt=report.attempt,
            data=verdict.to_data(),
        )
        return taken.outcome is Outcome.CHANGED

    def _note_verdict(self, report: Report, verdict: Verdict) -> None:
        """Write a verdict down before the attempt is over, once: a daemon may be killed between."""
        told = self._core.store.events(report.job_id)
        if not any(e.kind == "verdict" and e.attempt == report.attempt for e in told):
            data = verdict.to_data()
            self._core.note(
                "verdict", verdict.why, job_id=report.job_id, attempt=report.attempt, data=data
            )

    async def stop(self, job_id: str) -> None:
        """Tell a job's controller that the attempt is to end; `tend` repeats it if that fails."""
        record = self._core.store.job(job_id)
        if record.life.holds_devices and job_id not in self._launcher.under_way:
            await self._tend(record)

    async def tend(self) -> None:
        """See that every attempt under way is in the hands of its controller.

        Raises FencedOff where this daemon has no say any more.
        """
        self._core.store.refuse_fenced()
        for record in self._core.store.holding():
            if record.job_id not in self._launcher.under_way:
                try:
                    await self._tend(record)
                except (RayError, TimeoutError, ValueError) as error:
                    _log.warning("controller of %s out of reach: %s", record.job_id, error)

    async def _tend(self, record: JobRecord) -> None:
        job_id, life = record.job_id, record.life
        attempt = self._core.store.attempt(job_id, life.attempt)
        if attempt is None or attempt.plan is None:
            await call_off(self._core, job_id, life.attempt, "the daemon ended before the launch")
            return
        stopping = life.state in (JobState.STOPPING, JobState.RECOVERING)
        standing = await self._standing(job_id)
        if standing.attempt == life.attempt and not stopping:
            return
        if self._core.store.job(job_id).life != life:
            return  # it moved on meanwhile; no controller must be made for an attempt that is over
        await hand_over(
            job_id,
            AttemptPlan.model_validate(attempt.plan),
            started=attempt.running_s is not None,
            stopping=stopping,
        )
        if standing.attempt != life.attempt:
            message = "its controller takes the attempt up again"
            self._core.note("adopted", message, job_id=job_id, attempt=life.attempt)

    async def _standing(self, job_id: str) -> Standing:
        try:
            controller = await off_loop(find_controller, job_id)
        except ValueError:
            return Standing(attempt=0)
        text = await within(controller.standing.remote(), _STANDING_S)
        return Standing.model_validate_json(text)

    async def tell_node_lost(self, node_id: str, why: str, kind: FaultKind) -> None:
        """Tell every controller that a node is gone; each knows whether that concerns it."""
        await self._tell_all("node_lost", node_id, why, kind.value)

    async def tell_device_broken(self, node_id: str, device: int, message: str) -> None:
        """Tell every controller that a device is broken; each knows whether that concerns it."""
        await self._tell_all("device_broken", node_id, device, message)

    async def _tell_all(self, method: str, *arguments: Any) -> None:
        for record in self._core.store.holding():
            try:
                controller = await off_loop(find_controller, record.job_id)
                await within(getattr(controller, method).remote(*arguments), _STANDING_S)
            except (RayError, TimeoutError, ValueError) as error:
                _log.warning("%s not told of %s: %s", record.job_id, method, error)

    async def sweep(self) -> None:
        """Remove reservations and controllers that belong to no attempt under way."""
        # What Ray has is asked first: an attempt is in the store before anything of it is in Ray,
        # so nothing that belongs to a newer one can be taken for a leftover.
        reserved = await reservations()
        actors = await off_loop(lambda: ray.util.list_named_actors(all_namespaces=True))
        holding = self._core.store.holding()
        kept = {reservation_name(record.job_id, record.life.attempt) for record in holding}
        alive = {record.job_id for record in (*holding, *self._core.store.waiting())}
        needed = {controller_name(job_id) for job_id in alive}
        for name in set(reserved) - kept:
            _log.warning("reservation %s belongs to no attempt: removed", name)
            await release(name)
        for actor in actors:
            name = actor["name"]
            ours = actor["namespace"] == NAMESPACE and name.startswith(controller_name(""))
            if ours and name not in needed:
                await _end(name)

    def _end_controller_later(self, job_id: str) -> None:
        self._locks.pop(job_id, None)
        task = asyncio.create_task(_end(controller_name(job_id)))
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def _end(name: str) -> None:
    """End a controller for good; `sweep` repeats it where that fails."""
    try:
        actor = await off_loop(ray.get_actor, name, NAMESPACE)
        await off_loop(lambda: ray.kill(actor, no_restart=True))
    except ValueError:
        return
    except (RayError, TimeoutError) as error:
        _log.warning("%s not ended yet: %s", name, error)
