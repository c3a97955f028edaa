"""Whom to probe next so that the tree of domains becomes certain: pairs for one round."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .clusters import Ints, summed, weakest_cuts
from .evidence import Evidence
from .tree import Split, Standing, shared, standing

_MOST_TARGETS = 64
_FEW_TARGETS = 6
_LIKELY_APART = -2.5
"""Log-odds at which two parts are left alone as long as there is something better to probe."""
_APART = -6.0
"""Log-odds at which two parts count as different."""
_SMALL_APART, _APART_A_NODE, _MOST_COUNTED = -8.0, -4.5, 8
"""The same for parts that are small beside the others, and more for each of their nodes up to 8:
such parts are rarer, and may be made of nodes that one freak of timing each has kept from home."""
_SMALL_PART = 0.75
_LOOKED_INSIDE, _LOOKED_A_NODE, _MOST_LOOKS = 3.0, 1 / 8, 10.0
"""Probes of each node inside its domain after which a nearer tier would have shown: these, and more
for each node of the domain up to the last; a large domain is likelier to hold smaller ones."""
_MOST_REPEATS = 3
_ACROSS = 2
_TRIES = 12
_DRAWN = 40
_SMALL = 4
"""Nodes up to which a part looks for others of its tier before it looks at nearer tiers."""


def enough_odds(count: int) -> float:
    """Log-odds of a node's domain at which one in 100 networks of `count` nodes has an error."""
    return math.log(max(count, 2)) + math.log(100)


class Round:
    """The pairs of one round while it is made.

    Invariant: no node is in two pairs; `free` tells which may still be taken.
    """

    def __init__(self, evidence: Evidence, free: NDArray[np.bool_], seed: int) -> None:
        self.free = free.copy()
        self.random = np.random.default_rng(seed)
        self.pairs: list[tuple[int, int]] = []
        self._count = evidence.count
        low, high = np.minimum(evidence.a, evidence.b), np.maximum(evidence.a, evidence.b)
        keys, times = np.unique(low * self._count + high, return_counts=True)
        self._times = dict(zip(keys.tolist(), times.tolist(), strict=True))

    def times(self, one: int, other: int) -> int:
        """How often two nodes were probed already."""
        key = min(one, other) * self._count + max(one, other)
        return int(self._times.get(key, 0))

    def take(self, one: int, other: int) -> None:
        """These two probe each other in this round."""
        assert one != other and self.free[one] and self.free[other]
        self.free[one] = self.free[other] = False
        self.pairs.append((one, other))

    def pick(self, one: int, others: list[int], most_repeats: int = _MOST_REPEATS) -> int | None:
        """A free node among others for `one`, rather one it has not been probed with.

        Drops those that are not free from the list.
        """
        best, fewest = None, most_repeats
        for _ in range(_TRIES):
            if not others:
                break
            at = int(self.random.integers(len(others)))
            other = others[at]
            if not self.free[other]:
                others[at] = others[-1]
                others.pop()
                continue
            if other != one and (times := self.times(one, other)) < fewest:
                best, fewest = other, times
                if not times:
                    break
        return best

    def among(self, nodes: Ints) -> None:
        """Pairs of these nodes at random, those that have met too often left out."""
        waiting: list[int] = []
        for node in self.random.permutation(nodes[self.free[nodes]]).tolist():
            at = next(
                (k for k, other in enumerate(waiting[-_TRIES:]) if not self.times(node, other)),
                None,
            )
            if at is None:
                waiting.append(node)
            else:
                other = waiting.pop(max(0, len(waiting) - _TRIES) + at)
                self.take(node, other)


def ask(evidence: Evidence, splits: list[Split], free: NDArray[np.bool_], seed: int) -> Round:
    """The pairs that make the splits most certain; none where they are certain already.

    At each tier from the farthest in: parts that may be one are probed with each other, each with
    as many nodes as it has; what is not certain is confirmed; nodes look inside the nearest
    domains, where a nearer tier might be.
    """
    made = Round(evidence, free, seed)
    wanted = enough_odds(evidence.count)
    for split in splits:
        _compare_parts(evidence, split, made, _LIKELY_APART, split is splits[-1])
    for split in splits:
        _probe_cuts(evidence, split, wanted, made)
        _confirm(split, standing(evidence, split), wanted, made)
    if splits:
        _look_inside(evidence, splits[-1], made)
    for split in splits:
        _compare_parts(evidence, split, made, _APART, True)
    return made


def _compare_parts(
    evidence: Evidence, split: Split, made: Round, apart: float, innermost: bool
) -> None:
    """Probe parts with those they may be one with: the largest and likeliest first."""
    labels, count = split.labels, evidence.count
    one, two = labels[evidence.a], labels[evidence.b]
    rows, columns, sums = summed(
        np.append(one, two), np.append(two, one), np.append(split.odds, split.odds), count
    )
    told: dict[int, dict[int, float]] = {}
    for row, column, total in zip(rows.tolist(), columns.tolist(), sums.tolist(), strict=True):
        told.setdefault(row, {})[column] = total
    sizes = np.bincount(labels)
    members = _members(labels, made)
    outer_of = np.zeros(len(sizes), dtype=np.int64)
    outer_of[labels] = split.outer
    for parts in _runs(outer_of):
        if len(parts) < 2:
            continue
        by_size = parts[np.argsort(-sizes[parts], kind="stable")]
        targets = by_size[:_MOST_TARGETS]
        targets = targets[sizes[targets] > 1]
        weights = dict(zip(targets.tolist(), np.log(sizes[targets]).tolist(), strict=True))
        usual = _usual(sizes[by_size])
        for part in by_size.tolist():
            single = sizes[part] == 1
            most = _MOST_TARGETS if innermost or single else _FEW_TARGETS
            small = apart == _APART and sizes[part] < _SMALL_PART * usual
            counted = min(int(sizes[part]), _MOST_COUNTED)
            least = _SMALL_APART + _APART_A_NODE * counted if small else apart
            least -= split.prior
            known = told.get(part, {})
            worth = [
                (weight + known.get(target, 0.0), target)
                for target, weight in weights.items()
                if target != part and known.get(target, 0.0) > least
            ]
            worth.sort(reverse=True)
            _spread(part, [target for _, target in worth[:most]], members, made)
        mixed = parts if innermost else parts[sizes[parts] <= _SMALL]
        _mix(mixed, labels, members, told, apart - split.prior, made)


def _mix(
    parts: Ints,
    labels: Ints,
    members: list[list[int]],
    told: dict[int, dict[int, float]],
    apart: float,
    made: Round,
) -> None:
    """Probe what is still free in parts that may be one, found by drawing some nodes at random."""
    waiting = [node for part in parts.tolist() for node in members[part] if made.free[node]]
    made.random.shuffle(waiting)
    while waiting:
        node = waiting.pop()
        known = told.get(int(labels[node]), {})
        best, at = (apart, -1), -1
        for k in range(max(0, len(waiting) - _DRAWN), len(waiting)):
            other = waiting[k]
            part = int(labels[other])
            if part != labels[node] and (likely := known.get(part, 0.0)) >= best[0]:
                # What both were found to be far from leaves fewer domains for both to be in.
                alike = len(known.keys() & told.get(part, {}).keys())
                if (likely, alike) > best:
                    best, at = (likely, alike), k
        if at >= 0:
            made.take(node, waiting.pop(at))


def _usual(sizes: Ints) -> int:
    """The size of the part that the median node is in; sizes descend."""
    return int(sizes[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)])


def _spread(part: int, targets: list[int], members: list[list[int]], made: Round) -> None:
    """Probes between a part and these others, one each, as long as both have free nodes."""
    own = members[part]
    for target in targets:
        while own and not made.free[own[-1]]:
            own.pop()
        if not own:
            return
        other = made.pick(own[-1], members[target], 2)
        if other is not None:
            made.take(own[-1], other)


def _probe_cuts(evidence: Evidence, split: Split, wanted: float, made: Round) -> None:
    """Probe across the weakest cut of each part that is not held together well there."""
    side, across = weakest_cuts(split.labels, evidence.a, evidence.b, split.odds)
    weak = (across < wanted)[split.labels] & shared(split.labels) & made.free
    one, other = (
        _members(split.labels, made, weak & side),
        _members(split.labels, made, weak & ~side),
    )
    for mine, its in zip(one, other, strict=True):
        for node in mine[:_ACROSS]:
            found = made.pick(node, its) if made.free[node] else None
            if found is not None:
                made.take(node, found)


def _confirm(split: Split, stands: Standing, wanted: float, made: Round) -> None:
    """Probe nodes of doubtful standing with others of their domain, or of the rival's."""
    labels = split.labels
    doubtful = np.flatnonzero((stands.margins < wanted) & made.free & shared(labels))
    if not len(doubtful):
        return
    members = _members(labels, made)
    for node in doubtful[np.argsort(stands.margins[doubtful])].tolist():
        if made.free[node]:
            other = made.pick(node, members[labels[node]])
            if other is not None:
                made.take(node, other)


def _look_inside(evidence: Evidence, split: Split, made: Round) -> None:
    labels = split.labels
    inside = labels[evidence.a] == labels[evidence.b]
    ends = np.append(evidence.a[inside], evidence.b[inside])
    looked = np.bincount(ends, minlength=evidence.count)
    sizes = np.bincount(labels)
    enough = np.minimum(_LOOKED_INSIDE + _LOOKED_A_NODE * sizes, _MOST_LOOKS)
    wants = (looked < enough[labels]) & (sizes[labels] > 2) & made.free
    members = _members(labels, made)
    for node in made.random.permutation(np.flatnonzero(wants)).tolist():
        if made.free[node]:
            other = made.pick(node, members[labels[node]], 1)
            if other is not None:
                made.take(node, other)


def _members(labels: Ints, made: Round, only: NDArray[np.bool_] | None = None) -> list[list[int]]:
    """The free nodes of each part, in random order; `only` these."""
    found: list[list[int]] = [[] for _ in range(int(labels.max()) + 1)]
    which = made.free if only is None else only
    for node in made.random.permutation(np.flatnonzero(which)).tolist():
        found[labels[node]].append(node)
    return found


def _runs(keys: Ints) -> list[Ints]:
    """The positions of each value of `keys`."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
