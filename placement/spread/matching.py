"""Which unit of a class goes to which of its places: neighbours of a chain side by side."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints


def match_chain(places: list[Ints], linked: list[bool], domain: Ints) -> list[Ints]:
    """Order the places of every class so that unit i of each class is near unit i of the next.

    places: for each class the leaf of each of its places. linked[p]: whether class p + 1 continues
    the chain of class p, and linked[-1] whether the first continues that of the last. domain:
    `[level, leaf]`, innermost first. Matching innermost domains first leaves, at every level at
    once, as many linked pairs apart as counts alone make necessary. In a closed chain those leave
    that are away from where they began, and go back there where they can.
    """
    ordered = [np.sort(places[0])]
    home = ordered[0] if linked[-1] else None
    for p in range(1, len(places)):
        here = np.sort(places[p])
        ordered.append(_partners(ordered[p - 1], here, domain, home) if linked[p - 1] else here)
    return ordered


def _partners(before: Ints, here: Ints, domain: Ints, home: Ints | None) -> Ints:
    """`here` permuted so that entry i is as near as can be to `before[i]`, then to `home[i]`."""
    answer = np.full(len(before), -1, dtype=np.int64)
    open_before, open_here = np.arange(len(before)), here
    rows = [(row, before) for row in domain]
    if home is not None:
        rows += [(row, home) for row in domain]
    rows.append((np.zeros(domain.shape[1], dtype=np.int64), before))
    leaving = _leaving(before, here, domain[-1], home)
    for row, near in rows:
        if not len(open_before):
            break
        left, right = row[near[open_before]], row[open_here]
        by_left = np.lexsort((leaving[open_before], left))
        by_right = np.argsort(right, kind="stable")
        rank_left, rank_right = _rank_within(left[by_left]), _rank_within(right[by_right])
        width = max(len(before), 1)
        keys_left = left[by_left] * width + rank_left
        keys_right = right[by_right] * width + rank_right
        _, at_left, at_right = np.intersect1d(
            keys_left, keys_right, assume_unique=True, return_indices=True
        )
        chosen_left, chosen_right = by_left[at_left], by_right[at_right]
        answer[open_before[chosen_left]] = open_here[chosen_right]
        open_before = np.delete(open_before, chosen_left)
        open_here = np.delete(open_here, chosen_right)
    return answer


def _leaving(before: Ints, here: Ints, outermost: Ints, home: Ints | None) -> Ints:
    """Which units leave their domain first, largest first: those whose home has room for them."""
    if home is None:
        return np.zeros(len(before), dtype=np.int64)
    at, goal = outermost[before], outermost[home]
    domains = int(outermost.max()) + 1
    growth = np.bincount(outermost[here], minlength=domains) - np.bincount(at, minlength=domains)
    away = at != goal
    eager: Ints = away.astype(np.int64) + (away & (growth[goal] > 0))
    return eager


def _rank_within(sorted_labels: Ints) -> Ints:
    """For each entry of a sorted array, how many equal ones come before it."""
    index = np.arange(len(sorted_labels))
    first = np.searchsorted(sorted_labels, sorted_labels)
    return index - first
