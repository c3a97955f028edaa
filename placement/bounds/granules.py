"""Rounding a bound up: what a job costs is made of whole numbers of few different weights."""

from __future__ import annotations

import numpy as np

from ..jobs.index import PAIRS, Floats
from ..jobs.units import UnitGraph

_EVEN = 1e-9
"""Relative difference up to which weights, and what is made of them, are equal."""
_MOST_WEIGHTS = 3
_MOST_SUMS = 1_000_000
"""Sums of all weights but the lightest that are looked at."""


def next_cost(graph: UnitGraph, bound: float, known: float) -> float:
    """The least that a placement can cost if none costs less than `bound`; `known` at most.

    A ring, a tree or a link costs a whole number of times its weight, and a pair net one of the
    pairs that are apart. Where many different weights add up to almost anything, the bound stays.
    """
    weights = _different(_steps(graph))
    if not len(weights) or len(weights) > _MOST_WEIGHTS or bound >= known:
        return min(bound, known)
    wanted = bound - 4 * _EVEN * known
    sums = np.zeros(1)
    for weight in weights[:-1]:
        most = known * (1 + _EVEN) / weight
        if len(sums) * (most + 1) > _MOST_SUMS:
            return bound
        times = np.arange(int(most) + 1)
        sums = (sums[:, None] + weight * times).ravel()
        sums = sums[sums <= known * (1 + _EVEN)]
    lightest = weights[-1]
    # What is left over by rounding is no reason for one more.
    missing = np.maximum(0.0, np.ceil((wanted - sums) / lightest - _EVEN))
    least = float((sums + missing * lightest).min())
    if least >= known * (1 - 4 * _EVEN):
        return known
    return max(bound, least * (1 - _EVEN))


def _steps(graph: UnitGraph) -> Floats:
    """What each net and link adds for one more domain, or for one more pair that is apart."""
    held = np.ones(graph.nets)
    for net in np.flatnonzero(graph.form == PAIRS).tolist():
        ranks = graph.ranks[graph.start[net] : graph.start[net + 1]]
        held[net] = 2.0 * float(np.gcd.reduce(ranks)) ** 2
    return np.concatenate([graph.weight * held, graph.link_weight])


def _different(steps: Floats) -> Floats:
    """Different weights, heaviest first, without those that are multiples of others."""
    kept: list[float] = []
    for step in np.unique(steps[steps > 0]).tolist():
        near = [abs(step / one - round(step / one)) <= _EVEN for one in kept]
        if not any(near):
            kept.append(step)
    return np.array(kept[::-1])
