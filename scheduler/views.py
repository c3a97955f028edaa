"""What the daemon tells its clients, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..placement.cluster import Cluster
from ..placement.inference.health import Finding
from .lifecycle import JobState
from .records import AttemptRecord, JobRecord


@dataclass(frozen=True)
class JobView:
    """A job and its attempts, first to last."""

    job: JobRecord
    attempts: list[AttemptRecord]


@dataclass(frozen=True)
class NodeView:
    """A node as the daemon sees it now.

    state: "ok", "joining" (its agent is starting) or "away" (not to be used).
    reason: why it cannot be used; empty when it can.
    devices, free: how many it has and how many can be had now. held: how many each job holds.
    domains: its domain at each tier of the cluster file.
    """

    name: str
    state: str
    reason: str
    address: str
    accelerator: str
    devices: int
    free: int
    held: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    silent_s: float | None = None


@dataclass(frozen=True)
class DaemonStatus:
    """The daemon at one moment. fenced: why it may not act any more; empty when it may."""

    epoch: int
    pid: int
    started_s: float
    state_dir: str
    fenced: str
    jobs: dict[JobState, int]
    nodes: list[NodeView]
    probing: bool


@dataclass(frozen=True)
class Network:
    """The network of a running cluster.

    probed: the cluster file. now: the same with its nodes as they are now: what jobs hold is not
    free, and nodes that cannot be used are faulty or drained. findings: what is not well, gravest
    first.
    """

    probed: Cluster
    now: Cluster
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class NetworkView:
    """A `Network` as it travels: clusters as JSON, findings as `Finding.to_data` gives them."""

    probed: str
    now: str
    findings: list[dict[str, Any]]

    def parsed(self) -> Network:
        """The network."""
        source = "the daemon's cluster"
        found = tuple(Finding.from_data(each) for each in self.findings)
        return Network(Cluster.parse(self.probed, source), Cluster.parse(self.now, source), found)


@dataclass(frozen=True)
class ProbeProgress:
    """How far a probe is. lines: what was told after those already known; error: why it failed."""

    running: bool
    lines: list[str]
    error: str = ""


@dataclass(frozen=True)
class CheckpointPlace:
    """Where a job's checkpoints are. peers, key: what opens a `node://` place; else empty."""

    directory: str
    peers: str = ""
    key: str = field(default="", repr=False)
