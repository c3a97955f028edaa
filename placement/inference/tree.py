"""The tree of domains that evidence implies, from the farthest tier inwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clusters import Floats, Ints, best_of_rows, cluster, summed
from .evidence import Boundary, Evidence, boundaries_of_rates, boundaries_of_trips

_PRIOR_RANGE = (-5.0, -1.0)
LEAST_IN_COMPANY = 0.2
_FAR_OFTEN = 3


@dataclass(frozen=True)
class Split:
    """A tier's domains, as found at one boundary.

    outer: the label of each node's domain one tier farther. labels: of its domain here; labels of
    different outer domains differ. odds: of each probe, that its ends share a domain here; 0 where
    they share no outer one. prior: log-odds of two nodes of one outer domain, without a probe.
    """

    boundary: Boundary
    outer: Ints
    labels: Ints
    odds: Floats
    prior: float


def grow(evidence: Evidence, in_company: float = LEAST_IN_COMPANY) -> list[Split]:
    """The splits that the evidence supports, farthest first.

    A boundary at which nothing splits (one domain, or fewer than the part `in_company` of the nodes
    with another in theirs) is left out: noise has levels, too, but no domains. Round trips tell
    first; rates divide what is one domain by round trips.
    """
    groups = np.zeros(evidence.count, dtype=np.int64)
    splits: list[Split] = []
    for boundary in boundaries_of_trips(evidence):
        groups = _split(evidence, boundary, groups, in_company, splits)
    inside = evidence.only(groups[evidence.a] == groups[evidence.b])
    for boundary in boundaries_of_rates(inside):
        groups = _split(evidence, boundary, groups, in_company, splits)
    return splits


def _split(
    evidence: Evidence, boundary: Boundary, groups: Ints, least: float, splits: list[Split]
) -> Ints:
    """The groups divided at a boundary, which is then added to the splits; else as they are."""
    odds = boundary.odds(evidence)
    odds[groups[evidence.a] != groups[evidence.b]] = 0.0
    asked = odds != 0
    near = float(np.count_nonzero(odds > 0)) / max(1.0, float(np.count_nonzero(asked)))
    prior = float(np.clip(np.log((near + 1e-3) / (1 - near + 1e-3)), *_PRIOR_RANGE))
    labels = cluster(groups, evidence.a[asked], evidence.b[asked], odds[asked], prior)
    if not _splits(groups, labels, _often_far(evidence, odds), least):
        return groups
    splits.append(Split(boundary, groups, labels, odds, prior))
    return labels


def _often_far(evidence: Evidence, odds: Floats) -> Ints:
    """Of each node, in how many probes it was far from the other; 0 where it was near in more."""
    ends = np.append(evidence.a, evidence.b)
    twice = np.append(odds, odds)
    far = np.bincount(ends[twice < 0], minlength=evidence.count)
    near = np.bincount(ends[twice > 0], minlength=evidence.count)
    return np.where(far > near, far, 0)


def _splits(groups: Ints, labels: Ints, told: Ints, least: float) -> bool:
    """Whether parts are more than one domain a group, freaks apart, and more than single nodes.

    told: of each node, in how many probes it was far from the other.
    """
    sizes = np.bincount(labels)
    if np.mean(shared(labels)) < least:
        return False
    outer = np.zeros(len(sizes), dtype=np.int64)
    outer[labels] = groups
    largest = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.maximum.at(largest, outer, sizes)
    counts = shared(labels) | (told >= _FAR_OFTEN)
    # Of parts equally large, all but one are outside the largest.
    outside = int(np.count_nonzero(counts)) - int(largest[largest > 1].sum())
    return outside >= 1


@dataclass(frozen=True)
class Standing:
    """How well the nodes stand in the domains of one split.

    rows, columns, sums: evidence of node `row` with the members of domain `column`, itself left
    out. margins: of each node, by how much its own domain has more of it than any other, or than
    being alone; for a node that is alone, by how much that is better than any domain.
    """

    rows: Ints
    columns: Ints
    sums: Floats
    margins: Floats


def standing(evidence: Evidence, split: Split) -> Standing:
    """The evidence of each node for each domain of the split that it was probed with."""
    count = evidence.count
    rows, columns, sums = summed(
        np.append(evidence.a, evidence.b),
        np.append(split.labels[evidence.b], split.labels[evidence.a]),
        np.append(split.odds, split.odds),
        count,
    )
    own = np.zeros(count)
    mine = columns == split.labels[rows]
    own[rows[mine]] = sums[mine] + split.prior
    best = np.zeros(count)
    sizes = np.bincount(split.labels, minlength=count)
    lone = sizes[split.labels] == 1
    at = best_of_rows(rows[~mine], sums[~mine])
    others = np.full(count, -np.inf)
    others[rows[~mine][at]] = sums[~mine][at] + split.prior
    best = np.maximum(others, 0.0)
    margins = np.where(lone, -others, own - best)
    return Standing(rows, columns, sums, margins)


def shared(labels: Ints) -> NDArray[np.bool_]:
    """Which nodes share their domain with another."""
    return np.bincount(labels)[labels] > 1
