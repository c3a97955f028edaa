"""What an operator can set of the daemon."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ..agents.prober import ProbeSettings
from ..placement.explained import Explained
from ..placement.inference.health import HealthRules
from .quarantine import Rules
from .verdict import Limits

SILENT_S = 8.0
"""After how long without a sign of life a node counts as hung or cut off."""


class Reprobe(Explained):
    """How the network is measured again and again, to know what of it is not well any more.

    every_s: between the beginnings of two measurings; 0 never measures. probes: what one of them
    may do and cost; those that its budget leaves out are the first of the next. Nodes that run jobs
    are left alone unless `probes.include_busy`. rules: when a change counts.
    """

    every_s: float = Field(default=300.0, ge=0)
    probes: ProbeSettings = ProbeSettings(
        transfer_bytes=8 * 2**20, transfer_s=0.25, pings=10, connect_s=2.0, budget_s=20.0
    )
    rules: HealthRules = HealthRules()


class Settings(Explained):
    """The daemon's settings; they travel to it as JSON.

    state_dir: the daemon's own folder on the head node.
    store: path or database URL of the store; by default a SQLite file in state_dir.
    tiers: names of the network's tiers, nearest first, where counting domains would order them
        wrongly.
    heartbeat_s: between two signs of life of an agent. silent_s: after how long without one a node
        counts as lost; one whose machine answers nothing, and that no other node reaches, does so
        within 3 s.
    probation_s: how long a lost node must be well again before it is used, times the losses that
        it has had lately. set_aside_s: how long a node that failed in another way is not used,
        times its faults; longest_set_aside_s at most.
    fault_expiry_s: after how long a node's fault is forgotten. trial_s: how long after its return
        one fault or suspicion puts a node out again. suspicions: how many jobs must have broken on
        a node and succeeded without it before it is set aside. most_set_aside: the share of the
        nodes that may be out at once for faults; lost nodes are not counted.
    settle_s: how long no node must have joined before a job that needs more than there is counts
        as impossible; until then it waits.
    reserve_s: how long Ray may take to reserve an attempt's capacity. preflight_s: how long the
        check of a node before an attempt may take; one that takes longer has failed it.
    return_s: how long a lost node is expected to be away, until some have come back. grow_wait_s:
        how long a job that is to grow is given to save a checkpoint before.
    fruitless_restarts: how many restarts in a row a job may have without a new step or checkpoint,
        faults of machines not counted. restart_pause_s: before the second of them, doubled for
        each further one up to longest_restart_pause_s; the first is made at once.
    reprobe: how the network is measured again and again.
    """

    state_dir: str = Field(min_length=1)
    store: str = ""
    tiers: tuple[str, ...] = ()
    heartbeat_s: float = Field(default=1.0, gt=0)
    silent_s: float = Field(default=SILENT_S, gt=0)
    probation_s: float = Field(default=30.0, ge=0)
    set_aside_s: float = Field(default=600.0, ge=0)
    longest_set_aside_s: float = Field(default=86400.0, ge=0)
    fault_expiry_s: float = Field(default=86400.0, gt=0)
    trial_s: float = Field(default=3600.0, ge=0)
    suspicions: int = Field(default=3, ge=1)
    most_set_aside: float = Field(default=0.25, ge=0, le=1)
    settle_s: float = Field(default=10.0, ge=0)
    reserve_s: float = Field(default=15.0, gt=0)
    preflight_s: float = Field(default=20.0, gt=0)
    return_s: float = Field(default=300.0, gt=0)
    grow_wait_s: float = Field(default=600.0, ge=0)
    fruitless_restarts: int = Field(default=5, ge=0)
    restart_pause_s: float = Field(default=1.0, ge=0)
    longest_restart_pause_s: float = Field(default=300.0, ge=0)
    reprobe: Reprobe = Reprobe()

    @property
    def store_location(self) -> str:
        """Path or URL of the store."""
        return self.store or str(Path(self.state_dir) / "railweave.db")

    @property
    def rules(self) -> Rules:
        """How nodes are judged."""
        return Rules(
            expiry_s=self.fault_expiry_s,
            probation_s=self.probation_s,
            set_aside_s=self.set_aside_s,
            longest_s=self.longest_set_aside_s,
            trial_s=self.trial_s,
            suspicions=self.suspicions,
            share=self.most_set_aside,
        )

    def limits(self, max_restarts: int) -> Limits:
        """How far a job may go that has so many restarts."""
        return Limits(
            max_restarts,
            self.fruitless_restarts,
            self.restart_pause_s,
            self.longest_restart_pause_s,
        )

    def checkpoint_dir(self, job_id: str) -> str:
        """Where a job's checkpoints go when it names no place."""
        return str(Path(self.state_dir) / "checkpoints" / job_id)
