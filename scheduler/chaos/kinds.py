"""The kinds of faults that can be brought about, and what should come of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..fault import FaultKind


class Kind(StrEnum):
    """A way of breaking something. what: its sentence."""

    what: str

    def __new__(cls, value: str, what: str = "") -> Kind:
        """A member; `what` is its sentence."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.what = what
        return member

    RANK_KILL = "rank-kill", "A rank is killed (SIGKILL)"
    RANK_SIGNAL = (
        "rank-signal",
        "A rank crashes by a signal of its own kind: SIGSEGV, SIGABRT, SIGBUS or SIGTERM",
    )
    RANK_STOP = "rank-stop", "A rank's process is stopped (SIGSTOP)"
    RANK_EXIT = "rank-exit", "A rank ends with an exit code"
    RANK_EXCEPTION = "rank-exception", "A rank's program raises an exception"
    RANK_MEMORY = "rank-memory", "A rank asks for more memory than there is"
    RANK_GIL = "rank-gil", "A rank keeps its interpreter's lock and makes no step"
    RANK_SLOW = "rank-slow", "A rank computes many times slower"
    RANK_NAN = "rank-nan", "A rank's losses are no numbers any more"
    RANK_CLOCK = "rank-clock", "A rank's wall clock jumps"
    GUARD_KILL = "guard-kill", "The guard of a node's ranks is killed, and the ranks with it"
    GUARD_STOP = "guard-stop", "The guard of a node's ranks is stopped for a time"
    AGENT_KILL = "agent-kill", "A node's agent is killed"
    AGENT_STOP = (
        "agent-stop",
        "A node's agent is stopped for a time, shorter than what makes a node silent",
    )
    AGENT_CLOCK = "agent-clock", "The wall clock of a node's agent jumps, and back"
    CONTROLLER_KILL = "controller-kill", "A job's controller is killed"
    CONTROLLER_STOP = "controller-stop", "A job's controller is stopped for a time"
    DAEMON_KILL = "daemon-kill", "The daemon is killed"
    DAEMON_STOP = "daemon-stop", "The daemon is stopped for a time"
    GCS_STOP = "gcs-stop", "Ray's control store is stopped for a time"
    GCS_KILL = (
        "gcs-kill",
        "Ray's control store is killed; with it ends the head, which is started again",
    )
    HEAD_KILL = (
        "head-kill",
        "The head loses its power, with Ray's control store, the daemon and all controllers",
    )
    NODE_POWER = "node-power", "A node loses its power: all of its processes are gone at once"
    NODE_HANG = "node-hang", "Everything on a node is stopped, for longer than a node may be silent"
    DISK_FULL = "disk-full", "The file system of a job's checkpoints is full for a time"
    CHECKPOINT_TORN = (
        "checkpoint-torn",
        "A shard of the newest checkpoint is cut off, and the rank that commits is killed",
    )
    CHECKPOINT_FLIPPED = (
        "checkpoint-flipped",
        "A bit of a shard of the newest checkpoint is wrong, and the rank that commits is killed",
    )
    MANIFEST_TORN = (
        "manifest-torn",
        "The newest checkpoint's manifest is cut off, and the rank that commits is killed",
    )
    CABLE_PULLED = "cable-pulled", "A node's network cable is pulled for a time"
    PARTITION = "partition", "Two parts of the network do not reach each other for a time"
    PARTITION_ONE_WAY = (
        "partition-one-way",
        "One part of the network does not reach the other, which still reaches it",
    )
    LINK_SLOW = "link-slow", "A node's network link has little bandwidth for a time"


class Where(StrEnum):
    """What it takes to bring a fault about."""

    OUTSIDE = "outside"
    """Nothing: it is done to processes from outside."""
    INSIDE = "inside"
    """The job's program runs under `railweave.agents.rehearsal`."""
    STORAGE = "storage"
    """The job's checkpoints are in a folder that its first node reaches."""
    NODE = "node"
    """Somebody who can switch nodes off and on again, as an embedded cluster can."""
    HEAD = "head"
    """The same, and a control store that outlives the head; and no rank on the head."""
    NETWORK = "network"
    """A network that may be broken, as the emulated fabric of the tests."""


@dataclass(frozen=True)
class Facts:
    """What belongs to a kind.

    causes: the cause of the attempt that breaks by it; empty where none may break. events: what
    else is to stand in the history, any one of them; job_event: in the job's own. hits_node: it
    concerns every job of the node, not one job alone. for_s: how long it lasts if nothing else is
    said; None for what has no end of its own. of_job: it looks like the job's own fault, so the
    verdict counts it against the job.
    """

    where: Where
    causes: frozenset[FaultKind] = frozenset()
    events: frozenset[str] = frozenset()
    hits_node: bool = False
    for_s: float | None = None
    of_job: bool = False

    @property
    def breaks(self) -> bool:
        """Whether an attempt breaks by it."""
        return bool(self.causes)


def _causes(*kinds: FaultKind) -> frozenset[FaultKind]:
    return frozenset(kinds)


_F, _W = FaultKind, Where
_RESUME = frozenset({"resume"})
FACTS: dict[Kind, Facts] = {
    Kind.RANK_KILL: Facts(_W.OUTSIDE, _causes(_F.RANK_SIGNAL)),
    Kind.RANK_SIGNAL: Facts(_W.OUTSIDE, _causes(_F.RANK_SIGNAL), of_job=True),
    Kind.RANK_STOP: Facts(_W.OUTSIDE, _causes(_F.RANK_STOPPED), for_s=60.0, of_job=True),
    Kind.RANK_EXIT: Facts(_W.INSIDE, _causes(_F.RANK_EXIT), of_job=True),
    Kind.RANK_EXCEPTION: Facts(_W.INSIDE, _causes(_F.RANK_EXIT), of_job=True),
    Kind.RANK_MEMORY: Facts(_W.INSIDE, _causes(_F.OUT_OF_MEMORY), of_job=True),
    Kind.RANK_GIL: Facts(_W.INSIDE, _causes(_F.RANK_HUNG), for_s=120.0, of_job=True),
    Kind.RANK_SLOW: Facts(_W.INSIDE, _causes(_F.STRAGGLER)),
    Kind.RANK_NAN: Facts(_W.INSIDE, _causes(_F.NAN_LOSS), of_job=True),
    Kind.RANK_CLOCK: Facts(_W.INSIDE),
    Kind.GUARD_KILL: Facts(_W.OUTSIDE, _causes(_F.PART_STOPPED)),
    Kind.GUARD_STOP: Facts(_W.OUTSIDE, for_s=6.0),
    Kind.AGENT_KILL: Facts(_W.OUTSIDE, events=frozenset({"agent_restarted"})),
    Kind.AGENT_STOP: Facts(_W.OUTSIDE, for_s=3.0),
    Kind.AGENT_CLOCK: Facts(_W.OUTSIDE, events=frozenset({"clock_jump"}), for_s=6.0),
    Kind.CONTROLLER_KILL: Facts(_W.OUTSIDE, events=frozenset({"adopted"})),
    Kind.CONTROLLER_STOP: Facts(_W.OUTSIDE, for_s=3.0),
    Kind.DAEMON_KILL: Facts(_W.OUTSIDE, events=frozenset({"daemon"})),
    Kind.DAEMON_STOP: Facts(_W.OUTSIDE, for_s=3.0),
    Kind.GCS_STOP: Facts(_W.OUTSIDE, for_s=3.0),
    Kind.GCS_KILL: Facts(_W.HEAD, events=frozenset({"daemon"})),
    Kind.HEAD_KILL: Facts(_W.HEAD, events=frozenset({"daemon"}), for_s=5.0),
    Kind.NODE_POWER: Facts(_W.NODE, _causes(_F.NODE_LOST), hits_node=True, for_s=1.0),
    Kind.NODE_HANG: Facts(_W.NODE, _causes(_F.NODE_HUNG), hits_node=True, for_s=45.0),
    Kind.DISK_FULL: Facts(_W.STORAGE, events=frozenset({"disk_full"}), for_s=8.0),
    Kind.CHECKPOINT_TORN: Facts(_W.STORAGE, _causes(_F.RANK_SIGNAL), _RESUME),
    Kind.CHECKPOINT_FLIPPED: Facts(_W.STORAGE, _causes(_F.RANK_SIGNAL), _RESUME),
    Kind.MANIFEST_TORN: Facts(_W.STORAGE, _causes(_F.RANK_SIGNAL), _RESUME),
    Kind.CABLE_PULLED: Facts(_W.NETWORK, _causes(_F.NODE_LOST), hits_node=True, for_s=60.0),
    Kind.PARTITION: Facts(_W.NETWORK, _causes(_F.PARTITION), hits_node=True, for_s=60.0),
    Kind.PARTITION_ONE_WAY: Facts(_W.NETWORK, _causes(_F.PARTITION), hits_node=True, for_s=60.0),
    Kind.LINK_SLOW: Facts(_W.NETWORK, for_s=20.0),
}
"""Of every kind."""

DAMAGES = {
    Kind.CHECKPOINT_TORN: ("shard", "torn"),
    Kind.CHECKPOINT_FLIPPED: ("shard", "flipped"),
    Kind.MANIFEST_TORN: ("manifest", "torn"),
}
"""Which part of a checkpoint is damaged, and how."""
