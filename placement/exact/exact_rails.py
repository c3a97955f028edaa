"""Exact placement of small jobs where different rails meet only at the spine, by CP-SAT.

Here the device matters, not only its node: a ring edge between nodes stays below the spine only
when both ends are on one rail, and which edges a ring has depends on which devices it uses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.cuts import cut_bytes
from ..jobs.index import ANY_KIND, PAIRS, RING, Demand, Fabric, Ints
from ..jobs.scaling import integer_weights
from ..loops.budget import Budget, Status, new_model, proved_least
from .exact import ExactResult

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MOST_SLOTS = 40
"""Largest number of free devices the model is built for; it has a term a pair of them."""
MOST_TERMS = 40_000


def fits(fabric: Fabric, demand: Demand) -> bool:
    """Whether the model stays small enough to build."""
    slots = len(fabric.slot_node)
    rings = int((demand.form == RING).sum())
    pairs = int((demand.size[demand.form == PAIRS] ** 2).sum())
    terms = rings * slots**2 + pairs * slots + demand.ranks * slots
    return slots <= MOST_SLOTS and terms <= MOST_TERMS


def place_exactly_on_rails(
    fabric: Fabric, demand: Demand, start: Ints, budget: Budget
) -> ExactResult:
    """Improve `start` to the lexicographic optimum, as far as the budget lasts."""
    weights, unit = integer_weights(demand)
    scaled = replace(demand, weight=weights.astype(np.float64))
    slots = start
    held: dict[int, int] = {}
    bound = 0.0
    for level in range(fabric.levels - 1, -1, -1):
        cost = round(float(cut_bytes(fabric, scaled, slots)[level]))
        if cost > 0:
            if budget.spent():
                break
            model = _DeviceModel(fabric, scaled, level, held)
            found, proved, least = model.solve(slots, budget)
            if level == fabric.levels - 1:
                bound = least * unit
            if found is not None:
                slots = found
                cost = round(float(cut_bytes(fabric, scaled, slots)[level]))
            if not proved:
                break
        held[level] = cost
    return ExactResult(slots, len(held), bound)


class _DeviceModel:
    """Least bytes across one level, with those across the levels outside it held."""

    def __init__(self, fabric: Fabric, demand: Demand, level: int, held: dict[int, int]) -> None:
        self._fabric = fabric
        self._demand = demand
        self._model = new_model()
        slots = range(len(fabric.slot_node))
        self._on = [
            [self._model.new_bool_var(f"rank {r} on {s}") for s in slots]
            for r in range(demand.ranks)
        ]
        self._constrain()
        self._edges = self._ring_edges()
        for outer, cost in held.items():
            self._model.add(self._cost_at(outer) <= cost)
        self._model.minimize(self._cost_at(level))

    def _constrain(self) -> None:
        for row, kind in zip(self._on, self._demand.kind.tolist(), strict=True):
            self._model.add_exactly_one(row)
            if kind != ANY_KIND:
                for variable, has in zip(row, self._fabric.slot_kind.tolist(), strict=True):
                    if has != kind:
                        self._model.add(variable == 0)
        for column in zip(*self._on, strict=True):
            self._model.add_at_most_one(column)

    def _ring_edges(self) -> list[tuple[int, int, int, cp_model.IntVar]]:
        """Edges between nodes as (weight, sender slot, receiver slot, whether it is there)."""
        fabric, demand, model = self._fabric, self._demand, self._model
        order = np.lexsort((fabric.slot_device, fabric.ring_position[fabric.slot_node])).tolist()
        edges = []
        for group in np.flatnonzero(demand.form == RING).tolist():
            ranks = demand.members(group).tolist()
            uses = [sum(self._on[r][s] for r in ranks) for s in order]
            for i, sender in enumerate(order):
                between: cp_model.LinearExprT = 0
                for step in range(1, len(order)):
                    j = (i + step) % len(order)
                    receiver = order[j]
                    if fabric.slot_node[sender] != fabric.slot_node[receiver]:
                        edge = model.new_bool_var("")
                        model.add(edge >= uses[i] + uses[j] - 1 - between)
                        edges.append((int(demand.weight[group]), sender, receiver, edge))
                    between = between + uses[j]
        return edges

    def _cost_at(self, level: int) -> cp_model.LinearExprT:
        fabric, demand = self._fabric, self._demand
        domain, rail = fabric.slot_domain[level], fabric.rail
        assert rail is not None
        terms: list[cp_model.LinearExprT] = [
            weight * edge
            for weight, sender, receiver, edge in self._edges
            if domain[sender] != domain[receiver] or rail[sender] != rail[receiver]
        ]
        apart: dict[tuple[int, int], int] = {}
        for group in range(demand.groups):
            ranks, weight = demand.members(group).tolist(), int(demand.weight[group])
            if demand.form[group] == PAIRS:
                for i, one in enumerate(ranks):
                    for other in ranks[i + 1 :]:
                        apart[one, other] = apart.get((one, other), 0) + 2 * weight
            elif demand.form[group] != RING:
                terms.append(weight * (self._touched(ranks, domain) - 1))
        lanes = domain * (int(rail.max()) + 1) + rail
        for (one, other), weight in apart.items():
            on_node = self._together(one, other, fabric.slot_node)
            in_lane = self._together(one, other, lanes)
            pair_apart = self._model.new_bool_var("")
            self._model.add_bool_or(on_node, in_lane, pair_apart)
            terms.append(weight * pair_apart)
        return sum(terms) if terms else 0

    def _touched(self, ranks: list[int], label: Ints) -> cp_model.LinearExprT:
        touched = []
        for value in sorted(set(label.tolist())):
            touch = self._model.new_bool_var("")
            touched.append(touch)
            for slot in np.flatnonzero(label == value).tolist():
                for r in ranks:
                    self._model.add_implication(self._on[r][slot], touch)
        self._model.add_bool_or(touched)
        return sum(touched)

    def _together(self, one: int, other: int, label: Ints) -> cp_model.IntVar:
        """A variable that can only be true when both ranks bear the same label."""
        together = self._model.new_bool_var("")
        for value in sorted(set(label.tolist())):
            slots = np.flatnonzero(label == value).tolist()
            first = sum(self._on[one][s] for s in slots)
            second = sum(self._on[other][s] for s in slots)
            self._model.add(first == second).only_enforce_if(together)
        return together

    def solve(self, start: Ints, budget: Budget) -> tuple[Ints | None, bool, float]:
        """Slots, whether they are proved best, and the bound, from the hint `start`."""
        for row, slot in zip(self._on, start.tolist(), strict=True):
            for s, variable in enumerate(row):
                self._model.add_hint(variable, s == slot)
        solver, status = budget.solve(self._model, share=0.5)
        if status not in (Status.OPTIMAL, Status.FEASIBLE):
            return None, False, 0.0
        slots = [
            next(s for s, variable in enumerate(row) if solver.value(variable)) for row in self._on
        ]
        bound = max(0.0, proved_least(solver, status))
        return np.array(slots, dtype=np.int64), status is Status.OPTIMAL, bound
