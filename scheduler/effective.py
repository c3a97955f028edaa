"""How much of a job's time was effective training, and what faults of each kind cost. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import fmean

from .account import Mark, Phase, PhaseKind, Recovery, phases, recoveries, resumed_step, totals
from .progress import Progress
from .records import AttemptRecord, JobRecord


class Part(StrEnum):
    """Where a job's time went."""

    TRAINING = "training"
    """Steps that count, without what saving them took."""
    STALL = "checkpoint stall"
    """Training waited for a checkpoint."""
    QUEUE = "queue"
    """It waited for its first devices."""
    START = "start"
    """The first attempt's launch, up to its first step."""
    LOST = "lost steps"
    """Steps that were done again."""
    DETECTION = "detection"
    """Something was broken and not known yet."""
    RESTART = "restart"
    """From a known fault to the next attempt's first step: stop, placement, launch, start."""


@dataclass(frozen=True)
class KindCost:
    """What the faults of one kind cost; means over those that it is known of.

    detect_s: from the fault until it was known. recover_s: from then until the next attempt had
    done a step, or ran where steps are not told. lost_steps: done again, of all faults together.
    """

    kind: str
    count: int
    detect_s: float | None
    recover_s: float | None
    lost_steps: int


@dataclass(frozen=True)
class EffectiveTime:
    """A job's time from its submission to its end, or to now.

    parts: seconds of each part, which make up wall_s. ratio: the share that was training.
    """

    wall_s: float
    parts: dict[Part, float]
    kinds: tuple[KindCost, ...]

    @property
    def ratio(self) -> float:
        """The effective training time ratio."""
        return self.parts[Part.TRAINING] / self.wall_s if self.wall_s > 0 else 0.0


def effective_time(
    job: JobRecord,
    attempts: Sequence[AttemptRecord],
    progress: Progress,
    marks: Sequence[Mark],
    now_s: float,
) -> EffectiveTime:
    """The account of a job. What its logs do not tell counts as training, not as a loss."""
    spans = phases(job, attempts, progress, marks, now_s)
    parts = dict.fromkeys(Part, 0.0)
    for span in spans:
        parts[_part(span)] += span.took_s
    in_training, in_lost = _stalls(attempts, progress)
    in_training = min(in_training, parts[Part.TRAINING])
    in_lost = min(in_lost, parts[Part.LOST])
    parts[Part.TRAINING] -= in_training
    parts[Part.LOST] -= in_lost
    parts[Part.STALL] = in_training + in_lost
    causes = {attempt.number: attempt.cause or {} for attempt in attempts}
    by_kind: defaultdict[str, list[Recovery]] = defaultdict(list)
    for fault in recoveries(attempts, progress, marks):
        by_kind[str(causes[fault.attempt].get("kind") or "unknown")].append(fault)
    kinds = tuple(_cost(kind, faults) for kind, faults in sorted(by_kind.items()))
    return EffectiveTime(sum(totals(spans).values()), parts, kinds)


def expected_ratio(
    interval_s: float, stall_s: float, mtbf_s: float, restart_s: float, down_s: float = 0.0
) -> float:
    """The effective training time ratio to be expected where faults come at a constant rate.

    interval_s: of training between two saves; stall_s: that each keeps training waiting. mtbf_s:
    mean time between faults. restart_s: launch and start, in which faults come too; down_s: from
    the fault until the launch, in which nothing is there to break.

    interval / (exp(R/M) (M + D) (exp((interval + stall) / M) - 1)): the complete model of J. T.
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006), with the downtime D of M. Bougeret et al.,
    "Checkpointing strategies for parallel jobs", SC 2011. Raises ValueError for times that make no
    sense.
    """
    if not (interval_s > 0 and mtbf_s > 0 and min(stall_s, restart_s, down_s) >= 0):
        raise ValueError(
            f"interval {interval_s} s and time between faults {mtbf_s} s must be above 0, stall "
            f"{stall_s} s, restart {restart_s} s and down {down_s} s not below"
        )
    exponent = (interval_s + stall_s) / mtbf_s
    if restart_s / mtbf_s + exponent > 700:
        return 0.0  # beyond floating point: no interval is ever finished
    took_s = math.exp(restart_s / mtbf_s) * (mtbf_s + down_s) * math.expm1(exponent)
    return interval_s / took_s


def _part(span: Phase) -> Part:
    again = span.attempt > 1
    return {
        PhaseKind.QUEUED: Part.QUEUE,
        PhaseKind.LAUNCHING: Part.RESTART if again else Part.START,
        PhaseKind.STARTING: Part.RESTART if again else Part.START,
        PhaseKind.TRAINING: Part.TRAINING,
        PhaseKind.LOST: Part.LOST,
        PhaseKind.UNNOTICED: Part.DETECTION,
        PhaseKind.STOPPING: Part.RESTART,
        PhaseKind.PLACING: Part.RESTART,
    }[span.kind]


def _stalls(attempts: Sequence[AttemptRecord], progress: Progress) -> tuple[float, float]:
    """Seconds that saves took within steps that count, and after the last of those.

    A save that was not finished is part of what was lost.
    """
    resumed = {
        attempt.number: resumed_step(after, progress)
        for attempt, after in pairwise(attempts)
        if attempt.fault_seen_s is not None
    }
    within = after_last = 0.0
    for stall in progress.stalls:
        kept = resumed.get(stall.attempt)
        if kept is None or stall.step < kept:
            within += stall.stall_s
        elif stall.step == kept:
            after_last += stall.stall_s
    return within, after_last


def _cost(kind: str, faults: Sequence[Recovery]) -> KindCost:
    detected = [fault.detect_s for fault in faults if fault.detect_s is not None]
    recovered = [fault.restart_s for fault in faults if fault.restart_s is not None]
    return KindCost(
        kind=kind,
        count=len(faults),
        detect_s=fmean(detected) if detected else None,
        recover_s=fmean(recovered) if recovered else None,
        lost_steps=sum(fault.lost_steps or 0 for fault in faults),
    )
