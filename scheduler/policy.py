"""Which job starts next, and why the others wait. Pure.

Jobs start in order of priority, then of submission. A job that has to wait holds back the later
ones that could take the devices it waits for, so that small jobs never starve a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .ledger import Supply
from .records import JobRecord

_SHOWN = 5


@dataclass(frozen=True)
class Pass:
    """One look at the queue.

    start: the job to place now, if any. waits: why each other job waits. impossible: jobs that need
    more than the whole cluster has, and what is short.
    """

    start: str | None = None
    waits: dict[str, str] = field(default_factory=dict)
    impossible: dict[str, str] = field(default_factory=dict)


def in_order(waiting: Iterable[JobRecord]) -> list[JobRecord]:
    """The queue: higher priority first, then earlier submission."""
    return sorted(waiting, key=lambda job: (-job.priority, job.number))


def look(
    queue: Sequence[JobRecord],
    supply: Supply,
    unplaceable: Mapping[str, str],
    settled: bool = True,
) -> Pass:
    """What can start now.

    queue: waiting jobs in order. unplaceable: jobs that fit by number but for which the solver
    found no placement on what is free now, with its reason. settled: whether all nodes of the
    cluster are known; while they are not, a job that is too large for those that are waits.
    """
    found = Pass()
    start: str | None = None
    blocked: set[str] = set()
    first_blocked = ""
    for job in queue:
        short = _short(job, supply.total)
        if short and settled:
            found.impossible[job.job_id] = f"{short} in the whole cluster"
            continue
        if short:
            found.waits[job.job_id] = f"{short} so far; nodes are still joining the cluster"
            continue
        kinds = _wanted(job)
        if blocked and ("" in blocked or "" in kinds or blocked & kinds):
            found.waits[job.job_id] = f"behind {first_blocked} in the queue"
            continue
        reason = unplaceable.get(job.job_id) or _missing(job, supply)
        if reason:
            found.waits[job.job_id] = reason
            blocked |= kinds
            first_blocked = first_blocked or job.job_id
        elif start is None:
            start = job.job_id
        else:
            found.waits[job.job_id] = f"{start} is being placed first"
    return Pass(start, found.waits, found.impossible)


def _wanted(job: JobRecord) -> set[str]:
    """The accelerator kinds a job takes; "" stands for any."""
    return {*job.kinds, *([""] if sum(job.kinds.values()) < job.devices else [])}


def _short(job: JobRecord, have: Mapping[str, int]) -> str:
    for kind, needed in sorted(job.kinds.items()):
        if have.get(kind, 0) < needed:
            return f"needs {_devices(needed, kind)}, {have.get(kind, 0)} are there"
    if sum(have.values()) < job.devices:
        return f"needs {_devices(job.devices)}, {sum(have.values())} are there"
    return ""


def _missing(job: JobRecord, supply: Supply) -> str:
    lacking = [
        f"needs {_devices(needed, kind)}, {supply.free.get(kind, 0)} of "
        f"{supply.total.get(kind, 0)} are free"
        for kind, needed in sorted(job.kinds.items())
        if supply.free.get(kind, 0) < needed
    ]
    free = sum(supply.free.values())
    if not lacking and free < job.devices:
        total = sum(supply.total.values())
        lacking = [f"needs {_devices(job.devices)}, {free} of {total} are free"]
    if not lacking:
        return ""
    holders = [f"{job_id} holds {count}" for job_id, count in _largest(supply.held)]
    away = [
        f"node {node} with {count} is set aside ({reason})"
        for node, (count, reason) in sorted(supply.away.items())
    ]
    if len(away) > _SHOWN:
        away[_SHOWN:] = [f"and {len(away) - _SHOWN} more nodes are set aside"]
    taken = "; ".join([*holders, *away])
    return "; ".join(lacking) + (f": {taken}" if taken else "")


def _largest(held: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(held.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]


def _devices(count: int, kind: str = "") -> str:
    return f"{count} {kind} {'device' if count == 1 else 'devices'}".replace("  ", " ")
