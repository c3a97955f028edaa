"""What the daemon and a job's controller say to each other."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from ..agents.attempt import NodeLaunch
from .fault import Fault

DAEMON_NAME = "railweave-daemon"
# A sliver of the resource that Ray gives to its head node alone.
ON_HEAD = {"node:__internal_head__": 0.001}


def controller_name(job_id: str) -> str:
    """The Ray name of a job's controller."""
    return f"railweave-job-{job_id}"


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AttemptPlan(_Message):
    """One attempt, ready to be launched.

    node_ids: Ray's id of each node when it was chosen; a node that comes back under its name with
        another id has lost its part.
    agent_silent_s: how long an agent may be out of reach on a node that Ray calls alive.
    """

    job_id: str
    attempt: int = Field(ge=1)
    launches: tuple[NodeLaunch, ...] = Field(min_length=1)
    node_ids: dict[str, str]
    agent_silent_s: float = Field(default=10.0, gt=0)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The attempt's nodes, in the order of their group rank."""
        return tuple(launch.node for launch in self.launches)


class Happened(StrEnum):
    """What a controller reports of its attempt."""

    RUNNING = "running"
    """Every rank on every node was started."""
    FAULT = "fault"
    """Something broke; the attempt is being stopped everywhere."""
    STOPPED = "stopped"
    """The attempt is over: gone from every node that is not lost."""
    SUCCEEDED = "succeeded"
    """Every rank ended with exit code 0."""


class Report(_Message):
    """Something that happened to an attempt; repeated until the daemon has answered.

    fault: for FAULT the first sign; for STOPPED the root cause, None when it was stopped on
        request.
    lost: nodes that could not be asked to stop, with the reason.
    survivors: pids of the attempt that cannot be ended, by node.
    held: devices of the attempt that are not free, by node, in words.
    freed, kept: its shared memory that was removed, and what others use of it, by node.
    killed: processes that were ended by the stop.
    """

    job_id: str
    attempt: int
    happened: Happened
    at_s: float
    fault: Fault | None = None
    lost: dict[str, str] = {}
    survivors: dict[str, tuple[int, ...]] = {}
    killed: int = 0
    held: dict[str, tuple[str, ...]] = {}
    freed: dict[str, tuple[str, ...]] = {}
    kept: dict[str, tuple[str, ...]] = {}


class Standing(_Message):
    """A controller: its process, its attempt (0: none), and what the daemon has heard of that."""

    attempt: int
    pid: int = 0
    reported: tuple[Happened, ...] = ()
