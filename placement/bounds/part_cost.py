"""The least that a domain pays for the parts of sets that it holds of a class, choice by choice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..jobs.index import Floats, Ints
from .class_cost import Family, class_cost
from .part_lattices import Lattice, lattice_of, paid_to, paid_together

_MOST_CHOICES = 60_000
"""Choices of parts that are written down for one class."""
_MOST_CROSSED = 30_000
"""Choices of two divisions at once."""
_MOST_REFINED = 400
"""Choices of which it is told what several families pay together."""
_MOST_SPLITS = 2_000
"""Ways to split one set into parts that are written down."""


@dataclass(frozen=True)
class Sets:
    """One division of a class: so many sets of `size` units each.

    rows: `[choice, set]`, the parts of sets that a domain holds, falling. splits: `[way, a - 1]`,
    every way to divide one set into parts that domains have room for, as how many are of a units.
    """

    sets: int
    size: int
    rows: Ints
    splits: Ints

    def parts(self) -> Ints:
        """`[choice, a - 1]`: how many parts of a units there are."""
        sizes = range(1, self.splits.shape[1] + 1)
        return np.stack([(self.rows == a).sum(axis=1) for a in sizes], axis=1)


@dataclass(frozen=True)
class PartCost:
    """Choices of what a domain may hold of a class, by rising units, and what it pays at least.

    divisions: of the class, one, or two whose sets cross. families: `[choice, family]`, what it
    pays to each family at least; joint: to those that join some of the sets, `partly`, together.
    """

    units: Ints
    cost: Floats
    families: Floats
    divisions: tuple[Sets, ...]
    partly: tuple[Lattice, ...]
    joint: Floats

    @property
    def height(self) -> int:
        """Units of the class."""
        return self.divisions[0].sets * self.divisions[0].size

    def chosen(self, which: Ints) -> PartCost:
        """Some of the choices."""
        divisions = tuple(
            Sets(each.sets, each.size, each.rows[which], each.splits) for each in self.divisions
        )
        return PartCost(
            self.units[which],
            self.cost[which],
            self.families[which],
            divisions,
            self.partly,
            self.joint[which],
        )

    def divided_by(self, scale: float) -> PartCost:
        """The same choices with costs in other units."""
        partly = tuple(replace(lattice, paid=lattice.paid / scale) for lattice in self.partly)
        return replace(
            self,
            cost=self.cost / scale,
            families=self.families / scale,
            partly=partly,
            joint=self.joint / scale,
        )


def part_cost(units: int, families: list[Family], most: int, set_of: Ints) -> PartCost | None:
    """What domains of at most `most` units pay for parts of sets; None where there are too many.

    set_of: the set of each unit of the class, sets of one size. No choice of units whose parts are
    these pays less. Each family is told by itself, and those inside of sets also together.
    """
    sets = int(set_of.max()) + 1
    size = units // sets
    rows = choices_of_parts(sets, min(size, most), most)
    splits = None if rows is None else set_splits(size, min(size, most))
    if rows is None or splits is None:
        return None
    held = rows.sum(axis=1)
    paid = np.zeros((len(rows), len(families)))
    every = [lattice_of(family, f, set_of) for f, family in enumerate(families)]
    lattices = [lattice for lattice in every if lattice is not None]
    for lattice in lattices:
        paid[:, lattice.family] = paid_to(lattice, rows, size)
    own = [lattice.family for lattice in lattices if lattice.across == 1]
    inside = [
        Family(np.unique(families[f].set_of[set_of == 0], return_inverse=True)[1], families[f].paid)
        for f in own
    ]
    together = class_cost(size, inside)[rows].sum(axis=1)
    more = np.maximum(0.0, together - paid[:, own].sum(axis=1))
    cost = np.maximum(paid.sum(axis=1) + more, class_cost(units, families)[held])
    order = np.lexsort((cost, held))
    divided = Sets(sets, size, rows[order], splits)
    partly = tuple(lattice for lattice in lattices if lattice.partly)
    joint = np.zeros(len(order))
    return PartCost(held[order], cost[order], paid[order], (divided,), partly, joint)


def refined(cost: PartCost) -> PartCost:
    """The same choices of one division, with what several families pay that join some sets only.

    Each of them alone may have the fullest sets next to each other, not all of them at once.
    """
    if len(cost.partly) < 2 or len(cost.units) > _MOST_REFINED:
        return cost
    (divided,) = cost.divisions
    lattices = list(cost.partly)
    joint = np.array([paid_together(lattices, row, divided.size) for row in divided.rows])
    joint = joint.reshape(len(cost.units))
    apart = cost.families[:, [lattice.family for lattice in lattices]].sum(axis=1)
    more = np.maximum(0.0, joint - apart)
    # What is told of all families together may count some of that already.
    priced = np.maximum(cost.cost, cost.families.sum(axis=1) + more)
    order = np.lexsort((priced, cost.units))
    return replace(cost, cost=priced, joint=joint).chosen(order)


def crossed(one: PartCost, other: PartCost) -> PartCost | None:
    """Choices of two divisions of a class at once, where each set of one meets all of the other.

    They meet in equal parts, of k units. Choices pair if they can be of one set of units: l sets of
    the one and all of the other hold at most min(k * l, a) units for each part a of the other
    (Gale, Ryser; for larger k this is necessary only). None where there are too many.
    """
    (rows,), (columns,) = one.divisions, other.divisions
    each = rows.size // columns.sets
    none = np.zeros(0, dtype=np.int64)
    at_row, at_column = [none], [none]
    count = 0
    for units in np.intersect1d(one.units, other.units).tolist():
        i, j = np.flatnonzero(one.units == units), np.flatnonzero(other.units == units)
        count += len(i) * len(j)
        if count > 20 * _MOST_CROSSED:
            return None
        lanes = each * np.arange(1, columns.sets + 1)
        most = np.minimum(rows.rows[i][:, :, None], lanes).sum(axis=1)
        held = columns.rows[j].cumsum(axis=1)
        first, second = np.nonzero((held[None, :, :] <= most[:, None, :]).all(axis=2))
        at_row.append(i[first])
        at_column.append(j[second])
    r, c = np.concatenate(at_row), np.concatenate(at_column)
    if len(r) > _MOST_CROSSED:
        return None
    families = np.maximum(one.families[r], other.families[c])
    cost = np.maximum(families.sum(axis=1), np.maximum(one.cost[r], other.cost[c]))
    for side, which in ((one, r), (other, c)):
        together = [lattice.family for lattice in side.partly]
        more = side.joint[which] - families[:, together].sum(axis=1)
        cost = np.maximum(cost, families.sum(axis=1) + np.maximum(0.0, more))
    order = np.lexsort((cost, one.units[r]))
    r, c = r[order], c[order]
    divisions = (*one.chosen(r).divisions, *other.chosen(c).divisions)
    joint = np.zeros(len(order))
    return PartCost(one.units[r], cost[order], families[order], divisions, (), joint)


def divisions_of(units: int, families: list[Family]) -> list[Ints]:
    """Divisions of a class into equal sets whose parts may be priced, heaviest first.

    By the nets of one family, or of several that join to more than one set. Sets of single units
    where there are no others.
    """
    found: list[Ints] = []
    heaviest = sorted(families, key=lambda family: -float(family.paid.max()))
    for k, family in enumerate(heaviest):
        joined = family.set_of
        for other in [family, *heaviest[k + 1 :]]:
            wider = _joined(joined, other.set_of)
            size = np.bincount(wider)
            if len(size) == 1 or (size != size[0]).any():
                continue
            joined = wider
            if size[0] > 1 and not any((joined == way).all() for way in found):
                found.append(joined)
    return found or [np.arange(units)]


def _joined(one: Ints, other: Ints) -> Ints:
    """The finest division whose sets hold whole sets of both, numbered by first appearance."""
    label = one.copy()
    while True:
        least = np.full(int(other.max()) + 1, len(one))
        np.minimum.at(least, other, label)
        wider = least[other]
        least = np.full(int(one.max()) + 1, len(one))
        np.minimum.at(least, one, wider)
        wider = least[one]
        if (wider == label).all():
            break
        label = wider
    _, first, number = np.unique(label, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def crosses(one: Ints, other: Ints) -> bool:
    """Whether every set of one division meets all of the other in equally many units."""
    met = np.zeros((int(one.max()) + 1, int(other.max()) + 1), dtype=np.int64)
    np.add.at(met, (one, other), 1)
    return bool((met == met[0, 0]).all())


def choices_of_parts(sets: int, tall: int, most: int) -> Ints | None:
    """`[choice, set]`: what a domain may hold of each set, falling, `most` units together."""
    if _row_count(sets, tall, most) > _MOST_CHOICES:
        return None
    rows = np.zeros((1, 0), dtype=np.int64)
    used, last = np.zeros(1, dtype=np.int64), np.array([tall])
    for _ in range(sets):
        count = last + 1
        at = np.repeat(np.arange(len(rows)), count)
        more = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        kept = used[at] + more <= most
        at, last = at[kept], more[kept]
        rows, used = np.column_stack([rows[at], last]), used[at] + last
    return rows


def _row_count(sets: int, tall: int, most: int) -> int:
    """How many rows there are: of at most `sets` parts, each at most `tall`."""
    ways = np.zeros((sets + 1, most + 1))
    ways[0, 0] = 1.0
    for part in range(1, min(tall, most) + 1):
        for parts in range(1, sets + 1):
            ways[parts, part:] += ways[parts - 1, : most + 1 - part]
    return int(ways.sum())


def set_splits(size: int, tall: int) -> Ints | None:
    """`[way, a - 1]`: how many parts of a units, at most `tall` each, make one set."""
    ways = [np.zeros((1, tall), dtype=np.int64)]
    for total in range(1, size + 1):
        found = []
        for a in range(1, min(total, tall) + 1):
            # The part added is the largest, so that every way is met once.
            before = ways[total - a]
            able = before[(before[:, a:] == 0).all(axis=1)].copy()
            able[:, a - 1] += 1
            found.append(able)
        ways.append(np.concatenate(found))
        if len(ways[-1]) > _MOST_SPLITS:
            return None
    return ways[size]
