"""What a placement costs: bytes a step that meet at every tier, counted from the PCG alone.

Shares no code with the solver, so that it can judge it.
"""

from __future__ import annotations

import difflib
import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .cluster import Cluster, CrossRail, Node
from .errors import InvalidInput, Problem
from .pcg import PCG, Algorithm, Group, GroupTable, Op

Ints = npt.NDArray[np.int64]
Device = tuple[str, int]


@dataclass(frozen=True)
class GroupTraffic:
    """Bytes a step of one group by the tier where their two ends meet ("node" first)."""

    name: str
    op: Op
    bytes_by_tier: dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """Traffic of a placement.

    traffic_bytes: bytes a step whose two ends meet exactly at each tier, "node" first, then the
        cluster's tiers in order.
    """

    traffic_bytes: dict[str, float]
    _groups: tuple[Group, ...] = field(repr=False, compare=False)
    _edges: Ints = field(repr=False, compare=False)
    _edge_bytes: npt.NDArray[np.float64] = field(repr=False, compare=False)

    @property
    def cross_spine_bytes(self) -> float:
        """Bytes a step whose two ends meet only at the last tier."""
        return self.traffic_bytes[list(self.traffic_bytes)[-1]]

    @cached_property
    def by_group(self) -> list[GroupTraffic]:
        """The same bytes group by group, in the PCG's order; made when first asked for."""
        tiers = list(self.traffic_bytes)
        rows = (self._edges * self._edge_bytes[:, None]).tolist()
        return [
            GroupTraffic(group.name, group.op, dict(zip(tiers, row, strict=True)))
            for group, row in zip(self._groups, rows, strict=True)
        ]


def evaluate(pcg: PCG, cluster: Cluster, devices: Sequence[Device]) -> Evaluation:
    """Count the traffic of `pcg` with rank r on `devices[r] = (node name, device index)`.

    The nodes need not be free. Raises InvalidInput when the devices are not as many as the ranks,
    do not exist, or are not distinct. The accounting is described in docs/files.md.
    """
    return Evaluator(pcg, cluster)(devices)


class Evaluator:
    """`evaluate` prepared for many placements of one PCG on one cluster."""

    def __init__(self, pcg: PCG, cluster: Cluster) -> None:
        self._pcg = pcg
        self._cluster = cluster
        self._nodes = _NodeTable(cluster)
        prepared = _Prepared.of(pcg)
        self._edge_bytes, self._batches = prepared.edge_bytes, prepared.batches

    def __call__(self, devices: Sequence[Device]) -> Evaluation:
        """Traffic with rank r on `devices[r]`. Raises InvalidInput."""
        places = self._nodes.places(devices, self._pcg.world_size)
        edges = np.zeros((len(self._pcg.groups), len(self._cluster.tier_names)), dtype=np.int64)
        for batch in self._batches:
            if len(batch.groups):
                edges[batch.groups] = batch.edges_by_tier(places)
        totals = [math.fsum(column) for column in (edges * self._edge_bytes[:, None]).T.tolist()]
        return Evaluation(
            traffic_bytes=dict(zip(self._cluster.tier_names, totals, strict=True)),
            _groups=self._pcg.groups,
            _edges=edges,
            _edge_bytes=self._edge_bytes,
        )


@dataclass(frozen=True)
class _Prepared:
    """The groups of a PCG by their pattern, and bytes by edge of each group."""

    edge_bytes: npt.NDArray[np.float64]
    batches: list[_Batch]

    @classmethod
    def of(cls, pcg: PCG) -> _Prepared:
        """That of a PCG; kept for the one used last, as it takes longer than to count with it."""
        global _last
        if _last is not None and _last[0]() is pcg:
            return _last[1]
        pattern, edge_bytes = _pattern_and_edge_bytes(pcg.table)
        batches = [
            _Batch.of(one, np.flatnonzero(pattern == one.value), pcg.table) for one in _Pattern
        ]
        prepared = cls(edge_bytes, batches)
        _last = (weakref.ref(pcg), prepared)
        return prepared


_last: tuple[weakref.ref[PCG], _Prepared] | None = None


class _Pattern(Enum):
    """Which directed edges a group has; each edge of a group carries the same bytes."""

    RING = auto()
    TREE = auto()
    ALL_PAIRS = auto()
    ONE_EDGE = auto()


def _pattern_and_edge_bytes(table: GroupTable) -> tuple[Ints, npt.NDArray[np.float64]]:
    """By group the value of its pattern, and the bytes of each of its edges."""
    n, size = table.size, table.bytes
    tree = table.is_op(Op.ALL_REDUCE) & table.is_algorithm(Algorithm.TREE)
    cases = [
        (tree, _Pattern.TREE, 2 * size),
        (table.is_op(Op.ALL_REDUCE) & ~tree, _Pattern.RING, 2 * (n - 1) / n * size),
        (table.is_op(Op.ALL_GATHER, Op.REDUCE_SCATTER), _Pattern.RING, (n - 1) / n * size),
        (table.is_op(Op.ALL_TO_ALL), _Pattern.ALL_PAIRS, size / n),
        (table.is_op(Op.BROADCAST), _Pattern.TREE, size),
        (table.is_op(Op.SEND_RECV), _Pattern.ONE_EDGE, size),
    ]
    pattern, edge_bytes = np.zeros(len(table), dtype=np.int64), np.zeros(len(table))
    for chosen, one, each in cases:
        pattern[chosen] = one.value
        edge_bytes[chosen] = each[chosen]
    return pattern, edge_bytes


@dataclass(frozen=True)
class _Places:
    """Where every rank is. Ranks are columns; rows of `domains` are node, then inner tiers."""

    domains: Ints
    ring_order: Ints
    rails: Ints | None
    """None unless different rails meet only at the last tier."""

    def meeting_levels(self, senders: Ints, receivers: Ints) -> Ints:
        """Index into the tier names of the tier where each pair of ranks meets."""
        # Domains nest, so the tiers that do not join a pair are exactly those below its tier.
        levels: Ints = (self.domains[:, senders] != self.domains[:, receivers]).sum(
            axis=0, dtype=np.int64
        )
        if self.rails is not None:
            crosses = (levels > 0) & (self.rails[senders] != self.rails[receivers])
            levels[crosses] = len(self.domains)
        return levels


class _NodeTable:
    """The cluster as numbers by node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._index = {node.name: index for index, node in enumerate(cluster.nodes)}
        inner = [tier.name for tier in cluster.tiers[:-1]]
        rows = [list(range(len(cluster.nodes)))]
        for tier in inner:
            numbers: dict[str, int] = {}
            rows.append(
                [numbers.setdefault(node.domains[tier], len(numbers)) for node in cluster.nodes]
            )
        self._domains = np.array(rows, dtype=np.int64)

        def ring_key(index: int) -> tuple[str, ...]:
            node = cluster.nodes[index]
            return (*(node.domains[tier] for tier in reversed(inner)), node.name)

        self._ring_position = np.empty(len(cluster.nodes), dtype=np.int64)
        ordered = sorted(range(len(cluster.nodes)), key=ring_key)
        self._ring_position[ordered] = np.arange(len(ordered))
        self._most_devices = max((node.devices for node in cluster.nodes), default=0)

    def places(self, devices: Sequence[Device], world_size: int) -> _Places:
        """Where the ranks are. Raises InvalidInput naming each rank whose device cannot be."""
        nodes, indices = self._checked(devices, world_size)
        rails = indices % self._cluster.rails
        return _Places(
            domains=self._domains[:, nodes],
            ring_order=self._ring_position[nodes] * self._most_devices + indices,
            rails=rails if self._cluster.cross_rail is CrossRail.SPINE else None,
        )

    def _checked(self, devices: Sequence[Device], world_size: int) -> tuple[Ints, Ints]:
        plain = self._plain(devices) if len(devices) == world_size else None
        if plain is not None:
            return plain
        problems: list[Problem] = []
        if len(devices) != world_size:
            found = f"{len(devices)} devices for {world_size} ranks"
            problems.append(Problem("", found, "give one device a rank, in rank order"))
        nodes = np.zeros(len(devices), dtype=np.int64)
        indices = np.zeros(len(devices), dtype=np.int64)
        taken: dict[Device, int] = {}
        for rank, device in enumerate(devices):
            place = f"devices[{rank}]"
            if not is_device(device):
                shown = repr(device)[:60]
                problems.append(Problem(place, f"found {shown}", "give (node name, device index)"))
                continue
            name, index = device
            number = self._index.get(name)
            if number is None:
                problems.append(Problem(place, f"no node {name!r}", self._node_hint(name)))
                continue
            node = self._nodes[number]
            if not 0 <= index < node.devices:
                problems.append(_index_problem(place, index, node))
                continue
            first = taken.setdefault((name, index), rank)
            if first != rank:
                found = f"device {index} of {name} already has rank {first}"
                problems.append(Problem(place, found, "give every rank a device of its own"))
            nodes[rank], indices[rank] = number, index
        if problems:
            raise InvalidInput("devices", problems)
        return nodes, indices

    def _plain(self, devices: Sequence[Device]) -> tuple[Ints, Ints] | None:
        """Node and index of each device, all at once; None where anything is wrong with any."""
        if not all(type(d) is tuple and len(d) == 2 and type(d[1]) is int for d in devices):
            return None
        try:
            numbers = [self._index[name] for name, _ in devices]
        except (KeyError, TypeError):
            return None
        nodes = np.array(numbers, dtype=np.int64)
        counts = np.array([node.devices for node in self._nodes], dtype=np.int64)
        given = [index for _, index in devices]
        if min(given, default=0) < 0 or max(given, default=0) >= self._most_devices:
            return None
        indices = np.array(given, dtype=np.int64)
        places = nodes * self._most_devices + indices
        distinct = len(np.unique(places)) == len(places)
        return (nodes, indices) if distinct and (indices < counts[nodes]).all() else None

    def _node_hint(self, name: str) -> str:
        close = difflib.get_close_matches(name, list(self._index), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"{hint}cluster {self._cluster.name!r} has {len(self._index)} nodes"


def check_devices(devices: Sequence[Device], cluster: Cluster, world_size: int) -> None:
    """Raise InvalidInput naming each rank that has no device of its own in the cluster."""
    _NodeTable(cluster).places(devices, world_size)


def is_device(device: object) -> bool:
    """Whether it is a node's name and a device index."""
    return (
        isinstance(device, Sequence)
        and not isinstance(device, str)
        and len(device) == 2
        and isinstance(device[0], str)
        and isinstance(device[1], int | np.integer)
        and not isinstance(device[1], bool)
    )


def _index_problem(place: str, index: int, node: Node) -> Problem:
    have = f"0 to {node.devices - 1}" if node.devices else "none"
    return Problem(place, f"device index {index} out of range", f"{node.name} has {have}")


@dataclass(frozen=True)
class _Batch:
    """The groups of one pattern, their ranks laid end to end."""

    pattern: _Pattern
    groups: Ints
    sizes: Ints
    ranks: Ints
    group_of: Ints
    """For each entry of `ranks`, the group's position in `groups`."""

    @classmethod
    def of(cls, pattern: _Pattern, places: Ints, table: GroupTable) -> _Batch:
        chosen = table.taken(places)
        return cls(
            pattern=pattern,
            groups=places,
            sizes=chosen.size,
            ranks=chosen.rank,
            group_of=np.repeat(np.arange(len(places)), chosen.size),
        )

    def edges_by_tier(self, places: _Places) -> Ints:
        """Directed edges of each group (rows) whose ends meet exactly at each tier (columns)."""
        if self.pattern is _Pattern.RING:
            return self._ring_edges(places)
        if self.pattern is _Pattern.TREE:
            return self._tree_edges(places)
        if self.pattern is _Pattern.ALL_PAIRS:
            return self._pair_edges(places)
        return self._tally(places.meeting_levels(self.ranks[0::2], self.ranks[1::2]), places, 2)

    def _tally(self, levels: Ints, places: _Places, ranks_per_edge: int) -> Ints:
        tiers = len(places.domains) + 1
        keys = self.group_of[::ranks_per_edge] * tiers + levels
        return np.bincount(keys, minlength=len(self.groups) * tiers).reshape(-1, tiers)

    def _ring_edges(self, places: _Places) -> Ints:
        order = np.lexsort((places.ring_order[self.ranks], self.group_of))
        ring = self.ranks[order]
        ends = np.cumsum(self.sizes)
        follower = np.arange(1, len(ring) + 1)
        follower[ends - 1] = ends - self.sizes
        edges = self._tally(places.meeting_levels(ring, ring[follower]), places, 1)
        edges[self.sizes == 1] = 0
        return edges

    def _tree_edges(self, places: _Places) -> Ints:
        # k domains are joined by k - 1 edges, so those exactly at a tier are what that tier joins.
        parts = [self.sizes]
        for row in places.domains:
            _, owner, _ = self._parts(row[self.ranks])
            parts.append(np.bincount(owner, minlength=len(self.groups)))
        parts.append(np.ones(len(self.groups), dtype=np.int64))
        domains: Ints = np.stack(parts, axis=1)
        return domains[:, :-1] - domains[:, 1:]

    def _pair_edges(self, places: _Places) -> Ints:
        everyone = self.sizes**2
        in_node = self._pairs_sharing(places.domains[0][self.ranks])
        shared = [self.sizes, in_node]
        if places.rails is None:
            shared += [self._pairs_sharing(row[self.ranks]) for row in places.domains[1:]]
            return np.diff(np.stack([*shared, everyone], axis=1), axis=1)
        # Below the last tier only pairs of one rail meet, except inside a node.
        lanes = places.domains * (int(places.rails.max()) + 1) + places.rails
        same_lane = [self._pairs_sharing(row[self.ranks]) for row in lanes]
        at_tiers = np.diff(np.stack(same_lane, axis=1), axis=1)
        at_node = in_node - self.sizes
        at_spine = everyone - self.sizes - at_node - at_tiers.sum(axis=1)
        return np.column_stack([at_node, at_tiers, at_spine])

    def _pairs_sharing(self, labels: Ints) -> Ints:
        """Ordered pairs of a group's ranks, each with itself too, that bear the same label."""
        _, owner, counts = self._parts(labels)
        pairs = np.zeros(len(self.groups), dtype=np.int64)
        np.add.at(pairs, owner, counts**2)
        return pairs

    def _parts(self, labels: Ints) -> tuple[Ints, Ints, Ints]:
        """Distinct (group, label) keys, the group of each, and the ranks in each."""
        width = int(labels.max()) + 1
        keys, counts = np.unique(self.group_of * width + labels, return_counts=True)
        return keys, keys // width, counts
