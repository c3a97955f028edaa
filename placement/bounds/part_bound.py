"""What a job of some hundred units costs at least, by the parts of sets that domains hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..exact.exact_counts import MOST_UNITS
from ..exact.part_domains import best_by_domain
from ..exact.part_model import MOST_COLUMNS, best_parts, columns_within, surviving
from ..exact.part_prices import PartProblem, Priced, price_parts
from ..exact.unit_classes import chain_of_classes, families_by_class, family_key
from ..jobs.index import ANY_KIND, Demand, Fabric, Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Budget
from ..spread.structure import ways_to_class
from .bound import SAFETY
from .class_bound import surely_whole
from .granules import next_cost
from .part_cost import PartCost, crossed, crosses, divisions_of, part_cost

_LEAST_SHARE = 0.5
"""Part of the limit that the bound may take at least."""
_MOST_JOINED = 3
"""Weights of links that join classes, heaviest first."""
_APART = 1.3
"""Ratio of weights from which they are different."""
_PRICE_SHARE = 0.4
"""Part of the work for prices, and the same for the model."""
_SLACK = 1e-9
"""Costs that differ by less, relative to the whole, are equal."""
_ROUNDING = 1e-11
"""Relative allowance for rounding where sums are exact."""


@dataclass(frozen=True)
class PartResult:
    """What no placement costs less than, and the parts of the cheapest choice that was found.

    rows: by class, then division, `[domain, set]`, falling; None where none is known.
    """

    bound_bytes: float
    rows: list[list[Ints]] | None
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
    return PartResult(0.0, None, 0.0) if job is None else job.solved(work)


_Divided = tuple[PartCost, ...]
"""A class by each of its divisions alone."""


@dataclass(frozen=True)
class _Job:
    """A job by its classes in chain order; costs are divided by `scale`.

    aligned: as in PartProblem, by class and division. target: cost of what is known, less slack.
    """

    classes: list[_Divided]
    link: Floats
    rooms: Ints
    aligned: list[tuple[bool, ...]]
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
            ways = _two_of(divisions_of(units, some))
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
            key: tuple(
                replace(cost, cost=cost.cost / scale, families=cost.families / scale)
                for cost in each
            )
            for key, each in divided.items()
        }
        chain = order.tolist()
        return cls(
            [scaled[keys[c]] for c in chain],
            link / scale,
            rooms,
            _aligned(graph, class_of, chain, [sets[keys[c]] for c in chain]),
            scale,
            constant,
            (known * (1 - _SLACK) - constant) / scale,
        )

    def solved(self, work: float) -> PartResult:
        """The bound by one division, then by another, then by both at once."""
        sides = max(len(each) for each in self.classes)
        share = work * _PRICE_SHARE / (2 * sides - 1)
        tried: list[Priced] = []
        kept: list[list[Ints] | None] = []
        done = 0.0
        for side in range(sides):
            priced, spent = price_parts(self._alone(side), self.target, share)
            done += spent
            if priced.value >= self.target:
                return PartResult(self._bytes(self.target), None, done)
            tried.append(priced)
            kept.append(surviving(priced, self.target))
        if sides > 1:
            both = self._crossed(kept)
            if both is not None:
                if any(len(cost.units) == 0 for cost in both.costs):
                    return PartResult(self._bytes(self.target), None, done)
                priced, spent = price_parts(both, self.target, share)
                done += spent
                tried.append(priced)
        least = min(self.target, max(priced.value for priced in tried))
        # Two divisions at once tell most, one alone has fewer columns.
        for priced in [*tried[sides:], *sorted(tried[:sides], key=lambda one: -one.value)]:
            columns = columns_within(priced, self.target) if least < self.target else None
            if columns is not None and len(columns.used) <= MOST_COLUMNS:
                problem = priced.problem
                found = best_parts(problem, columns, least, self.target, (work - done) / 2)
                done += found.work
                if found.choice is not None and found.bound < self.target:
                    least = max(least, found.bound)
                    apart = best_by_domain(problem, columns, least, self.target, work - done)
                    if apart is not None:
                        found = apart
                        done += found.work
                rows = None if found.choice is None else _rows(problem, found.choice)
                return PartResult(self._bytes(found.bound), rows, done)
        return PartResult(self._bytes(least), None, done)

    def _alone(self, side: int) -> PartProblem:
        """The problem with one division of every class."""
        at = [min(side, len(each) - 1) for each in self.classes]
        costs = [each[k] for each, k in zip(self.classes, at, strict=True)]
        told: list[tuple[bool, ...]] = []
        for p, k in enumerate(at):
            same = k == at[(p + 1) % len(at)]
            told.append((same and k < len(self.aligned[p]) and self.aligned[p][k],))
        return PartProblem(costs, self.link, self.rooms, told)

    def _crossed(self, kept: list[list[Ints] | None]) -> PartProblem | None:
        """The problem with both divisions of each class at once, of choices that are kept."""
        union: dict[int, list[set[int]]] = {}
        for p, each in enumerate(self.classes):
            sets = union.setdefault(id(each), [set() for _ in each])
            for k, cost in enumerate(each):
                some = kept[k]
                sets[k].update(range(len(cost.units)) if some is None else some[p].tolist())
        made: dict[int, PartCost] = {}
        for each in self.classes:
            if id(each) in made:
                continue
            alone = [
                cost.chosen(np.array(sorted(which), dtype=np.int64))
                for cost, which in zip(each, union[id(each)], strict=True)
            ]
            together = crossed(alone[0], alone[1]) if len(alone) > 1 else alone[0]
            if together is None:
                return None
            made[id(each)] = together
        costs = [made[id(each)] for each in self.classes]
        return PartProblem(costs, self.link, self.rooms, self.aligned)

    def _bytes(self, value: float) -> float:
        whole = value * self.scale
        return whole + self.constant - _ROUNDING * (abs(whole) + abs(self.constant))


def _two_of(ways: list[Ints]) -> list[Ints]:
    """The first division and the first one that crosses it, if any."""
    return [ways[0], *[way for way in ways[1:] if crosses(ways[0], way)][:1]]


def _rows(problem: PartProblem, choice: Ints) -> list[list[Ints]]:
    return [
        [each.rows[choice[:, p]] for each in cost.divisions] for p, cost in enumerate(problem.costs)
    ]


def _aligned(
    graph: UnitGraph, class_of: Ints, chain: list[int], sets: list[list[Ints]]
) -> list[tuple[bool, ...]]:
    """By class in chain order and division: whether links to the next class join set to set."""
    place = np.argsort(np.array(chain))[class_of]
    set_of = np.full((2, graph.units), -1, dtype=np.int64)
    for p, each in enumerate(sets):
        for d, one in enumerate(each):
            set_of[d, np.flatnonzero(place == p)] = one
    ends = np.concatenate([graph.link, graph.link[::-1]], axis=1)
    found = []
    for p, each in enumerate(sets):
        after = (p + 1) % len(sets)
        between = ends[:, (place[ends[0]] == p) & (place[ends[1]] == after)]
        told = []
        for d in range(min(len(each), len(sets[after]))):
            pairs = np.unique(set_of[d][between], axis=1)
            told.append(len(each[d]) == len(sets[after][d]) and _one_to_one(pairs))
        found.append(tuple(told))
    return found


def _one_to_one(pairs: Ints) -> bool:
    return all(len(np.unique(ends)) == pairs.shape[1] for ends in pairs)


def bound_by_parts(fabric: Fabric, demand: Demand, known: float, budget: Budget) -> float:
    """Bytes across the outermost boundary that no placement goes below; 0 where none is known.

    known: bytes of some placement.
    """
    free = np.bincount(fabric.slot_domain[-1])
    graph, _ = surely_whole(demand, free)
    size = demand.ranks // graph.units
    rooms = free[free >= size] // size
    if not 2 <= graph.units <= MOST_UNITS or len(rooms) < 2 or (graph.kind != ANY_KIND).any():
        return 0.0
    least = 0.0
    ways = _ways(graph)
    for class_of in ways:
        if least >= known * (1 - SAFETY):
            break
        work = max(budget.left, budget.time_limit_s * _LEAST_SHARE) / len(ways)
        found = part_bound(graph, class_of, rooms, known, work)
        budget.charge(found.work)
        least = max(least, found.bound_bytes)
    return next_cost(graph, least, known)


def _ways(graph: UnitGraph) -> list[Ints]:
    """Ways to class units: those that nets join, and those that links of about one weight join too.

    Of links between classes only those of a chain count; the others do where their ends are in one.
    """
    ways = ways_to_class(graph)
    first = ways[0]
    across = first[graph.link[0]] != first[graph.link[1]]
    weights = np.unique(graph.link_weight[across])[::-1]
    ends = np.flatnonzero(weights[:-1] > weights[1:] * _APART)
    for few in np.split(weights, ends + 1)[:_MOST_JOINED] if len(weights) else ():
        alike = across & (graph.link_weight >= few[-1]) & (graph.link_weight <= few[0])
        class_of = _joined(first, graph.link[:, alike])
        if class_of.any() and not any((class_of == way).all() for way in ways):
            ways.append(class_of)
    return ways


def _joined(class_of: Ints, link: Ints) -> Ints:
    """Classes that links join as one, numbered by first appearance."""
    leader = np.arange(int(class_of.max()) + 1)
    for one, other in np.unique(class_of[link], axis=1).T.tolist():
        leader[leader == leader[other]] = leader[one]
    _, first, number = np.unique(leader[class_of], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]
