"""Faults that are to be brought about: each a value, a whole run of them a file to replay. Pure."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from ...placement.errors import InvalidInput, Problem
from ...placement.explained import Explained
from ...placement.files import parse_text, read_data, validated
from .kinds import DAMAGES, FACTS, Kind

FORMAT: Final = "railweave.chaos/1"
LONGEST_S: Final = 600.0
MOST_FAULTS: Final = 10_000
CRASHES: Final = {"SIGSEGV": 11, "SIGABRT": 6, "SIGBUS": 7, "SIGTERM": 15}
"""Signals of a rank that crashes, by name."""


class Injection(Explained):
    """One fault to bring about.

    job: id or name of the job that it hits; nodes, agents and guards are those of one of its ranks.
    rank: which one; ranks beyond the job's are counted round. at_step: once that rank has reported
    so many steps' numbers; after_s: seconds after the run of all faults began. With neither it is
    brought about as soon as the job runs. for_s: how long it lasts, where it does. value: an exit
    code, how many times slower, or seconds that a clock jumps. signal: of rank-signal.
    seed: of what else is left to chance, as the byte that is damaged.
    """

    kind: Kind
    job: str = Field(min_length=1)
    rank: int = Field(default=0, ge=0)
    at_step: int | None = Field(default=None, ge=0)
    after_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    for_s: float | None = Field(default=None, gt=0, le=LONGEST_S, allow_inf_nan=False)
    value: float | None = Field(default=None, allow_inf_nan=False)
    signal: str | None = None
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        problems = []
        if self.at_step is not None and self.after_s is not None:
            problems.append(Problem("after_s", "given beside at_step", "give one of them"))
        if self.for_s is not None and FACTS[self.kind].for_s is None:
            found = f"{self.kind} has no duration"
            problems.append(Problem("for_s", found, "leave it out"))
        if self.signal is not None and self.kind is not Kind.RANK_SIGNAL:
            problems.append(Problem("signal", f"{self.kind} sends none to choose", "leave it out"))
        if self.signal is not None and self.signal not in CRASHES:
            fix = f"give one of {', '.join(CRASHES)}"
            problems.append(Problem("signal", f"found {self.signal!r}", fix))
        problems += _value_problems(self.kind, self.value)
        if problems:
            raise InvalidInput("fault", problems)
        return self

    @property
    def lasts_s(self) -> float | None:
        """How long it lasts; None where it has no end of its own."""
        return FACTS[self.kind].for_s if self.for_s is None else self.for_s

    def text(self) -> str:
        """What it does, and when, for people."""
        when = "as soon as it runs"
        if self.at_step is not None:
            when = f"at step {self.at_step}"
        elif self.after_s is not None:
            when = f"after {self.after_s:g} s"
        more = f" for {self.lasts_s:g} s" if self.lasts_s is not None else ""
        more += f" ({self.signal})" if self.signal else ""
        more += f" ({self.value:g})" if self.value is not None else ""
        return f"{self.kind}{more} at rank {self.rank} of {self.job} {when}"


class Schedule(Explained):
    """A run of faults. seed: what it was drawn with; None for one that was written by hand."""

    format: Literal["railweave.chaos/1"] = FORMAT
    seed: int | None = None
    faults: tuple[Injection, ...]

    @model_validator(mode="after")
    def _of_a_size(self) -> Self:
        if not 1 <= len(self.faults) <= MOST_FAULTS:
            fix = f"give 1 to {MOST_FAULTS}"
            raise InvalidInput("faults", [Problem("faults", f"{len(self.faults)} faults", fix)])
        return self

    @classmethod
    def parse(cls, data: Mapping[str, Any] | str, source: str = "faults") -> Self:
        """A schedule from plain data or text. Raises InvalidInput naming each fault's place."""
        plain = parse_text(data, source) if isinstance(data, str) else data
        return validated(cls, plain, source, FORMAT)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a schedule's file (YAML or JSON). Raises InvalidInput."""
        return validated(cls, read_data(path), os.fspath(path), FORMAT)

    def to_json(self) -> str:
        """As JSON text; the same schedule gives the same text."""
        return self.model_dump_json(exclude_none=True, indent=1)

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it hits, in the order in which they are named first."""
        return tuple(dict.fromkeys(fault.job for fault in self.faults))


@dataclass(frozen=True)
class Target:
    """A job that faults may be drawn for.

    first, last: between which steps. ranks: how many it has. inside: whether it is rehearsed.
    """

    job: str
    ranks: int
    first: int
    last: int
    inside: bool = True


def drawn(
    seed: int,
    count: int,
    kinds: Sequence[Kind],
    targets: Sequence[Target],
    *,
    together: float = 0.15,
) -> Schedule:
    """`count` faults at random, the same ones for the same arguments.

    Every kind comes equally often, as far as that can be, and the jobs take turns. In a job each
    kind that looks like the job's own fault comes once at most, since twice at the same step would
    rightly end it; the steps of its faults differ, but for a share `together` of them that come at
    the very step of the one before. Raises InvalidInput where the jobs have too few steps or kinds.
    """
    if not kinds or not targets or count < 1:
        raise InvalidInput("faults", [Problem("", "none to draw", "give kinds, jobs and a count")])
    chance = random.Random(seed)
    of_job: dict[str, list[Kind]] = {target.job: [] for target in targets}
    order: list[Kind] = []
    for turn in range(count):
        if not order:
            order = list(kinds)
            chance.shuffle(order)
        target = targets[turn % len(targets)]
        had = of_job[target.job]
        kind = next((kind for kind in order if _may(kind, had)), None)
        if kind is not None:
            order.remove(kind)
        else:
            kind = next((each for each in kinds if _may(each, had)), None)
        if kind is None:
            found = f"{target.job} has had every kind that may come once only"
            raise InvalidInput("faults", [Problem("kinds", found, "give more jobs or kinds")])
        had.append(kind)
    faults = [
        fault
        for target in targets
        for fault in _timed(chance, target, of_job[target.job], together)
    ]
    return Schedule(seed=seed, faults=tuple(faults))


def _may(kind: Kind, had: Collection[Kind]) -> bool:
    return not FACTS[kind].of_job or kind not in had


def _timed(
    chance: random.Random, target: Target, kinds: Sequence[Kind], together: float
) -> list[Injection]:
    """The faults of one job, in the order of their steps."""
    at_once = [index > 0 and chance.random() < together for index in range(len(kinds))]
    steps_needed = at_once.count(False)
    span = target.last - target.first + 1
    if steps_needed > span:
        found = f"{steps_needed} faults in the {span} steps of {target.job}"
        raise InvalidInput("faults", [Problem("", found, "draw fewer, or give it more steps")])
    # Drawn within equal shares of the job, so that it has time to go on in between.
    share = span / max(1, steps_needed)
    faults: list[Injection] = []
    number, step = -1, target.first
    for kind, same in zip(kinds, at_once, strict=True):
        if not same:
            number += 1
            low = target.first + int(number * share)
            step = low + chance.randrange(max(1, int(share / 2)))
        faults.append(
            Injection(
                kind=kind,
                job=target.job,
                rank=0 if kind in DAMAGES else chance.randrange(target.ranks),
                at_step=step,
                value=_value(chance, kind),
                signal=chance.choice(sorted(CRASHES)) if kind is Kind.RANK_SIGNAL else None,
                seed=chance.randrange(2**31),
            )
        )
    return faults


def _value(chance: random.Random, kind: Kind) -> float | None:
    if kind is Kind.RANK_EXIT:
        return float(chance.randrange(1, 120))
    if kind is Kind.RANK_SLOW:
        return 51.0
    if kind in (Kind.RANK_CLOCK, Kind.AGENT_CLOCK):
        return chance.choice([-1.0, 1.0]) * chance.choice([30.0, 3600.0, 86400.0])
    return None


def _value_problems(kind: Kind, value: float | None) -> list[Problem]:
    if kind is Kind.RANK_EXIT and value is not None and not (1 <= value <= 255 and value % 1 == 0):
        return [Problem("value", f"{value:g} is no exit code of a failure", "give 1 to 255")]
    if kind is Kind.RANK_SLOW and value is not None and not 1 < value <= 1000:
        return [Problem("value", f"{value:g} times slower", "give more than 1 and up to 1000")]
    takes = (Kind.RANK_EXIT, Kind.RANK_SLOW, Kind.RANK_CLOCK, Kind.AGENT_CLOCK)
    if value is not None and kind not in takes:
        return [Problem("value", f"{kind} takes none", "leave it out")]
    return []
