"""Brings a schedule's faults about on a running cluster, and mends all of it in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import zip_longest

from ray.exceptions import RayError

from ...agents.attempt import Refused
from ..client import Client, JobHandle
from ..connection import CannotConnect
from ..lifecycle import JobState
from .acts import Acts, Machines, Network
from .evidence import Done
from .kinds import FACTS, Where
from .mending import LOOK_S, Mends
from .reach import OutOfReach, Reach, at_step
from .schedule import Injection, Schedule

PATIENCE_S = 60.0
"""For how long a fault that a node refuses is tried again."""


class Driver:
    """Brings faults about, each job's in their order, the jobs' side by side.

    jobs: the ids of the jobs that the schedule names. machines, network: needed for kinds of
    Where.NODE and Where.NETWORK. told: called with each fault that was brought about or given up.
    Use with `with`: at the end everything is mended, and `unmended` tells why something is not.
    """

    def __init__(
        self,
        client: Client,
        schedule: Schedule,
        jobs: Mapping[str, str],
        *,
        machines: Machines | None = None,
        network: Network | None = None,
        told: Callable[[Done], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._schedule = schedule
        self._jobs = dict(jobs)
        self._reach = Reach(client)
        self._mends = Mends(self._reach)
        self._acts = Acts(client, self._reach, self._mends, machines, network)
        self._told = told
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._began = 0.0
        self.done: list[Done] = []

    def refusals(self) -> dict[int, str]:
        """Faults that cannot be brought about here, by their place in the schedule, and why."""
        found = {}
        for index, fault in enumerate(self._schedule.faults):
            if fault.job not in self._jobs:
                found[index] = f"there is no job {fault.job!r} that runs"
            elif why := self._acts.refusal(fault.kind):
                found[index] = why
        return found

    def run(self) -> list[Done]:
        """Bring every fault about; returns when each was, or its job is over, or `end` is called.

        What lasts may then last still; leaving the `with` mends it.
        """
        self._began = time.monotonic()
        self._threads = [
            threading.Thread(target=self._run_job, args=(name,), name=f"chaos-{name}")
            for name in self._schedule.jobs
        ]
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        return self.done

    def settle(self, timeout_s: float) -> bool:
        """Wait until what lasts is over or was found, and every job that was hit runs again.

        False where that takes longer than `timeout_s`.
        """
        give_up = time.monotonic() + timeout_s
        while not self._settled():
            if time.monotonic() > give_up:
                return False
            time.sleep(LOOK_S)
        return True

    def _settled(self) -> bool:
        for done in self.done:
            if done.error:
                continue
            record = self._client.job(done.job_id).record
            if record.state.final:
                continue
            if FACTS[done.fault.kind].breaks:
                if record.life.attempt <= done.attempt or record.state is not JobState.RUNNING:
                    return False
            elif time.time() < (done.until_s or 0.0) + LOOK_S:
                return False
        return True

    @property
    def unmended(self) -> list[str]:
        """In the end, why something is not mended."""
        return self._mends.unmended

    def end(self) -> None:
        """Begin no more faults."""
        self._ended.set()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for thread in self._threads:
            thread.join()
        self._mends.close()

    def _run_job(self, name: str) -> None:
        refused = self.refusals()
        faults = [each for each in enumerate(self._schedule.faults) if each[1].job == name]
        for (index, fault), after in zip_longest(faults, faults[1:]):
            if index in refused:
                self._note(Done(fault, self._jobs.get(name, ""), error=refused[index]))
                continue
            try:
                job = self._client.job(self._jobs[name])
                done = self._when_due(job, fault)
            except (CannotConnect, LookupError, RayError) as error:
                self._note(Done(fault, self._jobs[name], error=str(error)))
                continue
            self._note(done)
            if after is not None and not _together(fault, after[1]):
                with suppress(CannotConnect, LookupError, RayError):
                    self._until_broken(job, done)

    def _until_broken(self, job: JobHandle, done: Done) -> None:
        """Give a fault the time to be noticed, before the next one of the same job hides it."""
        give_up = time.monotonic() + PATIENCE_S
        while not done.error and FACTS[done.fault.kind].breaks and time.monotonic() < give_up:
            record = job.record
            over = record.life.attempt != done.attempt or record.state is not JobState.RUNNING
            if over or self._ended.wait(LOOK_S):
                return

    def _note(self, done: Done) -> None:
        with self._mutex:
            self.done.append(done)
        self._told(done)

    def _when_due(self, job: JobHandle, fault: Injection) -> Done:
        """Wait until the fault is due, and bring it about; again where its target has moved."""
        refused: tuple[int, float] | None = None
        why = "the run was ended"
        while not self._ended.wait(LOOK_S):
            if fault.after_s is not None and time.monotonic() < self._began + fault.after_s:
                continue
            if job.state.final:
                return Done(fault, job.id, error="its job was over before")
            attempt = 0
            try:
                aim = self._reach.aim(job, fault.rank)
                attempt = aim.attempt
                # A rehearsed rank waits for the step itself, and so meets it exactly.
                if FACTS[fault.kind].where is Where.INSIDE or at_step(aim, fault.at_step):
                    return self._acts.bring_about(fault, aim)
            except OutOfReach as away:
                why = str(away)
            except Refused as refusal:
                why = str(refusal)
                if refused is None or refused[0] != attempt:
                    refused = (attempt, time.monotonic())
                if time.monotonic() > refused[1] + PATIENCE_S:
                    break
        return Done(fault, job.id, error=why)


def _together(one: Injection, other: Injection) -> bool:
    """Whether two faults of a job are to come at the same moment."""
    return (one.at_step, one.after_s) == (other.at_step, other.after_s)
