"""What ended an attempt: told from what the nodes report. Pure."""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from ..agents.attempt import Finding, NodePhase, NodeStatus, RankState
from ..agents.guard import ON_REQUEST


class FaultKind(StrEnum):
    """What broke; of two that come together, the later one here explains the earlier."""

    UNKNOWN = "unknown"
    """Something that this version has no name for, told by a newer one."""
    STRAGGLER = "straggler"
    """A rank computes steadily slower than its peers."""
    RANK_EXIT = "rank_exit"
    """A rank ended with an exit code other than 0."""
    RANK_SIGNAL = "rank_signal"
    """A rank was ended by a signal that did not come from us."""
    RANK_HUNG = "rank_hung"
    """A rank, or all of them, made no step or other sign of life for far longer than usual."""
    NAN_LOSS = "nan_loss"
    """A rank reported losses that are no finite numbers, too many in a row."""
    RANK_START = "rank_start"
    """A rank could not be started: no such program, folder or permission."""
    RANK_STOPPED = "rank_stopped"
    """Somebody stopped a rank's process (SIGSTOP) and did not let it go on."""
    OUT_OF_MEMORY = "out_of_memory"
    """A rank was killed by the kernel, or gave up, because memory ran out."""
    PART_STOPPED = "part_stopped"
    """A node's part was stopped by someone else than its controller."""
    PART_FORGOTTEN = "part_forgotten"
    """A node that had started its part knows nothing of it any more."""
    LAUNCH_REFUSED = "launch_refused"
    """A node refused to start its part."""
    SURVIVORS = "survivors"
    """Processes of the attempt cannot be ended."""
    DEVICE_ERROR = "device_error"
    """A device that a rank runs on is broken, as its driver says."""
    PARTITION = "partition"
    """The network between the head and a node that lives was cut for too long."""
    NODE_HUNG = "node_hung"
    """A node's processes show no sign of life, though its kernel answers."""
    NODE_LOST = "node_lost"
    """A node died, or nothing is known but that its agent was silent for too long."""

    @classmethod
    def _missing_(cls, value: object) -> FaultKind | None:
        return cls.UNKNOWN if isinstance(value, str) else None


class Fault(BaseModel):
    """What broke, where, and since when. Times are wall-clock seconds.

    node_at_fault: whether the node is to be set aside. seen_s: when the controller noticed;
    happened_s: when it happened by the clock of the controller, where that is known. step: the
    last one that the rank reported. follows: it came of another fault, for which a controller that
    was killed meanwhile had the part stopped.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)  # a newer controller may tell more

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
    step: int | None = None
    follows: bool = False

    @model_serializer(mode="wrap")
    def _without_what_is_new(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialise(self)
        # Daemons of earlier versions refuse these.
        if self.step is None:
            del data["step"]
        if not self.follows:
            del data["follows"]
        return data


def part_fault(status: NodeStatus, now_s: float) -> Fault | None:
    """What is wrong with one node's part of an attempt after its launch, or None."""
    failed = [rank for rank in status.ranks if rank.failed]
    steps = _last_steps(status)
    if status.phase is NodePhase.STOPPED:
        if before := _failed_before(status, now_s):
            return root_cause(before[0], before[1:])
        reason = status.reason or "no reason given"
        return Fault(
            kind=FaultKind.PART_STOPPED,
            message=f"the ranks on node {status.node} were stopped: {reason}",
            seen_s=now_s,
            node=status.node,
            last_lines=failed[0].last_lines if failed else (),
            follows=status.reason == ON_REQUEST,
        )
    broken = [_rank_fault(status, rank, now_s, steps.get(rank.rank)) for rank in failed]
    broken += [_found_fault(status, found, now_s) for found in status.rank_findings()]
    if broken:
        return root_cause(broken[0], broken[1:])
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

    What exited while it was being stopped is left out, and so are the signals of the stop itself.
    """
    ours = (signals.SIGTERM, signals.SIGKILL)
    steps = _last_steps(status)
    return [_found_fault(status, found, now_s) for found in status.rank_findings()] + [
        _rank_fault(status, rank, now_s, steps.get(rank.rank))
        for rank in status.ranks
        if rank.failed
        and not rank.stopping
        and (rank.signal not in ours or status.reason == ON_REQUEST)
        and (rank.exited_s is None or _here_s(status, rank.exited_s, now_s) < stop_began_s)
    ]


def _failed_before(status: NodeStatus, now_s: float) -> list[Fault]:
    """Ranks of a part that was stopped on request that had failed before."""
    if status.reason != ON_REQUEST:
        return []
    steps = _last_steps(status)
    return [
        _rank_fault(status, rank, now_s, steps.get(rank.rank))
        for rank in status.ranks
        if rank.failed and not rank.stopping
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


def lost(node: str, why: str, now_s: float, kind: FaultKind = FaultKind.NODE_LOST) -> Fault:
    """A node that is gone, in the way that `kind` says."""
    what = {FaultKind.PARTITION: "is cut off", FaultKind.NODE_HUNG: "hangs"}.get(kind, "is lost")
    return Fault(
        kind=kind,
        message=f"node {node} {what}: {why}",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
    )


def broken_device(node: str, rank: int, message: str, now_s: float) -> Fault:
    """A device that broke under a rank; `message` names it."""
    return Fault(
        kind=FaultKind.DEVICE_ERROR,
        message=f"{message}, on node {node} under rank {rank}",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
        rank=rank,
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


def not_free(node: str, held: Iterable[str], now_s: float) -> Fault:
    """A node where the attempt's processes are gone, but not what they had."""
    return Fault(
        kind=FaultKind.SURVIVORS,
        message=f"not free on node {node} after the stop: {'; '.join(held)}",
        seen_s=now_s,
        node=node,
        node_at_fault=True,
    )


def root_cause(first: Fault, others: Iterable[Fault]) -> Fault:
    """Of everything that went wrong in an attempt, what explains the rest.

    When a node dies, ranks elsewhere lose their connections and exit first, so the deeper kind
    wins; among ranks the one that ended first by the nodes' clocks. What only follows from another
    fault explains nothing. Keeps the time of the first sign.
    """
    depth = list(FaultKind)
    ranks = (
        FaultKind.STRAGGLER,
        FaultKind.RANK_EXIT,
        FaultKind.RANK_SIGNAL,
        FaultKind.RANK_HUNG,
        FaultKind.NAN_LOSS,
    )

    def order(fault: Fault) -> tuple[bool, int, float]:
        depths = 0 if fault.kind in ranks else -depth.index(fault.kind)
        return (fault.follows, depths, _when(fault))

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


# What torch, Python and the C++ library say in the end when they get no memory.
_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|CUDA error: out of memory|HIP out of memory|^MemoryError\b|std::bad_alloc"
)
_SAID_LINES = 5
# What guards call what they find, and what to do about it.
_FINDINGS = {
    "nan_loss": (
        FaultKind.NAN_LOSS,
        "look at the data and the learning rate there; nan_loss_limit sets how many are borne",
    ),
    "out_of_memory": (
        FaultKind.OUT_OF_MEMORY,
        "make the ranks smaller, or put fewer on a node",
    ),
    "stopped": (
        FaultKind.RANK_STOPPED,
        "find who sent SIGSTOP; to pause a job, cancel it and submit it again later",
    ),
}


def _here_s(status: NodeStatus, there_s: float, now_s: float) -> float:
    """A time of a node's clock by this one: nodes' clocks differ, and may be set meanwhile."""
    return there_s + (now_s - status.now_s if status.now_s else 0.0)


def _found_fault(status: NodeStatus, found: Finding, now_s: float) -> Fault:
    kind, advice = _FINDINGS.get(found.kind, (FaultKind.UNKNOWN, "see the log of the rank"))
    return Fault(
        kind=kind,
        message=(
            f"rank {found.rank} on node {status.node} {found.what}{after_step(found.step)}; "
            f"{advice}"
        ),
        seen_s=now_s,
        node=status.node,
        rank=found.rank,
        happened_s=_here_s(status, found.since_s, now_s),
        last_lines=found.last_lines,
        step=found.step,
    )


def after_step(step: int | None) -> str:
    """What a message says of the last step; nothing where none was reported."""
    return "" if step is None else f", after step {step}"


def _last_steps(status: NodeStatus) -> dict[int, int]:
    return {each.rank: each.step for each in status.rank_vitals() if each.step is not None}


def _rank_fault(status: NodeStatus, rank: RankState, now_s: float, step: int | None) -> Fault:
    node = status.node
    if rank.pid is None and rank.error:
        kind, what = FaultKind.RANK_START, f"could not be started: {rank.error}"
    elif rank.signal is not None:
        kind, what = FaultKind.RANK_SIGNAL, f"was ended by {_signal_name(rank.signal)}"
    else:
        kind, what = FaultKind.RANK_EXIT, f"ended with exit code {rank.exit_code}"
    said = [line for line in rank.last_lines[-_SAID_LINES:] if _OUT_OF_MEMORY.search(line)]
    if said and kind is not FaultKind.RANK_START:
        kind, what = FaultKind.OUT_OF_MEMORY, f"{what} for want of memory: {said[-1].strip()}"
    return Fault(
        kind=kind,
        message=f"rank {rank.rank} on node {node} {what}{after_step(step)}",
        seen_s=now_s,
        node=node,
        rank=rank.rank,
        exit_code=rank.exit_code,
        signal=rank.signal,
        happened_s=None if rank.exited_s is None else _here_s(status, rank.exited_s, now_s),
        last_lines=rank.last_lines,
        step=step,
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
