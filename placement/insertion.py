"""Putting sets of ranks on nodes one by one: what each choice adds, tier by tier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .compiled import compiled
from .index import ANY_KIND, Demand, Fabric, Floats, Ints

TOLERANCE = 1e-12
"""Part of all the bytes in question below which two costs are the same number."""
AWAY = -1


@dataclass
class Board:
    """Ranks on nodes and the room left, changed in place as items are put down and taken up.

    An item is a set of ranks that moves as one; item i is `item_rank[item_start[i]:...]`.
    node: the node of each rank; AWAY for ranks that are not on any.
    room: free devices by node. used: ranks of the job by node.
    kind: accelerator kind each item needs, or ANY_KIND. home_kind: the kind it had.
    item_group, item_count: the groups an item is in and how many of its ranks are, from
        `group_start[i]` on. likeness: equal for nodes that differ in their room only.
    slack: bytes that rounding explains.
    """

    fabric: Fabric
    demand: Demand
    node: Ints
    room: Ints
    used: Ints
    item_start: Ints
    item_rank: Ints
    group_start: Ints
    item_group: Ints
    item_count: Ints
    kind: Ints
    home_kind: Ints
    likeness: Ints
    slack: float

    @classmethod
    def of(
        cls,
        fabric: Fabric,
        demand: Demand,
        node: Ints,
        room: Ints,
        items: list[Ints],
        home_kind: Ints,
    ) -> Board:
        """A board on which every item is away. `home_kind` is by rank."""
        item_of = np.full(demand.ranks, -1, dtype=np.int64)
        for i, ranks in enumerate(items):
            item_of[ranks] = i
        owner = item_of[demand.member]
        width = max(1, demand.groups)
        mine = owner >= 0
        keys, count = np.unique(owner[mine] * width + demand.group_of[mine], return_counts=True)
        # A group that lies wholly in one item costs nothing wherever the item goes.
        split = count < demand.size[keys % width]
        keys, count = keys[split], count[split]
        placed = node.copy()
        placed[item_of >= 0] = AWAY
        kind = np.array([int(demand.kind[ranks].max()) for ranks in items], dtype=np.int64)
        weights = np.zeros(demand.groups) if demand.groups == 0 else demand.weight * demand.size
        concerned = np.unique(keys % width)
        outer = fabric.domain[1] if fabric.levels > 1 else np.zeros_like(fabric.kind)
        if fabric.rail is not None:  # which devices are free matters then
            outer = np.arange(len(fabric.kind))
        return cls(
            fabric=fabric,
            demand=demand,
            node=placed,
            room=room.copy(),
            used=np.bincount(placed[placed >= 0], minlength=len(room)),
            item_start=np.cumsum([0, *(len(ranks) for ranks in items)]),
            item_rank=np.concatenate([np.zeros(0, dtype=np.int64), *items]),
            group_start=np.searchsorted(keys // width, np.arange(len(items) + 1)),
            item_group=keys % width,
            item_count=count,
            kind=kind,
            home_kind=np.array([int(home_kind[ranks[0]]) for ranks in items], dtype=np.int64),
            likeness=outer * len(fabric.kinds) + fabric.kind,
            slack=TOLERANCE * max(1.0, float(weights[concerned].sum())),
        )

    def split(self, items: list[Ints], home_kind: Ints) -> Board:
        """The same ranks on the same nodes, in other items."""
        room = self.room.copy()
        at = [int(self.node[ranks[0]]) for ranks in items]
        for ranks, node in zip(items, at, strict=True):
            if node != AWAY:
                room[node] += len(ranks)
        board = Board.of(self.fabric, self.demand, self.node, room, items, home_kind)
        for item, node in enumerate(at):
            if node != AWAY:
                board.put(item, node)
        return board

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.item_start) - 1

    def ranks(self, item: int) -> Ints:
        """The ranks of an item."""
        return self.item_rank[self.item_start[item] : self.item_start[item + 1]]

    def size(self, item: int) -> int:
        """How many ranks an item has."""
        return int(self.item_start[item + 1] - self.item_start[item])

    def at(self, item: int) -> int:
        """The node an item is on, or AWAY."""
        return int(self.node[self.item_rank[self.item_start[item]]])

    def take(self, item: int) -> None:
        """Take an item off its node."""
        node, size = self.at(item), self.size(item)
        self.node[self.ranks(item)] = AWAY
        self.room[node] += size
        self.used[node] -= size

    def put(self, item: int, node: int) -> None:
        """Put an item that is away on a node with room for it."""
        size = self.size(item)
        self.node[self.ranks(item)] = node
        self.room[node] -= size
        self.used[node] += size

    def candidates(self, item: int) -> Ints:
        """Nodes with room for an item, best fits first; of empty ones no cost tells apart, one."""
        fits = self.room >= self.size(item)
        if self.kind[item] != ANY_KIND:
            fits &= self.fabric.kind == self.kind[item]
        nodes = np.flatnonzero(fits)
        alike = np.where(self.used[nodes] == 0, self.likeness[nodes], -1 - nodes)
        alike = alike * (int(self.room.max()) + 1) + self.room[nodes]
        chosen = nodes[np.unique(alike, return_index=True)[1]]
        return chosen[np.argsort(self.room[chosen], kind="stable")]

    def costs(self, item: int, nodes: Ints) -> Floats:
        """What putting an item that is away on each node adds: `[node, tier]`, outermost first.

        One column more, the last, counts ranks that would change their accelerator kind.
        """
        found = np.zeros((len(nodes), self.fabric.levels + 1))
        groups = slice(self.group_start[item], self.group_start[item + 1])
        _costs(
            self.fabric.domain,
            self.node,
            self.demand.form,
            self.demand.weight,
            self.demand.start,
            self.demand.member,
            self.item_group[groups],
            self.item_count[groups],
            nodes,
            found,
        )
        found[:, -1] = (self.fabric.kind[nodes] != self.home_kind[item]) * self._change(item)
        return found

    def best(self, item: int) -> tuple[int, Floats] | None:
        """The node that adds least, and what it adds; None when no node has room."""
        nodes = self.candidates(item)
        if not len(nodes):
            return None
        costs = self.costs(item, nodes)
        row = least_row(costs, self.slack)
        return int(nodes[row]), costs[row]

    def total(self) -> Floats:
        """Bytes of the groups that any item is in, by tier, outermost first; ranks away count not.

        The last column is as in `costs`.
        """
        concerned = np.unique(self.item_group)
        found = np.zeros(self.fabric.levels + 1)
        _total(
            self.fabric.domain,
            self.node,
            self.demand.form,
            self.demand.weight,
            self.demand.start,
            self.demand.member,
            concerned,
            found,
        )
        for item in range(self.items):
            node = self.at(item)
            if node != AWAY and self.fabric.kind[node] != self.home_kind[item]:
                found[-1] += self._change(item)
        return found

    def _change(self, item: int) -> float:
        """What a change of kind counts for an item: more than any slack."""
        return self.size(item) * (1.0 + 4.0 * self.slack)


def warm_up_insertion(demand: Demand) -> None:
    """Compile the loops of this module, on any PCG in arrays."""
    node = np.zeros(demand.ranks, dtype=np.int64)
    domain, groups = np.zeros((2, 2), dtype=np.int64), np.arange(demand.groups)
    arrays = (demand.form, demand.weight, demand.start, demand.member, groups)
    _costs(domain, node, *arrays, np.ones_like(groups), np.arange(2), np.zeros((2, 3)))
    _total(domain, node, *arrays, np.zeros(3))


def least_row(costs: Floats, slack: float) -> int:
    """The row that is least lexicographically; the first of equal ones."""
    rows = np.arange(len(costs))
    for column in range(costs.shape[1]):
        values = costs[rows, column]
        rows = rows[values <= values.min() + slack]
        if len(rows) == 1:
            break
    return int(rows[0])


def less(left: Floats, right: Floats, slack: float) -> bool:
    """Whether a cost is less than another lexicographically, by more than rounding."""
    for one, other in zip(left.tolist(), right.tolist(), strict=True):
        if abs(one - other) > slack:
            return bool(one < other)
    return False


@compiled
def _costs(
    domain: Ints,
    node: Ints,
    form: Ints,
    weight: Floats,
    start: Ints,
    member: Ints,
    groups: Ints,
    counts: Ints,
    nodes: Ints,
    found: Floats,
) -> None:
    levels = domain.shape[0]
    for level in range(levels):
        column = levels - 1 - level
        label = domain[level]
        held = np.zeros(label.max() + 1, dtype=np.int64)
        for i in range(len(groups)):
            g = groups[i]
            others, parts = 0, 0
            for k in range(start[g], start[g + 1]):
                at = node[member[k]]
                if at >= 0:
                    if held[label[at]] == 0:
                        parts += 1
                    held[label[at]] += 1
                    others += 1
            for c in range(len(nodes)):
                inside = held[label[nodes[c]]]
                if form[g] == 2:
                    found[c, column] += 2.0 * weight[g] * counts[i] * (others - inside)
                elif inside == 0 and parts > 0:
                    # The second domain of a ring adds two edges, any later one adds one.
                    steps = 2.0 if form[g] == 0 and parts == 1 else 1.0
                    found[c, column] += steps * weight[g]
            for k in range(start[g], start[g + 1]):
                at = node[member[k]]
                if at >= 0:
                    held[label[at]] = 0


@compiled
def _total(
    domain: Ints,
    node: Ints,
    form: Ints,
    weight: Floats,
    start: Ints,
    member: Ints,
    groups: Ints,
    found: Floats,
) -> None:
    levels = domain.shape[0]
    for level in range(levels):
        column = levels - 1 - level
        label = domain[level]
        held = np.zeros(label.max() + 1, dtype=np.int64)
        for i in range(len(groups)):
            g = groups[i]
            others, parts = 0, 0
            for k in range(start[g], start[g + 1]):
                at = node[member[k]]
                if at >= 0:
                    if held[label[at]] == 0:
                        parts += 1
                    held[label[at]] += 1
                    others += 1
            together = 0.0
            for k in range(start[g], start[g + 1]):
                at = node[member[k]]
                if at >= 0:
                    together += float(held[label[at]]) ** 2
                    held[label[at]] = 0
            if form[g] == 2:
                found[column] += weight[g] * (float(others) ** 2 - together)
            elif parts > 1:
                found[column] += weight[g] * (parts if form[g] == 0 else parts - 1)
