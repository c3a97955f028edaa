"""Exact placement of small jobs under side constraints: ranks on nodes, by CP-SAT."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..constraints import Constraints, free_nodes
from ..jobs.index import ANY_KIND, PAIRS, TREE, Demand, Fabric, Ints
from ..jobs.scaling import integer_weights
from ..loops.budget import Budget, Status, new_model, proved_least

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_MOST_RANKS = 40
_MOST_CHOICES = 1600


def fits(fabric: Fabric, demand: Demand) -> bool:
    """Whether the model is small enough, and devices of a node make no difference."""
    nodes = len(set(fabric.slot_node.tolist()))
    small = demand.ranks <= _MOST_RANKS and demand.ranks * nodes <= _MOST_CHOICES
    return small and fabric.rail is None


@dataclass(frozen=True)
class Answer:
    """The best placement found: the node of each rank, None when there is none.

    possible: False when it is proved that no placement satisfies the constraints.
    proved_levels: levels, from the outermost, at which it is proved best.
    bound_bytes: proven least bytes across the outermost boundary under the constraints.
    """

    node: Ints | None
    possible: bool
    proved_levels: int
    bound_bytes: float


@dataclass(frozen=True)
class Stay:
    """Ranks on their nodes, of which at most `most` may leave."""

    node: dict[int, int]
    most: int


def place_exactly_under(
    constraints: Constraints,
    tier: str | None,
    fabric: Fabric,
    demand: Demand,
    start: Ints | None,
    budget: Budget,
    stay: Stay | None = None,
) -> Answer:
    """The lexicographic optimum under constraints, as far as the budget lasts.

    tier: that of `together`, if any. start: the node of each rank in a placement to begin with.
    stay: ranks of which only some may leave their node, and none that saves nothing by it.
    """
    weights, unit = integer_weights(demand)
    scaled = replace(demand, weight=weights.astype(np.float64))
    held: dict[int, int] = {}
    node, bound = start, 0.0
    for level in range(fabric.levels - 1, -1, -1):
        model = _Model(constraints, tier, fabric, scaled, held, stay)
        solver, status = model.solve(level, node, budget)
        if status == Status.INFEASIBLE:
            return Answer(node, node is not None, len(held), bound)
        if status not in (Status.OPTIMAL, Status.FEASIBLE):
            break
        node = model.nodes(solver)
        if level == fabric.levels - 1:
            bound = max(0.0, proved_least(solver, status)) * unit / model.steps(level)
        if status != Status.OPTIMAL:
            break
        held[level] = round(solver.objective_value)
    return Answer(node, True, len(held), bound)


class _Model:
    """Ranks on nodes under constraints, with the costs of the levels solved before held."""

    def __init__(
        self,
        constraints: Constraints,
        tier: str | None,
        fabric: Fabric,
        demand: Demand,
        held: dict[int, int],
        stay: Stay | None,
    ) -> None:
        self._fabric, self._demand, self._model = fabric, demand, new_model()
        counts = np.bincount(fabric.slot_node, minlength=len(fabric.kind))
        self._open = np.flatnonzero(counts).tolist()
        self._on = [
            {n: self._model.new_bool_var(f"rank {r} on {n}") for n in self._open}
            for r in range(demand.ranks)
        ]
        self._in: dict[tuple[int, int], dict[int, cp_model.IntVar]] = {}
        for row in self._on:
            self._model.add_exactly_one(row.values())
        for n in self._open:
            self._model.add(sum(row[n] for row in self._on) <= int(counts[n]))
        for rank, kind in enumerate(demand.kind.tolist()):
            for n in self._open:
                if kind != ANY_KIND and fabric.kind[n] != kind:
                    self._model.add(self._on[rank][n] == 0)
        self._constrain(constraints, tier)
        self._here: list[cp_model.IntVar] = []
        if stay is not None:
            self._here = [self._on[rank][node] for rank, node in stay.node.items()]
            self._model.add(sum(self._here) >= len(self._here) - stay.most)
        for level, cost in held.items():
            self._model.add(self._cost_at(level) <= cost)

    def _labels(self, tier: str) -> Ints:
        """The domain of each node at a tier; one for all at the last."""
        names = self._fabric.cluster.tier_names
        if tier == names[-1]:
            return np.zeros(len(self._fabric.kind), dtype=np.int64)
        labels: Ints = self._fabric.domain[names.index(tier)]
        return labels

    def _within(self, rank: int, labels: Ints) -> dict[int, cp_model.IntVar]:
        """For each domain, whether a rank is in it."""
        found: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        for n, variable in self._on[rank].items():
            found[int(labels[n])].append(variable)
        return {d: part[0] if len(part) == 1 else self._either(part) for d, part in found.items()}

    def _either(self, part: list[cp_model.IntVar]) -> cp_model.IntVar:
        variable = self._model.new_bool_var("")
        self._model.add(sum(part) == variable)
        return variable

    def _inside(self, level: int, rank: int) -> dict[int, cp_model.IntVar]:
        key = (level, rank)
        if key not in self._in:
            self._in[key] = self._within(rank, self._fabric.domain[level])
        return self._in[key]

    def _constrain(self, constraints: Constraints, tier: str | None) -> None:
        model, fabric = self._model, self._fabric
        every = range(self._demand.ranks)
        number = {node.name: n for n, node in enumerate(fabric.cluster.nodes)}
        if constraints.together:
            labels = self._labels(tier or constraints.together.tier)
            self._same(list(every), labels)
        if constraints.segments:
            labels = self._labels(constraints.segments.tier)
            for first in range(0, self._demand.ranks, constraints.segments.ranks):
                self._same(list(every)[first : first + constraints.segments.ranks], labels)
        if constraints.balanced:
            labels = self._labels(constraints.balanced.tier)
            share = model.new_int_var(1, self._demand.ranks, "ranks in a domain")
            rows = [self._within(r, labels) for r in every]
            used = []
            for d in rows[0]:
                taken = model.new_bool_var("")
                used.append(taken)
                held = sum(row[d] for row in rows)
                model.add(held == share).only_enforce_if(taken)
                model.add(held == 0).only_enforce_if(taken.negated())
            if constraints.balanced.domains:
                model.add(sum(used) == constraints.balanced.domains)
        for pin in constraints.pinned:
            for n, variable in self._on[pin.rank].items():
                model.add(variable == (n == number[pin.node]))
            devices = fabric.slot_device[fabric.slot_node == number[pin.node]]
            if not len(devices) or (pin.device is not None and pin.device not in devices):
                model.add_bool_or([])  # it is not free
        loaded = {}
        if constraints.at_most or constraints.spares:
            for n in self._open:
                loaded[n] = model.new_bool_var("")
                for row in self._on:
                    model.add_implication(row[n], loaded[n])
        if constraints.at_most:
            labels = self._labels(constraints.at_most.tier)
            for d in sorted({int(labels[n]) for n in self._open}):
                here = [loaded[n] for n in self._open if labels[n] == d]
                model.add(sum(here) <= constraints.at_most.nodes)
        if constraints.spares:
            whole = [number[name] for name in free_nodes(constraints, fabric.cluster, set())]
            model.add(sum(1 - loaded[n] for n in whole) >= constraints.spares)

    def _same(self, ranks: list[int], labels: Ints) -> None:
        rows = [self._within(r, labels) for r in ranks]
        for row in rows[1:]:
            for d in rows[0]:
                self._model.add(row[d] == rows[0][d])

    def _cost_at(self, level: int) -> cp_model.LinearExprT:
        demand, model = self._demand, self._model
        terms: list[cp_model.LinearExprT] = []
        pairs: dict[tuple[int, int], int] = defaultdict(int)
        for group in range(demand.groups):
            ranks, weight = demand.members(group).tolist(), int(demand.weight[group])
            if demand.form[group] == PAIRS:
                for i, one in enumerate(ranks):
                    for other in ranks[i + 1 :]:
                        pairs[one, other] += 2 * weight
                continue
            rows = [self._inside(level, r) for r in ranks]
            touched, whole = [], []
            for d in rows[0]:
                touch = model.new_bool_var("")
                touched.append(touch)
                for row in rows:
                    model.add(touch >= row[d])
                if demand.form[group] != TREE:
                    full = model.new_bool_var("")
                    whole.append(full)
                    for row in rows:
                        model.add(full <= row[d])
            if demand.form[group] == TREE:
                model.add_bool_or(touched)
                terms.append(weight * (sum(touched) - 1))
            else:
                model.add(sum(touched) + sum(whole) >= 2)
                terms.append(weight * (sum(touched) - sum(whole)))
        for (one, other), weight in pairs.items():
            apart = model.new_bool_var("")
            first, second = self._inside(level, one), self._inside(level, other)
            for d in first:
                model.add(apart >= first[d] - second[d])
            terms.append(weight * apart)
        return sum(terms) if terms else 0

    def solve(
        self, level: int, start: Ints | None, budget: Budget
    ) -> tuple[cp_model.CpSolver, Status]:
        """Minimise the bytes across one boundary; at the innermost, then the ranks that leave."""
        terms = [self.steps(level) * self._cost_at(level)]
        if level == 0:
            terms += [-1 * variable for variable in self._here]
        self._model.minimize(sum(terms))
        for rank, row in enumerate(self._on if start is not None else []):
            assert start is not None
            for n, variable in row.items():
                self._model.add_hint(variable, n == int(start[rank]))
        return budget.solve(self._model, share=0.5)

    def steps(self, level: int) -> int:
        """What a unit of cost at a level counts in the objective."""
        return len(self._here) + 1 if level == 0 else 1

    def nodes(self, solver: cp_model.CpSolver) -> Ints:
        """The node of each rank."""
        found = [next(n for n, v in row.items() if solver.value(v)) for row in self._on]
        return np.array(found, dtype=np.int64)
