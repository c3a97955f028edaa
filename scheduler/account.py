"""Where a job's time went: its phases one after another, and what each fault cost. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..agents.checkpoint_manifest import parse_step_folder
from .lifecycle import JobState
from .progress import Progress
from .records import AttemptRecord, JobRecord


class PhaseKind(StrEnum):
    """What a job was doing for a time."""

    QUEUED = "queued"
    """Waiting for its turn and for devices, before the first attempt."""
    LAUNCHING = "launching"
    """Devices are held; the ranks are being started."""
    STARTING = "starting up"
    """The ranks run, but have not finished a step: imports, rendezvous, loading a checkpoint."""
    TRAINING = "training"
    """Steps that count."""
    LOST = "training lost"
    """Steps after the checkpoint that the next attempt resumed from; they were done again."""
    UNNOTICED = "fault unnoticed"
    """Something is broken, and Railweave does not know yet."""
    STOPPING = "stopping"
    """The broken attempt is being ended on every node."""
    PLACING = "placing again"
    """Nothing runs; a new placement is being found, or the job waits for devices."""


@dataclass(frozen=True)
class Phase:
    """A span of wall-clock time, and the attempt it belongs to (the next one while waiting)."""

    kind: PhaseKind
    attempt: int
    start_s: float
    end_s: float

    @property
    def took_s(self) -> float:
        """How long it was."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Mark:
    """Something that was done to the job from outside, such as a node killed on purpose."""

    time_s: float
    text: str


@dataclass(frozen=True)
class Recovery:
    """One fault and what it cost; None where it is not known.

    detect_s: from when it happened until it was noticed. stop_s: until nothing of the attempt was
    left. restart_s: from when it was noticed until the next attempt had done a step, or was running
    where steps are not told. lost_steps: steps done again, which the next attempt resumed before.
    """

    attempt: int
    message: str
    node: str
    rank: int | None
    seen_s: float
    detect_s: float | None
    stop_s: float | None
    restart_s: float | None
    resumed_step: int | None
    lost_steps: int | None
    moved_ranks: int | None


def resumed_step(attempt: AttemptRecord, progress: Progress) -> int | None:
    """The step an attempt went on from, 0 for the beginning; None where that is not known."""
    told = (progress.resumed or {}).get(attempt.number)
    if told is not None:
        return told
    if not attempt.resumed_from:
        return 0
    parsed = parse_step_folder(attempt.resumed_from.rstrip("/").rpartition("/")[2])
    return parsed[0] if parsed else None


def recoveries(
    attempts: Sequence[AttemptRecord], progress: Progress, marks: Sequence[Mark] = ()
) -> list[Recovery]:
    """Every fault of a job, first to last, with what it cost."""
    found = []
    for attempt, after in _with_next(attempts):
        if attempt.fault_seen_s is None:
            continue
        cause = attempt.cause or {}
        began_s = happened_s(attempt, marks)
        lost = None
        step = resumed_step(after, progress) if after else None
        if step is not None and (done := progress.of(attempt.number)):
            lost = max(0, done[-1].step - step)
        found.append(
            Recovery(
                attempt=attempt.number,
                message=str(cause.get("message") or "no cause was told"),
                node=str(cause.get("node") or ""),
                rank=cause.get("rank"),
                seen_s=attempt.fault_seen_s,
                detect_s=_between(began_s, attempt.fault_seen_s),
                stop_s=_between(attempt.fault_seen_s, attempt.stopped_s),
                restart_s=_between(attempt.fault_seen_s, _going(after, progress)),
                resumed_step=step,
                lost_steps=lost,
                moved_ranks=after.moved_ranks if after else None,
            )
        )
    return found


def phases(
    job: JobRecord,
    attempts: Sequence[AttemptRecord],
    progress: Progress,
    marks: Sequence[Mark],
    now_s: float,
) -> list[Phase]:
    """The job's time from submission to its end (or now), without gaps or overlaps.

    Times come from several clocks; where they contradict each other a phase is cut to fit.
    """
    end_s = max(job.submitted_s, now_s if job.ended_s is None else job.ended_s)
    spans = _Spans(job.submitted_s, end_s)
    kind = PhaseKind.QUEUED
    for attempt, after in _with_next(attempts):
        spans.until(attempt.started_s, kind, attempt.number)
        # The attempt's own end is told by a node, a little before the job's is written down.
        ends_job = after is None and _ended_with(job, attempt)
        over_s = end_s if ends_job else _first(attempt.ended_s, end_s)
        broke_s = _first(happened_s(attempt, marks), attempt.fault_seen_s, over_s)
        _until_broken(spans, attempt, after, progress, broke_s)
        if attempt.fault_seen_s is not None:
            spans.until(attempt.fault_seen_s, PhaseKind.UNNOTICED, attempt.number)
        spans.until(
            max(over_s, _first(attempt.stopped_s, over_s)), PhaseKind.STOPPING, attempt.number
        )
        kind = PhaseKind.PLACING
    newest = attempts[-1].number if attempts else 0
    # What an ended job waited for at last never became an attempt.
    spans.until(end_s, kind, newest if newest and job.ended_s is not None else newest + 1)
    return spans.found


def _until_broken(
    spans: _Spans,
    attempt: AttemptRecord,
    after: AttemptRecord | None,
    progress: Progress,
    broke_s: float,
) -> None:
    number = attempt.number
    spans.until(_first(attempt.running_s, broke_s), PhaseKind.LAUNCHING, number)
    if attempt.running_s is None:
        return
    done = progress.of(number)
    if done:
        first_s = _first(done[0].time_s, attempt.running_s)
    else:
        first_s = broke_s if progress.samples else attempt.running_s
    spans.until(min(first_s, broke_s), PhaseKind.STARTING, number)
    kept_s = None
    if attempt.fault_seen_s is not None:
        kept_s = _kept_until(attempt, after, progress)
    if kept_s is not None:
        spans.until(min(kept_s, broke_s), PhaseKind.TRAINING, number)
        spans.until(broke_s, PhaseKind.LOST, number)
    spans.until(broke_s, PhaseKind.TRAINING, number)


def totals(spans: Sequence[Phase]) -> dict[PhaseKind, float]:
    """Seconds of each kind, in the order of a job's life."""
    sums: defaultdict[PhaseKind, float] = defaultdict(float)
    for phase in spans:
        sums[phase.kind] += phase.took_s
    return {kind: sums[kind] for kind in PhaseKind if sums[kind] > 0}


def happened_s(attempt: AttemptRecord, marks: Sequence[Mark]) -> float | None:
    """When an attempt's fault happened: by the node's clock, or by what was done to it."""
    if attempt.fault_seen_s is None:
        return None
    told = (attempt.cause or {}).get("happened_s")
    times = [mark.time_s for mark in marks] + ([float(told)] if told is not None else [])
    within = [t for t in times if attempt.started_s <= t <= attempt.fault_seen_s]
    return min(within, default=None)


def _with_next(
    attempts: Sequence[AttemptRecord],
) -> Iterator[tuple[AttemptRecord, AttemptRecord | None]]:
    """Every attempt with the one after it."""
    for index, attempt in enumerate(attempts):
        yield attempt, attempts[index + 1] if index + 1 < len(attempts) else None


def _ended_with(job: JobRecord, attempt: AttemptRecord) -> bool:
    """Whether the end of its last attempt was the end of the job, not waiting for another."""
    if job.ended_s is None or job.state is JobState.SUCCEEDED:
        return job.ended_s is not None
    return attempt.fault_seen_s is None or job.life.faults > job.life.max_restarts


def _kept_until(
    attempt: AttemptRecord, after: AttemptRecord | None, progress: Progress
) -> float | None:
    """When an attempt had done the last step that was not done again."""
    step = resumed_step(after, progress) if after else None
    done = progress.of(attempt.number)
    if step is None or not done or done[0].time_s is None:
        return None
    kept = [sample.time_s for sample in done if sample.step <= step and sample.time_s is not None]
    # Nothing of it was kept: all of its steps, up to the first, were done again.
    return kept[-1] if kept else attempt.running_s


def _going(attempt: AttemptRecord | None, progress: Progress) -> float | None:
    if attempt is None:
        return None
    done = progress.of(attempt.number)
    return done[0].time_s if done and done[0].time_s is not None else attempt.running_s


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)


def _first(*times: float | None) -> float:
    """The first time that is known."""
    return next(time_s for time_s in times if time_s is not None)


class _Spans:
    """Phases one after another, each beginning where the one before ended."""

    def __init__(self, start_s: float, end_s: float) -> None:
        self._at_s = start_s
        self._end_s = end_s
        self.found: list[Phase] = []

    def until(self, time_s: float, kind: PhaseKind, attempt: int) -> None:
        stop_s = min(time_s, self._end_s)
        if stop_s > self._at_s:
            self.found.append(Phase(kind, attempt, self._at_s, stop_s))
            self._at_s = stop_s
