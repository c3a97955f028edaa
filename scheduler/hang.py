"""Whether an attempt hangs: its ranks live, but nothing goes on. Pure.

Looked at over all nodes, because ranks wait for each other: while one writes a checkpoint the
others are as still as in a hang, and in a hang all are still, whoever began it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..agents.attempt import NodePhase, NodeStatus, Vitals
from .fault import Fault, FaultKind, after_step

TIMEOUT_VARIABLE = "RAILWEAVE_HANG_TIMEOUT_S"
"""Environment variable of the ranks that carries a job's own limit to its controller."""
LEAST_S = 300.0
"""No attempt whose typical step is known hangs sooner than this without a step."""
UNREPORTED_S = 1800.0
"""An attempt whose typical step is not known hangs after this time without any sign of life."""
STARTING_S = 15.0
"""The least limit before the first step: CPU time is looked at every few seconds."""
_TYPICAL = 10.0
_LONGEST = 3.0
_ALONE = 3.0
_BUSY = 0.5


@dataclass(frozen=True)
class _Still:
    """A rank with how long it has been still, and how long it may."""

    node: str
    vitals: Vitals
    still_s: float
    limit_s: float

    @property
    def over(self) -> float:
        return self.still_s / self.limit_s


def limit_s(vitals: Vitals, timeout_s: float | None) -> float:
    """How long a rank may be still.

    The job's own limit; else 10 typical steps, 3 times the longest step so far (a checkpoint, an
    evaluation), and never less than LEAST_S; UNREPORTED_S while its typical step is not known.
    """
    if timeout_s is not None:
        return timeout_s if vitals.reports else max(timeout_s, STARTING_S)
    longest_s = _LONGEST * (vitals.longest_s or 0.0)
    if vitals.typical_s is None:
        return max(UNREPORTED_S, longest_s)
    return max(LEAST_S, _TYPICAL * vitals.typical_s, longest_s)


def hung(
    nodes: Collection[str],
    statuses: Mapping[str, NodeStatus],
    timeout_s: float | None,
    now_s: float,
) -> Fault | None:
    """The fault of an attempt that hangs; None while it goes on or too little is known.

    timeout_s: the job's own limit. It counts steps alone once a rank has reported one; without
    it, output and files that are read or written are signs of life too, and a single rank among
    others that go on is given three times as long.
    """
    ranks = _running(nodes, statuses, timeout_s)
    if not ranks:
        return None
    alone = 1.0 if timeout_s is not None else _ALONE
    everywhere = all(rank.over >= 1 for rank in ranks)
    single = [rank for rank in ranks if rank.vitals.reports and rank.over >= alone]
    if not everywhere and not single:
        return None
    # They stop within the same step; those that have only just crossed their limit count as well.
    still = [rank for rank in ranks if rank.over >= 0.5]
    first = min(still, key=lambda rank: (_step(rank), not _odd(rank, still), -rank.still_s))
    return Fault(
        kind=FaultKind.RANK_HUNG,
        message=_message(first, len(still) - 1, len(ranks)),
        seen_s=now_s,
        node=first.node,
        rank=first.vitals.rank,
        happened_s=now_s - first.still_s,
        last_lines=first.vitals.last_lines,
        step=first.vitals.step,
    )


def _running(
    nodes: Collection[str], statuses: Mapping[str, NodeStatus], timeout_s: float | None
) -> list[_Still]:
    """Every running rank; none where not all of them can be seen."""
    found = []
    for node in nodes:
        status = statuses.get(node)
        if status is None or status.phase not in (NodePhase.RUNNING, NodePhase.ENDED):
            return []
        running = {rank.rank for rank in status.ranks if rank.exited_s is None and not rank.error}
        seen = [each for each in status.rank_vitals() if each.rank in running]
        if len(seen) < len(running):
            return []
        for each in seen:
            steps_alone = timeout_s is not None and each.report_age_s is not None
            still_s = (each.report_age_s or 0.0) if steps_alone else each.quiet_s
            found.append(_Still(node, each, still_s, limit_s(each, timeout_s)))
    return found


def _step(rank: _Still) -> int:
    return -1 if rank.vitals.step is None else rank.vitals.step


def _odd(rank: _Still, all_ranks: list[_Still]) -> bool:
    """Whether it alone computes while three or more wait, or alone waits while they compute."""
    busy = [(each.vitals.cpu_share or 0.0) >= _BUSY for each in all_ranks]
    own = (rank.vitals.cpu_share or 0.0) >= _BUSY
    return len(all_ranks) >= 3 and busy.count(own) == 1


def _message(first: _Still, others: int, ranks: int) -> str:
    vitals = first.vitals
    name = f"rank {vitals.rank} on node {first.node}"
    if vitals.reports:
        text = f"{name} has made no step for {first.still_s:.0f} s{after_step(vitals.step)}"
        if vitals.typical_s is not None:
            text += f", a step takes {vitals.typical_s:.3g} s"
    else:
        text = f"{name} shows no output and no CPU time for {first.still_s:.0f} s"
    if vitals.cpu_share is not None:
        text += f"; its process is in state {vitals.state} at {vitals.cpu_share:.0%} of a core"
    if ranks > 1:
        text += f"; {others} of the {ranks - 1} other ranks stand still too"
    return text + f"; the limit is {first.limit_s:.0f} s, set hang_timeout_s for another one"
