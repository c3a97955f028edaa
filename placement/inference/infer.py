"""Tiers and domains of a network from measurements and labels, with how certain each is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InvalidInput, Problem
from .clusters import Floats, Ints, best_of_rows, summed, weakest_cuts
from .evidence import Evidence, gather
from .labels import Contradiction, Labels, agreed_tiers, contradictions, merged
from .measurements import Measurement, Pair
from .numbers import Path, TierNumbers, tier_numbers
from .slow import added_s, without_slowness
from .tree import Split, grow, shared, standing

SPINE = "spine"
_CONTRADICTS = 3.0
"""Log-odds from which the probes of one pair count as contradicting a domain."""
_MOST_ODDS = 30.0

Prefer = Literal["labels", "measurements"]


@dataclass(frozen=True)
class DomainFound:
    """One domain of a tier.

    confidence: the probability that these nodes and no others are the domain, given the levels that
    were found: the product over its nodes of the probability that they belong here rather than to
    the best other domain or to none, times the probability that it is not two (by the evidence
    across its weakest cut), times the probability that it is not one with the domain it is most
    alike. None where the measurements do not have exactly this domain, but labels do.
    contradicting: pairs whose own probes say otherwise: far apart inside it, or near with one end
    outside.
    """

    tier: str
    name: str
    nodes: tuple[str, ...]
    confidence: float | None
    contradicting: tuple[Pair, ...]


@dataclass(frozen=True)
class Inference:
    """What a network was found to be.

    tiers: names, nearest first; the last joins all. numbers: of each tier, in that order. paths:
    each node's domains without the last tier's. domains: of all tiers but the last. unknown: nodes
    of unknown domain, each alone, and why. slow_s: what nodes add to all of their round trips.
    contradictions: where labels and measurements differ, and which counted.
    """

    tiers: tuple[str, ...]
    numbers: tuple[TierNumbers, ...]
    paths: dict[str, Path]
    domains: tuple[DomainFound, ...]
    unknown: dict[str, str]
    slow_s: dict[str, float]
    contradictions: tuple[Contradiction, ...]


def infer(
    nodes: Sequence[str],
    measurements: Iterable[Measurement],
    labels: Labels | None = None,
    prefer: Prefer = "labels",
    tier_order: Sequence[str] = (),
) -> Inference:
    """The tiers, domains and numbers of a network.

    labels: of each node its domain by tier; tier_order: the labelled tiers, nearest first. prefer:
    which counts where a label and the measurements differ; labels that nothing contradicts always
    count. Raises InvalidInput for nodes given twice and for labels of a tier that has no order.
    """
    _check(nodes, labels or {}, tier_order, prefer)
    found = list(measurements)
    evidence = gather(nodes, found)
    added = added_s(evidence)
    evidence = without_slowness(evidence, added)
    splits = grow(evidence)
    measured = _Measured(nodes, evidence, splits)
    matches = agreed_tiers(nodes, labels or {}, tier_order, measured.labels)
    differ = contradictions(nodes, labels or {}, measured.labels, matches, measured.sure, prefer)
    tiers, paths = merged(
        nodes, labels or {}, tier_order, measured.labels, matches, measured.told, prefer
    )
    unknown = {}
    for i, node in enumerate(nodes):
        if splits and not measured.told[i] and not any((labels or {}).get(node, {}).values()):
            unknown[node] = (
                "no probe of it succeeded"
                if not measured.probed[i]
                else ("its probes agree with no domain")
            )
    numbers = tier_numbers(paths, len(tiers) + 1, found)
    return Inference(
        (*tiers, SPINE),
        tuple(numbers),
        paths,
        tuple(_domains(nodes, tiers, paths, measured)),
        unknown,
        {nodes[i]: float(added[i]) for i in np.flatnonzero(added).tolist()},
        differ,
    )


class _Measured:
    """What measurements alone tell. `labels` are those of the splits, nearest tier first."""

    def __init__(self, nodes: Sequence[str], evidence: Evidence, splits: list[Split]) -> None:
        self.index = {node: i for i, node in enumerate(nodes)}
        self.evidence = evidence
        self.splits = splits[::-1]
        self.labels: list[Ints] = [split.labels for split in self.splits]
        self.margins = [standing(evidence, split).margins for split in self.splits]
        ends = np.append(evidence.a, evidence.b)
        self.probed = np.bincount(ends, minlength=evidence.count) > 0
        self.told = np.ones(evidence.count, dtype=bool)
        if self.splits:
            # At the farthest tier that it has company in, at least, a node is placed.
            self.told = np.any([shared(labels) for labels in self.labels], axis=0)
        self.sure: list[Floats] = [_probability(margins) for margins in self.margins]
        self._apart = [_apart(evidence, split) for split in self.splits]
        self._held = [_held(evidence, split) for split in self.splits]
        self._pairs = [_pair_odds(evidence, split) for split in self.splits]

    def confidence(self, at: int, members: Ints) -> float | None:
        """Of a domain of these nodes at a split; None where the split has no such domain."""
        labels = self.labels[at]
        label = int(labels[members[0]])
        if np.count_nonzero(labels == label) != len(members) or np.any(labels[members] != label):
            return None
        whole = _probability(np.array([self._held[at][label], self._apart[at][label]]))
        return float(np.prod(self.sure[at][members]) * np.prod(whole))

    def contradicting(self, at: int, members: Ints) -> list[tuple[int, int]]:
        """Pairs with an end among the members whose probes say other than that domain."""
        one, two, odds = self._pairs[at]
        inside = np.isin(one, members), np.isin(two, members)
        both, either = inside[0] & inside[1], inside[0] ^ inside[1]
        wrong = (both & (odds < -_CONTRADICTS)) | (either & (odds > _CONTRADICTS))
        return list(zip(one[wrong].tolist(), two[wrong].tolist(), strict=True))


def _probability(odds: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(odds, -_MOST_ODDS, _MOST_ODDS)))


def _held(evidence: Evidence, split: Split) -> Floats:
    """Of each domain of a split, the log-odds that it is one and not two; certain for one node."""
    across = weakest_cuts(split.labels, evidence.a, evidence.b, split.odds)[1]
    odds: Floats = np.where(np.bincount(split.labels) > 1, across + split.prior, np.inf)
    return odds


def _apart(evidence: Evidence, split: Split) -> Floats:
    """Of each domain of a split, the log-odds that it is not one with the domain it is most like.

    Siblings that were never compared have the odds of two domains before any probe.
    """
    count = int(split.labels.max()) + 1
    one, two = split.labels[evidence.a], split.labels[evidence.b]
    apart = (one != two) & (split.odds != 0)
    rows, _, sums = summed(
        np.append(one[apart], two[apart]),
        np.append(two[apart], one[apart]),
        np.append(split.odds[apart], split.odds[apart]),
        count,
    )
    likest = np.full(count, -np.inf)
    at = best_of_rows(rows, sums)
    likest[rows[at]] = sums[at]
    outer = np.zeros(count, dtype=np.int64)
    outer[split.labels] = split.outer
    siblings = np.bincount(outer)[outer] - 1
    compared = np.bincount(rows, minlength=count)
    likest = np.where(compared < siblings, np.maximum(likest, 0.0), likest)
    odds: Floats = -(likest + split.prior)
    return odds


def _pair_odds(evidence: Evidence, split: Split) -> tuple[Ints, Ints, Floats]:
    low, high = np.minimum(evidence.a, evidence.b), np.maximum(evidence.a, evidence.b)
    return summed(low, high, split.odds, evidence.count)


def _domains(
    nodes: Sequence[str], tiers: Sequence[str], paths: Mapping[str, Path], measured: _Measured
) -> Iterable[DomainFound]:
    for level, tier in enumerate(tiers):
        members: dict[str, list[int]] = {}
        for i, node in enumerate(nodes):
            members.setdefault(paths[node][level], []).append(i)
        at = _same_partition(members, measured.labels)
        for name, numbers in members.items():
            of_it = np.asarray(numbers)
            wrong = [] if at is None else measured.contradicting(at, of_it)
            yield DomainFound(
                tier,
                name,
                tuple(nodes[i] for i in numbers),
                None if at is None else measured.confidence(at, of_it),
                tuple((nodes[a], nodes[b]) for a, b in wrong),
            )


def _same_partition(members: Mapping[str, list[int]], splits: Sequence[Ints]) -> int | None:
    """The split that has most of these domains; None where none has any."""
    shares: list[int] = []
    for labels in splits:
        sizes = Counter(labels.tolist())
        same = 0
        for numbers in members.values():
            found = {int(labels[i]) for i in numbers}
            if len(found) == 1 and sizes[found.pop()] == len(numbers):
                same += len(numbers)
        shares.append(same)
    best = int(np.argmax(shares)) if shares else 0
    return best if shares and shares[best] else None


def _check(nodes: Sequence[str], labels: Labels, tier_order: Sequence[str], prefer: str) -> None:
    problems = [
        Problem("nodes", f"{node!r} given {count} times", "name it once")
        for node, count in Counter(nodes).items()
        if count > 1
    ]
    unordered = {tier for of_node in labels.values() for tier in of_node} - set(tier_order)
    problems += [
        Problem("labels", f"a tier {tier!r} without a place", "name it in tier_order")
        for tier in sorted(unordered)
    ]
    if prefer not in ("labels", "measurements"):
        problems.append(Problem("prefer", f"found {prefer!r}", "use labels or measurements"))
    if problems:
        raise InvalidInput("infer", problems)
