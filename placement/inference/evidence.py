"""What measurements say about how near nodes are: arrays, and the odds for nearer or farther."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Floats, Ints
from .levels import find_levels
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
    not measured, or measured beside other bulk data; rates of loaded rounds are not here.
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
            bulk = found.kind in (ProbeKind.BANDWIDTH, ProbeKind.LOAD)
            # Round trips beside bulk data tell of queues, not of the way.
            trip = None if bulk else found.round_trip_min_s or found.round_trip_median_s
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
    standard deviation around them. freak: a value farther than any path's, from which nothing
    follows.
    """

    quantity: str
    near: float
    far: float
    noise: float
    freak: float

    def odds(self, evidence: Evidence) -> Floats:
        """The log-odds of each probe that its ends are near; 0 where it does not tell."""
        values = evidence.trips if self.quantity == "trips" else evidence.rates
        middle = (self.near + self.far) / 2
        told = (middle - values) * (self.far - self.near) / self.noise**2
        silent = np.isnan(values) | (values > self.freak)
        return np.clip(np.where(silent, 0.0, told), -MOST_AGAINST, MOST_FOR)


def boundaries_of_trips(evidence: Evidence) -> list[Boundary]:
    """The boundaries between levels of round trips, farthest first; none where there is one."""
    return _boundaries("trips", evidence.trips[~np.isnan(evidence.trips)])


def boundaries_of_rates(evidence: Evidence) -> list[Boundary]:
    """The boundaries between levels of bandwidth, slowest first; none where there is one."""
    rates = evidence.rates[~np.isnan(evidence.rates)]
    return _boundaries("rates", rates) if len(rates) >= _FEWEST_RATES else []


def _boundaries(quantity: str, values: Floats) -> list[Boundary]:
    if not len(values):
        return []
    levels = find_levels(values)
    freak = levels.means[-1] + _FREAK * levels.noise
    pairs = list(zip(levels.means, levels.means[1:], strict=False))
    return [Boundary(quantity, near, far, levels.noise, freak) for near, far in reversed(pairs)]
