"""Reaching what is to be broken: a job's attempt, its ranks, their nodes' agents."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from ...agents.attempt import Heartbeat, NodePhase, NodeStatus, Refused
from ...agents.fleet import NAMESPACE, agent_name, node_names
from ..client import Client, JobHandle
from ..controller import find_controller
from ..joining import CannotConnect, in_cluster
from ..lifecycle import JobState
from ..messages import Standing

_ANSWER_S = 10.0
_ACT_S = 60.0


class OutOfReach(Exception):
    """What is to be hit is not there just now; the message says what was looked for."""


@dataclass(frozen=True)
class Aim:
    """A rank of a running attempt: where it is, and how far.

    step: that it reported last. step and pid are of the moment.
    """

    job_id: str
    attempt: int
    rank: int
    node: str
    pid: int
    step: int | None


class Reach:
    """Finds and calls agents, for one client. Safe to use from many threads."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._mutex = threading.Lock()
        self._agents: dict[tuple[int, str], Any] = {}

    def aim(self, job: JobHandle, rank: int) -> Aim:
        """A rank of a job's running attempt. Raises OutOfReach."""
        if job.state is not JobState.RUNNING:
            raise OutOfReach(f"{job.id} does not run just now")
        attempt = job.attempts[-1]
        devices = attempt.placement["devices"]
        number = rank % len(devices)
        node = str(devices[number][0])
        status: NodeStatus = self._ask(node, "status", job.id, attempt.number)
        found = next((each for each in status.ranks if each.rank == number), None)
        gone = found is None or found.pid is None or found.exited_s is not None
        if status.phase is not NodePhase.RUNNING or found is None or found.pid is None or gone:
            raise OutOfReach(f"rank {number} of {job.id} does not run just now")
        steps = {each.rank: each.step for each in status.rank_vitals()}
        return Aim(job.id, attempt.number, number, node, found.pid, steps.get(number))

    def pids_on(self, node: str) -> list[int]:
        """Ranks of all jobs that run on a node. Raises OutOfReach."""
        found: tuple[NodeStatus, ...] = self._ask(node, "attempts")
        return [
            rank.pid
            for status in found
            if status.phase is NodePhase.RUNNING
            for rank in status.ranks
            if rank.pid is not None and rank.exited_s is None
        ]

    def break_on(self, node: str, act: str, /, **arguments: Any) -> dict[str, Any]:
        """Have a node's agent break something, one of `breaking.ACTS`.

        Raises Refused, and OutOfReach where the agent does not answer.
        """
        found: dict[str, Any] = self._ask(node, "break_something", act, arguments, timeout_s=_ACT_S)
        return found

    def agent_pid(self, node: str) -> int:
        """The process of a node's agent. Raises OutOfReach."""
        beat: Heartbeat = self._ask(node, "ping")
        return beat.pid

    def controller_pid(self, job_id: str) -> int:
        """The process of a job's controller. Raises OutOfReach."""
        try:
            with in_cluster():
                text = ray.get(find_controller(job_id).standing.remote(), timeout=_ANSWER_S)
        except (CannotConnect, RayError, ValueError) as error:
            raise OutOfReach(f"the controller of {job_id}: {error}") from error
        return Standing.model_validate_json(text).pid

    def head(self) -> str:
        """The node that Ray's head, the daemon and the controllers are on. Raises OutOfReach."""
        heads = {
            entry["NodeManagerAddress"]
            for entry in self._nodes()
            if entry["Alive"] and "node:__internal_head__" in entry["Resources"]
        }
        for view in self.client.status().nodes:
            if view.address in heads:
                return view.name
        raise OutOfReach("the head node has no agent just now")

    def is_alive(self, node: str) -> bool:
        """Whether Ray counts a node in."""
        return node in node_names(self._nodes()).values()

    def _nodes(self) -> list[dict[str, Any]]:
        """Ray's nodes, dead ones included. Raises OutOfReach."""
        try:
            with in_cluster():
                found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        except (CannotConnect, RayError) as error:
            raise OutOfReach(f"Ray's nodes: {error}") from error
        return found

    def _ask(self, node: str, method: str, *arguments: Any, timeout_s: float = _ANSWER_S) -> Any:
        try:
            with in_cluster() as place:
                agent = self._agent(place, node)
                return ray.get(getattr(agent, method).remote(*arguments), timeout=timeout_s)
        except RayTaskError as error:
            if isinstance(error.cause, Refused):
                raise Refused(str(error.cause)) from None
            raise OutOfReach(f"{node} could not {method}: {error.cause}") from error
        except (CannotConnect, RayError, GetTimeoutError, ValueError) as error:
            with self._mutex:
                self._agents = {key: a for key, a in self._agents.items() if key[1] != node}
            raise OutOfReach(f"the agent of {node}: {type(error).__name__}: {error}") from error

    def _agent(self, place: int, node: str) -> Any:
        with self._mutex:
            known = self._agents.get((place, node))
        if known is None:
            known = ray.get_actor(agent_name(node), NAMESPACE)
            with self._mutex:
                self._agents[place, node] = known
        return known


def at_step(aim: Aim, step: int | None) -> bool:
    """Whether a rank has reported so many steps; always where none is asked for."""
    return step is None or (aim.step is not None and aim.step >= step)
