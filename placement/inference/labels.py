"""Labels of nodes beside what was measured: what agrees, what differs, and both made one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..names import lone_domain
from .clusters import Floats, Ints
from .numbers import Path

Labels = Mapping[str, Mapping[str, str]]
"""Of each node its domain by tier."""

_AGREES = 0.5
_SURE = 0.95


@dataclass(frozen=True)
class Contradiction:
    """A node that labels and measurements put into different domains of a tier.

    measured: the label of most nodes of its measured domain; None where that bears its own label,
    too, but is apart from most nodes of that label. confidence: the probability of what was
    measured. won: "labels" or "measurements".
    """

    node: str
    tier: str
    labelled: str
    measured: str | None
    confidence: float
    won: str

    def __str__(self) -> str:
        found = (
            f"measured with the nodes of {self.measured!r}"
            if self.measured is not None
            else f"measured apart from the other nodes of {self.labelled!r}"
        )
        return (
            f"{self.node}: {self.tier} is {self.labelled!r} by its label, but {found} "
            f"(confidence {self.confidence:.3f}); the {self.won} count"
        )


def agreed_tiers(
    nodes: Sequence[str], labels: Labels, order: Sequence[str], splits: Sequence[Ints]
) -> dict[str, int]:
    """Which measured split is which labelled tier; tiers that none resembles are left out.

    splits: labels of measured domains, nearest tier first. A split is a tier's when more than half
    of the labelled nodes are in the domain that bears most of their label, and the other way round.
    """
    found: dict[str, int] = {}
    first = 0
    for tier in order:
        scores = [_agreement(nodes, labels, tier, split) for split in splits[first:]]
        if scores and max(scores) > _AGREES:
            found[tier] = first + int(np.argmax(scores))
            first = found[tier] + 1
    return found


def _agreement(nodes: Sequence[str], labels: Labels, tier: str, split: Ints) -> float:
    pairs = [
        (label, int(split[i]))
        for i, node in enumerate(nodes)
        if (label := labels.get(node, {}).get(tier)) is not None
    ]
    if not pairs:
        return 0.0
    of_label, of_domain = _majorities(pairs)
    agree = sum(of_label[label] == at and of_domain[at] == label for label, at in pairs)
    return agree / len(pairs)


def _majorities(pairs: Sequence[tuple[str, int]]) -> tuple[dict[str, int], dict[int, str]]:
    """The commonest measured domain of each label, and the commonest label of each domain."""
    by_label: defaultdict[str, Counter[int]] = defaultdict(Counter)
    by_domain: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for label, at in pairs:
        by_label[label][at] += 1
        by_domain[at][label] += 1
    return (
        {label: count.most_common(1)[0][0] for label, count in by_label.items()},
        {at: count.most_common(1)[0][0] for at, count in by_domain.items()},
    )


def contradictions(
    nodes: Sequence[str],
    labels: Labels,
    splits: Sequence[Ints],
    matches: Mapping[str, int],
    sure: Sequence[Floats],
    won: str,
) -> tuple[Contradiction, ...]:
    """Nodes whose label differs from what was measured with at least 95 % confidence."""
    found = []
    for tier, at in matches.items():
        split = splits[at]
        labelled = [(i, labels.get(node, {}).get(tier)) for i, node in enumerate(nodes)]
        pairs = [(label, int(split[i])) for i, label in labelled if label is not None]
        of_label, of_domain = _majorities(pairs)
        for i, label in labelled:
            if label is None or sure[at][i] < _SURE:
                continue
            majority = of_domain[int(split[i])]
            if majority == label and of_label[label] == int(split[i]):
                continue
            other = majority if majority != label else None
            found.append(Contradiction(nodes[i], tier, label, other, float(sure[at][i]), won))
    return tuple(found)


def merged(
    nodes: Sequence[str],
    labels: Labels,
    order: Sequence[str],
    splits: Sequence[Ints],
    matches: Mapping[str, int],
    told: NDArray[np.bool_],
    prefer: str,
) -> tuple[tuple[str, ...], dict[str, Path]]:
    """The tiers, nearest first, without the last, and each node's domains.

    Preferring labels, the tiers are the labelled ones, and measurements place only nodes without a
    label; preferring measurements, the other way round. Where one of both is missing, the other
    counts alone. Domains nest when the labels do.
    """
    labelled = [tier for tier in order if any(labels.get(node, {}).get(tier) for node in nodes)]
    if labelled and (prefer == "labels" or not splits):
        return tuple(labelled), _by_labels(nodes, labels, labelled, splits, matches, told)
    names = {at: tier for tier, at in matches.items()}
    tiers = tuple(names.get(at) or _unused(f"tier{at + 1}", order) for at in range(len(splits)))
    return tiers, _by_measurements(nodes, labels, tiers, splits, told)


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "'"
    return name


def _by_labels(
    nodes: Sequence[str],
    labels: Labels,
    tiers: Sequence[str],
    splits: Sequence[Ints],
    matches: Mapping[str, int],
    told: NDArray[np.bool_],
) -> dict[str, Path]:
    """Labels, and for nodes without one the label of those they were measured with."""
    above = dict.fromkeys(nodes, "")
    paths: dict[str, list[str]] = {node: [] for node in nodes}
    for tier in reversed(tiers):
        own = {node: labels.get(node, {}).get(tier) for node in nodes}
        used = {label for label in own.values() if label is not None}
        measured: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        at = matches.get(tier)
        if at is not None:
            for i, node in enumerate(nodes):
                if (label := own[node]) is not None:
                    measured[int(splits[at][i]), above[node]][label] += 1
        for i, node in enumerate(nodes):
            label = own[node]
            if label is None and at is not None and told[i]:
                there = measured.get((int(splits[at][i]), above[node]))
                label = there.most_common(1)[0][0] if there else None
            if label is None:
                label = lone_domain(node, used)
            paths[node].insert(0, label)
        above = {node: path[0] for node, path in paths.items()}
    return {node: tuple(path) for node, path in paths.items()}


def _by_measurements(
    nodes: Sequence[str],
    labels: Labels,
    tiers: Sequence[str],
    splits: Sequence[Ints],
    told: NDArray[np.bool_],
) -> dict[str, Path]:
    """Measured domains, named by their commonest label where there is one; the rest by number."""
    paths: dict[str, list[str]] = {node: [] for node in nodes}
    place = dict.fromkeys(nodes, -1)
    for tier, split in reversed(list(zip(tiers, splits, strict=True))):
        at = split.copy()
        pairs = [
            (label, int(at[i]))
            for i, node in enumerate(nodes)
            if told[i] and (label := labels.get(node, {}).get(tier)) is not None
        ]
        of_label, of_domain = _majorities(pairs)
        home = {int(at[i]): place[node] for i, node in enumerate(nodes) if told[i]}
        for i, node in enumerate(nodes):
            label = labels.get(node, {}).get(tier)
            if not told[i] and label in of_label:
                there = of_label[label]
                if place[node] in (-1, home[there]):
                    at[i] = there
        used: set[str] = set()
        named: dict[int, str] = {}
        for i in range(len(nodes)):
            domain = int(at[i])
            if domain in named:
                continue
            name = of_domain.get(domain)
            if name is None or name in used or of_label[name] != domain:
                number = len(named)
                name = f"{tier}-{number}"
                while name in used or name in of_label:
                    number += 1
                    name = f"{tier}-{number}"
            named[domain] = name
            used.add(name)
        for i, node in enumerate(nodes):
            paths[node].insert(0, named[int(at[i])])
            place[node] = int(at[i])
    return {node: tuple(path) for node, path in paths.items()}
