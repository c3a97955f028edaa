"""The connections a placement opens between nodes: who sends to whom, how much, over which NICs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Final

from ..cluster import Cluster, CrossRail, Node
from ..errors import InvalidInput, Problem
from ..evaluate import check_devices
from ..pcg import PCG, Algorithm, Group, Op
from .ecmp_hash import ROCE_PORT

Nic = tuple[str, int]
"""(node name, rail)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One connection and what it carries in one direction a step.

    source, destination: addresses of the two NICs.
    source_switch, destination_switch: the first switch of each; equal when the flow stays below it.
    source_group, destination_group: the switches one tier up that these lead to; equal when the
        flow stays below them, or empty where there is no such tier.
    tier: where the two devices meet.
    """

    name: str
    source: str
    destination: str
    source_switch: str
    destination_switch: str
    bytes: float
    destination_port: int = ROCE_PORT
    tier: str = ""
    source_group: str = ""
    destination_group: str = ""


def default_address(cluster: Cluster) -> Callable[[Nic], str]:
    """Made-up addresses out of 10.0.0.0/8, for studies of clusters whose real ones are unknown."""
    position = {node.name: index for index, node in enumerate(cluster.nodes)}
    first = int(IPv4Address("10.0.0.1"))

    def address(nic: Nic) -> str:
        return str(IPv4Address(first + position[nic[0]] * cluster.rails + nic[1]))

    return address


def network_flows(
    pcg: PCG,
    cluster: Cluster,
    devices: Sequence[tuple[str, int]],
    *,
    addresses: Mapping[Nic, str] | None = None,
    destination_port: int = ROCE_PORT,
    connections: int = 1,
    rail_switches: bool = True,
) -> list[Flow]:
    """Every connection between nodes, in the PCG's order, with rank r on `devices[r]`.

    Ring collectives send to the next rank in ring order, all_to_all to every other member,
    hierarchical ones along a binary tree of one representative a domain. Groups of the same ranks
    share one communicator and so the connections of its rings, and those of its trees;
    `connections` splits each evenly (channels or queue pairs). Traffic for another rail is
    forwarded inside the node to that rail's NIC first unless the cluster says `cross_rail: spine`.

    rail_switches: whether each rail has first-tier switches of its own (rail-optimised fabrics).
    Raises InvalidInput when `devices` does not give every rank a device of the cluster, and when
    `addresses` lacks a NIC in use, holds what is no IP address, or one address on two nodes.
    """
    if connections < 1:
        raise ValueError(f"connections is {connections}; give 1 or more")
    check_devices(devices, cluster, pcg.world_size)
    table = _Ranks(cluster, devices)
    communicators: dict[tuple[int, ...], int] = {}
    carried: dict[tuple[int, bool, int, int], tuple[Group, float]] = {}
    for group in pcg.groups:
        if len({table.node[rank] for rank in group.ranks}) == 1:
            continue
        members = tuple(sorted(group.ranks))
        communicator = communicators.setdefault(members, len(communicators))
        tree = _pattern(group) is Algorithm.TREE
        for sender, receiver, size in _edges(group, table):
            if table.node[sender] != table.node[receiver]:
                key = communicator, tree, sender, receiver
                first, before = carried.get(key, (group, 0.0))
                carried[key] = (first, before + size)
    address_of = _address_of(cluster, addresses)
    inner = [tier.name for tier in cluster.tiers[:-1]]
    switch_tier, group_tier = inner[0] if inner else "", inner[1] if len(inner) > 1 else ""
    flows = []
    for (_, tree, sender, receiver), (group, size) in carried.items():
        if size == 0:
            continue
        source, destination = table.nics(sender, receiver, forwarded=tree)
        for part in range(connections):
            name = f"{group.name}: rank {sender} -> rank {receiver}"
            flows.append(
                Flow(
                    name=f"{name} ({part + 1} of {connections})" if connections > 1 else name,
                    source=address_of(source),
                    destination=address_of(destination),
                    source_switch=table.switch(source, switch_tier, rail_switches),
                    destination_switch=table.switch(destination, switch_tier, rail_switches),
                    bytes=size / connections,
                    destination_port=destination_port,
                    tier=table.meeting_tier(sender, receiver, source[1] == destination[1]),
                    source_group=group_tier and table.switch(source, group_tier, rail_switches),
                    destination_group=group_tier
                    and table.switch(destination, group_tier, rail_switches),
                )
            )
    return flows


class _Ranks:
    """Where each rank is: its node, its position in ring order, its rail."""

    def __init__(self, cluster: Cluster, devices: Sequence[tuple[str, int]]) -> None:
        self._cluster = cluster
        self._by_name = {node.name: node for node in cluster.nodes}
        self.node = [name for name, _ in devices]
        self._rail = [index % cluster.rails for _, index in devices]
        inner = [tier.name for tier in cluster.tiers[:-1]]
        self._outer_first: Final = inner[::-1]
        self._path = {
            node.name: (*(node.domains[tier] for tier in self._outer_first), node.name)
            for node in cluster.nodes
        }
        self.ring_key = [(*self._path[name], index) for name, index in devices]

    def path(self, rank: int) -> tuple[str, ...]:
        """The rank's domains from the outermost inwards, then its node."""
        return self._path[self.node[rank]]

    def nics(self, sender: int, receiver: int, *, forwarded: bool) -> tuple[Nic, Nic]:
        there = self._rail[receiver]
        keeps_rail = self._cluster.cross_rail is CrossRail.SPINE and not forwarded
        here = self._rail[sender] if keeps_rail else there
        return (self.node[sender], here), (self.node[receiver], there)

    def switch(self, nic: Nic, tier: str, rail_switches: bool) -> str:
        node: Node = self._by_name[nic[0]]
        domain = node.domains[tier] if tier else self._cluster.spine
        several = rail_switches and self._cluster.rails > 1
        return f"{domain}/rail{nic[1]}" if several else domain

    def meeting_tier(self, sender: int, receiver: int, same_rail: bool) -> str:
        if same_rail or self._cluster.cross_rail is CrossRail.NVLINK:
            ends = zip(self.path(sender), self.path(receiver), strict=True)
            for tier, (here, there) in zip(self._cluster.tiers[::-1], ends, strict=True):
                if here != there:
                    return tier.name
        return self._cluster.spine


def _pattern(group: Group) -> Algorithm:
    if group.op is Op.BROADCAST:
        return Algorithm.TREE
    return Algorithm.DIRECT if group.op is Op.SEND_RECV else group.resolved_algorithm


def _edges(group: Group, table: _Ranks) -> Iterator[tuple[int, int, float]]:
    """Directed edges (sender, receiver, bytes) of a group; those inside a node may be left out."""
    n = len(group.ranks)
    pattern = _pattern(group)
    if group.op is Op.SEND_RECV:
        yield group.ranks[0], group.ranks[1], group.bytes
    elif pattern is Algorithm.DIRECT:
        for sender in group.ranks:
            for receiver in group.ranks:
                if sender != receiver:
                    yield sender, receiver, group.bytes / n
    elif pattern is Algorithm.RING:
        ring = sorted(group.ranks, key=table.ring_key.__getitem__)
        passes = 2 if group.op is Op.ALL_REDUCE else 1
        size = passes * (n - 1) / n * group.bytes
        for position, sender in enumerate(ring):
            yield sender, ring[(position + 1) % n], size
    else:
        ordered = sorted(group.ranks, key=table.ring_key.__getitem__)
        if group.op is Op.BROADCAST:
            root = group.ranks[0]
            ordered = [root, *(rank for rank in ordered if rank != root)]
        for parent, child in _tree(ordered, table, 0):
            yield parent, child, group.bytes
            if group.op is Op.ALL_REDUCE:
                yield child, parent, group.bytes


def _tree(ranks: list[int], table: _Ranks, level: int) -> Iterator[tuple[int, int]]:
    """(parent, child) pairs between nodes; the first rank is the root at every level."""
    if level == len(table.path(ranks[0])):
        return
    parts: dict[str, list[int]] = {}
    for rank in ranks:
        parts.setdefault(table.path(rank)[level], []).append(rank)
    heads = [part[0] for part in parts.values()]
    for position in range(1, len(heads)):
        yield heads[(position - 1) // 2], heads[position]
    for part in parts.values():
        yield from _tree(part, table, level + 1)


def _address_of(cluster: Cluster, addresses: Mapping[Nic, str] | None) -> Callable[[Nic], str]:
    if addresses is None:
        return default_address(cluster)
    known = addresses
    _check_addresses(known)

    def address(nic: Nic) -> str:
        found = known.get(nic)
        if found is None:
            place = f"addresses[{nic[0]!r}, {nic[1]}]"
            fix = f"give the address of the NIC on rail {nic[1]} of {nic[0]}"
            raise InvalidInput("addresses", [Problem(place, "missing", fix)])
        return found

    return address


def _check_addresses(addresses: Mapping[Nic, str]) -> None:
    """Raise InvalidInput for what is no IP address, and for one that two nodes have."""
    problems = []
    first: dict[str, Nic] = {}
    for nic, address in addresses.items():
        place = f"addresses[{nic[0]!r}, {nic[1]}]"
        try:
            plain = str(ip_address(address))
        except ValueError:
            fix = "give an IPv4 or IPv6 address such as 10.0.0.1"
            problems.append(Problem(place, f"found {address!r:.60}", fix))
            continue
        other = first.setdefault(plain, nic)
        if other[0] != nic[0]:
            found = f"{address} is also the address of {other[0]}, rail {other[1]}"
            problems.append(Problem(place, found, "give every node addresses of its own"))
    if problems:
        raise InvalidInput("addresses", problems)
