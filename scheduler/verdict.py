"""Whose fault a broken attempt is, and whether another one is worth it. Pure.

Told from a job's attempts alone, so a daemon that starts anew comes to the same verdict.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..agents.checkpoint_manifest import parse_step_folder
from .records import AttemptRecord

# Kinds of faults, by their value, that a job can bring about by itself. All others come from the
# machines or from outside and are no evidence against a job.
_OF_JOBS = frozenset(
    {"rank_exit", "rank_signal", "rank_start", "out_of_memory", "nan_loss", "rank_hung"}
)
_SENT_BY_OTHERS = frozenset(
    {signals.SIGKILL, signals.SIGTERM, signals.SIGHUP, signals.SIGINT, signals.SIGQUIT}
)
_ERROR = re.compile(r"(?i)\b[\w.]*(error|exception|fatal|panic|abort|assert)")
# What a rank says when a peer, the network or a device broke: it suffers, it is not the cause.
_SUFFERED = re.compile(
    r"(?i)connection|broken pipe|time[d ]{0,2}out|nccl|gloo|unreachable|socket|\bpeer\b"
    r"|\becc\b|\bxid\b|nvlink|input/output error|no space left|stale file handle"
)
_STEP = re.compile(r"(?<!\S)step=(\d{1,12})(?!\S)")
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")
_LONGEST_LINE = 400


class Decision(StrEnum):
    """What follows from a broken attempt."""

    RESTART = "restart"
    """Another attempt, as far as possible where the last one was."""
    ELSEWHERE = "elsewhere"
    """Another attempt without the nodes where the same error came twice: is it them or the job?"""
    JOB_AT_FAULT = "job_at_fault"
    """The same error at the same step on different machines: it would come again anywhere."""
    NO_PROGRESS = "no_progress"
    """Too many attempts in a row broke without a new step or checkpoint."""
    SPENT = "spent"
    """All restarts that the job was given are used."""

    @property
    def final(self) -> bool:
        """Whether no attempt follows."""
        return self not in (Decision.RESTART, Decision.ELSEWHERE)


@dataclass(frozen=True)
class Limits:
    """max_restarts: the job's own. fruitless: restarts in a row without progress.

    pause_s: before the second fruitless restart in a row, doubled for each further one up to
    longest_pause_s; the first is made at once.
    """

    max_restarts: int = 3
    fruitless: int = 5
    pause_s: float = 1.0
    longest_pause_s: float = 300.0


@dataclass(frozen=True)
class Broken:
    """A broken attempt as far as the verdict goes.

    error: the error without what differs from run to run; empty where the fault is not of_job, so
    that no job can bring it about. in_words: whether the error is more than a code or a signal.
    from_step: where the attempt went on from. step: the last step that it is known to have done.
    """

    attempt: int
    kind: str
    error: str
    node: str
    of_job: bool
    from_step: int | None = None
    step: int | None = None
    in_words: bool = False
    message: str = ""

    def same_as(self, other: Broken) -> bool:
        """Whether it is the same error at the same step, on whatever machine.

        Where no step is known, both must have begun at the same one and told the error in words:
        codes and signals alone are too common.
        """
        if not (self.of_job and other.of_job and self.error == other.error):
            return False
        if self.step is not None or other.step is not None:
            return self.step == other.step
        begun = self.from_step is not None and self.from_step == other.from_step
        return self.in_words and begun


@dataclass(frozen=True)
class Verdict:
    """What is to be done after a broken attempt, and why.

    pause_s: before the next attempt. avoid: nodes to be left out of it where that is possible.
    evidence: the attempts that speak for the decision, first to last. restarts, fruitless: how many
    faults there were, and how many of the job's kind in a row without progress.
    """

    decision: Decision
    why: str
    restarts: int
    fruitless: int
    limits: Limits
    pause_s: float = 0.0
    avoid: tuple[str, ...] = ()
    evidence: tuple[Broken, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The verdict with its numbers, for the job's history."""
        return {
            "decision": self.decision.value,
            "faults": self.restarts,
            "max_restarts": self.limits.max_restarts,
            "fruitless": self.fruitless,
            "max_fruitless": self.limits.fruitless,
            "pause_s": self.pause_s,
            "avoid": list(self.avoid),
            "evidence": [
                {
                    "attempt": each.attempt,
                    "kind": each.kind,
                    "node": each.node,
                    "step": each.step,
                    "from_step": each.from_step,
                    "error": each.error,
                    "message": each.message,
                }
                for each in self.evidence
            ],
        }


def broken_attempts(attempts: Sequence[AttemptRecord]) -> list[Broken]:
    """The attempts that broke, first to last, told from their causes."""
    return [_broken(attempt) for attempt in attempts if attempt.cause is not None]


def judge(broken: Sequence[Broken], limits: Limits) -> Verdict:
    """What follows from the last of a job's broken attempts. Raises ValueError where none broke."""
    if not broken:
        raise ValueError("there is no verdict before something broke")
    last, count = broken[-1], len(broken)
    fruitless = _fruitless(broken)
    same = [each for each in broken if each.same_as(last)]
    nodes = sorted({each.node for each in same if each.node})
    if len(nodes) > 1:
        decision = Decision.JOB_AT_FAULT
        where = " and ".join(f"on {each.node} (attempt {each.attempt})" for each in same)
        why = f"the job's own fault, the same error{_at(last)} {where}: {last.message}"
    elif count > limits.max_restarts:
        decision = Decision.SPENT
        why = f"its {limits.max_restarts} restarts are used: {last.message}"
    elif fruitless > limits.fruitless:
        decision = Decision.NO_PROGRESS
        why = (
            f"{fruitless} attempts in a row broke without a new step or checkpoint, "
            f"{limits.fruitless} restarts of that kind are allowed: {last.message}"
        )
    else:
        decision = Decision.ELSEWHERE if len(same) > 1 else Decision.RESTART
        pause_s = _pause_s(fruitless, limits)
        why = f"restart {count} of {limits.max_restarts}"
        if decision is Decision.ELSEWHERE:
            why += f", not on {nodes[0]} if possible: the same error came there twice"
        if pause_s:
            why += f", after {pause_s:g} s: {fruitless} attempts in a row brought no progress"
        avoid = tuple(nodes) if decision is Decision.ELSEWHERE else ()
        return Verdict(decision, why, count, fruitless, limits, pause_s, avoid, tuple(same))
    evidence = tuple(same if decision is Decision.JOB_AT_FAULT else broken[-fruitless or -1 :])
    return Verdict(decision, why, count, fruitless, limits, evidence=evidence)


def _pause_s(fruitless: int, limits: Limits) -> float:
    if fruitless < 2:
        return 0.0
    doublings = min(fruitless - 2, 60)  # beyond any cap, and still a finite number
    return min(limits.pause_s * 2.0**doublings, limits.longest_pause_s)


def _fruitless(broken: Sequence[Broken]) -> int:
    """How many faults of the job's kind came since its last progress.

    Progress is a step beyond all earlier ones, or a newer checkpoint to go on from. Faults of
    machines neither count nor end the row: a bad week of the cluster is not the job's.
    """
    count = 0
    start = furthest = -1
    for each in broken:
        if each.from_step is not None:
            if each.from_step > start >= 0:
                count = 0  # an attempt before this one had saved something new
            start = max(start, each.from_step)
            furthest = max(furthest, start)
        if each.step is not None and each.step > furthest:
            furthest = each.step
            count = 0
        else:
            count += each.of_job
    return count


def _at(broken: Broken) -> str:
    if broken.step is not None:
        return f" after step {broken.step}"
    return f" before any step was done after step {broken.from_step}" if broken.from_step else ""


def _broken(attempt: AttemptRecord) -> Broken:
    cause = attempt.cause or {}
    kind = str(cause.get("kind", ""))
    lines = [str(line)[:_LONGEST_LINE] for line in cause.get("last_lines") or ()]
    told = next((line for line in reversed(lines) if _ERROR.search(line)), "")
    if kind == "rank_start":
        told = str(cause.get("message", "")).partition("could not be started: ")[2]
    number = cause.get("signal")
    by_others = kind == "rank_signal" and number in _SENT_BY_OTHERS
    suffered = bool(_SUFFERED.search(told)) and kind in ("rank_exit", "rank_signal")
    of_job = kind in _OF_JOBS and not by_others and not suffered and not cause.get("node_at_fault")
    step = cause.get("step")
    return Broken(
        attempt=attempt.number,
        kind=kind,
        error=_signature(kind, cause, told) if of_job else "",
        node=str(cause.get("node") or ""),
        of_job=of_job,
        from_step=_from_step(attempt.resumed_from),
        step=step if isinstance(step, int) else _last_step(lines),
        in_words=of_job and bool(told),
        message=str(cause.get("message") or "no cause was told"),
    )


def _signature(kind: str, cause: dict[str, Any], told: str) -> str:
    what = kind
    if cause.get("signal") is not None:
        what += f" signal {cause['signal']}"
    elif cause.get("exit_code") is not None:
        what += f" code {cause['exit_code']}"
    return f"{what}: {_VARIES.sub('#', told.strip())}" if told else what


def _last_step(lines: Sequence[str]) -> int | None:
    """The last step that a rank's last lines tell of, as `progress` reads them."""
    steps = [int(m[1]) for line in lines if line.startswith("step=") and (m := _STEP.search(line))]
    return steps[-1] if steps else None


def _from_step(resumed_from: str) -> int | None:
    if not resumed_from:
        return 0
    parsed = parse_step_folder(resumed_from.rstrip("/").rpartition("/")[2])
    return parsed[0] if parsed else None
