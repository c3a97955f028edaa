"""Nodes that belong together, from evidence for and against each probed pair of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_SWEEPS = 40
_MERGE_MARGIN = 2.5
"""Log-odds by which evidence must favour a union; what is less waits for more probes. One false
union spoils all that is then measured with its part: at a margin of 1 finding domains by trying
takes a tenth more rounds, and so it does at 4."""
_MOST_CUTS = 4
_WALK_STEPS = 60
_TINY = 1e-9


def summed(rows: Ints, columns: Ints, values: Floats, width: int) -> tuple[Ints, Ints, Floats]:
    """Sums of the values by (row, column), ordered by row, then column; columns < width."""
    keys = rows * width + columns
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else order
    sums = np.add.reduceat(values[order], first) if len(keys) else values
    return keys[first] // width, keys[first] % width, sums


def best_of_rows(rows: Ints, values: Floats) -> Ints:
    """Where, in each run of equal rows, the largest value stands."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((values, rows))
    last = np.flatnonzero(np.append(rows[order][1:] != rows[order][:-1], True))
    return order[last]


def compact(labels: Ints) -> Ints:
    """The same partition with labels 0, 1, ... in the order of their first members."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def cluster(groups: Ints, a: Ints, b: Ints, evidence: Floats, prior: float) -> Ints:
    """A partition, finer than `groups`, with much evidence inside parts and little between them.

    groups: of each node, the part it lies in anyway. a, b: the ends of each probe. evidence: the
    logarithm of the odds that its ends belong together, from the probe alone. prior: of two nodes
    of one group, before any probe (negative). Correlation clustering (Bansal, Blum, Chawla 2004)
    by unions of whole parts, best first, alternating with moves of single nodes.
    """
    same = groups[a] == groups[b]
    a, b, evidence = a[same], b[same], evidence[same]
    labels = np.arange(len(groups), dtype=np.int64)
    labels = _settled(labels, a, b, evidence, prior)
    for _ in range(_MOST_CUTS):
        halves = _cut(compact(labels), a, b, evidence, prior)
        if np.array_equal(halves, compact(labels)):
            break
        labels = _settled(halves, a, b, evidence, prior)
    return compact(labels)


def _settled(labels: Ints, a: Ints, b: Ints, evidence: Floats, prior: float) -> Ints:
    """The partition that unions and moves lead to from this one."""
    random = np.random.default_rng(0)
    for sweep in range(_MOST_SWEEPS):
        merged = _merge(labels, a, b, evidence, prior)
        moved = _move(merged, a, b, evidence, prior, random)
        if np.array_equal(moved, labels) and sweep > 2:
            break
        labels = moved
    return labels


def _cut(labels: Ints, a: Ints, b: Ints, evidence: Floats, prior: float) -> Ints:
    """Each part in two where the weakest cut through it has more evidence against than for it.

    Two domains may have become one by a false probe while they were small; no move of a single node
    undoes that. labels: compact.
    """
    side, across = weakest_cuts(labels, a, b, evidence)
    parts = len(across)
    return compact(np.where(side & (across + prior < 0)[labels], labels + parts, labels))


def weakest_cuts(
    labels: Ints, a: Ints, b: Ints, evidence: Floats
) -> tuple[NDArray[np.bool_], Floats]:
    """Of each node, on which side of the weakest cut through its part it is; of each part, the
    evidence across that cut (0 where nothing is).

    The cut is by the sign of the slowest vector of a random walk along the evidence for (the
    Fiedler vector), found for all parts at once by power iteration. labels: compact.
    """
    count = len(labels)
    inside = labels[a] == labels[b]
    a, b, evidence = a[inside], b[inside], evidence[inside]
    ends, others = np.append(a, b), np.append(b, a)
    weights = np.maximum(np.append(evidence, evidence), 0.0)
    degrees = np.bincount(ends, weights, minlength=count)
    linked = degrees > 0
    inverse = np.where(linked, 1 / np.where(linked, degrees, 1.0), 0.0)
    whole = np.bincount(labels, degrees)
    share = np.where(whole > 0, 1 / np.where(whole > 0, whole, 1.0), 0.0)
    value = np.random.default_rng(1).standard_normal(count)
    for _ in range(_WALK_STEPS):
        value -= (np.bincount(labels, degrees * value) * share)[labels]
        length = np.sqrt(np.bincount(labels, degrees * value * value) * share)
        value /= np.where(length > _TINY, length, 1.0)[labels]
        pulled = np.bincount(ends, weights * value[others], minlength=count)
        value = 0.5 * value + 0.5 * pulled * inverse
    side = value > 0
    crossing = side[a] != side[b]
    across = np.bincount(
        labels[a[crossing]], evidence[crossing], minlength=int(labels.max()) + 1
    ).astype(np.float64)
    return side, across


def _merge(labels: Ints, a: Ints, b: Ints, evidence: Floats, prior: float) -> Ints:
    """Unions of parts, until no two have evidence for them, each part in one union at a time."""
    count = len(labels)
    while True:
        one, two = labels[a], labels[b]
        apart = one != two
        one, two, weight = one[apart], two[apart], evidence[apart]
        rows, columns, sums = summed(
            np.append(one, two), np.append(two, one), np.append(weight, weight), count
        )
        good = sums + prior > _MERGE_MARGIN
        rows, columns, sums = rows[good], columns[good], sums[good]
        if not len(rows):
            return labels
        sizes = np.bincount(labels, minlength=count)
        # One part of each union stays: the one whose own best partner is not larger.
        at = best_of_rows(rows, sums + 1e-9 * sizes[columns])
        rows, columns = rows[at], columns[at]
        target = np.arange(count, dtype=np.int64)
        rank = sizes * np.int64(count + 1) + np.arange(count)
        up = rank[columns] > rank[rows]
        target[rows[up]] = columns[up]
        # A part whose target moves itself waits for the next time.
        waits = target[target] != target
        target[waits] = np.flatnonzero(waits)
        labels = target[labels]


def _move(
    labels: Ints, a: Ints, b: Ints, evidence: Floats, prior: float, random: np.random.Generator
) -> Ints:
    """Single nodes that have more evidence for another part, or none for theirs, change over."""
    count = len(labels)
    ends, others = np.append(a, b), np.append(b, a)
    twice = np.append(evidence, evidence)
    for _ in range(4):
        rows, columns, sums = summed(ends, labels[others], twice, count)
        own = np.full(count, 0.0)
        mine = columns == labels[rows]
        own[rows[mine]] = sums[mine]
        sizes = np.bincount(labels, minlength=count)
        lone = sizes[labels] == 1
        rows, columns, sums = rows[~mine], columns[~mine], sums[~mine]
        at = best_of_rows(rows, sums)
        best, where = np.full(count, -np.inf), labels.copy()
        best[rows[at]], where[rows[at]] = sums[at], columns[at]
        worth = (best > np.maximum(own, 0.0) + 0.5) & (best + prior > _MERGE_MARGIN) & ~lone
        leaves = ~lone & ~worth & (own + prior < 0)
        changes = (worth | leaves) & (random.random(count) < 0.5)
        if not np.any(worth | leaves):
            break
        labels = labels.copy()
        labels[changes & worth] = where[changes & worth]
        alone = np.flatnonzero(changes & leaves)
        unused = np.flatnonzero(np.bincount(labels, minlength=count) == 0)
        labels[alone[: len(unused)]] = unused[: len(alone)]
    return labels
