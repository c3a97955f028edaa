"""Nodes that belong together, from evidence for and against each probed pair of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_SWEEPS = 40
_MERGE_MARGIN = 1.0
"""Log-odds by which evidence must favour a union; what is less waits for more probes."""


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
    count = len(groups)
    same = groups[a] == groups[b]
    a, b, evidence = a[same], b[same], evidence[same]
    labels = np.arange(count, dtype=np.int64)
    random = np.random.default_rng(0)
    for sweep in range(_MOST_SWEEPS):
        merged = _merge(labels, a, b, evidence, prior)
        moved = _move(merged, a, b, evidence, prior, random)
        if np.array_equal(moved, labels) and sweep > 2:
            break
        labels = moved
    return compact(labels)


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
