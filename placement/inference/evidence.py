"""What measurements say about how near nodes are: arrays, and the odds for nearer or farther."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Floats, Ints
from .levels import Levels, find_levels
from .measurements import Measurement, ProbeKind

MOST_FOR, MOST_AGAINST = 7.0, 4.5
"""Caps on the log-odds that one probe counts: what a freak of timing may claim at most. A path that
looks too near is rarer than one that looks too far."""


_FEWEST_RATES = 12
_FREAK = 3.5
"""Round trips so many standard deviations beyond the farthest level are of no level."""


@dataclass(frozen=True)
class Evidence:
    """Probes that succeeded, as arrays.

    a, b: indices of their ends. trips: logarithms of the least round trips. rates: negated
    logarithms of the bytes/s of the slower direction, so that nearer is less, too. Both NaN where
    not measured; rates of loaded rounds are not here.
    """

    count: int
    a: Ints
    b: Ints
    trips: Floats
    rates: Floats

    def only(self, kept: NDArray[np.bool_]) -> Evidence:
        """Some of the probes."""
        return Evidence(self.count, self.a[kept], self.b[kept], self.trips[kept], self.rates[kept])


def gather(nodes: Sequence[str], measurements: Iterable[Measurement]) -> Evidence:
    """The evidence of measurements; those of nodes that are not named do not count."""
    index = {node: i for i, node in enumerate(nodes)}
    return Gathering(index).add(measurements).evidence()


class Gathering:
    """Evidence that grows round by round.

    Invariant: the four lists are equally long.
    """

    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index
        self._a: list[int] = []
        self._b: list[int] = []
        self._trips: list[float] = []
        self._rates: list[float] = []

    def add(self, measurements: Iterable[Measurement]) -> Gathering:
        """Count these, too."""
        index = self._index
        for found in measurements:
            if found.lost is not None or found.a not in index or found.b not in index:
                continue
            rate = None if found.kind is ProbeKind.LOAD else found.bytes_per_s
            trip = found.round_trip_min_s or found.round_trip_median_s
            if trip is None and rate is None:
                continue
            self._a.append(index[found.a])
            self._b.append(index[found.b])
            self._trips.append(trip or np.nan)
            self._rates.append(rate or np.nan)
        return self

    def evidence(self) -> Evidence:
        """All that was counted."""
        return Evidence(
            len(self._index),
            np.asarray(self._a, dtype=np.int64),
            np.asarray(self._b, dtype=np.int64),
            np.log(np.asarray(self._trips, dtype=np.float64)),
            -np.log(np.asarray(self._rates, dtype=np.float64)),
        )


@dataclass(frozen=True)
class Boundary:
    """Where nearer ends and farther begins, in one quantity.

    quantity: "trips" or "rates". near, far: the means on both sides, as in `Evidence`; noise: the
    standard deviation around them. above: logarithm of round trips from which on a path is on
    neither side but farther (inf where there is none); below: up to which it is surely nearer.
    freak: logarithm of round trips longer than any path takes, from which nothing follows.
    """

    quantity: str
    near: float
    far: float
    noise: float
    above: float = np.inf
    below: float = -np.inf
    freak: float = np.inf

    def odds(self, evidence: Evidence) -> Floats:
        """The log-odds of each probe that its ends are near; 0 where it does not tell."""
        values = evidence.trips if self.quantity == "trips" else evidence.rates
        middle = (self.near + self.far) / 2
        told = (middle - values) * (self.far - self.near) / self.noise**2
        told = np.where(np.isnan(told), 0.0, told)
        if self.quantity == "rates":
            trips = evidence.trips
            told = np.where(trips < self.below, MOST_FOR, told)
            told = np.where(trips > self.above, -MOST_AGAINST, told)
        told = np.where(evidence.trips > self.freak, 0.0, told)
        return np.clip(told, -MOST_AGAINST, MOST_FOR)


def find_boundaries(evidence: Evidence) -> list[Boundary]:
    """The boundaries between levels of nearness, farthest first; none in a flat network.

    Levels are those of round trips; where the rates of one such level fall into several, these
    are levels of their own.
    """
    trips = evidence.trips[~np.isnan(evidence.trips)]
    rates = evidence.rates
    if not len(trips):
        known = rates[~np.isnan(rates)]
        return _of_rates(find_levels(known), -np.inf, np.inf) if len(known) else []
    levels = find_levels(trips)
    middles = [(x + y) / 2 for x, y in zip(levels.means, levels.means[1:], strict=False)]
    edges = [-np.inf, *middles, np.inf]
    freak = levels.means[-1] + _FREAK * levels.noise
    found: list[Boundary] = []
    for at in range(len(levels.means) - 1, -1, -1):
        here = (evidence.trips > edges[at]) & (evidence.trips <= edges[at + 1]) & ~np.isnan(rates)
        if np.count_nonzero(here) >= _FEWEST_RATES:
            found += _of_rates(find_levels(rates[here]), edges[at], edges[at + 1])
        if at:
            near, far = levels.means[at - 1], levels.means[at]
            found.append(Boundary("trips", near, far, levels.noise, freak=freak))
    return found


def _of_rates(levels: Levels, below: float, above: float) -> list[Boundary]:
    pairs = list(zip(levels.means, levels.means[1:], strict=False))
    return [
        Boundary("rates", near, far, levels.noise, above, below) for near, far in reversed(pairs)
    ]
