"""The best places of few items, by trying all ways that may be better."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean
from ..loops.sorting import sort_by
from .reseat import less
from .seats import Seats, added, put, suits, take

MOST_EXACT: Final = 8
"""Items up to which all ways are tried."""
_STEPS: Final = 500
"""Choices the exact search looks at before it gives up."""


def least(s: Seats, items: Ints, slack: float) -> bool:
    """Find the best places of few items by trying all that may be better; whether it got through.

    Costs only grow as items are put down, so a partial choice that is no better than the best
    whole one is given up.
    """
    count, columns, most = len(items), s.levels + 1, len(s.candidate)
    return _least(
        s,
        items,
        slack,
        s.at[items],
        np.zeros((count + 2, columns)),
        np.zeros((count, most, columns)),
        np.zeros(most),
        np.zeros((count, most), dtype=np.int64),
        np.zeros((count, most), dtype=np.int64),
        np.zeros((2, most), dtype=np.int64),
        np.zeros((2, count), dtype=np.int64),
        np.ones(count, dtype=np.int64),
    )


@lean
def _least(
    s: Seats,
    items: Ints,
    slack: float,
    places: Ints,
    cost: Floats,
    prices: Floats,
    keys: Floats,
    options: Ints,
    rows: Ints,
    scratch: Ints,
    counts: Ints,
    fresh: Ints,
) -> bool:
    """See `least`. places: where the items are.

    cost: what the items before each depth add, in the last row the best whole choice. options,
    prices: nodes for the item at a depth, and what all items cost then. rows: those by their price.
    """
    count, columns = len(items), cost.shape[1]
    best = cost[count + 1]
    length, next_ = counts[0], counts[1]
    for item in items:
        take(s, item)
    for k in range(count):
        added(s, items[k], places[k], cost[0])
        for column in range(columns):
            best[column] += cost[0, column]
        put(s, items[k], places[k])
    for item in items:
        take(s, item)
    for column in range(columns):
        cost[0, column] = 0.0
    depth, steps, through = 0, 0, True
    while depth >= 0:
        item = items[depth]
        if fresh[depth] == 1:
            fresh[depth] = 0
            steps += 1
            if steps > _STEPS:
                through = False
                break
            length[depth], next_[depth] = 0, 0
            looked = -1
            for node in s.candidate:
                if (s.used[node] == 0 and s.alike[node] == looked) or not suits(s, item, node):
                    continue
                if s.used[node] == 0:
                    looked = s.alike[node]
                k = length[depth]
                options[depth, k] = node
                added(s, item, node, prices[depth, k])
                for column in range(columns):
                    prices[depth, k, column] += cost[depth, column]
                keys[k] = prices[depth, k, 0]
                length[depth] += 1
            sort_by(keys, length[depth], scratch[0], scratch[1])
            for k in range(length[depth]):
                rows[depth, k] = scratch[0, k]
        else:
            take(s, item)
        if next_[depth] == length[depth]:
            fresh[depth] = 1
            depth -= 1
            continue
        k = rows[depth, next_[depth]]
        next_[depth] += 1
        node = options[depth, k]
        put(s, item, node)  # so that coming back to this depth always takes it up
        if not less(prices[depth, k], best, slack):
            continue
        if depth == count - 1:
            for column in range(columns):
                best[column] = prices[depth, k, column]
            for m in range(count):
                places[m] = s.at[items[m]]
            continue
        for column in range(columns):
            cost[depth + 1, column] = prices[depth, k, column]
        depth += 1
    for item in items:
        if s.at[item] >= 0:
            take(s, item)
    for m in range(count):
        put(s, items[m], places[m])
    return through
