"""A job as the peers see it: blocks of ranks that stay together, nets between them, a domain tree.

Peers think in nodes. A block is as many ranks as every usable node can hold a whole number of
(a node of ranks where whole nodes are free), formed from the groups that say most. None of this
comes from the solver under test.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from railweave.placement import PCG, Algorithm, Cluster, Group, Op

Device = tuple[str, int]
SMALL_JOB_RANKS = 512


@dataclass
class Domain:
    """A domain with its free room, in blocks; a node has no children."""

    path: tuple[str, ...]
    capacity: int = 0
    children: list[Domain] = field(default_factory=list)
    node: int = -1

    def leaves(self) -> Iterator[Domain]:
        """Its nodes, by name."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True)
class Net:
    """Blocks that exchange bytes: k domains cost a ring k * weight, any other (k - 1) * weight."""

    pins: tuple[int, ...]
    weight: float
    ring: bool = False


class Job:
    """One benchmark instance as nets and a tree. Build it once; every peer gets the same one."""

    def __init__(self, pcg: PCG, cluster: Cluster) -> None:
        self.pcg = pcg
        self.cluster = cluster
        self.free = [(n, node.usable_devices) for n, node in enumerate(cluster.nodes)]
        self.free = [(n, devices) for n, devices in self.free if devices]
        self.block_ranks = _block_size(pcg.world_size, [len(devices) for _, devices in self.free])
        self.blocks = _blocks(pcg, self.block_ranks)
        self.block_of = [0] * pcg.world_size
        for block, ranks in enumerate(self.blocks):
            for rank in ranks:
                self.block_of[rank] = block
        self.levels = [tier.name for tier in cluster.tiers[:-1]][::-1]
        self.root = self._tree()

    def _tree(self) -> Domain:
        root = Domain(())
        known: dict[tuple[str, ...], Domain] = {(): root}
        for number, devices in self.free:
            node = self.cluster.nodes[number]
            names = (*(node.domains[level] for level in self.levels), node.name)
            capacity = len(devices) // self.block_ranks
            if not capacity:
                continue
            root.capacity += capacity
            for depth in range(1, len(names) + 1):
                path = names[:depth]
                if path not in known:
                    known[path] = Domain(path, node=number if depth == len(names) else -1)
                    known[path[:-1]].children.append(known[path])
                known[path].capacity += capacity
        for domain in known.values():
            domain.children.sort(key=lambda child: child.path)
        return root

    @cached_property
    def nodes(self) -> list[Domain]:
        """All usable nodes, in the order of their names within their domains."""
        return list(self.root.leaves())

    @cached_property
    def nets(self) -> list[Net]:
        """Traffic between blocks; nets of the same blocks are merged."""
        weight: defaultdict[tuple[bool, tuple[int, ...]], float] = defaultdict(float)
        for group in self.pcg.groups:
            pins = tuple(sorted({self.block_of[rank] for rank in group.ranks}))
            if len(pins) == 1 or group.bytes == 0:
                continue
            for ring, members, size in _traffic(group, pins, self.block_of):
                weight[ring and len(members) > 2, members] += size
        return [Net(pins, size, ring) for (ring, pins), size in weight.items() if size > 0]

    @cached_property
    def edges(self) -> dict[tuple[int, int], float]:
        """Traffic as a graph: rings as cycles over their blocks, others as they are."""
        edges: defaultdict[tuple[int, int], float] = defaultdict(float)
        for net in self.nets:
            pins = net.pins
            if len(pins) == 2:
                edges[pins[0], pins[1]] += net.weight
            else:
                for here, there in zip(pins, (*pins[1:], pins[0]), strict=True):
                    edges[min(here, there), max(here, there)] += net.weight
        return dict(edges)

    @cached_property
    def units(self) -> dict[str, list[list[int]]]:
        """Partitions of the blocks into communication groups, by name, the weightiest kinds first.

        `pipelines`: blocks joined by pairs; `rings of n`: disjoint nets of n blocks that cover all.
        """
        found: dict[str, list[list[int]]] = {}
        kinds: defaultdict[int, list[Net]] = defaultdict(list)
        for net in self.nets:
            if len(net.pins) > 2:
                kinds[len(net.pins)].append(net)
        for size, nets in sorted(kinds.items(), key=lambda k: -sum(n.weight for n in k[1]))[:3]:
            covered = {pin for net in nets for pin in net.pins}
            if len(nets) > 1 and len(covered) == len(self.blocks) == size * len(nets):
                found[f"rings of {size}"] = sorted(sorted(net.pins) for net in nets)
        chains = _chains(len(self.blocks), [net.pins for net in self.nets if len(net.pins) == 2])
        if len(chains) < len(self.blocks) and (len(chains) > 1 or not found):
            found["pipelines"] = chains
        return found

    @cached_property
    def orders(self) -> dict[str, list[int]]:
        """Orders in which blocks may be laid onto nodes: as given, and unit after unit."""
        orders = {"as given": list(range(len(self.blocks)))}
        for name, units in self.units.items():
            order = [block for unit in units for block in unit]
            if order not in orders.values():
                orders[name] = order
        return orders

    def devices(self, node_of: Sequence[int]) -> list[Device]:
        """Devices by rank from the node (its number in the cluster) of each block."""
        cursor = {number: iter(devices) for number, devices in self.free}
        placed: list[Device] = [("", 0)] * self.pcg.world_size
        for ranks, number in zip(self.blocks, node_of, strict=True):
            for rank in ranks:
                placed[rank] = (self.cluster.nodes[number].name, next(cursor[number]))
        return placed

    def laid(self, room: Sequence[tuple[Domain, int]], order: Sequence[int]) -> list[Device]:
        """Devices by rank with blocks in `order` filling nodes in the order of their names."""
        slots = [node.node for node, count in sorted(room, key=_by_path) for _ in range(count)]
        node_of = [0] * len(self.blocks)
        for block, number in zip(order, slots, strict=True):
            node_of[block] = number
        return self.devices(node_of)

    def inside(self, pod_of: Sequence[Domain]) -> list[Device]:
        """Devices by rank with every block in its domain, packed there in the best given order.

        For peers that choose outermost domains only: inside one, blocks keep to units in order.
        """
        rank_in = {block: place for place, block in enumerate(self._inner_order)}
        members: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        domains = {}
        for block, domain in enumerate(pod_of):
            members[domain.path].append(block)
            domains[domain.path] = domain
        node_of = [0] * len(self.blocks)
        for path, blocks in members.items():
            blocks.sort(key=rank_in.__getitem__)
            slots = [n.node for n in domains[path].leaves() for _ in range(n.capacity)]
            for block, number in zip(blocks, slots, strict=False):
                node_of[block] = number
        return self.devices(node_of)

    @cached_property
    def _inner_order(self) -> list[int]:
        return list(self.orders.values())[min(1, len(self.orders) - 1)]


def _block_size(world_size: int, free: Sequence[int]) -> int:
    """Ranks a block: what divides all free nodes, or for large jobs what fits most of them."""
    common = math.gcd(world_size, *free)
    if common > 1 or world_size <= SMALL_JOB_RANKS:
        return common
    return next(
        size
        for size in range(max(free), 0, -1)
        if world_size % size == 0 and sum(n // size for n in free) * size >= world_size
    )


def _by_path(item: tuple[Domain, int]) -> tuple[str, ...]:
    return item[0].path


def _blocks(pcg: PCG, size: int) -> list[tuple[int, ...]]:
    """Ranks in blocks of `size`: groups with most bytes a member are joined while they fit."""
    parent = list(range(pcg.world_size))
    members = [[rank] for rank in range(pcg.world_size)]

    def find(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for group in sorted(pcg.groups, key=lambda g: -g.bytes):
        if len(group.ranks) > size:
            continue
        roots = {find(rank) for rank in group.ranks}
        total = sum(len(members[root]) for root in roots)
        if len(roots) > 1 and total <= size and size % total == 0:
            into = min(roots)
            for root in roots - {into}:
                parent[root] = into
                members[into] += members[root]
                members[root] = []
    blocks: list[list[int]] = []
    room: defaultdict[int, list[int]] = defaultdict(
        list
    )  # open blocks by ranks they can still take
    for part in sorted((sorted(m) for m in members if m), key=lambda m: (-len(m), m)):
        fitting = [left for left in room if left >= len(part) and room[left]]
        if fitting:
            left = min(fitting)
            block = room[left].pop(0)
            blocks[block] += part
        else:
            left, block = size, len(blocks)
            blocks.append(list(part))
        if left > len(part):
            room[left - len(part)].append(block)
    return sorted(tuple(sorted(block)) for block in blocks)


def _traffic(
    group: Group, pins: tuple[int, ...], block_of: Sequence[int]
) -> Iterator[tuple[bool, tuple[int, ...], float]]:
    """(ring, blocks, bytes) of one group; all-to-all as its pairs of blocks."""
    n = len(group.ranks)
    if group.op is Op.SEND_RECV or group.op is Op.BROADCAST:
        yield False, pins, group.bytes
    elif group.op is Op.ALL_TO_ALL:
        held: defaultdict[int, int] = defaultdict(int)
        for rank in group.ranks:
            held[block_of[rank]] += 1
        for position, here in enumerate(pins):
            for there in pins[position + 1 :]:
                yield False, (here, there), 2 * held[here] * held[there] * group.bytes / n
    elif group.resolved_algorithm is Algorithm.TREE:
        yield False, pins, 2 * group.bytes
    else:
        passes = 2 if group.op is Op.ALL_REDUCE else 1
        size = passes * (n - 1) / n * group.bytes
        yield True, pins, 2 * size if len(pins) == 2 else size


def _chains(count: int, pairs: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Connected components of the pairs, each walked from its lowest block, by lowest block."""
    near: defaultdict[int, list[int]] = defaultdict(list)
    for here, there in pairs:
        near[here].append(there)
        near[there].append(here)
    chains = []
    seen: set[int] = set()
    for start in range(count):
        if start in seen:
            continue
        chain, stack = [], [start]
        while stack:
            block = stack.pop()
            if block in seen:
                continue
            seen.add(block)
            chain.append(block)
            stack += sorted(set(near[block]) - seen, reverse=True)
        chains.append(chain)
    return chains
