"""Whether what was broken on purpose was noticed, for what it was, and how soon. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from ..records import AttemptRecord, EventRecord
from .kinds import DAMAGES, FACTS, Kind
from .schedule import Injection

CLOCKS_S = 1.0
"""By how much clocks of nodes, and of who breaks things, may differ."""
_SEEN_WITHIN_S = 120.0
_TOLD_WITHIN_S = 10.0
_SILENCING = (Kind.NODE_POWER, Kind.NODE_HANG, Kind.AGENT_KILL, Kind.AGENT_STOP)
_UNHEARD = (Kind.GCS_KILL, Kind.HEAD_KILL)
"""While these last nobody hears what a node tells, and what it tells once is lost."""


@dataclass(frozen=True)
class Done:
    """A fault that was brought about, or could not be.

    job_id, attempt, node: what it hit. at_s, until_s: wall-clock seconds; until_s is None for what
    does not last. step: that its rank had reported. error: why it could not be brought about.
    detail: what else is known, as the file that was damaged.
    """

    fault: Injection
    job_id: str
    attempt: int = 0
    node: str = ""
    at_s: float = 0.0
    until_s: float | None = None
    step: int | None = None
    error: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


class Outcome(StrEnum):
    """What came of a fault."""

    NOTICED = "noticed"
    """The attempt broke with the right cause, or the right event was written."""
    BORNE = "borne"
    """Nothing was to break by it, and nothing did."""
    MASKED = "masked"
    """Another fault broke the same attempt before this one could."""
    MISSED = "missed"
    """Nothing in the history tells of it, or tells something else."""
    NOT_DONE = "not done"
    """It could not be brought about."""


@dataclass(frozen=True)
class Finding:
    """What came of one fault. detect_s: until it was known; recover_s: from then until the next
    attempt had done a step, or ran where steps are not told. told: the event, or what is wrong."""

    done: Done
    outcome: Outcome
    detect_s: float | None = None
    recover_s: float | None = None
    told: str = ""


@dataclass(frozen=True)
class History:
    """What is known of one job. going_s: when each attempt had done its first step, by number."""

    attempts: Sequence[AttemptRecord]
    events: Sequence[EventRecord]
    going_s: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class KindSummary:
    """All faults of a kind. Times are seconds, medians and maxima of those that are known."""

    kind: Kind
    count: int
    outcomes: Mapping[Outcome, int]
    detect_s: float | None
    longest_detect_s: float | None
    recover_s: float | None
    longest_recover_s: float | None


@dataclass(frozen=True)
class Report:
    """What was done and what came of it.

    findings: in the order of the faults. unexplained: attempts that broke though nothing of what
    was done explains how.
    """

    findings: tuple[Finding, ...]
    unexplained: tuple[str, ...]

    @property
    def missed(self) -> tuple[Finding, ...]:
        """Faults that were not noticed for what they were."""
        return tuple(each for each in self.findings if each.outcome is Outcome.MISSED)

    @property
    def done(self) -> tuple[Finding, ...]:
        """Faults that were brought about."""
        return tuple(each for each in self.findings if each.outcome is not Outcome.NOT_DONE)

    def by_kind(self) -> list[KindSummary]:
        """A summary of each kind, in the order of the kinds."""
        found = []
        for kind in Kind:
            own = [each for each in self.findings if each.done.fault.kind is kind]
            if own:
                found.append(_summary(kind, own))
        return found


def judge(
    done: Sequence[Done],
    histories: Mapping[str, History],
    cluster: Sequence[EventRecord],
    since_s: float = 0.0,
) -> Report:
    """What came of each fault.

    histories: by job id, of every job that may have been hit. cluster: events of no job. since_s:
    when the first fault may have come; attempts that broke before are not to be explained.
    """
    brought_about = [each for each in done if not each.error]
    findings = []
    for each in done:
        if each.error:
            findings.append(Finding(each, Outcome.NOT_DONE, told=each.error))
            continue
        history = histories.get(each.job_id, History((), ()))
        if FACTS[each.fault.kind].breaks:
            findings.append(_broke(each, history, brought_about))
        else:
            findings.append(_bore(each, history, cluster, brought_about))
    unexplained = [
        _named(job_id, attempt)
        for job_id, history in histories.items()
        for attempt in history.attempts
        if attempt.fault_seen_s is not None
        and attempt.fault_seen_s >= since_s
        and not _explained(job_id, attempt, brought_about)
    ]
    return Report(tuple(findings), tuple(unexplained))


def _broke(done: Done, history: History, others: Sequence[Done]) -> Finding:
    """Of a fault by which an attempt is to break."""
    facts = FACTS[done.fault.kind]
    attempt = next((a for a in history.attempts if a.number == done.attempt), None)
    if attempt is None or attempt.fault_seen_s is None:
        return Finding(done, Outcome.MISSED, told="the attempt did not break")
    cause = attempt.cause or {}
    detect_s = attempt.fault_seen_s - done.at_s
    if cause.get("kind") not in facts.causes or detect_s < -CLOCKS_S:
        if _explained(done.job_id, attempt, [each for each in others if each is not done]):
            return Finding(done, Outcome.MASKED, told=str(cause.get("message", "")))
        expected = " or ".join(sorted(facts.causes))
        found = f"expected {expected}, found {cause.get('kind')}: {cause.get('message')}"
        return Finding(done, Outcome.MISSED, told=found)
    if done.fault.kind in DAMAGES and (wrong := _wrongly_resumed(done, history)):
        return Finding(done, Outcome.MISSED, told=wrong)
    going_s = history.going_s.get(attempt.number + 1)
    recover_s = None if going_s is None else max(0.0, going_s - attempt.fault_seen_s)
    told = str(cause.get("message", ""))
    return Finding(done, Outcome.NOTICED, max(0.0, detect_s), recover_s, told)


def _wrongly_resumed(done: Done, history: History) -> str:
    """What is wrong with where the next attempts resumed, given a checkpoint that was damaged."""
    path = str(done.detail.get("path", ""))
    folder = path.rpartition("/")[0]
    for event in history.events:
        if event.kind != "resume" or event.attempt is None or event.attempt <= done.attempt:
            continue
        if event.data.get("path") == folder:
            return f"attempt {event.attempt} resumed from the damaged checkpoint {folder}"
        if any(str(each[0]) == folder for each in event.data.get("passed_over", ())):
            return ""
    return f"no attempt tells that it passed over the damaged checkpoint {folder}"


def _bore(
    done: Done, history: History, cluster: Sequence[EventRecord], others: Sequence[Done]
) -> Finding:
    """Of a fault by which no attempt may break."""
    facts = FACTS[done.fault.kind]
    end_s = max(done.at_s, done.until_s or 0.0) + _SEEN_WITHIN_S
    if not facts.events:
        # That nothing broke by it shows in that every broken attempt is explained otherwise.
        return Finding(done, Outcome.BORNE)
    for event in [*history.events, *cluster]:
        of_node = event.data.get("node") in (None, "", done.node)
        if event.kind in facts.events and of_node and done.at_s - CLOCKS_S <= event.time_s <= end_s:
            return Finding(
                done, Outcome.NOTICED, max(0.0, event.time_s - done.at_s), told=event.message
            )
    if any(
        each is not done
        and (each.node == done.node or each.fault.kind in _UNHEARD)
        and each.fault.kind in (*_SILENCING, *_UNHEARD)
        and 0 <= each.at_s - done.at_s + CLOCKS_S <= _TOLD_WITHIN_S
        for each in others
    ):
        return Finding(done, Outcome.MASKED, told="its node was silenced before it could tell")
    attempt = next((a for a in history.attempts if a.number == done.attempt), None)
    over_s = None if attempt is None else attempt.fault_seen_s or attempt.ended_s
    if over_s is not None and over_s <= (done.until_s or done.at_s) + CLOCKS_S:
        return Finding(done, Outcome.MASKED, told="its attempt ended meanwhile")
    expected = " or ".join(sorted(facts.events))
    return Finding(done, Outcome.MISSED, told=f"no event {expected} within {_SEEN_WITHIN_S:g} s")


def _explained(job_id: str, attempt: AttemptRecord, done: Sequence[Done]) -> bool:
    """Whether one of the faults is how the attempt broke."""
    cause = attempt.cause or {}
    nodes = {str(node) for node, _ in attempt.placement.get("devices", ())}
    seen_s = attempt.fault_seen_s or 0.0
    for each in done:
        facts = FACTS[each.fault.kind]
        if cause.get("kind") not in facts.causes or each.at_s > seen_s + CLOCKS_S:
            continue
        own = each.job_id == job_id and each.attempt == attempt.number
        ended_s = attempt.stopped_s or attempt.ended_s or seen_s
        node = facts.hits_node and each.node in nodes and each.at_s <= ended_s
        lasted_s = max(each.at_s, each.until_s or each.at_s) + _SEEN_WITHIN_S
        if own or (node and attempt.started_s <= lasted_s):
            return True
    return False


def _named(job_id: str, attempt: AttemptRecord) -> str:
    cause = attempt.cause or {}
    return f"attempt {attempt.number} of {job_id}: {cause.get('kind')}: {cause.get('message')}"


def _summary(kind: Kind, own: Sequence[Finding]) -> KindSummary:
    detected = [each.detect_s for each in own if each.detect_s is not None]
    recovered = [each.recover_s for each in own if each.recover_s is not None]
    return KindSummary(
        kind=kind,
        count=len(own),
        outcomes={
            outcome: count
            for outcome in Outcome
            if (count := sum(each.outcome is outcome for each in own))
        },
        detect_s=median(detected) if detected else None,
        longest_detect_s=max(detected, default=None),
        recover_s=median(recovered) if recovered else None,
        longest_recover_s=max(recovered, default=None),
    )
