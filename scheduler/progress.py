"""What a training job says of itself in its log: steps and losses, checkpoints, where it resumed.

Any job is understood that prints lines such as `step=12 loss=3.25 time_s=1700000000.0`,
`saved step=10`, `stalled step=10 stall_s=0.25` and `resumed step=10`; all but the step, and in a
`stalled` line how long the save kept training waiting, may be missing.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_LONGEST_LINE = 2000
_STEP = re.compile(r"(?<!\S)step=(\d{1,12})(?!\S)")
_LOSS = re.compile(r"(?<!\S)loss=([-+.\w]{1,40})(?!\S)")
_STALL = re.compile(r"(?<!\S)stall_s=(\d{1,9}(?:\.\d{1,9})?)(?!\S)")
_TIME = re.compile(r"(?<!\S)time_s=(\d{1,12}(?:\.\d{1,9})?)(?!\S)")


@dataclass(frozen=True)
class Sample:
    """A step that an attempt has done; `loss` is None where it is not finite or not told."""

    attempt: int
    step: int
    loss: float | None = None
    time_s: float | None = None


@dataclass(frozen=True)
class Saved:
    """A checkpoint that an attempt has completed."""

    attempt: int
    step: int
    time_s: float | None = None


@dataclass(frozen=True)
class Stalled:
    """How long saving a step kept training waiting."""

    attempt: int
    step: int
    stall_s: float


@dataclass(frozen=True)
class Progress:
    """All that the attempts of a job have said, in the order they said it.

    resumed: the step that an attempt went on from, by attempt.
    """

    samples: tuple[Sample, ...] = ()
    saves: tuple[Saved, ...] = ()
    resumed: Mapping[int, int] | None = None
    stalls: tuple[Stalled, ...] = ()

    def of(self, attempt: int) -> list[Sample]:
        """The steps of one attempt."""
        return self._by_attempt.get(attempt, [])

    @cached_property
    def _by_attempt(self) -> dict[int, list[Sample]]:
        found: defaultdict[int, list[Sample]] = defaultdict(list)
        for sample in self.samples:
            found[sample.attempt].append(sample)
        return dict(found)


def read_progress(logs: Mapping[int, str]) -> Progress:
    """The progress in the logs of a job's attempts, by attempt; other lines are skipped."""
    samples: list[Sample] = []
    saves: list[Saved] = []
    resumed: dict[int, int] = {}
    stalls: list[Stalled] = []
    for attempt, text in sorted(logs.items()):
        for line in text.splitlines():
            if len(line) > _LONGEST_LINE or (found := _STEP.search(line)) is None:
                continue
            step = int(found[1])
            when = _TIME.search(line)
            time_s = float(when[1]) if when else None
            if line.startswith("saved "):
                saves.append(Saved(attempt, step, time_s))
            elif line.startswith("stalled ") and (stall := _STALL.search(line)):
                stalls.append(Stalled(attempt, step, float(stall[1])))
            elif line.startswith("resumed "):
                resumed[attempt] = step
            elif line.startswith("step="):
                samples.append(Sample(attempt, step, _loss(line), time_s))
    return Progress(tuple(samples), tuple(saves), resumed, tuple(stalls))


def _loss(line: str) -> float | None:
    found = _LOSS.search(line)
    try:
        loss = float(found[1]) if found else math.nan
    except ValueError:
        return None
    return loss if math.isfinite(loss) else None
