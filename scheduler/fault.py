"""What ended an attempt: told from what the nodes report. Pure."""

from __future__ import annotations

import signal as signals
from collections.abc import Iterable, Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from ..agents.attempt import NodePhase, NodeStatus, RankState


class FaultKind(StrEnum):
    """What broke; of two that come together, the later one here explains the earlier."""

    RANK_EXIT = "rank_exit"
    """A rank ended with an exit code other than 0."""
    RANK_SIGNAL = "rank_signal"
    """A rank was ended by a signal that did not come from us."""
    RANK_START = "rank_start"
    """A rank could not be started: no such program, folder or permission."""
    PART_STOPPED = "part_stopped"
    """A node's part was stopped by someone else than its controller."""
    PART_FORGOTTEN = "part_forgotten"
    """A node that had started its part knows nothing of it any more."""
    LAUNCH_REFUSED = "launch_refused"
    """A node refused to start its part."""
    SURVIVORS = "survivors"
    """Processes of the attempt cannot be ended."""
    NODE_LOST = "node_lost"
    """A node died, or its agent was silent for too long."""


class Fault(BaseModel):
    """What broke, where, and since when. Times are wall-clock seconds.

    node_at_fault: whether the node is to be set aside. seen_s: when the controller noticed;
    happened_s: when it happened by the node's own clock, where that is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: FaultKind
    message: str
    seen_s: float
    node: str = ""
    node_at_fault: bool = False
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    happened_s: float | None = None
    last_lines: tuple[str, ...] = ()


def part_fault(status: NodeStatus, now_s: float) -> Fault | None:
    """What is wrong with one node's part of an attempt after its launch, or None."""
    failed = [rank for rank in status.ranks if rank.failed]
    if status.phase is NodePhase.STOPPED:
        reason = status.reason or "no reason given"
        return Fault(
            kind=FaultKind.PART_STOPPED,
            message=f"the ranks on node {status.node} were stopped: {reason}",
            seen_s=now_s,
            node=status.node,
            last_lines=failed[0].last_lines if failed else (),
        )
    if failed:
        return min((_rank_fault(status.node, rank, now_s) for rank in failed), key=_when)
    if status.phase is NodePhase.UNKNOWN:
        return Fault(
            kind=FaultKind.PART_FORGOTTEN,
            message=f"node {status.node} knows nothing of the ranks that were started on it",
            seen_s=now_s,
            node=status.node,
            node_at_fault=True,
        )
    return None


def earlier_faults(status: NodeStatus, stop_began_s: float, now_s: float) -> list[Fault]:
    """Ranks of a stopped part that had failed by themselves before the stop began.

    The signals of the stop itself are left out whatever their time: clocks of nodes differ.
    """
    ours = (signals.SIGTERM, signals.SIGKILL)
    return [
        _rank_fault(status.node, rank, now_s)
        for rank in status.ranks
        if rank.failed
        and rank.signal not in ours
        and (rank.exited_s is None or rank.exited_s < stop_began_s)
    ]


def refused(node: str, why: str, now_s: float) -> Fault:
    """A node that would not start its part."""
    return Fault(
        kind=FaultKind.LAUNCH_REFUSED,
        message=f"node {node} refused the launch: {why}",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
    )


def lost(node: str, why: str, now_s: float) -> Fault:
    """A node that is gone."""
    return Fault(
        kind=FaultKind.NODE_LOST,
        message=f"node {node} is lost: {why}",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
    )


def unending(node: str, pids: Iterable[int], now_s: float) -> Fault:
    """A node where processes of the attempt stay whatever is done."""
    shown = ", ".join(map(str, pids))
    return Fault(
        kind=FaultKind.SURVIVORS,
        message=f"processes {shown} on node {node} cannot be ended; the node is set aside",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
    )


def root_cause(first: Fault, others: Iterable[Fault]) -> Fault:
    """Of everything that went wrong in an attempt, what explains the rest.

    When a node dies, ranks elsewhere lose their connections and exit first, so the deeper kind
    wins; among ranks the one that ended first by the nodes' clocks. Keeps the time of the first
    sign.
    """
    depth = list(FaultKind)
    ranks = (FaultKind.RANK_EXIT, FaultKind.RANK_SIGNAL)

    def order(fault: Fault) -> tuple[int, float]:
        return (0 if fault.kind in ranks else -depth.index(fault.kind), _when(fault))

    chosen = min([first, *others], key=order)
    return chosen.model_copy(update={"seen_s": min(first.seen_s, chosen.seen_s)})


def all_succeeded(nodes: Iterable[str], statuses: Mapping[str, NodeStatus]) -> bool:
    """Whether every rank on every node ended with exit code 0 and left nothing behind."""
    return all(
        node in statuses
        and statuses[node].phase is NodePhase.ENDED
        and all(rank.exit_code == 0 and not rank.failed for rank in statuses[node].ranks)
        for node in nodes
    )


def _when(fault: Fault) -> float:
    return fault.seen_s if fault.happened_s is None else fault.happened_s


def _rank_fault(node: str, rank: RankState, now_s: float) -> Fault:
    if rank.pid is None and rank.error:
        kind, what = FaultKind.RANK_START, f"could not be started: {rank.error}"
    elif rank.signal is not None:
        kind, what = FaultKind.RANK_SIGNAL, f"was ended by {_signal_name(rank.signal)}"
    else:
        kind, what = FaultKind.RANK_EXIT, f"ended with exit code {rank.exit_code}"
    return Fault(
        kind=kind,
        message=f"rank {rank.rank} on node {node} {what}",
        seen_s=now_s,
        node=node,
        rank=rank.rank,
        exit_code=rank.exit_code,
        signal=rank.signal,
        happened_s=rank.exited_s,
        last_lines=rank.last_lines,
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
