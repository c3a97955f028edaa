"""How well paths, nodes and domains do: states, symptoms, the rules that change them, findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ..domains import Domain
from ..errors import InvalidInput, Problem
from ..explained import Explained
from ..quantities import Positive
from .measurements import Pair


class Health(StrEnum):
    """How a path or a node does."""

    WELL = "well"
    """As it always was, within its noise."""
    DEGRADED = "degraded"
    """It works, with less bandwidth, more latency or losses."""
    FLAPPING = "flapping"
    """It goes down and comes back, again and again."""
    DOWN = "down"
    """Nothing gets through."""


class Symptom(StrEnum):
    """What shows that a path or a node is not well."""

    BANDWIDTH = "bandwidth"
    """Fewer bytes/s than before and than peers."""
    LATENCY = "latency"
    """Longer round trips than before and than peers."""
    LOSS = "loss"
    """Probes fail, or more of their segments must be sent again than before and than peers'."""


class HealthRules(Explained):
    """When a change counts. Noise of 10 % changes nothing in 10,000 re-probes.

    learn: good samples of a path before it is judged by its own past. history: of how many the past
    is kept. window: newest samples that are looked at; worse: how many of them must be bad for the
    path to be degraded; better: how many may be bad, at most, for it to be well again. A sample is
    bad when it is off its past by `least_change` and by `spreads` standard deviations of that past,
    and off what paths of the same tier did at that time.
    down: losses in a row that mean down, and successes in a row that end it. flaps: changes between
    up and down within flap_window_s that mean flapping.
    fewest: paths of a node or out of a domain that must be known, and part: of these must be bad,
    for the fault to be its own and not its paths'. behind: relative slowness against other nodes
    that counts even if it was always so; ends when only half of it is left.
    """

    learn: Annotated[int, Field(ge=4)] = 16
    history: Annotated[int, Field(ge=8, le=4096)] = 64
    window: Annotated[int, Field(ge=2, le=64)] = 8
    worse: Annotated[int, Field(ge=1)] = 5
    better: Annotated[int, Field(ge=0)] = 1
    least_change: Annotated[float, Field(gt=0, lt=1)] = 0.2
    spreads: Positive = 2.5
    down: Annotated[int, Field(ge=1)] = 4
    flaps: Annotated[int, Field(ge=2)] = 4
    flap_window_s: Positive = 3600.0
    fewest: Annotated[int, Field(ge=2)] = 3
    part: Annotated[float, Field(gt=0, le=1)] = 0.6
    behind: Annotated[float, Field(gt=0, lt=1)] = 0.3

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        problems = []
        if not self.better < self.worse <= self.window:
            found = f"better {self.better}, worse {self.worse}, window {self.window}"
            problems.append(Problem("worse", found, "let better < worse <= window"))
        if self.learn > self.history:
            found = f"learn {self.learn}, history {self.history}"
            problems.append(Problem("learn", found, "keep a history of at least what is learned"))
        if problems:
            raise InvalidInput("HealthRules", problems)
        return self


@dataclass(frozen=True)
class Between:
    """The links between the domains inside one domain of a tier, where no single one is at fault.

    That is so where there are only two, and where all paths between them are bad alike.
    """

    tier: str
    name: str


Subject = Pair | str | Domain | Between
"""A path (two nodes), a node, the links out of a domain, or those between the domains of one."""

_KINDS: dict[str, type] = {"path": tuple, "node": str, "domain": Domain, "between": Between}


@dataclass(frozen=True)
class Finding:
    """A path, a node or a domain that is not well.

    since_s: time of the first sample that showed it. factor: what is left of usual bandwidth, of
    the speed of round trips, or of probes that get through; 0 when down. paths: on how many paths
    it showed. rail: of the NICs that showed it; None where all are one.
    """

    subject: Subject
    health: Health
    symptom: Symptom
    since_s: float
    factor: float
    paths: int = 1
    rail: int | None = None

    def to_data(self) -> dict[str, Any]:
        """The finding as plain data: the subject as `kind` and `names`, and the fields."""
        subject = self.subject
        names = [subject.tier, subject.name] if isinstance(subject, Between) else list(subject)
        return {
            "kind": next(kind for kind, sort in _KINDS.items() if type(subject) is sort),
            "names": [subject] if isinstance(subject, str) else names,
            "health": self.health.value,
            "symptom": self.symptom.value,
            "since_s": self.since_s,
            "factor": self.factor,
            "paths": self.paths,
            "rail": self.rail,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """What `to_data` was given. Raises KeyError, ValueError, TypeError for other data."""
        sort, names = _KINDS[data["kind"]], data["names"]
        return cls(
            subject=tuple(names) if sort is tuple else sort(*names),
            health=Health(data["health"]),
            symptom=Symptom(data["symptom"]),
            since_s=float(data["since_s"]),
            factor=float(data["factor"]),
            paths=int(data["paths"]),
            rail=data["rail"],
        )

    @property
    def named(self) -> str:
        """The subject in words."""
        rail = "" if self.rail is None else f" rail {self.rail}"
        if isinstance(self.subject, str):
            return f"node {self.subject}{rail}"
        if isinstance(self.subject, Between):
            where = self.subject.tier
            if self.subject.name != where:
                where += f" {self.subject.name}"
            return f"links between the domains of {where}{rail}"
        one, two = self.subject
        if isinstance(self.subject, Domain):
            return f"links out of {one} {two}{rail}"
        return f"path {one} - {two}{rail}"

    def __str__(self) -> str:
        return f"{self.named}: {self.how} since {self.since_s:.0f} s"

    @property
    def how(self) -> str:
        """The state in words, with what is left."""
        if self.health in (Health.DOWN, Health.FLAPPING):
            return self.health.value
        if self.symptom is Symptom.LOSS:
            return f"{1 - self.factor:.1%} lost"
        what = "speed of round trips" if self.symptom is Symptom.LATENCY else self.symptom.value
        return f"{what} at {self.factor:.0%} of usual"
