"""Watching one attempt on all of its nodes: launch, wait for the first fault or the end, stop.

Knows nothing of Ray: nodes are reached through `Part`, and what happens is told to a callback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from ..agents.attempt import NodeLaunch, NodePhase, NodeStatus, Refused, StopReport
from .fault import (
    Fault,
    FaultKind,
    all_succeeded,
    broken_device,
    earlier_faults,
    lost,
    not_free,
    part_fault,
    refused,
    root_cause,
    unending,
)
from .hang import TIMEOUT_VARIABLE, hung
from .messages import AttemptPlan, Happened, Report
from .straggler import RATIO_VARIABLE, straggler

POLL_S = 2.0
# A change is told at once whatever the poll's length; long polls of many nodes are many calls.
_POLLS_PER_S = 100
SURVIVOR_PATIENCE_S = 30.0
_LOOK_S = 1.0


class NodeGone(Exception):
    """The node is dead, or has been silent for so long that it counts as dead.

    kind: what is known of the way it went.
    """

    def __init__(self, why: str, kind: FaultKind = FaultKind.NODE_LOST) -> None:
        super().__init__(why)
        self.kind = kind


class Part(Protocol):
    """One node's part of the attempt; every method may raise NodeGone or Refused."""

    async def launch(self, launch: NodeLaunch) -> NodeStatus:
        """Start the ranks; once for all, however often it is asked."""

    async def status(self, after_seq: int, wait_s: float) -> NodeStatus:
        """Its state as soon as `seq` is past `after_seq`, after `wait_s` at the latest."""

    async def stop(self, grace_s: float) -> StopReport:
        """End the ranks and say what is left of them."""


class Watch:
    """One attempt under way.

    started: every rank was running before this watch took it up, so nothing may be launched again.
    tell: called with each report, in order; the last one is STOPPED or SUCCEEDED.
    """

    def __init__(
        self,
        plan: AttemptPlan,
        parts: Mapping[str, Part],
        tell: Callable[[Report], None],
        *,
        started: bool = False,
        stopping: bool = False,
    ) -> None:
        self.plan = plan
        self._launch_of = {launch.node: launch for launch in plan.launches}
        self._parts = parts
        self._tell = tell
        self._poll_s = max(POLL_S, len(plan.launches) / _POLLS_PER_S)
        self._started = started
        self._told_running = started
        self._stop_asked = stopping
        self._statuses: dict[str, NodeStatus] = {}
        self._faults: list[Fault] = []
        self._lost: dict[str, str] = {}
        self._gone: list[Fault] = []
        self._changed = asyncio.Event()
        self._hang_timeout_s = _setting(plan, TIMEOUT_VARIABLE)
        self._straggler_ratio = _setting(plan, RATIO_VARIABLE)
        self._look_at = 0.0

    def device_broken(self, node: str, device: int, message: str) -> None:
        """Break the attempt off if one of its ranks runs on a device that is broken."""
        for rank in self._launch_of[node].ranks:
            if rank.device == device:
                self._faults.append(broken_device(node, rank.rank, message, time.time()))
                self._changed.set()

    def stop(self) -> None:
        """End the attempt on request; nothing counts as broken then."""
        self._stop_asked = True
        self._changed.set()

    async def run(self) -> None:
        """From the launch to the last report."""
        follows = []
        if not self._stop_asked:
            follows = [asyncio.create_task(self._follow(node)) for node in self.plan.nodes]
        try:
            await self._until_over()
        finally:
            for follow in follows:
                follow.cancel()
        if not self._stop_asked and not self._faults:
            self._report(Happened.SUCCEEDED)
            return
        if self._faults:
            self._report(Happened.FAULT, fault=self._faults[0])
        await self._stop_everywhere()

    async def _until_over(self) -> None:
        while not self._stop_asked and not self._faults:
            if all_succeeded(self.plan.nodes, self._statuses):
                return
            if not self._told_running and self._all_started():
                self._told_running = True
                self._report(Happened.RUNNING)
            await self._changed.wait()
            self._changed.clear()
            self._look_at_ranks()

    def _look_at_ranks(self) -> None:
        now = time.monotonic()
        if self._faults or now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        nodes, statuses, now_s = self.plan.nodes, self._statuses, time.time()
        fault = hung(nodes, statuses, self._hang_timeout_s, now_s)
        if fault is None and self._straggler_ratio is not None:
            fault = straggler(nodes, statuses, self._straggler_ratio, now_s)
        if fault is not None:
            self._faults.append(fault)

    def _all_started(self) -> bool:
        up = (NodePhase.RUNNING, NodePhase.ENDED)
        return all(
            node in self._statuses and self._statuses[node].phase in up for node in self.plan.nodes
        )

    async def _follow(self, node: str) -> None:
        """Keep the node's latest status until its part has ended or something is wrong with it."""
        part = self._parts[node]
        fault: Fault | None = None
        try:
            status = await part.status(-1, 0.0)
            if status.phase is NodePhase.UNKNOWN and not self._started:
                status = await part.launch(self._launch_of[node])
            while True:
                self._statuses[node] = status
                self._changed.set()
                fault = part_fault(status, time.time())
                if fault is not None or status.phase is NodePhase.ENDED:
                    break
                status = await part.status(status.seq, self._poll_s)
        except NodeGone as gone:
            self._lost[node] = str(gone)
            fault = lost(node, str(gone), time.time(), gone.kind)
        except Refused as refusal:
            fault = refused(node, str(refusal), time.time())
        if fault is not None:
            self._faults.append(fault)
            self._changed.set()

    async def _stop_everywhere(self) -> None:
        began_s = time.time()
        nodes = [node for node in self.plan.nodes if node not in self._lost]
        reports = await asyncio.gather(*(self._stop_node(node) for node in nodes))
        stopped = dict(zip(nodes, reports, strict=True))
        survivors = {node: done.survivors for node, done in stopped.items() if done}
        survivors = {node: pids for node, pids in survivors.items() if pids}
        now_s = time.time()
        told = {fault.node for fault in self._faults}
        others = [fault for fault in self._gone if fault.node not in told]
        others += [unending(node, pids, now_s) for node, pids in survivors.items()]
        held = {node: done.held for node, done in stopped.items() if done and done.held}
        others += [not_free(node, what, now_s) for node, what in held.items()]
        if self._faults:
            for node, done in stopped.items():
                others += await self._earlier_faults(node, began_s) if done else []
        cause = root_cause(self._faults[0], [*self._faults, *others]) if self._faults else None
        self._report(
            Happened.STOPPED,
            fault=cause,
            lost=self._lost,
            survivors=survivors,
            killed=sum(done.killed for done in stopped.values() if done),
            held=held,
            freed={node: done.freed for node, done in stopped.items() if done and done.freed},
            kept={node: done.kept for node, done in stopped.items() if done and done.kept},
        )

    async def _stop_node(self, node: str) -> StopReport | None:
        """Stop one node's part; None when the node is gone, survivors when they do not end."""
        grace_s = self._launch_of[node].grace_s
        give_up = time.monotonic() + grace_s + SURVIVOR_PATIENCE_S
        while True:
            try:
                done = await self._parts[node].stop(grace_s)
                if not (done.survivors or done.held) or time.monotonic() > give_up:
                    return done
            except NodeGone as gone:
                self._lost[node] = str(gone)
                self._gone.append(lost(node, str(gone), time.time(), gone.kind))
                return None
            except Refused as refusal:
                if time.monotonic() > give_up:
                    self._lost[node] = f"its agent cannot stop the ranks: {refusal}"
                    self._gone.append(lost(node, self._lost[node], time.time()))
                    return None
                await asyncio.sleep(POLL_S)

    async def _earlier_faults(self, node: str, stop_began_s: float) -> list[Fault]:
        try:
            status = await self._parts[node].status(-1, 0.0)
        except (NodeGone, Refused):
            return []
        return earlier_faults(status, stop_began_s, time.time())

    def _report(
        self,
        happened: Happened,
        *,
        fault: Fault | None = None,
        lost: Mapping[str, str] | None = None,
        survivors: Mapping[str, tuple[int, ...]] | None = None,
        killed: int = 0,
        held: Mapping[str, tuple[str, ...]] | None = None,
        freed: Mapping[str, tuple[str, ...]] | None = None,
        kept: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self._tell(
            Report(
                job_id=self.plan.job_id,
                attempt=self.plan.attempt,
                happened=happened,
                at_s=time.time(),
                fault=fault,
                lost=dict(lost or {}),
                survivors=dict(survivors or {}),
                killed=killed,
                held=dict(held or {}),
                freed=dict(freed or {}),
                kept=dict(kept or {}),
            )
        )


def _setting(plan: AttemptPlan, variable: str) -> float | None:
    """A number that the job gives to its controller by way of its ranks' environment."""
    text = plan.launches[0].env.get(variable, "")
    return float(text) if text else None
