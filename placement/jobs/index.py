"""A cluster and a PCG as arrays of numbers, for the solver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster, CrossRail
from ..pcg import PCG, Algorithm, GroupTable, Op

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RING: Final = 0
"""k >= 2 domains cost k times the weight, one domain costs nothing."""
TREE: Final = 1
"""k domains cost k - 1 times the weight."""
PAIRS: Final = 2
"""Every ordered pair of members that is apart costs the weight."""

ANY_KIND: Final = -1


@dataclass(frozen=True)
class Fabric:
    """The free devices of a cluster and the domains around them.

    domain: `[level, node]`, the node's domain number at each boundary that traffic can cross;
        level 0 is the node itself, the last level lies just below the spine.
    slot_node, slot_device: the free devices in the cluster file's order.
    kind: accelerator kind by node, an index into `kinds`.
    ring_position: place of each node in the order in which rings visit nodes.
    rail: rail of each slot where different rails meet only at the spine, else None.
    """

    cluster: Cluster
    domain: Ints
    kind: Ints
    kinds: tuple[str, ...]
    slot_node: Ints
    slot_device: Ints
    ring_position: Ints
    rail: Ints | None

    @classmethod
    def of(cls, cluster: Cluster) -> Fabric:
        """The arrays of a cluster."""
        nodes = cluster.nodes
        rows: list[list[int]] = [list(range(len(nodes)))]
        inner = [tier.name for tier in cluster.tiers[:-1]]
        for tier in inner:
            numbers: dict[str, int] = {}
            rows.append([numbers.setdefault(node.domains[tier], len(numbers)) for node in nodes])
        kinds = tuple(sorted({node.accelerator for node in nodes}))
        number_of = {kind: index for index, kind in enumerate(kinds)}
        usable = [node.usable_devices for node in nodes]
        counts = np.fromiter((len(u) for u in usable), dtype=np.int64, count=len(nodes))
        device = np.fromiter(chain.from_iterable(usable), dtype=np.int64, count=int(counts.sum()))
        order = sorted(
            range(len(nodes)),
            key=lambda n: (*(nodes[n].domains[t] for t in reversed(inner)), nodes[n].name),
        )
        position = np.empty(len(nodes), dtype=np.int64)
        position[order] = np.arange(len(nodes))
        rails_matter = cluster.cross_rail is CrossRail.SPINE and cluster.rails > 1
        return cls(
            cluster=cluster,
            domain=np.array(rows, dtype=np.int64).reshape(len(rows), len(nodes)),
            kind=np.array([number_of[node.accelerator] for node in nodes], dtype=np.int64),
            kinds=kinds,
            slot_node=np.repeat(np.arange(len(nodes)), counts),
            slot_device=device,
            ring_position=position,
            rail=device % cluster.rails if rails_matter else None,
        )

    @property
    def levels(self) -> int:
        """How many boundaries traffic can cross: the node's, and that of each inner tier."""
        return len(self.domain)

    @cached_property
    def slot_kind(self) -> Ints:
        """Accelerator kind of each slot."""
        return self.kind[self.slot_node]

    @cached_property
    def slot_domain(self) -> Ints:
        """Domain number of each slot at each level."""
        return self.domain[:, self.slot_node]

    def devices(self, slots: Ints) -> list[tuple[str, int]]:
        """`(node name, device index)` of each slot."""
        names = [node.name for node in self.cluster.nodes]
        return [
            (names[node], device)
            for node, device in zip(
                self.slot_node[slots].tolist(), self.slot_device[slots].tolist(), strict=True
            )
        ]


@dataclass(frozen=True)
class Demand:
    """The ranks of a PCG and its groups, equal ones merged and idle ones left out.

    Group g has members `member[start[g]:start[g + 1]]`, a form (RING, TREE or PAIRS) and a weight
    in bytes whose meaning the form gives.
    kind: accelerator kind each rank needs, an index into the fabric's kinds, or ANY_KIND.
    """

    ranks: int
    form: Ints
    weight: Floats
    start: Ints
    member: Ints
    kind: Ints

    @classmethod
    def of(cls, pcg: PCG, kinds: tuple[str, ...]) -> Demand:
        """The arrays of a PCG. A required kind that the cluster lacks is numbered past `kinds`."""
        table = pcg.table
        form, weight = _form_and_weight(table)
        moving = (weight > 0) & (table.size > 1)
        # A ring of two is the same two directed edges as a pair.
        two = moving & (table.size == 2) & (form != TREE)
        large = np.flatnonzero(moving & ~two)
        larger: dict[tuple[int, tuple[int, ...]], float] = {}
        rows = zip(form[large].tolist(), table.taken(large).ranks(), weight[large], strict=True)
        for kind_of, ranks, size in rows:
            key = (kind_of, tuple(sorted(ranks)))
            larger[key] = larger.get(key, 0.0) + float(size)
        members = [ranks for _, ranks in larger]
        pairs, pair_weight = _merged(
            np.sort(table.taken(np.flatnonzero(two)).rank.reshape(-1, 2), axis=1), weight[two]
        )
        forms = [kind_of for kind_of, _ in larger] + [PAIRS] * len(pairs)
        weights = [*larger.values(), *pair_weight.tolist()]
        sizes = np.array([*map(len, members), *[2] * len(pairs)], dtype=np.int64)
        number_of = {name: index for index, name in enumerate(kinds)}
        kind = np.full(pcg.world_size, ANY_KIND, dtype=np.int64)
        for need in pcg.requires:
            number = number_of.setdefault(need.accelerator, len(number_of))
            kind[list(need.ranks)] = number
        return cls(
            ranks=pcg.world_size,
            form=np.array(forms, dtype=np.int64),
            weight=np.array(weights, dtype=np.float64),
            start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
            member=np.concatenate(
                [np.array([*chain.from_iterable(members)], dtype=np.int64), pairs.ravel()]
            ),
            kind=kind,
        )

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.form)

    @cached_property
    def size(self) -> Ints:
        """Members of each group."""
        return np.diff(self.start)

    @cached_property
    def group_of(self) -> Ints:
        """For each entry of `member`, its group."""
        return np.repeat(np.arange(self.groups), self.size)

    def members(self, group: int) -> Ints:
        """Ranks of one group, ascending."""
        return self.member[self.start[group] : self.start[group + 1]]


def _form_and_weight(table: GroupTable) -> tuple[Ints, Floats]:
    """The form of each group, and its weight."""
    n, size = table.size, table.bytes
    reduced = table.is_op(Op.ALL_REDUCE)
    tree = reduced & table.is_algorithm(Algorithm.TREE)
    broadcast = table.is_op(Op.BROADCAST)
    halves = table.is_op(Op.ALL_GATHER, Op.REDUCE_SCATTER)
    forms = [tree | broadcast, reduced | halves]
    weights = [
        (tree, 2 * size),
        (reduced, 2 * (n - 1) / n * size),
        (halves, (n - 1) / n * size),
        (table.is_op(Op.ALL_TO_ALL), size / n),
        (broadcast, size),
    ]
    return (
        np.select(forms, [np.int64(TREE), np.int64(RING)], np.int64(PAIRS)),
        np.select([chosen for chosen, _ in weights], [each for _, each in weights], size / 2),
    )


def _merged(pairs: Ints, weight: Floats) -> tuple[Ints, Floats]:
    """Every different pair once, in order of first appearance, with their weights summed."""
    if not len(pairs):
        return pairs, weight
    keys = pairs[:, 0] * (int(pairs.max()) + 1) + pairs[:, 1]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    total = np.bincount(which, weights=weight).astype(np.float64)
    return pairs[first[order]], total[order]
