"""How the nets of a family lie to the sets of a class, and what parts of the sets pay to them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np

from ..jobs.index import Floats, Ints
from .class_cost import Family

_MOST_SEATS = 5_000
"""Ways to give parts to sets that are gone through for one choice."""


@dataclass(frozen=True)
class Lattice:
    """Each net holds `each` units of every one of `across` sets; sets that share one net share all.

    family: its number in the class. chunk_of: by set, the sets that share nets with it. paid: as in
    Family.
    """

    family: int
    across: int
    each: int
    chunk_of: Ints
    paid: Floats

    @property
    def partly(self) -> bool:
        """Whether nets join some sets but not all, so that it matters which have parts."""
        return 1 < self.across < len(self.chunk_of)


def lattice_of(family: Family, number: int, set_of: Ints) -> Lattice | None:
    """How a family lies to the sets, where it lies evenly."""
    met = np.zeros((int(set_of.max()) + 1, int(family.set_of.max()) + 1), dtype=np.int64)
    np.add.at(met, (set_of, family.set_of), 1)
    each = int(met.max())
    across = (met > 0).sum(axis=0)
    even = np.isin(met, (0, each)).all() and (across == across[0]).all()
    chunk, chunk_of = np.unique(met > 0, axis=0, return_inverse=True)
    if not even or len(chunk) * int(across[0]) != len(met):
        return None
    return Lattice(number, int(across[0]), each, chunk_of.ravel(), family.paid)


def paid_to(lattice: Lattice, rows: Ints, size: int) -> Floats:
    """What parts `[choice, set]`, falling, of sets of `size` units pay to a family at least.

    Take lane j of a set to be its units from j * each up to (j + 1) * each, and let all sets be
    filled from their first lane, the fullest sets next to each other. For any number of nets, no
    choice of them then holds more than they do in any other filling, as min(l, a) is supermodular
    in the lanes l and the units a. What a net pays is concave in what it holds, so the least even
    sum is the cheapest.
    """
    total = np.zeros(len(rows))
    # Sets by choices, in few bytes each: there are many choices of few sets.
    few = np.ascontiguousarray(rows.T.astype(np.int16))
    for lane in range(0, size, lattice.each):
        inside = np.clip(few - np.int16(lane), 0, lattice.each)
        for first in range(0, len(few), lattice.across):
            total += lattice.paid[inside[first : first + lattice.across].sum(axis=0)]
    return total


def paid_together(lattices: list[Lattice], row: Ints, size: int) -> float:
    """What the parts of one choice pay to several families at least, whichever sets have them.

    0 where there are too many ways to give parts to sets. With the sets given, sets filled from
    their first lane are the cheapest for each family, as in `paid_to`. Where sets are alike the
    fullest is the first.
    """
    parts = row[row > 0]
    given = 1 if len(parts) and _alike(lattices) else 0
    sets, ways = len(row), 1
    for k in range(given, len(parts)):
        ways *= sets - k
    if ways > _MOST_SEATS:
        return 0.0
    rest = list(permutations(range(given, sets), len(parts) - given))
    seats = np.zeros((ways, len(parts)), dtype=np.int64)
    seats[:, given:] = np.array(rest, dtype=np.int64).reshape(ways, len(parts) - given)
    total = np.zeros(ways)
    for lattice in lattices:
        lanes = np.arange(0, size, lattice.each)
        inside = np.clip(parts[:, None] - lanes, 0, lattice.each)
        for chunk in range(int(lattice.chunk_of.max()) + 1):
            held = (lattice.chunk_of[seats] == chunk).astype(np.int64) @ inside
            total += lattice.paid[held].sum(axis=1)
    return float(total.min())


def _alike(lattices: list[Lattice]) -> bool:
    """Whether any set can be renamed to be any other: two families whose chunks make a grid."""
    if len(lattices) != 2:
        return False
    one, other = (lattice.chunk_of for lattice in lattices)
    met = np.zeros((int(one.max()) + 1, int(other.max()) + 1), dtype=np.int64)
    np.add.at(met, (one, other), 1)
    return bool((met == met[0, 0]).all())
