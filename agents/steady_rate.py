"""The rate that a transfer keeps up, from when its bytes came."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_WARM_PART = 0.3
"""Part of a transfer's time that is not counted, while TCP finds the rate."""
_SAMPLES = 25
_SHORTEST_S = 1e-6


def steady_bytes_per_s(arrivals: Sequence[tuple[float, int]]) -> float:
    """The rate of a transfer from the times by which so many bytes in all had come.

    What comes while TCP finds the rate is left out. The rest is looked at evenly spaced times, and
    the median of all slopes between them taken (Theil 1950, Sen 1968): data held back by a lost
    packet, which then comes at once, would otherwise count as speed.
    """
    began, ended = arrivals[0][0], arrivals[-1][0]
    if ended - began < _SHORTEST_S:
        return arrivals[-1][1] / max(ended - began, _SHORTEST_S)
    warm = began + _WARM_PART * (ended - began)
    times = [warm + (ended - warm) * k / (_SAMPLES - 1) for k in range(_SAMPLES)]
    come, at = [], 0
    for now in times:
        while at + 1 < len(arrivals) and arrivals[at + 1][0] <= now:
            at += 1
        come.append(_between(arrivals[at], arrivals[min(at + 1, len(arrivals) - 1)], now))
    slopes = [
        (come[j] - come[i]) / (times[j] - times[i]) for j in range(_SAMPLES) for i in range(j)
    ]
    found = statistics.median(slopes)
    # A transfer that stood still most of the time has no steady rate but its mean.
    return found if found > 0 else arrivals[-1][1] / (ended - began)


def _between(one: tuple[float, int], other: tuple[float, int], now: float) -> float:
    if other[0] <= one[0]:
        return float(one[1])
    return one[1] + (other[1] - one[1]) * (now - one[0]) / (other[0] - one[0])
