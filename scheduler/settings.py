"""What an operator can set of the daemon."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ..placement.explained import Explained
from .verdict import Limits


class Settings(Explained):
    """The daemon's settings; they travel to it as JSON.

    state_dir: the daemon's own folder on the head node.
    store: path or database URL of the store; by default a SQLite file in state_dir.
    tiers: names of the network's tiers, nearest first, where counting domains would order them
        wrongly.
    heartbeat_s: between two signs of life of an agent. silent_s: after how long without one a node
        counts as lost.
    probation_s: how long a lost node must be well again before it is used. set_aside_s: how long a
        node that failed in another way is not used.
    settle_s: how long no node must have joined before a job that needs more than there is counts
        as impossible; until then it waits.
    reserve_s: how long Ray may take to reserve an attempt's capacity.
    fruitless_restarts: how many restarts in a row a job may have without a new step or checkpoint,
        faults of machines not counted. restart_pause_s: before the second of them, doubled for
        each further one up to longest_restart_pause_s; the first is made at once.
    """

    state_dir: str = Field(min_length=1)
    store: str = ""
    tiers: tuple[str, ...] = ()
    heartbeat_s: float = Field(default=1.0, gt=0)
    silent_s: float = Field(default=10.0, gt=0)
    probation_s: float = Field(default=30.0, ge=0)
    set_aside_s: float = Field(default=600.0, ge=0)
    settle_s: float = Field(default=10.0, ge=0)
    reserve_s: float = Field(default=15.0, gt=0)
    fruitless_restarts: int = Field(default=5, ge=0)
    restart_pause_s: float = Field(default=1.0, ge=0)
    longest_restart_pause_s: float = Field(default=300.0, ge=0)

    @property
    def store_location(self) -> str:
        """Path or URL of the store."""
        return self.store or str(Path(self.state_dir) / "railweave.db")

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
