"""Devices inside nodes by the links between them, where all else of a placement is settled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..jobs.cuts import cut_bytes, fewer
from ..jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Fabric, Floats, Ints
from ..loops.budget import Budget
from .link_tables import BRANCHED, CLOSED, EVERY, MOST_TABLED, OPEN, LinkTables, best_devices

STEPS_PER_WORK = 5_000_000
"""Steps of branch and bound counted as one unit of work."""
_MOST_STEPS = 1_000_000
_LEAST_STEPS = 2_000
_MOST_RECOUNTED = 64
"""Changes that are counted whole where the device matters to the tiers as well."""
_MOST_WINDOWS = 4

Part = tuple[int, float, tuple[int, ...]]
"""Form, weight and members, by position among the ranks of a node, of what a group has there."""


@dataclass(frozen=True)
class _Content:
    """The ranks that share a node, and what they say to each other."""

    ranks: tuple[int, ...]
    parts: tuple[Part, ...]
    kinds: tuple[int, ...]


def choose_on_links(
    fabric: Fabric,
    demand: Demand,
    slots: Ints,
    budget: Budget,
    fixed: Sequence[int] = (),
    stay: bool = False,
) -> Ints:
    """The slots with the traffic inside nodes on faster links; no tier gets more bytes than before.

    What shares a node stays together; it may change its node for one that no tier tells apart,
    unless `stay`. fixed: ranks that keep their device. Every node is solved to the optimum where
    the counted work suffices.
    """
    if not any(node.links is not None for node in fabric.cluster.nodes):
        return slots
    choice = _Choice(fabric, demand, budget, frozenset(fixed))
    contents = choice.contents(slots)
    if not stay and not fixed:
        slots = _better_nodes(choice, contents, slots)
        contents = choice.contents(slots)
    chosen = slots.copy()
    for node, content in contents.items():
        chosen[list(content.ranks)] = choice.solved(content, node, slots).slots
    if fabric.rail is None or not fewer(
        cut_bytes(fabric, demand, slots), cut_bytes(fabric, demand, chosen)
    ):
        return chosen
    return _one_by_one(choice, contents, slots, chosen)


def _one_by_one(choice: _Choice, contents: dict[int, _Content], slots: Ints, wanted: Ints) -> Ints:
    """The changes of single nodes that no tier pays for."""
    fabric, demand = choice.fabric, choice.demand
    now, cost = slots.copy(), cut_bytes(fabric, demand, slots)
    changed = [c for c in contents.values() if (wanted[list(c.ranks)] != now[list(c.ranks)]).any()]
    for content in changed[:_MOST_RECOUNTED]:
        tried = now.copy()
        tried[list(content.ranks)] = wanted[list(content.ranks)]
        new_cost = cut_bytes(fabric, demand, tried)
        if not fewer(cost, new_cost):
            now, cost = tried, new_cost
    return now


@dataclass(frozen=True)
class _Solved:
    slots: Ints
    seconds: float


@dataclass
class _Choice:
    """Nodes solved so far: equal contents on equal devices are solved once."""

    fabric: Fabric
    demand: Demand
    budget: Budget
    fixed: frozenset[int]
    _tables: dict[tuple[str, tuple[int, ...]], LinkTables] = field(default_factory=dict)
    _known: dict[tuple[object, ...], tuple[Ints, float]] = field(default_factory=dict)

    def free(self, node: int) -> tuple[int, tuple[int, ...]]:
        """First slot of a node and the indices of its free devices."""
        first = int(np.searchsorted(self.fabric.slot_node, node))
        last = int(np.searchsorted(self.fabric.slot_node, node, side="right"))
        return first, tuple(self.fabric.slot_device[first:last].tolist())

    def contents(self, slots: Ints) -> dict[int, _Content]:
        """What each used node holds."""
        demand = self.demand
        home = self.fabric.slot_node[slots]
        order = np.argsort(home, kind="stable")
        ranks: dict[int, list[int]] = {}
        for rank, node in zip(order.tolist(), home[order].tolist(), strict=True):
            ranks.setdefault(node, []).append(rank)
        position = np.empty(demand.ranks, dtype=np.int64)
        for held in ranks.values():
            position[held] = np.arange(len(held))
        parts: dict[int, list[Part]] = {node: [] for node in ranks}
        at = home[demand.member]
        by = np.lexsort((demand.group_of, at))
        keys = at[by] * demand.groups + demand.group_of[by]
        cuts = np.flatnonzero(np.diff(keys, prepend=-1, append=-1))
        for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            if last - first < 2:
                continue
            entry = int(by[first])
            group = int(demand.group_of[entry])
            whole = last - first == demand.size[group]
            form = {RING: CLOSED if whole else OPEN, TREE: BRANCHED, PAIRS: EVERY}[
                int(demand.form[group])
            ]
            members = tuple(sorted(position[demand.member[by[first:last]]].tolist()))
            parts[int(at[entry])].append((form, float(demand.weight[group]), members))
        return {
            node: _Content(
                tuple(held), tuple(sorted(parts[node])), tuple(demand.kind[held].tolist())
            )
            for node, held in ranks.items()
        }

    def solved(self, content: _Content, node: int, slots: Ints) -> _Solved:
        """The best devices of `node` for a content; those of `slots` where they are as good."""
        fabric = self.fabric
        first, free = self.free(node)
        held = list(content.ranks)
        stays = bool((fabric.slot_node[slots[held]] == node).all())
        start = slots[held] - first if stays else np.arange(len(held))
        name = fabric.cluster.nodes[node].links
        if name is None or not content.parts or len(held) > MOST_TABLED:
            return _Solved(start + first, 0.0)
        fixed = tuple(rank in self.fixed for rank in held)
        key = (name, free, content.parts, tuple(start.tolist()), fixed)
        if key not in self._known:
            self._known[key] = self._solve(name, free, content.parts, start, np.array(fixed))
        devices, seconds = self._known[key]
        return _Solved(devices + first, seconds)

    def _solve(
        self, name: str, free: tuple[int, ...], parts: tuple[Part, ...], start: Ints, fixed: Ints
    ) -> tuple[Ints, float]:
        """The best of all free devices; where these are too many, of sets of close ones."""
        if len(free) <= MOST_TABLED:
            return self._solve_among(name, free, parts, start, fixed)
        rates = np.array(self.fabric.cluster.links[name].bytes_per_s)[np.ix_(free, free)]
        found = self._solve_among(
            name, tuple(free[p] for p in sorted(start)), parts, _dense(start), fixed
        )
        best = np.sort(start)[found[0]], found[1]
        for window in _windows(rates) if not fixed.any() else []:
            devices = tuple(free[position] for position in window)
            found = self._solve_among(name, devices, parts, np.arange(len(start)), fixed)
            if found[1] < best[1] * (1 - 1e-9):
                best = np.array(window)[found[0]], found[1]
        return best

    def _solve_among(
        self, name: str, free: tuple[int, ...], parts: tuple[Part, ...], start: Ints, fixed: Ints
    ) -> tuple[Ints, float]:
        if (name, free) not in self._tables:
            rates = self.fabric.cluster.links[name].bytes_per_s
            self._tables[name, free] = LinkTables.of(rates, free)
            self.budget.charge(2.0 ** len(free) * len(free) ** 2 / 1e8)
        tables = self._tables[name, free]
        sizes = np.array([len(members) for _, _, members in parts])
        owner = np.repeat(np.arange(len(parts)), sizes)
        member = np.concatenate([np.array(m, dtype=np.int64) for _, _, m in parts])
        by_rank = np.argsort(member, kind="stable")
        weight = np.array([w for _, w, _ in parts])
        pull = np.bincount(member, weights=weight[owner], minlength=len(start))
        open_ranks = np.flatnonzero(~fixed)
        least = {
            (form, size): tables.least_with(form, size)
            for form, size in {(form, len(members)) for form, _, members in parts}
        }
        allowed = _MOST_STEPS if not tables.even else 0
        allowed = max(_LEAST_STEPS, min(allowed, int(self.budget.left * STEPS_PER_WORK)))
        devices, seconds, _ = best_devices(
            start.astype(np.int64),
            weight,
            np.stack([tables.cost[form] for form, _, _ in parts]),
            np.stack([least[form, len(members)] for form, _, members in parts]),
            np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
            member,
            np.concatenate(
                [
                    np.zeros(1, dtype=np.int64),
                    np.cumsum(np.bincount(member, minlength=len(start))),
                ]
            ).astype(np.int64),
            owner[by_rank].astype(np.int64),
            open_ranks[np.argsort(-pull[open_ranks], kind="stable")].astype(np.int64),
            fixed.astype(np.int64),
            allowed,
        )
        return devices, seconds


def _better_nodes(choice: _Choice, contents: dict[int, _Content], slots: Ints) -> Ints:
    """Contents on those nodes, of all that no tier tells apart, whose links suit them best."""
    fabric, demand = choice.fabric, choice.demand
    siblings = np.zeros(fabric.domain.shape[1], dtype=np.int64)
    if fabric.levels > 1 and len(contents) > 1:
        siblings = fabric.domain[1]
    used = np.array(sorted(contents))
    chosen = slots.copy()
    for domain in np.unique(siblings[used]).tolist():
        here = used[siblings[used] == domain].tolist()
        options = np.flatnonzero(siblings == domain)
        options = options[np.isin(options, fabric.slot_node)].tolist()
        if len(options) > 1:
            _assign(choice, contents, here, options, slots, chosen)
    if fabric.rail is not None and fewer(
        cut_bytes(fabric, demand, slots), cut_bytes(fabric, demand, chosen)
    ):
        return slots
    return chosen


def _assign(
    choice: _Choice,
    contents: dict[int, _Content],
    used: list[int],
    options: list[int],
    slots: Ints,
    chosen: Ints,
) -> None:
    """The assignment of contents to nodes of least seconds; staying wins where it is as good."""
    fabric = choice.fabric
    kinds = [
        (fabric.cluster.nodes[node].links, choice.free(node)[1], int(fabric.kind[node]))
        for node in options
    ]
    if len(set(kinds)) == 1:
        return
    kind_of = _classes(kinds)
    content_of = _classes([(contents[n].parts, contents[n].kinds) for n in used])
    seconds = np.full((int(content_of.max()) + 1, int(kind_of.max()) + 1), np.inf)
    for c in range(seconds.shape[0]):
        content = contents[used[int(np.argmax(content_of == c))]]
        for k in range(seconds.shape[1]):
            j = int(np.argmax(kind_of == k))
            name, free, kind = kinds[j]
            roomy = MOST_TABLED >= len(content.ranks) <= len(free)
            # Where links are not described, a node is neither better nor worse: none moves there.
            if name is not None and roomy and all(n in (ANY_KIND, kind) for n in content.kinds):
                seconds[c, k] = choice.solved(content, options[j], slots).seconds
    home = np.array([options.index(node) for node in used])
    now = seconds[content_of, kind_of[home]]
    movable = np.isfinite(now)
    stays = float(now[movable].sum())
    if stays == 0.0:
        return
    open_options = np.ones(len(options), dtype=bool)
    open_options[home[~movable]] = False
    needs = np.bincount(content_of[movable], minlength=seconds.shape[0])
    rooms = np.bincount(kind_of[open_options], minlength=seconds.shape[1])
    shares = _cheapest_shares(seconds, needs, rooms)
    there = np.where(shares > 0, seconds, 0.0)
    if not float((there * shares).sum()) < stays * (1 - 1e-9):
        return
    waiting: list[int] = []
    for i in np.flatnonzero(movable).tolist():
        c, k = int(content_of[i]), int(kind_of[home[i]])
        if shares[c, k] > 0:
            shares[c, k] -= 1
            open_options[home[i]] = False
        else:
            waiting.append(i)
    for i in waiting:
        c = int(content_of[i])
        k = int(np.argmax(shares[c]))
        shares[c, k] -= 1
        j = int(np.flatnonzero(open_options & (kind_of == k))[0])
        open_options[j] = False
        content = contents[used[i]]
        chosen[list(content.ranks)] = choice.solved(content, options[j], slots).slots


def _cheapest_shares(seconds: Floats, needs: Ints, rooms: Ints) -> Ints:
    """How many contents of each class go to nodes of each class: a transport problem."""
    # Imported here because it takes long and most clusters do not describe their links.
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

    flow = SimpleMinCostFlow()
    finite = np.isfinite(seconds)
    scale = 1e9 / float(seconds[finite].max())
    arcs = []
    for c, k in np.argwhere(finite).tolist():
        if needs[c] and rooms[k]:
            cost = round(float(seconds[c, k]) * scale)
            arc = flow.add_arc_with_capacity_and_unit_cost(
                c, len(needs) + k, int(min(needs[c], rooms[k])), cost
            )
            arcs.append((arc, c, k))
    sink = len(needs) + len(rooms)
    for k, room in enumerate(rooms.tolist()):
        flow.add_arc_with_capacity_and_unit_cost(len(needs) + k, sink, room, 0)
    for c, need in enumerate(needs.tolist()):
        flow.set_node_supply(c, need)
    flow.set_node_supply(sink, -int(needs.sum()))
    shares = np.zeros(seconds.shape, dtype=np.int64)
    if flow.solve() == flow.OPTIMAL:
        for arc, c, k in arcs:
            shares[c, k] = flow.flow(arc)
    return shares


def _classes(items: list[Any]) -> Ints:
    """For each item the number of its class of equal ones."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items], dtype=np.int64)


def _dense(values: Ints) -> Ints:
    """Each value's place among them all."""
    return np.argsort(np.argsort(values))


def _windows(rates: Floats) -> list[list[int]]:
    """Sets of MOST_TABLED devices: those with the fastest links to each, the closest sets first."""
    first = rates.copy()
    np.fill_diagonal(first, np.inf)
    nearest = np.argsort(-first, axis=1, kind="stable")[:, :MOST_TABLED]
    sets = {tuple(sorted(row)) for row in nearest.tolist()}
    slow = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
    closest = sorted(sets, key=lambda s: (float(slow[np.ix_(s, s)].sum()), s))
    return [list(window) for window in closest[:_MOST_WINDOWS]]
