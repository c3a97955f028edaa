"""A job's controller: the detached actor that holds a job's attempt, whatever the daemon does.

It launches the attempt on the nodes' agents, watches it, stops it everywhere when any part fails,
and reports to the daemon. A report that finds no daemon is repeated until one answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from typing import Any

import ray
from ray.exceptions import RayError

from ..agents.fleet import NAMESPACE
from ..agents.processes import be_favoured
from .fault import FaultKind
from .link import AgentLink, off_loop, within
from .log import write_log
from .messages import (
    DAEMON_NAME,
    ON_HEAD,
    AttemptPlan,
    Happened,
    Report,
    Standing,
    controller_name,
)
from .watch import NodeGone, Watch

_REPORT_S = 60.0
_FIRST_RETRY_S = 0.2
_SLOWEST_RETRY_S = 2.0
_log = logging.getLogger(__name__)


class Controller:
    """The actor `railweave-job-<id>`. All of its methods are quick; the work is in tasks."""

    def __init__(self, job_id: str) -> None:
        be_favoured()
        write_log()
        self.job_id = job_id
        self._plan: AttemptPlan | None = None
        self._watch: Watch | None = None
        self._links: dict[str, AgentLink] = {}
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._reported: list[Happened] = []
        self._watching: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None

    async def take_up(self, plan_json: str, started: bool, stopping: bool) -> str:
        """Launch an attempt, or go on with one that is already on the nodes.

        started: its ranks were all running before, so that nothing is started again. stopping: it
        is to be stopped. An attempt that this controller already has is left as it is.
        Returns a Standing as JSON. Raises ValueError for an attempt that is not the next.
        """
        plan = AttemptPlan.model_validate_json(plan_json)
        have = self._plan.attempt if self._plan else 0
        if plan.attempt < have:
            raise ValueError(f"attempt {plan.attempt} of {self.job_id} is over: this is at {have}")
        if plan.attempt == have:
            if stopping and self._watch is not None:
                self._watch.stop()
            return await self.standing()
        if self._watching is not None and not self._watching.done():
            raise ValueError(f"attempt {have} of {self.job_id} is not over yet")
        self._links = {
            node: AgentLink(
                node, plan.node_ids[node], self.job_id, plan.attempt, plan.agent_silent_s
            )
            for node in plan.nodes
        }
        self._plan = plan
        self._reported = []
        if self._sending is not None:
            # What it still has to tell is known: the next attempt only comes after the last's end.
            self._sending.cancel()
        self._reports = asyncio.Queue()
        self._watch = Watch(
            plan, self._links, self._reports.put_nowait, started=started, stopping=stopping
        )
        self._watching = asyncio.create_task(_or_die(self._watch.run()))
        self._sending = asyncio.create_task(_or_die(self._send_reports(self._reports)))
        return await self.standing()

    async def stop(self, attempt: int) -> str:
        """End an attempt on request; its STOPPED report follows. Returns a Standing as JSON."""
        if self._watch is not None and self._plan is not None and self._plan.attempt == attempt:
            self._watch.stop()
        return await self.standing()

    async def node_lost(self, node_id: str, why: str, kind: str) -> None:
        """Count a node as gone, on the word of the daemon's heartbeats."""
        for node, link in self._links.items():
            if self._plan is not None and self._plan.node_ids[node] == node_id:
                link.give_up(NodeGone(why, FaultKind(kind)))

    async def device_broken(self, node_id: str, device: int, message: str) -> None:
        """Break the attempt off if it uses a device that is broken, as the node's agent found."""
        for node in self._links:
            if self._plan is not None and self._plan.node_ids[node] == node_id and self._watch:
                self._watch.device_broken(node, device, message)

    async def standing(self) -> str:
        """What this controller is at, as JSON."""
        attempt = self._plan.attempt if self._plan else 0
        standing = Standing(attempt=attempt, pid=os.getpid(), reported=tuple(self._reported))
        return standing.model_dump_json()

    async def _send_reports(self, reports: asyncio.Queue[Report]) -> None:
        while True:
            report = await reports.get()
            await self._send(report)
            self._reported.append(report.happened)

    async def _send(self, report: Report) -> None:
        """Repeat a report until the daemon has taken it in."""
        pause_s = _FIRST_RETRY_S
        while True:
            try:
                daemon = await off_loop(lambda: ray.get_actor(DAEMON_NAME, NAMESPACE))
                await within(daemon.report.remote(report.model_dump_json()), _REPORT_S)
                return
            except (RayError, TimeoutError, ValueError) as error:
                _log.warning("%s not taken yet: %s", report.happened, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _SLOWEST_RETRY_S)


async def _or_die(work: Coroutine[Any, Any, None]) -> None:
    """End the process when its work fails unforeseen: a new one takes the attempt up again."""
    try:
        await work
    except Exception:
        _log.exception("the controller starts anew")
        os._exit(1)


def find_controller(job_id: str) -> Any:
    """A job's controller. Raises ValueError when there is none. Blocks on Ray's control store."""
    return ray.get_actor(controller_name(job_id), NAMESPACE)


def ensure_controller(job_id: str) -> Any:
    """A job's controller, started when there is none. Blocks on Ray's control store.

    It lives on the head, whose loss is the loss of Ray's control store, without which a controller
    could do nothing either; with a head that is started again Ray starts it again.
    """
    actor = ray.remote(Controller)
    return actor.options(
        name=controller_name(job_id),
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=100,
        resources=ON_HEAD,
    ).remote(job_id)
