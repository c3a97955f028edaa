"""Which domain takes which part of a division, where each costs something of its own."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints


def cheapest_homes(cost: Floats) -> Ints:
    """A column for each row, no column twice, with the least sum of costs.

    cost: `[row, column]`, at least as many columns as rows, infinite where a row cannot go; there
    must be a way for all rows. Shortest augmenting paths (Kuhn, Munkres; in the form of Jonker,
    Volgenant, Computing 38, 1987).
    """
    rows, columns = cost.shape
    finite = cost[np.isfinite(cost)]
    # Dearer than any way without it.
    never = 1.0 + 2.0 * rows * float(np.abs(finite).max(initial=0.0))
    priced = np.where(np.isfinite(cost), cost, never)
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    owner = np.full(columns, -1, dtype=np.int64)
    for first in range(rows):
        least = np.full(columns, np.inf)
        before = np.full(columns, -1, dtype=np.int64)
        reached = np.zeros(columns, dtype=bool)
        row, last = first, -1
        while True:
            reduced = priced[row] - row_price[row] - column_price
            better = ~reached & (reduced < least)
            least[better], before[better] = reduced[better], last
            column = int(np.argmin(np.where(reached, np.inf, least)))
            step = float(least[column])
            row_price[first] += step
            for c in np.flatnonzero(reached).tolist():
                row_price[owner[c]] += step
            column_price[reached] -= step
            least[~reached] -= step
            reached[column] = True
            last = column
            if owner[column] < 0:
                break
            row = int(owner[column])
        while last >= 0:
            owner[last] = owner[before[last]] if before[last] >= 0 else first
            last = int(before[last])
    home = np.empty(rows, dtype=np.int64)
    taken = np.flatnonzero(owner >= 0)
    home[owner[taken]] = taken
    return home
