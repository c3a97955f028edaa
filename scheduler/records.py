"""What the store keeps, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .lifecycle import JobState, Life

Device = tuple[str, int]


class UnknownJob(LookupError):
    """No job of that id."""


class DoubleBooking(ValueError):
    """A launch wants a device that another job holds; nothing was changed."""


@dataclass(frozen=True)
class NewJob:
    """A job to be queued.

    devices: how many it takes. kinds: how many of them must be of one accelerator kind, by kind.
    spec: the job's specification as JSON text.
    """

    job_id: str
    name: str
    spec: str
    devices: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    max_restarts: int = 3


@dataclass(frozen=True)
class JobRecord:
    """A job. `number` is its place in the order of submission; times are wall-clock seconds."""

    job_id: str
    number: int
    name: str
    priority: int
    devices: int
    kinds: dict[str, int]
    life: Life
    reason: str
    submitted_s: float
    updated_s: float
    ended_s: float | None

    @property
    def state(self) -> JobState:
        """Where the job is in its life."""
        return self.life.state


@dataclass(frozen=True)
class NewAttempt:
    """What a launch takes hold of: `devices` by rank, and where it goes on from."""

    placement: Mapping[str, Any]
    devices: tuple[Device, ...]
    moved_ranks: int = 0


@dataclass(frozen=True)
class AttemptRecord:
    """One launch of a job, with the times from which detection and restart can be reckoned.

    placement, plan, cause: plain data of a placement, an attempt plan, a fault.
    """

    job_id: str
    number: int
    placement: dict[str, Any]
    plan: dict[str, Any] | None
    resumed_from: str
    moved_ranks: int
    started_s: float
    running_s: float | None
    fault_seen_s: float | None
    stopped_s: float | None
    ended_s: float | None
    cause: dict[str, Any] | None


@dataclass(frozen=True)
class EventRecord:
    """Something that happened, to a job or (job_id None) to the cluster. Never changed."""

    seq: int
    job_id: str | None
    time_s: float
    kind: str
    attempt: int | None
    message: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Holding:
    """Who holds a device."""

    job_id: str
    attempt: int
    rank: int


@dataclass(frozen=True)
class Quarantined:
    """A node kept out of placements; until_s None means until somebody or its return ends it."""

    node: str
    reason: str
    since_s: float
    until_s: float | None
