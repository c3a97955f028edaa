"""A bound by CP-SAT on how many sets have how many units in each domain, whichever they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np

from ..bounds.class_cost import Family, class_cost
from ..bounds.part_cost import divisions_of, set_splits
from ..jobs.index import Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Status, new_model
from ..loops.settled import settled
from .unit_classes import families_of_class

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_VARIABLES = 12_000
_MOST_SPLIT = 14
"""Units of a set up to which every way to divide it is told apart."""
_LARGEST = 1e9
"""Largest whole number that stands for the bytes that are known; of larger ones CP-SAT has been met
to call a model infeasible that has solutions."""
_MOST_TRIED = 1_000_000
"""Prices, in each of many units, that are looked at for one that they are multiples of."""
_MOST_WHOLE = 2.0**62
"""Up to here prices fit whole numbers of 64 bits."""
_EXACT = 1e-6
"""Difference up to which a price, in bytes or in units, is a whole number."""
_BUILDING_WORK = 2e-5
"""Work a variable of building the model."""


def held_bound(graph: UnitGraph, rooms: Ints, known: float, work: float) -> tuple[float, float]:
    """What no placement costs less than, `known` at most, and the work done.

    graph: units of a job; what a domain pays is told of families of nets that hold all of them, so
    it is little where these are many classes. rooms: of the domains, in units. known: bytes of some
    placement. Of every domain it is told how many sets of each family of nets have how many units
    in it. That these are the same units for all families is told only by what one says of how far
    another reaches. 0 where the model would be too large.
    """
    paying = families_of_class(graph, np.zeros(graph.units, dtype=np.int64))
    if not paying:
        return 0.0, 0.0
    families = [*paying, *_joined_sets(graph.units, paying)]
    if sum(family.size for family in families) * len(rooms) > _MOST_VARIABLES:
        return 0.0, 0.0
    unit = _unit([family.paid for family in paying], known)
    model = _Model(np.sort(rooms)[::-1], unit, new_model())
    model.fill(graph.units)
    for family in families:
        model.add_family(family)
    for one, other in permutations(range(len(families)), 2):
        model.relate(one, other)
    for around in range(len(families)):
        model.pay_together(around)
    value, spent = model.solved(known, work)
    return min(known, value), spent


@dataclass
class _Model:
    """held: by domain, units. reach: by family and domain, how many sets have one unit there or
    more, two or more, and so on. paid: units of bytes for each of a variable."""

    rooms: Ints
    unit: float
    model: cp_model.CpModel
    held: list[cp_model.IntVar] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    reach: list[list[list[cp_model.IntVar]]] = field(default_factory=list)
    paid: list[tuple[int, cp_model.IntVar]] = field(default_factory=list)

    def fill(self, units: int) -> None:
        """So many units in all; domains with equal room are alike."""
        rooms = self.rooms.tolist()
        self.held = [self.model.new_int_var(0, min(units, room), "") for room in rooms]
        self.model.add(sum(self.held) == units)
        for d, (one, other) in enumerate(pairwise(rooms)):
            if one == other:
                self.model.add(self.held[d] >= self.held[d + 1])

    def relate(self, one: int, other: int) -> None:
        """What the sets of one family say of those of another."""
        first, second = self.families[one], self.families[other]
        met = np.zeros((int(first.set_of.max()) + 1, int(second.set_of.max()) + 1), dtype=np.int64)
        np.add.at(met, (first.set_of, second.set_of), 1)
        for inside, around in zip(self.reach[one], self.reach[other], strict=True):
            if ((met > 0).sum(axis=1) == 1).all():
                self._nest(inside, around, first.size, second.size)
            elif ((met > 0).sum(axis=0) > 1).any():
                self._cross(inside, around, int(met.max()), len(met))
                if _in_blocks(met):
                    self._touch(inside, around, met, (first.size, second.size))

    def add_family(self, family: Family) -> None:
        """How far the sets of a family reach into each domain, and what they pay there."""
        sets, size = int(family.set_of.max()) + 1, family.size
        # Rounded down, so that no choice is taken for dearer than it is.
        step = np.diff(self._whole(family.paid, np.floor)).tolist()
        reach = []
        for room, units in zip(self.rooms.tolist(), self.held, strict=True):
            some = [
                self.model.new_int_var(0, min(sets, room // a), "")
                for a in range(1, min(size, room) + 1)
            ]
            for more, fewer in pairwise(some):
                self.model.add(more >= fewer)
            self.model.add(sum(some) == units)
            self.paid += zip(step, some, strict=False)
            reach.append(some)
        self._divide(sets, size, reach)
        # A set with `a` units or more here has no more than the others of it anywhere else.
        for d, some in enumerate(reach):
            for a in range(1, min(size // 2, len(some)) + 1):
                beside = [o[size - a] for e, o in enumerate(reach) if e != d and len(o) > size - a]
                if beside:
                    self.model.add(some[a - 1] + sum(beside) <= sets)
        self.families.append(family)
        self.reach.append(reach)

    def pay_together(self, around: int) -> None:
        """What the families inside the sets of one pay to each of these sets together."""
        outer = self.families[around]
        inside = [
            k
            for k, family in enumerate(self.families)
            if family is not outer and family.paid.any() and _lies_in(family, outer)
        ]
        if len(inside) < 2:
            return
        least = self._whole(_least_inside(outer, [self.families[k] for k in inside]), np.floor)
        for d, some in enumerate(self.reach[around]):
            paid = sum(
                step * one
                for k in inside
                for step, one in zip(
                    np.diff(self._whole(self.families[k].paid, np.ceil)).tolist(),
                    self.reach[k][d],
                    strict=False,
                )
            )
            needed = zip(np.diff(least).tolist(), some, strict=False)
            self.model.add(paid >= sum(step * one for step, one in needed))

    def _whole(self, paid: Floats, to: Callable[[Floats], Floats]) -> Ints:
        # What is dearer than all that is known is not taken, however much dearer it is.
        steps = np.minimum(paid / self.unit, 2 * _LARGEST)
        near = np.rint(steps)
        return np.where(np.abs(steps - near) <= _EXACT, near, to(steps)).astype(np.int64)

    def _divide(self, sets: int, size: int, reach: list[list[cp_model.IntVar]]) -> None:
        """The parts of all domains make whole sets."""
        tall = min(size, int(self.rooms.max()))
        splits = set_splits(size, tall) if size <= _MOST_SPLIT else None
        if splits is None:
            touched = sum(some[0] for some in reach)
            whole = sum(some[size - 1] for some in reach if len(some) == size)
            self.model.add(touched + whole >= 2 * sets)
            return
        often = [self.model.new_int_var(0, sets, "") for _ in splits]
        self.model.add(sum(often) == sets)
        for a in range(tall):
            here = sum(some[a] for some in reach if len(some) > a)
            more = sum(some[a + 1] for some in reach if len(some) > a + 1)
            made = np.flatnonzero(splits[:, a]).tolist()
            self.model.add(here - more == sum(int(splits[w, a]) * often[w] for w in made))

    def _nest(
        self,
        inside: list[cp_model.IntVar],
        around: list[cp_model.IntVar],
        size: int,
        larger: int,
    ) -> None:
        """In one domain: sets of one family, of `size` units, that each lie in one of another."""
        if not inside:
            return
        self.model.add(inside[0] >= sum(around[::size]))
        if len(inside) == size:
            self.model.add(inside[-1] <= sum(around[size - 1 :: size]))
            if len(around) == larger:
                self.model.add(inside[-1] >= larger // size * around[-1])

    def _cross(
        self, one: list[cp_model.IntVar], other: list[cp_model.IntVar], met: int, sets: int
    ) -> None:
        """In one domain: a set has `a` units only if others that meet it in `met` have as many."""
        for a in range(2, len(one) + 1):
            any_has = self.model.new_bool_var("")
            self.model.add(one[a - 1] <= sets * any_has)
            self.model.add(sum(other[:met]) >= a).only_enforce_if(any_has)

    def _touch(
        self,
        one: list[cp_model.IntVar],
        other: list[cp_model.IntVar],
        met: Ints,
        size: tuple[int, int],
    ) -> None:
        """In one domain: sets of one family with many units there touch many sets of another.

        Of `beside` sets that meet the same others, the fullest touches as many as its units need.
        What the domain does not hold touches those that it has not whole.
        """
        if not one:
            return
        sets, others = met.shape
        beside, each = int((met > 0).sum(axis=0).max()), int(met.max())
        self.model.add(other[0] >= sum(self._parts(some, beside, sets) for some in one[::each]))
        if (len(one), len(other)) == size:
            missing = [self._parts(sets - some, beside, sets) for some in one[::-each]]
            self.model.add(others - other[-1] >= sum(missing))

    def _parts(self, some: cp_model.LinearExprT, size: int, most: int) -> cp_model.IntVar:
        """How many parts of at most `size` make so many, at least."""
        parts = self.model.new_int_var(0, -(-most // size), "")
        self.model.add(size * parts >= some)
        return parts

    def solved(self, target: float, work: float) -> tuple[float, float]:
        """What is paid at least, `target` where it is no less, and the work done."""
        most = int(np.ceil(target / self.unit - 1e-6)) - 1
        paid = sum(step * one for step, one in self.paid if step)
        self.model.add(paid <= most)
        self.model.minimize(paid)
        building = _BUILDING_WORK * len(self.model.proto.variables)
        ended = settled(self.model, work - building, probing=True)
        spent = building + ended.work
        if ended.status is Status.INFEASIBLE:
            return target, spent
        return max(0.0, ended.bound) * self.unit, spent


def _in_blocks(met: Ints) -> bool:
    """Whether sets that meet one set of another family meet all the same, in equally many units."""
    holds = met > 0
    even = bool((met[holds] == met.max()).all())
    return even and bool((np.unique(holds, axis=0).sum(axis=0) == 1).all())


def _joined_sets(units: int, families: list[Family]) -> list[Family]:
    """Divisions whose sets families join to, as families to which nothing is paid."""
    known = [family.set_of for family in families]
    found = []
    for way in divisions_of(units, families):
        size = int((way == 0).sum())
        if 1 < size < units and not any((way == one).all() for one in known):
            found.append(Family(way, np.zeros(size + 1)))
    return found


def _lies_in(inner: Family, outer: Family) -> bool:
    """Whether every set of one family lies in one of the other, and is not all of it."""
    pairs = np.unique(np.stack([inner.set_of, outer.set_of]), axis=1)
    return inner.size < outer.size and pairs.shape[1] == int(inner.set_of.max()) + 1


def _least_inside(outer: Family, inside: list[Family]) -> Floats:
    """`[a]`: what a units of one set of a family pay to families inside of it at least."""
    least: dict[bytes, Floats] = {}
    for number in range(int(outer.set_of.max()) + 1):
        here = outer.set_of == number
        sets = [np.unique(family.set_of[here], return_inverse=True)[1] for family in inside]
        key = np.concatenate(sets).tobytes()
        if key not in least:
            own = [Family(of, family.paid) for of, family in zip(sets, inside, strict=True)]
            least[key] = class_cost(outer.size, own)
    found: Floats = np.min(list(least.values()), axis=0)
    return found


def _unit(paid: list[Floats], known: float) -> float:
    """Bytes that stand for one in the model: of what is paid a common divisor, if it has one."""
    every = np.concatenate(paid)
    if every.max() > _MOST_WHOLE:
        return known / _LARGEST
    near = np.rint(every).astype(np.int64)
    unit = float(np.gcd.reduce(near))
    exact = unit > 0 and np.abs(every - near).max() <= _EXACT
    if every.any() and (not exact or known / unit > _LARGEST):
        return _about_common(np.unique(every[every > 0]), known)
    return unit if exact else known / _LARGEST


def _about_common(prices: Floats, known: float) -> float:
    """Of many units, all about as small as may be, the one that prices rounded down lose least in.

    What is lost on prices that have none in common can keep a bound from what is known.
    """
    units = known / (_LARGEST - np.arange(_MOST_TRIED // len(prices)))
    steps = prices[:, None] / units
    lost = ((steps - np.floor(steps)) / prices[:, None]).sum(axis=0)
    return float(units[np.argmin(lost)])
