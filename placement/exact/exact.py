"""Exact placement of small jobs: any groups, tier by tier from the spine inwards, by CP-SAT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.index import ANY_KIND, PAIRS, TREE, Demand, Fabric, Ints
from ..jobs.scaling import integer_weights
from ..loops.budget import Budget, Status, new_model, proved_least
from ..spread.branches import Branch, at_level, branches_of, canonical, trimmed

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_OUTERMOST_SHARE, _INNER_SHARE = 0.5, 0.4
"""Parts of the limit for the model of the outermost level, and for each of the others."""
MOST_CHOICES = 6000
"""Largest number of (rank, domain) choices the model is built for."""
_MOST_PAIRWISE = 12
"""Groups of at most so many ranks are modelled pair by pair, larger ones by counts."""


@dataclass(frozen=True)
class ExactResult:
    """The best placement found, and for how many levels, from the outermost, it is proved best.

    bound_bytes: proven least bytes across the outermost boundary.
    """

    slots: Ints
    proved_levels: int
    bound_bytes: float


def place_exactly(fabric: Fabric, demand: Demand, start: Ints, budget: Budget) -> ExactResult:
    """Improve `start` to the lexicographic optimum, as far as the budget lasts.

    One model a level, outermost first. Each holds the levels outside it to their least cost, not
    to one assignment, so the sequence ends at the true lexicographic optimum. The network must not
    treat rails differently.
    """
    weights, unit = integer_weights(demand)
    scaled = replace(demand, weight=weights.astype(np.float64))
    full = branches_of(fabric, demand.ranks)
    tree = trimmed(full, demand.ranks)
    node = fabric.slot_node[start]
    moved = canonical(full, tree, node, fabric)
    node = np.array([moved[n] for n in node.tolist()], dtype=np.int64)
    best_costs: dict[int, int] = {}
    proved = 0
    bound = 0.0
    for level in range(fabric.levels - 1, -1, -1):
        cost = round(_cost(scaled, fabric.domain[level][node]))
        alone = all(int(d.capacity.sum()) <= 1 for d in at_level(tree, level))
        if cost > 0 and not alone:
            if demand.ranks * len(at_level(tree, level)) > MOST_CHOICES or budget.spent():
                break
            model = _LevelModel(fabric, scaled, tree, level, best_costs)
            answer = model.solve(node, budget)
            if level == fabric.levels - 1:
                bound = answer.bound * unit
            if answer.node is not None:
                node = answer.node
                moved = canonical(full, tree, node, fabric)
                node = np.array([moved[n] for n in node.tolist()], dtype=np.int64)
                cost = round(_cost(scaled, fabric.domain[level][node]))
            if not answer.proved:
                break
        best_costs[level] = cost
        proved += 1
    return ExactResult(_slots(fabric, demand, node, start), proved, bound)


def _cost(demand: Demand, labels: Ints) -> float:
    total = 0.0
    for group in range(demand.groups):
        counts = np.unique(labels[demand.members(group)], return_counts=True)[1]
        if demand.form[group] == PAIRS:
            total += demand.weight[group] * float(counts.sum() ** 2 - (counts**2).sum())
        elif demand.form[group] == TREE:
            total += demand.weight[group] * (len(counts) - 1)
        elif len(counts) > 1:
            total += demand.weight[group] * len(counts)
    return total


def _slots(fabric: Fabric, demand: Demand, node: Ints, start: Ints) -> Ints:
    """Free devices for ranks whose nodes are known; ranks that stay on a node keep theirs."""
    slots = np.full(demand.ranks, -1, dtype=np.int64)
    stays = fabric.slot_node[start] == node
    slots[stays] = start[stays]
    used = set(slots[stays].tolist())
    free: dict[int, Iterator[int]] = {}
    for rank in np.flatnonzero(~stays).tolist():
        home = int(node[rank])
        if home not in free:
            first = int(np.searchsorted(fabric.slot_node, home))
            last = int(np.searchsorted(fabric.slot_node, home, side="right"))
            free[home] = iter([s for s in range(first, last) if s not in used])
        slots[rank] = next(free[home])
    return slots


_Columns = dict[int, list[int]]
"""At each level, the column of each rank's domain."""


@dataclass(frozen=True)
class _Answer:
    node: Ints | None
    proved: bool
    bound: float


class _LevelModel:
    """Least cost at one level, with the costs of the levels outside it held."""

    def __init__(
        self,
        fabric: Fabric,
        demand: Demand,
        tree: list[Branch],
        level: int,
        held: dict[int, int],
    ) -> None:
        self._fabric = fabric
        self._demand = demand
        self._level = level
        self._model = new_model()
        self._layers: dict[int, list[Branch]] = {
            at: at_level(tree, at) for at in range(level, fabric.levels)
        }
        self._choice: dict[int, list[list[cp_model.IntVar]]] = {}
        self._derived: list[tuple[cp_model.IntVar, Callable[[_Columns], bool]]] = []
        self._choose(level)
        self._order_twins(tree)
        for outer, cost in held.items():
            self._model.add(self._cost_at(outer) <= cost)
        self._objective = self._cost_at(level)
        self._model.minimize(self._objective)

    def _choose(self, level: int) -> None:
        model, demand = self._model, self._demand
        domains = self._layers[level]
        choice = [
            [model.new_bool_var(f"rank {r} in {d.number}") for d in domains]
            for r in range(demand.ranks)
        ]
        self._choice[level] = choice
        for row in choice:
            model.add_exactly_one(row)
        kinds = sorted(set(demand.kind.tolist()) - {ANY_KIND})
        for column, domain in enumerate(domains):
            total = int(domain.capacity.sum())
            if total < demand.ranks:
                model.add(sum(row[column] for row in choice) <= total)
            for kind in kinds:
                needers = np.flatnonzero(demand.kind == kind).tolist()
                if domain.capacity[kind] < len(needers):
                    room = int(domain.capacity[kind])
                    model.add(sum(choice[r][column] for r in needers) <= room)
        for outer in range(level + 1, self._fabric.levels):
            parents = self._layers[outer]
            inside = _columns(parents, self._layers[outer - 1])
            below = self._choice[outer - 1]
            above = []
            for r in range(demand.ranks):
                row = [model.new_bool_var(f"rank {r} in {d.number}@{outer}") for d in parents]
                for column, part in enumerate(inside):
                    model.add(row[column] == sum(below[r][c] for c in part))
                above.append(row)
            self._choice[outer] = above

    def _order_twins(self, tree: list[Branch]) -> None:
        stack = [tree]
        while stack:
            siblings = stack.pop()
            if not siblings or siblings[0].level < self._level:
                continue
            level = siblings[0].level
            column = {d.number: c for c, d in enumerate(self._layers[level])}
            for one, other in pairwise(siblings):
                if one.twin == other.twin:
                    choice = self._choice[level]
                    self._model.add(
                        sum(row[column[one.number]] for row in choice)
                        >= sum(row[column[other.number]] for row in choice)
                    )
            stack.extend(domain.children for domain in siblings)

    def _cost_at(self, level: int) -> cp_model.LinearExprT:
        demand = self._demand
        terms: list[cp_model.LinearExprT] = []
        apart: dict[tuple[int, int], int] = {}
        for group in range(demand.groups):
            ranks = demand.members(group).tolist()
            weight = int(demand.weight[group])
            if demand.form[group] == PAIRS:
                if len(ranks) <= _MOST_PAIRWISE:
                    for i, one in enumerate(ranks):
                        for other in ranks[i + 1 :]:
                            apart[one, other] = apart.get((one, other), 0) + 2 * weight
                else:
                    terms.append(weight * self._pairs_apart(level, ranks))
            else:
                terms.append(weight * self._boundary(level, ranks, int(demand.form[group])))
        for (one, other), weight in apart.items():
            terms.append(weight * self._pair_apart(level, one, other))
        return sum(terms) if terms else 0

    def _boundary(self, level: int, ranks: list[int], form: int) -> cp_model.LinearExprT:
        model, choice = self._model, self._choice[level]
        touched: list[cp_model.IntVar] = []
        whole: list[cp_model.IntVar] = []
        for column, domain in enumerate(self._layers[level]):
            touch = model.new_bool_var("")
            touched.append(touch)
            for r in ranks:
                model.add_implication(choice[r][column], touch)
            self._derive(touch, partial(_touches, level, ranks, column))
            if form != TREE and int(domain.capacity.sum()) >= len(ranks):
                full = model.new_bool_var("")
                whole.append(full)
                for r in ranks:
                    model.add_implication(full, choice[r][column])
                self._derive(full, partial(_holds, level, ranks, column))
        # At least one domain is touched, and two when none holds the whole group.
        if form == TREE:
            model.add_bool_or(touched)
            return sum(touched) - 1
        model.add(sum(touched) + sum(whole) >= 2)
        return sum(touched) - sum(whole)

    def _pair_apart(self, level: int, one: int, other: int) -> cp_model.IntVar:
        model, choice = self._model, self._choice[level]
        apart = model.new_bool_var("")
        for column in range(len(self._layers[level])):
            model.add_bool_or(choice[one][column].negated(), choice[other][column], apart)
            model.add_bool_or(choice[other][column].negated(), choice[one][column], apart)
        self._derive(apart, partial(_apart, level, one, other))
        return apart

    def _pairs_apart(self, level: int, ranks: list[int]) -> cp_model.LinearExprT:
        # Sum of squares of the counts, each square as 1 + 3 + 5 + ... over unary steps.
        model, choice = self._model, self._choice[level]
        together: list[cp_model.LinearExprT] = []
        for column, domain in enumerate(self._layers[level]):
            most = min(len(ranks), int(domain.capacity.sum()))
            steps = [model.new_bool_var("") for _ in range(most)]
            for lower, upper in pairwise(steps):
                model.add_implication(upper, lower)
            model.add(sum(steps) == sum(choice[r][column] for r in ranks))
            together.extend((2 * i + 1) * step for i, step in enumerate(steps))
            for i, step in enumerate(steps):
                self._derive(step, partial(_more_than, level, ranks, column, i))
        return len(ranks) ** 2 - sum(together)

    def _derive(self, variable: cp_model.IntVar, value: Callable[[_Columns], bool]) -> None:
        self._derived.append((variable, value))

    def solve(self, node: Ints, budget: Budget) -> _Answer:
        """Solve from the placement `node` (the node of each rank) as a complete hint."""
        columns: _Columns = {}
        for at, domains in self._layers.items():
            number = {d.number: c for c, d in enumerate(domains)}
            columns[at] = [number[d] for d in self._fabric.domain[at][node].tolist()]
            for r, row in enumerate(self._choice[at]):
                for c, variable in enumerate(row):
                    self._model.add_hint(variable, c == columns[at][r])
        for variable, value in self._derived:
            self._model.add_hint(variable, value(columns))
        outermost = self._level == self._fabric.levels - 1
        share = _OUTERMOST_SHARE if outermost else _INNER_SHARE
        solver, status = budget.solve(self._model, share)
        bound = max(0.0, proved_least(solver, status))
        if status not in (Status.OPTIMAL, Status.FEASIBLE):
            return _Answer(None, False, 0.0)
        column = [
            next(c for c, variable in enumerate(row) if solver.value(variable))
            for row in self._choice[self._level]
        ]
        found = self._spread(column, node, columns[self._level])
        return _Answer(found, status is Status.OPTIMAL, bound)

    def _spread(self, column: list[int], node: Ints, before: list[int]) -> Ints:
        """Any nodes for ranks whose domains at this level are known."""
        if column == before:
            return node
        demand = self._demand
        found = np.empty(demand.ranks, dtype=np.int64)
        for c, domain in enumerate(self._layers[self._level]):
            ranks = [r for r in range(demand.ranks) if column[r] == c]
            room = {
                leaf.number: [int(leaf.capacity.sum()), int(np.argmax(leaf.capacity))]
                for leaf in at_level([domain], 0)
            }
            for r in sorted(ranks, key=lambda r: demand.kind[r] == ANY_KIND):
                wanted = int(demand.kind[r])
                for leaf, entry in room.items():
                    if entry[0] > 0 and wanted in (ANY_KIND, entry[1]):
                        entry[0] -= 1
                        found[r] = leaf
                        break
        return found


def _columns(parents: list[Branch], children: list[Branch]) -> list[list[int]]:
    column = {child.number: c for c, child in enumerate(children)}
    return [[column[child.number] for child in parent.children] for parent in parents]


def _inside(columns: _Columns, level: int, ranks: list[int], column: int) -> int:
    return sum(columns[level][r] == column for r in ranks)


def _touches(level: int, ranks: list[int], column: int, columns: _Columns) -> bool:
    return _inside(columns, level, ranks, column) > 0


def _holds(level: int, ranks: list[int], column: int, columns: _Columns) -> bool:
    return _inside(columns, level, ranks, column) == len(ranks)


def _more_than(level: int, ranks: list[int], column: int, least: int, columns: _Columns) -> bool:
    return _inside(columns, level, ranks, column) > least


def _apart(level: int, one: int, other: int, columns: _Columns) -> bool:
    return columns[level][one] != columns[level][other]
