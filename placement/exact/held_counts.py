"""A bound by CP-SAT on how many sets have how many units in each domain, whichever they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

import numpy as np

from ..bounds.class_cost import Family
from ..bounds.part_cost import set_splits
from ..jobs.index import Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Budget, Status, new_model
from .unit_classes import families_of_class

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_VARIABLES = 12_000
_MOST_SPLIT = 14
"""Units of a set up to which every way to divide it is told apart."""
_LARGEST = 1e11
"""Largest whole number that stands for the bytes that are known."""
_BUILDING_WORK = 2e-5
"""Work a variable of building the model."""


def held_bound(graph: UnitGraph, rooms: Ints, known: float, work: float) -> tuple[float, float]:
    """What no placement costs less than, `known` at most, and the work done.

    graph: units of one class. rooms: of the domains, in units. known: bytes of some placement. Of
    every domain it is told how many sets of each family of nets have how many units in it. That
    these are the same units for all families is told only by what one says of how far another
    reaches. 0 where the model would be too large.
    """
    families = families_of_class(graph, np.zeros(graph.units, dtype=np.int64))
    if sum(family.size for family in families) * len(rooms) > _MOST_VARIABLES:
        return 0.0, 0.0
    model = _Model(np.sort(rooms)[::-1], new_model())
    model.fill(graph.units)
    for family in families:
        model.add_family(family)
    for one, other in permutations(range(len(families)), 2):
        model.relate(one, other)
    value, spent = model.solved(known, work)
    return min(known, value), spent


@dataclass
class _Model:
    """held: by domain, units. reach: by family and domain, how many sets have one unit there or
    more, two or more, and so on. paid: bytes for each of a variable."""

    rooms: Ints
    model: cp_model.CpModel
    held: list[cp_model.IntVar] = field(default_factory=list)
    families: list[Family] = field(default_factory=list)
    reach: list[list[list[cp_model.IntVar]]] = field(default_factory=list)
    paid: list[tuple[float, cp_model.IntVar]] = field(default_factory=list)

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

    def add_family(self, family: Family) -> None:
        """How far the sets of a family reach into each domain, and what they pay there."""
        sets, size = int(family.set_of.max()) + 1, family.size
        step = np.diff(family.paid).tolist()
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

    def solved(self, target: float, work: float) -> tuple[float, float]:
        """What is paid at least, `target` where it is no less, and the work done."""
        steps, unit = _whole(np.array([each for each, _ in self.paid]), target)
        most = int(np.ceil(target / unit - 1e-6)) - 1
        paid = sum(k * one for k, (_, one) in zip(steps.tolist(), self.paid, strict=True) if k)
        self.model.add(paid <= most)
        self.model.minimize(paid)
        budget = Budget(work)
        budget.charge(_BUILDING_WORK * len(self.model.proto.variables))
        solver, status = budget.solve(self.model, share=1.0)
        spent = work - budget.left
        if status is Status.INFEASIBLE:
            return target, spent
        return solver.best_objective_bound * unit, spent


def _whole(price: Floats, target: float) -> tuple[Ints, float]:
    """Prices as whole numbers of a unit, none above its price; the unit, in bytes."""
    near = np.rint(price).astype(np.int64)
    unit = float(np.gcd.reduce(near)) or 1.0
    if np.abs(price - near).max(initial=0.0) > 1e-6 or abs(target) / unit > _LARGEST:
        unit = abs(target) / _LARGEST
        return np.floor(price / unit).astype(np.int64), unit
    return np.rint(price / unit).astype(np.int64), unit
