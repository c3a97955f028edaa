"""Brings a schedule's faults about on a running cluster, and mends all of it in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Protocol

from ray.exceptions import RayError

from ...agents.attempt import Refused
from ..client import Client, JobHandle
from ..connection import CannotConnect
from ..lifecycle import JobState
from .evidence import Done
from .kinds import DAMAGES, FACTS, Kind, Where
from .reach import Aim, OutOfReach, Reach, at_step
from .schedule import CRASHES, Injection, Schedule

LOOK_S = 0.2
PATIENCE_S = 60.0
"""For how long a fault that a node refuses is tried again."""
_MEND_S = 60.0
_INSIDE = {
    Kind.RANK_EXIT: "exit",
    Kind.RANK_EXCEPTION: "raise",
    Kind.RANK_MEMORY: "memory",
    Kind.RANK_GIL: "gil",
    Kind.RANK_SLOW: "slow",
    Kind.RANK_NAN: "nan",
    Kind.RANK_CLOCK: "clock",
}
_VALUES = {Kind.RANK_EXIT: 13.0, Kind.RANK_SLOW: 10.0, Kind.RANK_CLOCK: 3600.0}
_CLOCK_S = 3600.0
_KILL = 9
_RAYLET_ENDS_S = 5.0


class Machines(Protocol):
    """Who can switch nodes off and on again."""

    def power_off(self, node: str) -> None:
        """End every process of a node at once."""

    def power_on(self, node: str) -> None:
        """Start it again; returns once it is up."""

    def restore(self, node: str) -> bool:
        """Start it again where it has ended by itself; whether it had."""


class Network(Protocol):
    """Who can break the network between nodes and mend it again."""

    def cut(self, kind: Kind, node: str) -> Callable[[], None]:
        """Break the network as `kind` says, around a node; what is returned mends it."""


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
        self._machines = machines
        self._network = network
        self._told = told
        self._mutex = threading.Lock()
        self._machines_mutex = threading.Lock()
        self._mend = ExitStack()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._began = 0.0
        self.done: list[Done] = []
        self.unmended: list[str] = []

    def refusals(self) -> dict[int, str]:
        """Faults that cannot be brought about here, by their place in the schedule, and why."""
        found = {}
        for index, fault in enumerate(self._schedule.faults):
            where = FACTS[fault.kind].where
            if fault.job not in self._jobs:
                found[index] = f"there is no job {fault.job!r} that runs"
            elif where is Where.NODE and self._machines is None:
                found[index] = (
                    "nodes can be switched off and on again only in an embedded cluster; here, "
                    "switch the machine off yourself"
                )
            elif where is Where.NETWORK and self._network is None:
                found[index] = (
                    "a network is broken only where it is emulated; here, pull the cable yourself"
                )
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

    def end(self) -> None:
        """Begin no more faults."""
        self._ended.set()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for thread in self._threads:
            thread.join()
        self._mend.close()

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
                    return self._bring_about(fault, aim)
            except OutOfReach as away:
                why = str(away)
            except Refused as refusal:
                why = str(refusal)
                if refused is None or refused[0] != attempt:
                    refused = (attempt, time.monotonic())
                if time.monotonic() > refused[1] + PATIENCE_S:
                    break
        return Done(fault, job.id, error=why)

    def _bring_about(self, fault: Injection, aim: Aim) -> Done:
        """Do it. Raises Refused, OutOfReach."""
        kind, facts = fault.kind, FACTS[fault.kind]
        done = Done(fault, aim.job_id, aim.attempt, aim.node, time.time(), step=aim.step)
        if facts.where is Where.INSIDE:
            return self._inside(fault, aim, done)
        if facts.where is Where.STORAGE:
            return self._in_storage(fault, aim, done)
        if facts.where is Where.NETWORK:
            return self._in_network(fault, aim, done)
        if kind is Kind.NODE_POWER:
            return self._power(fault, aim, done)
        rank = {"job_id": aim.job_id, "pid": aim.pid}
        for_s = fault.lasts_s
        if kind in (Kind.RANK_KILL, Kind.RANK_SIGNAL):
            number = _KILL if kind is Kind.RANK_KILL else CRASHES[fault.signal or "SIGSEGV"]
            return self._outside(done, aim.node, "signal_rank", **rank, number=number)
        if kind is Kind.RANK_STOP:
            return self._outside(done, aim.node, "stop_rank", **rank, for_s=for_s)
        if kind is Kind.GUARD_KILL:
            return self._outside(done, aim.node, "signal_guard", **rank, number=_KILL)
        if kind is Kind.GUARD_STOP:
            return self._outside(done, aim.node, "stop_guard", **rank, for_s=for_s)
        if kind is Kind.NODE_HANG:
            pids = self._reach.pids_on(aim.node)
            # Ray may take it for dead meanwhile; then its raylet ends as soon as it goes on, so in
            # the end this comes after that.
            self._later((for_s or 0.0) + _RAYLET_ENDS_S, lambda: self._restore(aim.node))
            return self._outside(done, aim.node, "stop_node", ranks=pids, for_s=for_s)
        if kind is Kind.AGENT_CLOCK:
            offset_s = _CLOCK_S if fault.value is None else fault.value
            told = self._outside(done, aim.node, "shift_clock", offset_s=offset_s, for_s=for_s)
            self._mend.callback(self._quietly, aim.node, "unshift_clock")
            return replace(told, until_s=told.at_s + (for_s or 0.0))
        return self._railweaves_own(fault, aim, done)

    def _outside(self, done: Done, node: str, act: str, **arguments: Any) -> Done:
        """Have a node's agent do something, and see to it that it is mended."""
        told = self._reach.break_on(node, act, **arguments)
        return self._held(done, node, told)

    def _held(self, done: Done, node: str, told: Mapping[str, Any]) -> Done:
        held, until_s = told.get("hold"), None
        if held is not None:
            until_s = float(told["at_s"]) + (done.fault.lasts_s or 0.0)
            pid, ticks = held["pid"], held["start_ticks"]
            self._mend.callback(self._mend_on, node, pid, ticks, until_s)
        more = {name: told[name] for name in ("path", "at_byte", "size_bytes") if name in told}
        return replace(done, at_s=float(told["at_s"]), until_s=until_s, detail=more)

    def _inside(self, fault: Injection, aim: Aim, done: Done) -> Done:
        value = fault.value
        if value is None:
            value = fault.lasts_s if fault.kind is Kind.RANK_GIL else _VALUES.get(fault.kind, 0.0)
        order = {
            "do": _INSIDE[fault.kind],
            "at_step": fault.at_step,
            "value": value,
            "text": f"a fault that was asked for ({_word(fault.seed)})",
        }
        told = self._reach.break_on(
            aim.node, "order_rank", job_id=aim.job_id, pid=aim.pid, order=order
        )
        if "at_s" not in told:
            raise OutOfReach(f"rank {aim.rank} of {aim.job_id} has not come to the step yet")
        return replace(done, at_s=float(told["at_s"]), step=int(told["step"]))

    def _in_storage(self, fault: Injection, aim: Aim, done: Done) -> Done:
        place = self._client.job(aim.job_id).checkpoint_place()
        if "://" in place.directory:
            raise Refused(
                f"the checkpoints of {aim.job_id} are at {place.directory}; only those in a folder "
                "are damaged"
            )
        if fault.kind is Kind.DISK_FULL:
            return self._outside(
                done, aim.node, "fill_disk", directory=place.directory, for_s=fault.lasts_s
            )
        part, how = DAMAGES[fault.kind]
        return self._outside(
            done,
            aim.node,
            "damage_checkpoint",
            job_id=aim.job_id,
            pid=aim.pid,
            directory=place.directory,
            part=part,
            how=how,
            seed=fault.seed,
        )

    def _in_network(self, fault: Injection, aim: Aim, done: Done) -> Done:
        assert self._network is not None  # refusals() has seen to that
        at_s, for_s = time.time(), fault.lasts_s or 0.0
        mend = self._network.cut(fault.kind, aim.node)
        self._later(for_s, mend)
        return replace(done, at_s=at_s, until_s=at_s + for_s)

    def _power(self, fault: Injection, aim: Aim, done: Done) -> Done:
        assert self._machines is not None  # refusals() has seen to that
        with self._machines_mutex:
            # Another job's fault may have hit the same node meanwhile.
            at_s = time.time()
            try:
                self._machines.power_off(aim.node)
            except LookupError as error:
                raise OutOfReach(str(error)) from error
        for_s = fault.lasts_s or 0.0
        self._later(for_s, lambda: self._power_on(aim.node))
        return replace(done, at_s=at_s, until_s=at_s + for_s)

    def _restore(self, node: str) -> None:
        """Start a node again that Ray has taken for dead, once it has ended. Raises OSError."""
        assert self._machines is not None
        give_up = time.monotonic() + _MEND_S
        while not self._reach.is_alive(node):
            with self._machines_mutex:
                if self._machines.restore(node):
                    return
            if time.monotonic() > give_up:
                raise OSError(f"{node} is dead for Ray, but has not ended")
            time.sleep(LOOK_S)

    def _power_on(self, node: str) -> None:
        assert self._machines is not None
        with self._machines_mutex:
            self._machines.power_on(node)

    def _railweaves_own(self, fault: Injection, aim: Aim, done: Done) -> Done:
        kind, for_s = fault.kind, fault.lasts_s
        if kind is Kind.GCS_STOP:
            return self._outside(done, self._reach.head(), "stop_gcs", for_s=for_s)
        node = aim.node
        if kind in (Kind.AGENT_KILL, Kind.AGENT_STOP):
            pid = self._reach.agent_pid(node)
        elif kind in (Kind.CONTROLLER_KILL, Kind.CONTROLLER_STOP):
            node, pid = self._reach.head(), self._reach.controller_pid(aim.job_id)
        else:
            node, pid = self._reach.head(), self._client.status().pid
        if kind in (Kind.AGENT_STOP, Kind.CONTROLLER_STOP, Kind.DAEMON_STOP):
            return self._outside(done, node, "stop_ray", pid=pid, for_s=for_s)
        if kind is Kind.AGENT_KILL:
            # It cannot tell that it has killed itself.
            at_s = time.time()
            with suppress(OutOfReach):
                self._reach.break_on(node, "signal_ray", pid=pid, number=_KILL)
            return replace(done, at_s=at_s)
        return self._outside(done, node, "signal_ray", pid=pid, number=_KILL)

    def _later(self, after_s: float, mend: Callable[[], None]) -> None:
        """Mend something after a time, or at the end if that is earlier; again where it failed."""
        mending, mended = threading.Lock(), threading.Event()

        def attempt() -> str:
            with mending:
                if mended.is_set():
                    return ""
                try:
                    mend()
                except (RuntimeError, OSError, LookupError) as error:
                    return str(error)
                mended.set()
                return ""

        timer = threading.Timer(after_s, attempt)
        timer.start()

        def in_the_end() -> None:
            timer.cancel()
            if why := attempt():
                self.unmended.append(why)
            timer.join()

        self._mend.callback(in_the_end)

    def _mend_on(self, node: str, pid: int, start_ticks: int, until_s: float) -> None:
        """Have a hold mend; where its node cannot be asked, it mends when its time is over."""
        give_up = time.monotonic() + min(_MEND_S, max(0.0, until_s - time.time()) + 5.0)
        while time.time() < until_s and time.monotonic() < give_up:
            if self._quietly(node, "mend", pid=pid, start_ticks=start_ticks):
                return
            time.sleep(LOOK_S)

    def _quietly(self, node: str, act: str, **arguments: Any) -> bool:
        with suppress(OutOfReach, Refused):
            return bool(self._reach.break_on(node, act, **arguments)["mended"])
        return False


def _together(one: Injection, other: Injection) -> bool:
    """Whether two faults of a job are to come at the same moment."""
    return (one.at_step, one.after_s) == (other.at_step, other.after_s)


def _word(seed: int) -> str:
    """A word of letters for a number, since verdicts do not compare digits."""
    letters = ""
    for _ in range(6):
        seed, place = divmod(seed, 26)
        letters += chr(ord("a") + place)
    return letters
