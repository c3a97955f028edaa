"""The least that a domain pays for holding some units of a class, however it chooses them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..jobs.index import RING, TREE, Floats, Ints
from ..loops.compiled import lean

_MOST_FAMILIES = 6
"""Families looked at, heaviest first; those left out only lower what is paid."""
_MOST_FILL = 32
"""Units of a set up to which it is told by its fullest and emptiest what other sets pay."""


@dataclass(frozen=True)
class Family:
    """Nets of one size that hold every unit of a class once.

    set_of: the net of each unit of the class. paid: `[a]`, a domain's share of the cost of a net of
    which it holds a units; the shares of all domains add up to the cost or less.
    """

    set_of: Ints
    paid: Floats

    @property
    def size(self) -> int:
        """Units of a net."""
        return len(self.paid) - 1

    @property
    def least(self) -> float:
        """What a domain pays at least for a net of which it holds some units but not all."""
        return float(self.paid[1:-1].min(initial=np.inf)) if self.size > 1 else 0.0


def share(form: int, weight: float, held: int, size: int) -> Floats:
    """`[a]`: what a domain with a of a net's members pays; what all domains pay is the cost."""
    y = np.arange(size + 1, dtype=np.float64)
    edges: Floats = float(held) ** 2 * y * (size - y)
    if form == RING:
        edges = ((y > 0) & (y < size)).astype(np.float64)
    elif form == TREE:
        edges = (y > 0) - y / size
    return weight * edges


def class_cost(units: int, families: list[Family]) -> Floats:
    """`[y]`: no choice of y units of the class pays less to all families together.

    Families whose sets nest are counted exactly: the sets of the largest are filled from those of
    the next, and so on. What families across them pay is told by how full one level of the nest is:
    if its fullest set has `high` units and its emptiest `low`, then a family with at most c units
    in a set has at least high / c sets that are touched, and at most as many complete ones as low
    allows. The best of all nests and levels counts.
    """
    best = np.zeros(units + 1)
    chosen = sorted(families, key=lambda family: -float(family.paid.max()))[:_MOST_FAMILIES]
    chosen.sort(key=lambda family: family.size)
    for nest in _nests(chosen):
        across = [family for family in chosen if not any(family is one for one in nest)]
        levels = [k for k, family in enumerate(nest) if family.size <= _MOST_FILL]
        for level in levels if across and levels else [-1]:
            best = np.maximum(best, _paid(units, nest, level, across))
    return best


def _nests(families: list[Family]) -> list[list[Family]]:
    """The largest lists of families, smallest sets first, each of whose sets lie in the next's."""
    inside = {
        (i, k): _nested(families[i], families[k]) for i, k in combinations(range(len(families)), 2)
    }
    nests: list[tuple[int, ...]] = []
    for count in range(len(families), 0, -1):
        for some in combinations(range(len(families)), count):
            nested = all(inside[pair] for pair in combinations(some, 2))
            if nested and not any(set(some) <= set(larger) for larger in nests):
                nests.append(some)
    return [[families[k] for k in some] for some in nests] or [[]]


def _nested(small: Family, large: Family) -> bool:
    pairs = np.unique(np.stack([small.set_of, large.set_of]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(small.set_of)))


def _paid(units: int, nest: list[Family], level: int, across: list[Family]) -> Floats:
    """`[y]`, with what is across told by how full the sets of one level are; -1 for no level."""
    fill = nest[level].size if level >= 0 else 1
    low, high = np.array([(a, b) for b in range(fill + 1) for a in range(b + 1)]).T
    if level < 0:
        low, high = np.array([0]), np.array([1])
    least, size = np.zeros((1, 2)), 1
    for k, family in enumerate(nest):
        least = together(least, family.size // size) + family.paid
        size = family.size
        if k == level:
            a = np.arange(size + 1)
            allowed = (low[:, None] <= a) & (a <= high[:, None])
            least = np.where(allowed, least, np.inf)
    least = together(least, units // size)
    for family in across:
        alone = together(family.paid[None, :], units // family.size)
        if level >= 0:
            roles = _roles(nest[level], family, low, high)
            least = least + np.maximum(alone, roles[:, None])
        else:
            least = least + alone
    return np.asarray(least.min(axis=0))


def _roles(nest: Family, across: Family, low: Ints, high: Ints) -> Floats:
    """What a family pays at least where sets of another hold `low` to `high` units each."""
    met = np.zeros((int(nest.set_of.max()) + 1, int(across.set_of.max()) + 1), dtype=np.int64)
    np.add.at(met, (nest.set_of, across.set_of), 1)
    touched = -(-high // int(met.max()))
    fewest = int(met.min())
    complete = low // fewest if fewest else np.full(len(low), met.shape[1])
    return across.least * np.maximum(0, touched - np.minimum(complete, met.shape[1]))


def together(least: Floats, copies: int) -> Floats:
    """`[case, y]`: least cost of y units in so many sets, each of which costs `least`."""
    power, total = least, None
    while True:
        if copies & 1:
            total = power if total is None else _joined(total, power)
        copies >>= 1
        if not copies:
            assert total is not None
            return total
        power = _joined(power, power)


def _joined(one: Floats, other: Floats) -> Floats:
    joined = np.full((len(one), one.shape[1] + other.shape[1] - 1), np.inf)
    _join(one, other, joined)
    return joined


@lean
def _join(one: Floats, other: Floats, joined: Floats) -> None:
    for case in range(one.shape[0]):
        for a in range(one.shape[1]):
            here = one[case, a]
            if here == np.inf:
                continue
            # No branch and a stride of one: compilers make vector instructions of this loop.
            for b in range(other.shape[1]):
                value = here + other[case, b]
                old = joined[case, a + b]
                joined[case, a + b] = value if value < old else old
