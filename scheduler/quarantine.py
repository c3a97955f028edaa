"""When a node is kept out of placements, for how long, and when it is trusted again. Pure.

A node's faults count for a time and then expire. Each further one keeps it out for longer, and
after its return it is on probation. However many faults come, only a share of the cluster is set
aside for them, so that a job that breaks nodes cannot empty the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .verdict import Broken


class Why(StrEnum):
    """What is held against a node, or who keeps it out."""

    LOST = "lost"
    """It died or fell silent. It is out until it is back, and a while longer."""
    FAULT = "fault"
    """It failed an attempt: it refused a launch, forgot its ranks, or a device of it broke."""
    SUSPECTED = "suspected"
    """A job broke on it with an error of its own and then succeeded without it."""
    SURVIVORS = "survivors"
    """Processes on it cannot be ended, so its devices are not free. No cap holds here."""
    DEVICE = "device"
    """One of its devices is broken, as the driver says. No cap holds here."""
    OPERATOR = "operator"
    """Somebody asked for it. Nothing but a release, or the time they gave, ends it."""


# What makes a node unfit for any job, whatever share of the cluster that is.
_UNFIT = (Why.SURVIVORS, Why.DEVICE)


@dataclass(frozen=True)
class Rules:
    """How nodes are judged.

    expiry_s: after how long a fault is forgotten. probation_s: how long a lost node must be well
    again before it is used, times its losses. set_aside_s: how long a node that failed in another
    way is out, times its faults. longest_s: at most. trial_s: how long after its return one fault,
    or one suspicion, puts it out again. suspicions: of different jobs, before a node is set aside
    on suspicion. share: of the cluster's nodes that may be out for faults and suspicions.
    """

    expiry_s: float = 86400.0
    probation_s: float = 30.0
    set_aside_s: float = 600.0
    longest_s: float = 86400.0
    trial_s: float = 3600.0
    suspicions: int = 3
    share: float = 0.25

    def most_out(self, nodes: int) -> int:
        """How many of `nodes` may be out at once; one where there are two, never the last."""
        return max(0, min(nodes - 1, max(1, int(self.share * nodes))))


@dataclass(frozen=True)
class NodeFault:
    """Something that is held against a node.

    job_id: the job that met it, or empty. origin: what told of it, as an attempt; empty where
    nothing tells twice.
    """

    time_s: float
    why: Why
    message: str
    job_id: str = ""
    origin: str = ""


@dataclass(frozen=True)
class Standing:
    """What is known against a node.

    faults: first to last, of the time before they expire. out: why it is kept out now, or None.
    trial_until_s: the end of its probation.
    """

    faults: tuple[NodeFault, ...] = ()
    out: Why | None = None
    trial_until_s: float = 0.0

    def count(self, *kinds: Why) -> int:
        """How many faults of these kinds it has."""
        return sum(fault.why in kinds for fault in self.faults)


@dataclass(frozen=True)
class NodeRecord:
    """A node's standing for people.

    out: why it is kept out, or None; reason, since_s, until_s: of that. faults: those that count.
    """

    name: str
    out: Why | None
    reason: str
    since_s: float | None
    until_s: float | None
    faults: tuple[NodeFault, ...]
    trial_until_s: float


@dataclass(frozen=True)
class Ruling:
    """What follows from a fault.

    until_s: how long the node is out; None until its return. numbers: what it was decided by.
    capped: it would have been set aside, were not as many out as may be.
    """

    standing: Standing
    set_aside: bool = False
    until_s: float | None = None
    capped: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)


def remembered(standing: Standing, now_s: float, rules: Rules) -> Standing:
    """The standing without the faults that have expired."""
    faults = tuple(each for each in standing.faults if now_s - each.time_s < rules.expiry_s)
    return replace(standing, faults=faults)


def ruled(
    standing: Standing, fault: NodeFault, now_s: float, rules: Rules, out: int, nodes: int
) -> Ruling:
    """What follows from a fault of a node.

    out: how many others are out for faults and suspicions. nodes: of the whole cluster. A loss that
    is told twice counts once, as do a suspicion that the same job had before and a fault of the
    same origin: who tells of it repeats it until a daemon has taken it in.
    """
    before = remembered(standing, now_s, rules)
    lost_already = fault.why is Why.LOST and before.out is Why.LOST
    if lost_already or any(_same(fault, each) for each in before.faults):
        return Ruling(before)
    after = replace(before, faults=(*before.faults, fault))
    numbers = {
        "faults": after.count(Why.FAULT, *_UNFIT),
        "losses": after.count(Why.LOST),
        "suspicions": after.count(Why.SUSPECTED),
        "out": out,
        "most_out": rules.most_out(nodes),
    }
    if before.out is Why.OPERATOR or (before.out is Why.LOST and fault.why is not Why.LOST):
        return Ruling(after, numbers=numbers)
    if fault.why is Why.LOST:
        return Ruling(replace(after, out=Why.LOST), True, None, numbers=numbers)
    on_trial = now_s < before.trial_until_s
    needed = 1 if on_trial else rules.suspicions
    if fault.why is Why.SUSPECTED and numbers["suspicions"] < needed:
        return Ruling(after, numbers=numbers)
    if fault.why not in _UNFIT and before.out is None and out >= rules.most_out(nodes):
        return Ruling(after, capped=True, numbers=numbers)
    count = max(1, after.count(Why.FAULT, Why.SUSPECTED, *_UNFIT) - (needed - 1))
    away_s = min(rules.set_aside_s * count, rules.longest_s)
    kept = next((why for why in _UNFIT if why in (before.out, fault.why)), fault.why)
    return Ruling(replace(after, out=kept), True, now_s + away_s, numbers=numbers)


def returned(standing: Standing, now_s: float, rules: Rules) -> float:
    """Until when a node that was lost and is back must be well before it is used."""
    losses = max(1, remembered(standing, now_s, rules).count(Why.LOST))
    return now_s + min(rules.probation_s * losses, max(rules.probation_s, rules.longest_s))


def let_back(standing: Standing, now_s: float, rules: Rules) -> Standing:
    """The standing of a node whose time is over: in use, and on probation for a while."""
    kept = remembered(standing, now_s, rules)
    return replace(kept, out=None, trial_until_s=now_s + rules.trial_s)


def suspects(broken: Sequence[Broken], succeeded_on: Sequence[str]) -> dict[str, str]:
    """Nodes that a job which has now succeeded without them broke on, with what it said there.

    An error that a job brought about by itself comes everywhere; one that stayed away with the node
    speaks against the node.
    """
    return {
        each.node: each.message
        for each in broken
        if each.of_job and each.node and each.node not in succeeded_on
    }


def _same(fault: NodeFault, earlier: NodeFault) -> bool:
    """Whether two faults of a node are one that was told twice."""
    if fault.why is not earlier.why:
        return False
    if fault.why is Why.SUSPECTED:
        return fault.job_id == earlier.job_id
    return fault.origin != "" and fault.origin == earlier.origin
