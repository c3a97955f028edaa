"""Bringing one fault about, now: for each kind, who does what to whom."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from ...agents.attempt import Refused
from ..client import Client
from .evidence import Done
from .kinds import DAMAGES, FACTS, Kind, Where
from .mending import LOOK_S, Mends
from .reach import Aim, OutOfReach, Reach
from .schedule import CRASHES, Injection

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
_MEND_S = 60.0


class Machines(Protocol):
    """Who can switch nodes off and on again."""

    def power_off(self, node: str) -> None:
        """End every process of a node at once."""

    def power_on(self, node: str) -> None:
        """Start it again; returns once it is up."""

    def restore(self, node: str) -> bool:
        """Start it again where it has ended by itself; whether it had."""

    def head_refusal(self) -> str:
        """Why the head cannot be started again once it has ended; empty where it can."""


class Network(Protocol):
    """Who can break the network between nodes and mend it again."""

    def cut(self, kind: Kind, node: str) -> Callable[[], None]:
        """Break the network as `kind` says, around a node; what is returned mends it."""


class Acts:
    """Brings faults about on the jobs of a cluster. Safe to use from many threads.

    machines: needed for kinds of Where.NODE and Where.HEAD; network: of Where.NETWORK.
    """

    def __init__(
        self,
        client: Client,
        reach: Reach,
        mends: Mends,
        machines: Machines | None,
        network: Network | None,
    ) -> None:
        self._client = client
        self._reach = reach
        self._mends = mends
        self._machines = machines
        self._network = network
        # One a node: a node that starts may have to wait for the head to be started.
        self._switching: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def refusal(self, kind: Kind) -> str:
        """Why faults of a kind cannot be brought about here; empty when they can."""
        where = FACTS[kind].where
        if where in (Where.NODE, Where.HEAD) and self._machines is None:
            return (
                "nodes can be switched off and on again only in an embedded cluster; here, "
                "switch the machine off yourself"
            )
        if where is Where.HEAD and self._machines is not None:
            return self._machines.head_refusal()
        if where is Where.NETWORK and self._network is None:
            return "a network is broken only where it is emulated; here, pull the cable yourself"
        return ""

    def bring_about(self, fault: Injection, aim: Aim) -> Done:
        """Do it to a rank, or to what belongs to it. Raises Refused, OutOfReach."""
        kind, facts = fault.kind, FACTS[fault.kind]
        done = Done(fault, aim.job_id, aim.attempt, aim.node, time.time(), step=aim.step)
        if facts.where is Where.INSIDE:
            return self._inside(fault, aim, done)
        if facts.where is Where.STORAGE:
            return self._in_storage(fault, aim, done)
        if facts.where is Where.NETWORK:
            return self._in_network(fault, aim, done)
        if facts.where is Where.HEAD:
            return self._at_head(fault, done)
        if kind is Kind.NODE_POWER:
            return self._power(done)
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
            alive = partial(self._reach.is_alive, aim.node)
            restore = partial(self._restore, aim.node, alive)
            self._mends.later((for_s or 0.0) + _RAYLET_ENDS_S, restore)
            return self._outside(done, aim.node, "stop_node", ranks=pids, for_s=for_s)
        if kind is Kind.AGENT_CLOCK:
            offset_s = _CLOCK_S if fault.value is None else fault.value
            told = self._outside(done, aim.node, "shift_clock", offset_s=offset_s, for_s=for_s)
            self._mends.in_the_end(aim.node, "unshift_clock")
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
            self._mends.held(node, pid, ticks, until_s)
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
        assert self._network is not None  # refusal() has seen to that
        at_s, for_s = time.time(), fault.lasts_s or 0.0
        mend = self._network.cut(fault.kind, aim.node)
        self._mends.later(for_s, mend)
        return replace(done, at_s=at_s, until_s=at_s + for_s)

    def _power(self, done: Done) -> Done:
        """Switch the node off that was hit, and on again after a time."""
        assert self._machines is not None  # refusal() has seen to that
        with self._switching[done.node]:
            # Another job's fault may have hit the same node meanwhile.
            at_s = time.time()
            try:
                self._machines.power_off(done.node)
            except LookupError as error:
                raise OutOfReach(str(error)) from error
        for_s = done.fault.lasts_s or 0.0
        self._mends.later(for_s, lambda: self._power_on(done.node))
        return replace(done, at_s=at_s, until_s=at_s + for_s)

    def _at_head(self, fault: Injection, done: Done) -> Done:
        """End the head, or Ray's control store, whose end `ray start` answers with the head's."""
        head = self._reach.head()
        if ranks := self._reach.pids_on(head):
            raise Refused(f"{len(ranks)} ranks run on {head} and would end with it")
        done = replace(done, node=head)
        if fault.kind is Kind.HEAD_KILL:
            return self._power(done)
        at_s = time.time()
        # It may not come to tell that it has done it.
        with suppress(OutOfReach):
            self._reach.break_on(head, "kill_gcs")
        self._mends.later(0.0, lambda: self._restore(head, lambda: False))
        return replace(done, at_s=at_s)

    def _restore(self, node: str, needless: Callable[[], bool]) -> None:
        """Start a node again once it has ended, unless that is needless. Raises OSError."""
        assert self._machines is not None
        give_up = time.monotonic() + _MEND_S
        while not needless():
            with self._switching[node]:
                if self._machines.restore(node):
                    return
            if time.monotonic() > give_up:
                raise OSError(f"{node} is to be started again, but has not ended")
            time.sleep(LOOK_S)

    def _power_on(self, node: str) -> None:
        assert self._machines is not None
        with self._switching[node]:
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


def _word(seed: int) -> str:
    """A word of letters for a number, since verdicts do not compare digits."""
    letters = ""
    for _ in range(6):
        seed, place = divmod(seed, 26)
        letters += chr(ord("a") + place)
    return letters
