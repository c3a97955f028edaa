"""What the scheduler and a node's agent say to each other about one attempt of a job."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Refused(ValueError):
    """A node cannot or will not do what it was asked; the message says why and what to change."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Take in what another version pickled: fields it did not know have their defaults."""
        given = state.get("__dict__", {})
        known = {
            name: field.get_default(call_default_factory=True)
            for name, field in type(self).model_fields.items()
            if name not in given and not field.is_required()
        }
        super().__setstate__({**state, "__dict__": {**known, **given}})


class RankLaunch(_Message):
    """One rank to start: its place on the node and the environment only it gets."""

    rank: int = Field(ge=0)
    local_rank: int = Field(ge=0)
    device: int = Field(ge=0)
    env: dict[str, str] = {}


class NodeLaunch(_Message):
    """Everything one node needs to start its part of an attempt.

    `command` is an argument list, never a shell line; `env` is given to every rank of the node.
    """

    job_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    attempt: int = Field(ge=1)
    node: str
    command: tuple[str, ...] = Field(min_length=1)
    working_dir: str
    env: dict[str, str] = {}
    ranks: tuple[RankLaunch, ...] = Field(min_length=1)
    grace_s: float = Field(default=5.0, ge=0)


class NodePhase(StrEnum):
    """Where one node's part of an attempt is."""

    STARTING = "starting"
    """The guard is up; not every rank has been started."""
    RUNNING = "running"
    """Every rank was started and at least one still runs."""
    ENDED = "ended"
    """Every rank has exited by itself and nothing is left below the guard."""
    STOPPED = "stopped"
    """Stopped on request or because the node's raylet died; nothing is left below the guard."""
    UNKNOWN = "unknown"
    """The node knows nothing of this attempt: no guard of it was ever here."""


class RankState(_Message):
    """One rank's process; exactly one of `exit_code` and `signal` is set once it has exited.

    stopping: whether it exited while it was being stopped.
    """

    rank: int
    pid: int | None = None
    started_s: float | None = None
    exited_s: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()
    error: str = ""
    stopping: bool = False

    @property
    def failed(self) -> bool:
        """Whether the rank ended otherwise than with exit code 0, or could not be started."""
        return bool(self.error) or self.signal is not None or self.exit_code not in (None, 0)


class Vitals(BaseModel):
    """How a running rank looks from outside.

    state: the process's letter in /proc, X for one that has failed. quiet_s: since anything showed
    that it lives (a report, output, files read or written; CPU time where it reports nothing).
    cpu_share: of one core, in the last second. reports: how often it has called
    `railweave.agents.report`; report_age_s: since the last; step: of the last; typical_s,
    longest_s: between two. compute_s: median of the last compute_steps steps that gave one.
    last_lines: of one that has been still for a while.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)  # a newer guard may tell more

    rank: int
    state: str = ""
    quiet_s: float = 0.0
    cpu_share: float | None = None
    reports: int = 0
    report_age_s: float | None = None
    step: int | None = None
    typical_s: float | None = None
    longest_s: float | None = None
    compute_s: float | None = None
    compute_steps: int = 0
    loss: float | None = None
    last_lines: tuple[str, ...] = ()


class Finding(BaseModel):
    """Something wrong with a rank that still runs, told by its guard.

    what: goes on after the rank's name. since_s: wall-clock seconds. step: its last one.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    kind: str
    rank: int
    what: str
    since_s: float
    step: int | None = None
    last_lines: tuple[str, ...] = ()


class NodeStatus(_Message):
    """One node's part of an attempt. `seq` grows with every change, for long polls.

    Times are wall-clock seconds since the epoch on that node. `reason` says why it was STOPPED.
    now_s: when it was told; 0 where that is not known. vitals: of each rank that runs or has
    failed, the fields of Vitals; findings: the fields of Finding. Both are plain values, so that a
    controller of another version can take them in. freed: shared memory of the attempt that was
    removed at its end. kept: what of it others still use, in words.
    """

    job_id: str
    attempt: int
    node: str
    phase: NodePhase
    seq: int = 0
    ranks: tuple[RankState, ...] = ()
    reason: str = ""
    vitals: tuple[dict[str, Any], ...] = ()
    findings: tuple[dict[str, Any], ...] = ()
    now_s: float = 0.0
    freed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def rank_findings(self) -> tuple[Finding, ...]:
        """What its guard found wrong with running ranks."""
        return tuple(Finding.model_validate(found) for found in self.findings)

    def rank_vitals(self) -> tuple[Vitals, ...]:
        """How each rank looks that runs or has failed."""
        return tuple(Vitals.model_validate(found) for found in self.vitals)


class StopReport(_Message):
    """What stopping an attempt on a node came to; `survivors` and `held` empty: verified gone.

    freed: shared memory that was removed. kept: shared memory and ports of the attempt that others
    use. held: devices that are not free.
    """

    job_id: str
    attempt: int
    node: str
    killed: int
    survivors: tuple[int, ...] = ()
    took_s: float
    freed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class LogChunk(_Message):
    """A part of a rank's log; read on from `next_offset`. `size` is the file's length in bytes."""

    text: str
    next_offset: int
    size: int


class Heartbeat(_Message):
    """An agent's sign of life: its node, its clock, its process, and the attempts its guards hold.

    notes: how many bytes the ranks of an attempt have noted here, as (job id, attempt, bytes).
    line_port: where it listens for the daemon's line; 0: nowhere. troubles: what is wrong with the
    node, as (source, number, the fields of Trouble).
    """

    node: str
    node_id: str
    now_s: float
    attempts: tuple[tuple[str, int], ...] = ()
    notes: tuple[tuple[str, int, int], ...] = ()
    pid: int = 0
    line_port: int = 0
    troubles: tuple[tuple[str, int, dict[str, Any]], ...] = ()
