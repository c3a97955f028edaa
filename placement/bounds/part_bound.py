"""What a job of some hundred units costs at least, by the parts of sets that domains hold."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ..exact.exact_counts import MOST_UNITS
from ..exact.held_counts import held_bound
from ..exact.part_domains import best_by_domain
from ..exact.part_model import MOST_COLUMNS, PartColumns, best_parts, columns_within, surviving
from ..exact.part_prices import PartProblem, Priced, price_parts
from ..exact.part_seats import ClassParts, seated_parts
from ..exact.unit_classes import chain_of_classes, families_by_class, family_key
from ..jobs.cuts import cut_bytes
from ..jobs.index import ANY_KIND, Demand, Fabric, Floats, Ints
from ..jobs.units import UnitGraph, unit_graph
from ..loops.budget import Budget
from ..spread.structure import ways_to_class
from .bound import SAFETY
from .class_bound import housed, surely_whole
from .class_ways import class_ways
from .granules import next_cost
from .part_cost import PartCost, crossed, crosses, divisions_of, part_cost, refined

_SHARE, _LEAST_SHARE = 0.8, 0.6
"""Parts of the limit that the bound may take at most, and whatever was done before."""
_FIRST_SHARE = 0.6
"""Part of the work for the first of several ways to class units, and so on."""
_MOST_DIVISIONS = 5
_MOST_CLOSER = 3
"""Pairs of divisions, and single ones, that are looked at closer."""
_PRICE_SHARE = 0.6
"""Part of the work for prices; the rest is for models."""
_DOMAINS_SHARE = 0.5
"""Part of the work left for telling domains apart, where that may help."""
_HELD_SHARE, _MOST_HELD_CLASSES = 0.1, 2
"""Part of the limit from which the model of how many sets have how many units in a domain is worth
building, and classes that nets join up to which it is."""
_NEAR = 0.1
"""Part of what is missing to the cost known by which a problem may tell less than the best."""
_BEHIND, _FEW_COLUMNS = 0.5, 1_000
"""Part of what is missing to the cost known by which prices may tell less than what is proved, and
columns up to which a model may still tell more."""
_SLACK = 1e-9
"""Costs that differ by less, relative to the whole, are equal."""
_ROUNDING = 1e-11
"""Relative allowance for rounding where sums are exact."""


@dataclass(frozen=True)
class PartResult:
    """What no placement costs less than, and the parts of the cheapest choice that was found.

    parts: by class in chain order, domains by rising room; None where none is known.
    """

    bound_bytes: float
    parts: list[ClassParts] | None
    work: float


def part_bound(
    graph: UnitGraph, class_of: Ints, rooms: Ints, known: float, work: float
) -> PartResult:
    """The bound for one way to class the units; `rooms` of the domains, in units, are 1 or more.

    known: bytes of some placement. Every class is divided into sets that hold together most, and
    where another division crosses it, by that too. What a domain pays is told by the parts of sets
    that it holds; parts of all domains must add up to whole sets.
    """
    job = _Job.of(graph, class_of, np.sort(rooms), known)
    if job is None:
        return PartResult(0.0, None, 0.0)
    priced = job.priced(work * _PRICE_SHARE)
    return job.chosen(priced, work - priced.work)


@dataclass(frozen=True)
class _Priced:
    """Prices of one or more problems that say the same, the one that tells most first.

    least: what none of them goes below. sets: of each problem, by class, the set of each unit in
    each division.
    """

    problems: list[Priced]
    sets: list[list[list[Ints]]]
    least: float
    work: float


_Divided = tuple[PartCost, ...]
"""A class by each of its divisions alone."""


@dataclass(frozen=True)
class _Job:
    """A job by its classes in chain order; costs are divided by `scale`.

    members, sets: of each class its units, and their set in each division. divisions: of the job,
    the number that each has among those of every class. between: of each class, the positions of
    the ends of links to the next, `[end, link]`. target: cost of what is known, less slack.
    """

    classes: list[_Divided]
    members: list[Ints]
    sets: list[list[Ints]]
    link: Floats
    rooms: Ints
    divisions: list[list[int]]
    between: list[Ints]
    scale: float
    constant: float
    target: float

    @classmethod
    def of(cls, graph: UnitGraph, class_of: Ints, rooms: Ints, known: float) -> _Job | None:
        families = families_by_class(graph, class_of)
        height = np.bincount(class_of).tolist()
        divided: dict[bytes, _Divided] = {}
        sets: dict[bytes, list[Ints]] = {}
        keys = [family_key(units, each) for units, each in zip(height, families, strict=True)]
        for key, units, some in zip(keys, height, families, strict=True):
            if key in divided:
                continue
            ways = divisions_of(units, some)[:_MOST_DIVISIONS]
            costs = [part_cost(units, some, int(rooms.max()), way) for way in ways]
            sets[key] = [way for way, cost in zip(ways, costs, strict=True) if cost is not None]
            divided[key] = tuple(cost for cost in costs if cost is not None)
            if not divided[key]:
                return None
        order, link = chain_of_classes(graph, class_of)
        constant = float((link * np.array(height)[order]).sum())
        scale = max(float(link.max()), *(float(c.cost.max()) for d in divided.values() for c in d))
        if scale == 0.0:
            return None
        scaled = {
            key: tuple(cost.divided_by(scale) for cost in each) for key, each in divided.items()
        }
        chain = order.tolist()
        in_chain = [sets[keys[c]] for c in chain]
        return cls(
            [scaled[keys[c]] for c in chain],
            [np.flatnonzero(class_of == c) for c in chain],
            in_chain,
            link / scale,
            rooms,
            _divisions(in_chain),
            _between(graph, class_of, chain),
            scale,
            constant,
            (known * (1 - _SLACK) - constant) / scale,
        )

    def priced(self, work: float) -> _Priced:
        """Prices by one division after the other, and by two that cross at once."""
        alone: list[tuple[Priced, list[int]]] = []
        done = 0.0
        for at in self.divisions:
            priced, spent = price_parts(self._problem([at]), self.target, (work - done) / 2)
            done += spent
            if priced.value >= self.target:
                return _Priced([], [], self.target, done)
            alone.append((priced, at))
        alone.sort(key=lambda one: -one[0].value)
        pairs = [[*two] for two in combinations(alone, 2) if self._cross(two[0][1], two[1][1])]
        closer: list[tuple[Priced, list[list[int]]]] = []
        for some in [*pairs[:_MOST_CLOSER], *([one] for one in alone[:_MOST_CLOSER])]:
            problem = self._closer(some)
            if problem is None:
                continue
            if any(len(cost.units) == 0 for cost in problem.costs):
                return _Priced([], [], self.target, done)
            priced, spent = price_parts(problem, self.target, (work - done) / 2)
            done += spent
            if priced.value >= self.target:
                return _Priced([], [], self.target, done)
            closer.append((priced, [at for _, at in some]))
        # What was looked at closer tells most, but may have too many columns.
        closer.sort(key=lambda one: -one[0].value)
        every = [*closer, *((priced, [at]) for priced, at in alone)]
        problems = [priced for priced, _ in every]
        sets = [self._sets(some) for _, some in every]
        least = min(self.target, max(priced.value for priced in problems))
        return _Priced(problems, sets, least, done)

    def chosen(self, prices: _Priced, work: float, most: int = MOST_COLUMNS) -> PartResult:
        """The cheapest choice of parts for all domains, by the problem that `_simplest` says.

        most: columns up to which it is looked for.
        """
        simplest = self._simplest(prices) if prices.least < self.target else None
        if simplest is None or len(simplest[2].used) > most:
            return PartResult(self.bytes_of(prices.least), None, 0.0)
        problem, sets, columns = simplest
        found = best_parts(problem, columns, prices.least, self.target, work)
        done, bound, choice = found.work, found.bound, found.choice
        # What is too hard without telling domains apart is not easier with it.
        if found.best and bound < self.target:
            rest = (work - done) * _DOMAINS_SHARE
            apart = best_by_domain(problem, columns, bound, self.target, rest)
            if apart is not None:
                done, bound = done + apart.work, apart.bound
                choice = choice if apart.choice is None else apart.choice
        parts = None
        if choice is not None:
            parts = [
                ClassParts(members, of, [each.rows[which] for each in cost.divisions])
                for members, of, cost, which in zip(
                    self.members, sets, problem.costs, choice.T, strict=True
                )
            ]
        return PartResult(self.bytes_of(bound), parts, done)

    def _simplest(
        self, prices: _Priced
    ) -> tuple[PartProblem, list[list[Ints]], PartColumns] | None:
        """Of the problems that tell about as much as any, the one with the fewest columns.

        None where all have too many.
        """
        near = prices.least - _NEAR * (self.target - prices.least)
        simplest: tuple[PartProblem, list[list[Ints]], PartColumns] | None = None
        for priced, sets in zip(prices.problems, prices.sets, strict=True):
            if simplest is not None and priced.value < near:
                continue
            columns = columns_within(priced, self.target)
            if columns is None:
                continue
            if simplest is None or len(columns.used) < len(simplest[2].used):
                simplest = priced.problem, sets, columns
        return simplest

    def _problem(self, some: list[list[int]], crossed: list[PartCost] | None = None) -> PartProblem:
        """The problem with one division of every class, or with two that are crossed."""
        costs = crossed or [each[k] for each, k in zip(self.classes, some[0], strict=True)]
        sets = self._sets(some)
        aligned: list[tuple[bool, ...]] = []
        for p, ends in enumerate(self.between):
            after = sets[(p + 1) % len(sets)]
            pairs = zip(sets[p], after, strict=False)
            aligned.append(tuple(_one_to_one(one[ends[0]], two[ends[1]]) for one, two in pairs))
        return PartProblem(costs, self.link, self.rooms, aligned)

    def _sets(self, some: list[list[int]]) -> list[list[Ints]]:
        """By class, the set of each unit in some divisions of the job."""
        return [
            [self.sets[p][k] for k in dict.fromkeys(at[p] for at in some)]
            for p in range(len(self.classes))
        ]

    def _cross(self, one: list[int], other: list[int]) -> bool:
        return one != other and all(
            i == k or crosses(sets[i], sets[k])
            for sets, i, k in zip(self.sets, one, other, strict=True)
        )

    def _closer(self, priced: list[tuple[Priced, list[int]]]) -> PartProblem | None:
        """The problem with one division or two at once, of the choices that their prices leave."""
        kept = [surviving(prices, self.target) for prices, _ in priced]
        union: dict[int, list[set[int]]] = {}
        for p, each in enumerate(self.classes):
            sets = union.setdefault(id(each), [set() for _ in priced])
            for some, which, (_, at) in zip(sets, kept, priced, strict=True):
                some.update(range(len(each[at[p]].units)) if which is None else which[p].tolist())
        made: dict[int, PartCost] = {}
        for p, each in enumerate(self.classes):
            if id(each) in made:
                continue
            one, *other = [
                refined(each[at[p]].chosen(np.array(sorted(some), dtype=np.int64)))
                for (_, at), some in zip(priced, union[id(each)], strict=True)
            ]
            apart = len({at[p] for _, at in priced}) > 1
            together = crossed(one, other[0]) if apart else one
            if together is None:
                return None
            made[id(each)] = together
        every = [at for _, at in priced]
        return self._problem(every, [made[id(each)] for each in self.classes])

    def bytes_of(self, value: float) -> float:
        """Bytes that are surely not more than a cost is."""
        whole = value * self.scale
        return whole + self.constant - _ROUNDING * (abs(whole) + abs(self.constant))


def _divisions(sets: list[list[Ints]]) -> list[list[int]]:
    """Divisions of the job: the number that each has in every class, 0 in one that lacks it."""
    known = dict.fromkeys(way.tobytes() for each in sets for way in each)
    numbers = [{way.tobytes(): k for k, way in enumerate(each)} for each in sets]
    every = [[number.get(key, 0) for number in numbers] for key in known]
    return [at for k, at in enumerate(every) if at not in every[:k]][:_MOST_DIVISIONS]


def _between(graph: UnitGraph, class_of: Ints, chain: list[int]) -> list[Ints]:
    """By class in chain order, the positions in their classes of the ends of links to the next."""
    place = np.argsort(np.array(chain))[class_of]
    position = np.empty(graph.units, dtype=np.int64)
    for p in range(len(chain)):
        members = np.flatnonzero(place == p)
        position[members] = np.arange(len(members))
    ends = np.concatenate([graph.link, graph.link[::-1]], axis=1)
    found = []
    for p in range(len(chain)):
        here = (place[ends[0]] == p) & (place[ends[1]] == (p + 1) % len(chain))
        found.append(position[ends[:, here]])
    return found


def _one_to_one(one: Ints, other: Ints) -> bool:
    """Whether links between these sets join each of them to one only."""
    pairs = np.unique(np.stack([one, other]), axis=1)
    return all(len(np.unique(ends)) == pairs.shape[1] for ends in pairs)


@dataclass(frozen=True)
class PartedJob:
    """A bound on the bytes across the outermost boundary, and maybe a better placement.

    slots: None where none was made.
    """

    bound_bytes: float
    slots: Ints | None


def bound_by_parts(
    fabric: Fabric, demand: Demand, known: float, bound: float, budget: Budget, seed: int
) -> PartedJob:
    """What no placement goes below, 0 where nothing is known, and maybe a better placement.

    known: bytes of some placement. bound: what is proved already, which may tell so much more than
    prices of parts do that models of these are not worth their work.
    """
    free = np.bincount(fabric.slot_domain[-1])
    graph, unit_of = surely_whole(demand, free)
    size = demand.ranks // graph.units
    domains = np.flatnonzero(free >= size)
    if not 2 <= graph.units <= MOST_UNITS or len(domains) < 2 or (graph.kind != ANY_KIND).any():
        return PartedJob(0.0, None)
    domains = domains[np.argsort(free[domains] // size, kind="stable")]
    rooms = free[domains] // size
    limit = budget.time_limit_s
    work = min(limit * _SHARE, max(limit * _LEAST_SHARE, budget.left))
    few_classes = int(ways_to_class(graph)[0].max()) < _MOST_HELD_CLASSES
    made = [_Job.of(graph, class_of, rooms, known) for class_of in class_ways(graph)]
    jobs = [job for job in made if job is not None]
    priced = []
    pricing = work * _PRICE_SHARE
    for job in jobs:
        prices = job.priced(pricing / len(jobs))
        budget.charge(prices.work)
        work -= prices.work
        priced.append((job.bytes_of(prices.least), job, prices))
        if prices.least >= job.target:
            return PartedJob(known, None)
    least = 0.0
    better: Ints | None = None
    alone = unit_graph(demand), np.arange(demand.ranks)
    priced.sort(key=lambda one: -one[0])
    for told, job, prices in priced:
        least = max(least, next_cost(graph, told, known))
        if least >= known or work <= 0.0:
            break
        most = _FEW_COLUMNS if told + _BEHIND * (known - told) < bound else MOST_COLUMNS
        last = job is priced[-1][1]
        found = job.chosen(prices, work if last else work * _FIRST_SHARE, most)
        budget.charge(found.work)
        work -= found.work
        least = max(least, next_cost(graph, found.bound_bytes, known))
        if found.parts is not None and least < known:
            where = seated_parts(graph, found.parts, rooms, work / 4, seed)
            if where is not None:
                slots = housed(fabric, *alone, domains[where][unit_of], seed)
                cost = np.inf if slots is None else float(cut_bytes(fabric, demand, slots)[-1])
                if cost < known * (1 - SAFETY):
                    known, better = cost, slots
    if least < known and few_classes and work > limit * _HELD_SHARE:
        held, spent = held_bound(graph, rooms, known, work)
        budget.charge(spent)
        least = max(least, held)
    return PartedJob(next_cost(graph, least, known), better)
