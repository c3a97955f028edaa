"""Nodes that are slow in all they do: what they add to round trips, and trips without it."""

from __future__ import annotations

import numpy as np

from .clusters import Floats
from .evidence import Evidence

_FEWEST_PROBES = 4
_SLOWER = 1.25
_FAR_QUANTILE = 0.8
_LEAST_LEFT = 0.2


def added_s(evidence: Evidence) -> Floats:
    """Seconds that each node adds to its round trips; 0 for all but those that are clearly slow.

    A node is slow when even its shortest round trip is longer by a quarter than what other nodes'
    far round trips (the 80 % quantile of each, and of those the median) take. Of a node that is far
    from all others, and adds nothing, the shortest is not.
    """
    known = ~np.isnan(evidence.trips)
    ends = np.append(evidence.a[known], evidence.b[known])
    trips = np.exp(np.append(evidence.trips[known], evidence.trips[known]))
    added = np.zeros(evidence.count)
    if not len(ends):
        return added
    order = np.lexsort((trips, ends))
    ends, trips = ends[order], trips[order]
    nodes, first, counts = np.unique(ends, return_index=True, return_counts=True)
    far = trips[first + np.floor(_FAR_QUANTILE * (counts - 1)).astype(np.int64)]
    enough = counts >= _FEWEST_PROBES
    if np.count_nonzero(enough) < 3:
        return added
    usual = float(np.median(far[enough]))
    slow = enough & (trips[first] > _SLOWER * usual)
    added[nodes[slow]] = far[slow] - usual
    return added


def without_slowness(evidence: Evidence, added: Floats) -> Evidence:
    """The evidence as it would be if no node added anything to its round trips."""
    if not np.any(added):
        return evidence
    trips = np.exp(evidence.trips)
    less = trips - added[evidence.a] - added[evidence.b]
    trips = np.log(np.maximum(less, _LEAST_LEFT * trips))
    return Evidence(evidence.count, evidence.a, evidence.b, trips, evidence.rates)
