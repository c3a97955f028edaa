"""What probes between two nodes measure, and the rounds in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained
from ..quantities import Name, NonNegative, Positive

Pair = tuple[str, str]


class ProbeKind(StrEnum):
    """What the probes of a round are to find."""

    LATENCY = "latency"
    """Round trips only: cheap, and many a second."""
    BANDWIDTH = "bandwidth"
    """Bytes/s of a pair that has every link it shares with others nearly to itself."""
    LOAD = "load"
    """Bytes/s of pairs that start together and share the links out of their domains, so that what
    each gets shows how far those links are oversubscribed."""


@dataclass(frozen=True)
class ProbeRound:
    """Probes that run at the same time: no node is in two of its pairs.

    pairs: `(a, b)`; a connects, b listens. number: counts from 0 over all rounds of a probing, and
    is what `Measurement.round` repeats.
    """

    number: int
    kind: ProbeKind
    pairs: tuple[Pair, ...]


class Measurement(Explained):
    """What one probe found between the nodes `a` and `b`; every quantity may be absent.

    round_trip_min_s, round_trip_median_s, spread_s: round trips, and the range of their middle
        half. there_bytes_per_s: from a to b, back_bytes_per_s: from b to a, as received.
    loss: the part of the segments of a transfer, both directions together, that were sent again.
    hops: addresses that a traced path passed, in order, without those of a and b.
    rail: the rail whose NICs were used; None where the node has one address.
    round, kind: the number and kind of the round; probes of one round ran at the same time.
    lost: why the probe failed; then nothing else need be there. unanswered: it failed because a
        node did not take part, which says nothing of the network.
    moved_bytes: payload in both directions together, for the budget.
    """

    a: Name
    b: Name
    round_trip_min_s: Positive | None = None
    round_trip_median_s: Positive | None = None
    spread_s: NonNegative | None = None
    there_bytes_per_s: Positive | None = None
    back_bytes_per_s: Positive | None = None
    loss: Annotated[float, Field(ge=0, le=1)] | None = None
    hops: tuple[str, ...] | None = None
    rail: Annotated[int, Field(ge=0)] | None = None
    round: Annotated[int, Field(ge=0)] | None = None
    kind: ProbeKind | None = None
    lost: str | None = None
    unanswered: bool = False
    moved_bytes: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.a == self.b:
            fix = "name two nodes; inside a node nothing is probed"
            raise InvalidInput("Measurement", [Problem("b", f"{self.b!r}, as a is", fix)])
        if self.unanswered and self.lost is None:
            fix = "say why the probe failed, too"
            raise InvalidInput("Measurement", [Problem("unanswered", "of a probe not lost", fix)])
        if self.lost == "":
            fix = "say why the probe failed, or leave it out"
            raise InvalidInput("Measurement", [Problem("lost", "an empty reason", fix)])
        return self

    @property
    def pair(self) -> Pair:
        """Both ends, in the order of their names."""
        return (self.a, self.b) if self.a < self.b else (self.b, self.a)

    @property
    def bytes_per_s(self) -> float | None:
        """The slower direction; None where no bandwidth was measured."""
        found = [r for r in (self.there_bytes_per_s, self.back_bytes_per_s) if r is not None]
        return min(found, default=None)
