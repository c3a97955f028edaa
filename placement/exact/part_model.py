"""The cheapest choice of parts for every domain, by CP-SAT: how often each column is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from .least_sum import Sums, least_sum
from .part_prices import PartProblem, Priced

MOST_COLUMNS = 8_000
"""Columns up to which the model is worth building."""
_MOST_MET = 80_000
"""Columns that may be met before what their links cost is known."""


@dataclass(frozen=True)
class PartColumns:
    """Columns that may be part of a sum within a limit: `[column, class]`, the choice of each.

    cost: of each, without prices. used: its units.
    """

    choice: Ints
    cost: Floats
    used: Ints


@dataclass(frozen=True)
class ChosenParts:
    """What no choice within a limit costs less than, the limit where there is none; and the best.

    choice: `[domain, class]`, domains by rising room; None where none was found. best: whether it
    is proved that no other is cheaper.
    """

    bound: float
    choice: Ints | None
    best: bool
    work: float


def surviving(priced: Priced, limit: float) -> list[Ints] | None:
    """By class, the choices that may be part of a sum within a limit; None where not known."""
    found = priced.within(limit)
    if found is None:
        return None
    rows, slack = found
    kept = []
    for p in range(priced.problem.classes):
        most = np.full(priced.least.shape[1], -np.inf)
        np.maximum.at(most, rows[:, p], slack)
        units = priced.problem.costs[p].units
        over = priced.problem.over(p, priced.prices) - priced.least[p][units]
        kept.append(np.flatnonzero(over <= most[units]))
    return kept


def columns_within(priced: Priced, limit: float) -> PartColumns | None:
    """All columns that may be part of a sum within a limit; None where there are too many."""
    found = priced.within(limit)
    if found is None or len(found[0]) > MOST_COLUMNS:
        return None
    rows, slack = found
    problem = priced.problem
    owner, choice = np.arange(len(rows)), np.zeros((len(rows), 0), dtype=np.int64)
    for p, cost in enumerate(problem.costs):
        over = problem.over(p, priced.prices) - priced.least[p][cost.units]
        order = np.lexsort((over, cost.units))
        over, first = over[order], problem.first[p]
        units = rows[owner, p]
        count = np.zeros(len(units), dtype=np.int64)
        for u in np.unique(units).tolist():
            here = units == u
            some = over[first[u] : first[u + 1]]
            count[here] = np.searchsorted(some, slack[here], side="right")
        if count.sum() > _MOST_MET:
            return None
        at = np.repeat(np.arange(len(owner)), count)
        next_one = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        which = first[units[at]] + next_one
        choice = np.column_stack([choice[at], order[which]])
        owner, slack = owner[at], slack[at] - over[which]
    rows = rows[owner]
    lost = (np.minimum(rows, np.roll(rows, -1, axis=1)) - overlaps(problem, choice)) * problem.link
    kept = lost.sum(axis=1) <= slack
    if kept.sum() > MOST_COLUMNS:
        return None
    rows, choice, lost = rows[kept], choice[kept], lost[kept]
    paid = np.zeros(len(rows))
    for p, cost in enumerate(problem.costs):
        paid += cost.cost[choice[:, p]]
    paid += (lost - np.minimum(rows, np.roll(rows, -1, axis=1)) * problem.link).sum(axis=1)
    return PartColumns(choice, paid, rows.sum(axis=1))


def overlaps(problem: PartProblem, choice: Ints) -> Ints:
    """`[column, class]`: the most units that can be matched with ones of the next class.

    Links that join sets to sets match no more in any two sets than the smaller part of them.
    """
    most = np.empty_like(choice)
    for p, cost in enumerate(problem.costs):
        after = (p + 1) % problem.classes
        other = problem.costs[after]
        one, two = choice[:, p], choice[:, after]
        most[:, p] = np.minimum(cost.units[one], other.units[two])
        if problem.link[p] > 0:
            for d, aligned in enumerate(problem.aligned[p]):
                if aligned:
                    here, there = cost.divisions[d].rows[one], other.divisions[d].rows[two]
                    most[:, p] = np.minimum(most[:, p], np.minimum(here, there).sum(axis=1))
    return most


def best_parts(
    problem: PartProblem, columns: PartColumns, least: float, limit: float, work: float
) -> ChosenParts:
    """The cheapest choice of a column for each domain whose parts make whole sets.

    least: what none costs less than. Domains with the same room are alike, so the model counts how
    often each column is taken: of those that need more than any one room no more than there are
    domains with more.
    """
    found = least_sum(part_sums(problem, columns), limit, work)
    bound = min(limit, max(least, found.bound))
    if found.often is None:
        return ChosenParts(bound, None, False, found.work)
    taken = np.repeat(np.arange(len(columns.used)), found.often[: len(columns.used)])
    taken = taken[np.argsort(columns.used[taken], kind="stable")]
    return ChosenParts(bound, columns.choice[taken], found.best, found.work)


def part_sums(problem: PartProblem, columns: PartColumns) -> Sums:
    """How often each column is taken, and then how many sets of each class are divided how."""
    rooms, used = problem.rooms, columns.used
    count = len(used)
    splits = [each for cost in problem.costs for each in cost.divisions]
    size = count + sum(len(each.splits) for each in splits)
    equal, total = [np.repeat([1, 0], [count, size - count])], [len(rooms)]
    times = [len(rooms) - np.searchsorted(rooms, used)]
    first = count
    for p, cost in enumerate(problem.costs):
        parts = problem.parts[p][columns.choice[:, p]].astype(np.int64)
        for span, each in zip(problem.spans(p), cost.divisions, strict=True):
            ways = slice(first, first + len(each.splits))
            rows = np.zeros((1 + each.splits.shape[1], size), dtype=np.int64)
            rows[0, ways] = 1
            rows[1:, :count] = parts[:, span].T
            rows[1:, ways] = -each.splits.T
            equal.extend(rows)
            total.extend([each.sets, *[0] * each.splits.shape[1]])
            times.append(np.full(len(each.splits), each.sets))
            first = ways.stop
    larger = [room for room in np.unique(rooms).tolist() if (used > room).any()]
    within = np.zeros((len(larger), size), dtype=np.int64)
    for row, room in zip(within, larger, strict=True):
        row[:count] = used > room
    return Sums(
        np.concatenate([columns.cost, np.zeros(size - count)]),
        np.array(equal),
        np.array(total),
        within,
        np.array([int((rooms > room).sum()) for room in larger], dtype=np.int64),
        np.concatenate(times),
    )
