"""Sums of columns: what several domains hold of every class, packed into whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..jobs.index import Floats, Ints
from ..loops.compiled import lean

MOST_KEPT = 2_000_000
"""Pairs that are written down at most."""

Codes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Words:
    """How the counts of all classes stand in whole numbers of 64 bits, each class in one of them.

    A class takes the bits of its height, and one that tells when it overflows. word, place: where
    its bits are. guard: those that tell, by word; goal: all units of every class.
    """

    word: Ints
    place: Codes
    guard: Codes
    goal: Codes
    spare: Codes

    @classmethod
    def of(cls, height: Ints) -> Words:
        """The words for classes of these heights."""
        width = np.array([int(h).bit_length() + 1 for h in height.tolist()], dtype=np.int64)
        word, place = np.zeros_like(width), np.zeros_like(width)
        now, used = 0, 0
        for p, bits in enumerate(width.tolist()):
            if used + bits > 64:
                now, used = now + 1, 0
            word[p], place[p] = now, used
            used += bits
        one = np.uint64(1)
        at, top = place.astype(np.uint64), (place + width - 1).astype(np.uint64)
        guard, goal, full = np.zeros((3, now + 1), dtype=np.uint64)
        for p, w in enumerate(word.tolist()):
            guard[w] |= one << top[p]
            goal[w] += np.uint64(height[p]) << at[p]
            full[w] += (one << top[p]) - (one << at[p])
        # What is missing from `goal` overflows into no other class as long as no guard is set.
        return cls(word, at, guard, goal, full - goal)

    @property
    def count(self) -> int:
        """How many words there are."""
        return len(self.goal)

    def codes(self, columns: Ints) -> Codes:
        """`[word, column]` of columns `[column, class]`."""
        bits = columns.astype(np.uint64) << self.place
        return np.array([bits[:, self.word == w].sum(axis=1) for w in range(self.count)])


@dataclass(frozen=True)
class States:
    """Sums or columns: their codes `[word, state]`, priced costs, and units in all."""

    code: Codes
    price: Floats
    units: Ints


def fitting_pairs(
    sums: States, columns: States, reach: Ints, words: Words, after: Floats, limit: float
) -> tuple[Ints, Ints]:
    """Pairs of a sum and a column that hold no class more than once and stay within the limit.

    reach: of each sum, up to which column its price leaves room. after: `[units]`, what the rest
    costs at least. At `MOST_KEPT` pairs it ends.
    """
    at, column = np.empty((2, MOST_KEPT), dtype=np.int64)
    kept = _fitting(
        sums.code,
        sums.price,
        sums.units,
        columns.code,
        columns.price,
        columns.units,
        reach,
        words.guard,
        words.spare,
        after,
        limit,
        at,
        column,
    )
    return at[:kept].copy(), column[:kept].copy()


@lean
def _fitting(
    sums: Codes,
    sum_price: Floats,
    sum_units: Ints,
    code: Codes,
    price: Floats,
    units: Ints,
    reach: Ints,
    guard: Codes,
    spare: Codes,
    after: Floats,
    limit: float,
    at: Ints,
    column: Ints,
) -> int:
    words, total = len(guard), len(after) - 1
    kept = 0
    for s in range(len(sum_price)):
        so_far = sum_price[s]
        free = total - sum_units[s]
        first = sums[0, s] + spare[0]
        for c in range(reach[s]):
            if (first + code[0, c]) & guard[0]:
                continue
            left = free - units[c]
            if left < 0 or so_far + price[c] + after[left] > limit:
                continue
            fits = True
            for w in range(1, words):
                if (sums[w, s] + spare[w] + code[w, c]) & guard[w]:
                    fits = False
            if fits:
                at[kept] = s
                column[kept] = c
                kept += 1
                if kept == len(at):
                    return kept
    return kept
