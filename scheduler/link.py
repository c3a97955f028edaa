"""Reaching a node's agent through Ray, and telling a restarting agent from a lost node."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ..agents.attempt import Heartbeat, NodeLaunch, NodeStatus, Refused, StopReport
from ..agents.fleet import NAMESPACE, agent_name
from ..agents.lifeline import reaches
from .fault import FaultKind
from .watch import NodeGone

_RETRY_S = 0.2
_ANSWER_S = 3.0
_GCS_S = 5.0
_CONNECT_S = 2.0
# What a launch or a stop may take beyond the waiting that is part of it.
_LAUNCH_S = 60.0
_STOP_MARGIN_S = 30.0
# Calls wait, they do not compute; a few that hang must not keep the others from being made.
_threads = ThreadPoolExecutor(64, "ray-call")


async def within(call: Any, timeout_s: float) -> Any:
    """The result of a Ray call; TimeoutError when it takes longer."""
    return await asyncio.wait_for(_awaited(call), timeout_s)


async def _awaited(call: Any) -> Any:
    return await call


async def off_loop(function: Any, *arguments: Any, timeout_s: float = _GCS_S) -> Any:
    """The result of a blocking Ray call; a control store that does not answer blocks no loop."""
    work = asyncio.get_running_loop().run_in_executor(_threads, function, *arguments)
    return await asyncio.wait_for(work, timeout_s)


def reason(error: BaseException) -> str:
    """What went wrong, without Ray's account of how the error travelled."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    return str(cause) or type(cause).__name__


async def node_is_dead(node_id: str) -> bool:
    """Whether Ray says that the node with this id is dead or unknown; False when Ray is silent."""
    try:
        nodes = await off_loop(ray.nodes)
    except (RayError, TimeoutError, OSError, RuntimeError):
        return False
    return not any(node["NodeID"] == node_id and node["Alive"] for node in nodes)


async def node_hangs(node_id: str) -> bool:
    """Whether a node that does not answer is there all the same: its raylet's port takes calls."""
    try:
        nodes = {node["NodeID"]: node for node in await off_loop(ray.nodes)}
        where = (nodes[node_id]["NodeManagerAddress"], nodes[node_id]["NodeManagerPort"])
        return bool(await off_loop(lambda: reaches(*where, _CONNECT_S, listening=True)))
    except (RayError, TimeoutError, OSError, RuntimeError, LookupError):
        return False


class AgentLink:
    """The agent of one node, for one attempt.

    An agent's process may die and come back while its node is well, so a call is repeated until
    it is answered. The node counts as gone when Ray or `give_up` says so, or when no call was
    answered for `silent_s`.
    """

    def __init__(self, node: str, node_id: str, job_id: str, attempt: int, silent_s: float) -> None:
        self.node = node
        self._node_id = node_id
        self._job_id = job_id
        self._attempt = attempt
        self._silent_s = silent_s
        self._given_up: asyncio.Future[NodeGone] = asyncio.get_running_loop().create_future()
        self._agent: Any = None

    def give_up(self, gone: NodeGone) -> None:
        """Count the node as gone from now on, whatever it may still answer."""
        if not self._given_up.done():
            self._given_up.set_result(gone)

    async def launch(self, launch: NodeLaunch) -> NodeStatus:
        """Start the node's ranks. Raises Refused, NodeGone."""
        found: NodeStatus = await self._call(_LAUNCH_S, "launch", launch)
        return found

    async def status(self, after_seq: int, wait_s: float) -> NodeStatus:
        """The part's state, as soon as it has changed. Raises NodeGone."""
        call = ("status", self._job_id, self._attempt, after_seq, wait_s)
        found: NodeStatus = await self._call(wait_s + _ANSWER_S, *call)
        return found

    async def stop(self, grace_s: float) -> StopReport:
        """End the part's ranks. Raises NodeGone."""
        call = ("stop", self._job_id, self._attempt, grace_s)
        found: StopReport = await self._call(grace_s + _STOP_MARGIN_S, *call)
        return found

    async def _call(self, timeout_s: float, method: str, *arguments: Any) -> Any:
        began = time.monotonic()
        while True:
            attempt = asyncio.ensure_future(self._once(timeout_s, method, *arguments))
            await asyncio.wait({attempt, self._given_up}, return_when=asyncio.FIRST_COMPLETED)
            if self._given_up.done():
                attempt.cancel()
                raise self._given_up.result()
            try:
                return attempt.result()
            except Refused as refusal:
                raise Refused(reason(refusal)) from None
            except (RayError, TimeoutError, ValueError) as error:
                self._agent = None
                await self._refuse_gone(error, time.monotonic() - began)
            await asyncio.sleep(_RETRY_S)

    async def _once(self, timeout_s: float, method: str, *arguments: Any) -> Any:
        if self._agent is None:
            agent: Any = await off_loop(ray.get_actor, agent_name(self.node), NAMESPACE)
            beat: Heartbeat = await within(agent.ping.remote(), _ANSWER_S)
            if beat.node_id != self._node_id:
                # As where the head was away at the same time, so that nobody else has seen it go.
                raise NodeGone("it has been started anew, and what ran on it is gone")
            self._agent = agent
        return await within(getattr(self._agent, method).remote(*arguments), timeout_s)

    async def _refuse_gone(self, error: Exception, silent_s: float) -> None:
        """Raise NodeGone, or Refused, when the node is not worth another try."""
        if await node_is_dead(self._node_id):
            raise NodeGone("Ray says that the node is dead") from error
        if silent_s <= self._silent_s:
            return
        if isinstance(error, RayTaskError):
            raise Refused(f"its agent fails: {reason(error)}") from None
        why = f"its agent has not answered for {silent_s:.0f} s ({type(error).__name__})"
        if await node_hangs(self._node_id):
            raise NodeGone(f"{why}, though its kernel does", FaultKind.NODE_HUNG) from error
        raise NodeGone(why) from error
