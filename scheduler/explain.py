"""Why a job is where it is, in sentences for the one who asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .lifecycle import JobState
from .records import AttemptRecord, JobRecord

_LAST_LINES = 10


def explain(
    job: JobRecord, attempts: Sequence[AttemptRecord], position: int | None, waits: str, doing: str
) -> str:
    """What the job does or waits for, and what broke before.

    position: its place in the queue, from 1, while it waits. waits: the reason, as the policy told
    it. doing: the step of an attempt that is being prepared.
    """
    lines = [_now(job, attempts, position, waits, doing)]
    broken = [attempt for attempt in attempts if attempt.cause]
    if broken and job.state is not JobState.CANCELLED:
        lines += [_broke(attempt) for attempt in broken]
        lines += _last_lines(broken[-1])
    return "\n".join(lines)


def _now(
    job: JobRecord, attempts: Sequence[AttemptRecord], position: int | None, waits: str, doing: str
) -> str:
    name = f"{job.job_id} is {job.state}"
    if position is not None:
        place = "first in the queue" if position == 1 else f"{ordinal(position)} in the queue"
        return f"{name}, {place}: {waits or 'it is being placed'}"
    if job.state in (JobState.LAUNCHING, JobState.RUNNING):
        nodes = _nodes(attempts[-1]) if attempts else "its nodes"
        step = f": {doing}" if doing and job.state is JobState.LAUNCHING else ""
        return f"{name}: attempt {job.life.attempt} on {nodes}{step}"
    if job.state is JobState.RECOVERING:
        return f"{name}: attempt {job.life.attempt} broke and is being stopped everywhere"
    if job.state is JobState.STOPPING:
        return f"{name} on the way to {job.life.ending}: {job.reason}"
    return f"{name}: {job.reason}" if job.reason else f"{name} after {_count(job.life.attempt)}"


def _nodes(attempt: AttemptRecord) -> str:
    devices: dict[str, list[int]] = {}
    for node, device in attempt.placement.get("devices", []):
        devices.setdefault(node, []).append(device)
    shown = [f"{node} ({', '.join(map(str, found))})" for node, found in devices.items()]
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more nodes" if len(shown) > 8 else "")


def _broke(attempt: AttemptRecord) -> str:
    cause = attempt.cause or {}
    return f"attempt {attempt.number} broke: {cause.get('message', 'for an unknown reason')}"


def _last_lines(attempt: AttemptRecord) -> list[str]:
    lines = (attempt.cause or {}).get("last_lines") or []
    if not lines:
        return []
    return ["its last lines:", *(f"  {line}" for line in lines[-_LAST_LINES:])]


def _count(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ..."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
