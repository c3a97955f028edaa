"""How long a step's communication takes on the links of a cluster, predicted from the PCG alone.

Shares no code with the search that minimises it, so that it can judge it. The model:

Groups are gathered into phases: those with the same operation and the same name but for the
numbers in it run at the same time, phases one after another (nothing overlaps). A phase takes as
long as its busiest link needs for its bytes, and then the most latency that any of its groups
waits for: its steps in turn, each as long as the latency of the farthest tier where its bytes meet.
A group counts as one call a step, as the PCG does not say how many calls share its bytes.

Links, each with two directions that do not disturb each other:

- the scale-up port of a device: what it exchanges with devices of its node or scale-up domain;
- a NIC (node, rail): what it sends or receives, at the bandwidth of the tier where the two meet;
- the uplinks of a domain on a rail: what it exchanges with devices outside of it.

A ring visits domain after domain, as `evaluate` counts it, and runs as one channel for each member
of a node: an edge between two nodes spreads evenly over the members at its ends. With `cross_rail:
nvlink` bytes travel on the receiver's rail; with `spine` as much as can goes from a rail to the
same rail, and the rest meets at the last tier (`evaluate` counts that for one channel only). Trees
and broadcasts change rails inside nodes. What is forwarded inside a node to reach a rail is left
out: it is no more than the NIC sends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..cluster import NODE_TIER, Cluster, CrossRail
from ..collectives import Exchange, Pattern, exchange
from ..ctg import Link as GraphLink
from ..errors import InvalidInput, Problem
from ..evaluate import Device
from ..group_table import OPS
from ..pcg import PCG, GroupTable, Op
from .link_flows import Flows, Members, all_pairs, between, runs_of, within
from .link_rates import Ints, LinkRates

_NUMBER = re.compile(r"\d+")
PORT = "port"
NIC = "NIC"
UPLINK = "uplinks"


@dataclass(frozen=True)
class Link:
    """A link in one direction.

    sort: PORT of device `index` of node `place`; NIC of rail `index` of node `place`; UPLINK of
        domain `place` of `tier` on rail `index`.
    """

    sort: str
    tier: str
    place: str
    index: int
    outward: bool

    def __str__(self) -> str:
        where = f"{self.tier} {self.place}"
        if self.sort == PORT:
            where += f" device {self.index} port"
        elif self.sort == NIC:
            where += f" rail {self.index} NIC"
        else:
            where += f" rail {self.index} uplinks"
        return f"{where}, {'out' if self.outward else 'in'}"


@dataclass(frozen=True)
class PhaseTime:
    """Time of the groups that run together.

    name: the name they share, with a star for each number. groups: how many there are.
    transfer_s: what the busiest link needs; latency_s: the longest wait for steps in turn.
    busiest: that link, None where no bytes move. tier: the farthest that a byte of them meets at.
    """

    name: str
    op: Op
    groups: int
    transfer_s: float
    latency_s: float
    busiest: Link | None
    tier: str

    @property
    def seconds(self) -> float:
        """How long the phase takes."""
        return self.transfer_s + self.latency_s


@dataclass(frozen=True)
class CommunicationTime:
    """Predicted time of a step's communication; phases by name."""

    total_s: float
    phases: tuple[PhaseTime, ...]


def communication_time(
    pcg: PCG,
    cluster: Cluster,
    devices: Sequence[Device],
    link_health: Mapping[GraphLink, float] | None = None,
) -> CommunicationTime:
    """Predict the communication time of a step with rank r on `devices[r]`.

    link_health: of network links by their ends in the CTG, 0 dead to 1 as built; a dead one takes
    some 10^9 times as long. Raises InvalidInput when the devices are not as many as the ranks, do
    not exist, or are not distinct.
    """
    return TimeModel(pcg, cluster, link_health)(devices)


def phases_of(pcg: PCG) -> dict[tuple[str, Op], list[int]]:
    """Groups by phase: the name with a star for each number, and the operation; by name."""
    found: dict[tuple[str, Op], list[int]] = {}
    table = pcg.table
    for index, (name, op) in enumerate(zip(table.names, table.op.tolist(), strict=True)):
        found.setdefault((_NUMBER.sub("*", name), OPS[op]), []).append(index)
    return dict(sorted(found.items()))


def _exchanges(table: GroupTable) -> tuple[list[Exchange], Ints]:
    """The different exchanges of a table, and which of them each group has."""
    columns = [table.op, table.algorithm, table.size, table.bytes.view(np.int64)]
    _, first, which = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    return [exchange(group) for group in table.taken(first).groups()], which.reshape(-1)


def _members_of(pattern: Pattern, table: GroupTable, kinds: list[Exchange], which: Ints) -> Members:
    """The groups of a pattern that move something."""
    moving = np.array([e.pattern is pattern and e.edge_bytes > 0 for e in kinds], dtype=bool)
    chosen = np.flatnonzero(moving[which] & (table.size > 1))
    found = table.taken(chosen)
    edge_bytes = np.array([e.edge_bytes for e in kinds], dtype=np.float64)
    back_bytes = np.array([e.back_bytes for e in kinds], dtype=np.float64)
    return Members(
        group=chosen,
        edge_bytes=edge_bytes[which[chosen]],
        back_bytes=back_bytes[which[chosen]],
        owner=np.repeat(np.arange(len(chosen)), found.size),
        rank=found.rank,
    )


class TimeModel:
    """`communication_time` prepared for many placements of one PCG on one cluster."""

    def __init__(
        self,
        pcg: PCG,
        cluster: Cluster,
        link_health: Mapping[GraphLink, float] | None = None,
    ) -> None:
        self._pcg = pcg
        self._cluster = cluster
        self._rates = LinkRates.of(cluster, link_health)
        self._phases = phases_of(pcg)
        table = pcg.table
        self._phase_of = np.zeros(len(table), dtype=np.int64)
        for phase, groups in enumerate(self._phases.values()):
            self._phase_of[groups] = phase
        kinds, which = _exchanges(table)
        self._steps = np.array([e.steps for e in kinds], dtype=np.int64)[which]
        self._members = {pattern: _members_of(pattern, table, kinds, which) for pattern in Pattern}
        names = {node.name: number for number, node in enumerate(cluster.nodes)}
        self._number = names
        inner = [tier.name for tier in reversed(cluster.tiers[:-1])]

        def key(number: int) -> tuple[str, ...]:
            node = cluster.nodes[number]
            return (*(node.domains[tier] for tier in inner), node.name)

        self._position = np.empty(len(cluster.nodes), dtype=np.int64)
        self._position[sorted(range(len(cluster.nodes)), key=key)] = np.arange(len(cluster.nodes))

    def __call__(self, devices: Sequence[Device]) -> CommunicationTime:
        """Predict for one placement. Raises InvalidInput."""
        node, index = self._places(devices)
        flows = self._flows(node, index % self._cluster.rails)
        phases = self._phase_times(flows, node, index)
        return CommunicationTime(math.fsum(p.seconds for p in phases), tuple(phases))

    def _places(self, devices: Sequence[Device]) -> tuple[Ints, Ints]:
        """Node number and device index by rank."""
        problems = []
        if len(devices) != self._pcg.world_size:
            found = f"{len(devices)} devices for {self._pcg.world_size} ranks"
            problems.append(Problem("", found, "give one device a rank, in rank order"))
        seen: set[Device] = set()
        for rank, (name, index) in enumerate(devices):
            number = self._number.get(name)
            if number is None or not 0 <= index < self._cluster.nodes[number].devices:
                found = f"no device {index} on a node {name!r}"
                problems.append(Problem(f"devices[{rank}]", found, "name one of the cluster"))
            elif (name, index) in seen:
                found = f"device {index} of {name} given twice"
                problems.append(Problem(f"devices[{rank}]", found, "give every rank its own"))
            seen.add((name, index))
        if problems:
            raise InvalidInput("devices", problems)
        count = len(devices)
        return (
            np.fromiter((self._number[name] for name, _ in devices), np.int64, count),
            np.fromiter((index for _, index in devices), np.int64, count),
        )

    def _flows(self, node: Ints, rail: Ints) -> Flows:
        rates = self._rates
        aligned = self._cluster.cross_rail is CrossRail.SPINE and self._cluster.rails > 1
        order = self._position[node]
        found: list[Flows] = []
        members = self._members[Pattern.RING]
        if len(members.group):
            runs = runs_of(members, node, rail, order)
            follower = np.arange(1, runs.count + 1)
            follower[runs.last_of_group] = runs.first_of_group
            apart = np.flatnonzero(follower != np.arange(runs.count))
            size = members.edge_bytes[runs.owner]
            found.append(within(runs, size, closed=True))
            found.append(between(rates, runs, apart, follower[apart], size[apart], aligned))
        members = self._members[Pattern.CHAIN]
        if len(members.group):
            runs = runs_of(members, node, rail, order)
            each = np.arange(runs.count)
            inner = np.ones(runs.count, dtype=bool)
            inner[runs.last_of_group] = False
            one, other = each[inner], each[inner] + 1
            ahead, back = members.edge_bytes[runs.owner], members.back_bytes[runs.owner]
            found.append(within(runs, ahead + back, closed=False))
            found.append(between(rates, runs, one, other, ahead[one], aligned=False))
            found.append(between(rates, runs, other, one, back[one], aligned=False))
        members = self._members[Pattern.ONE_EDGE]
        if len(members.group):
            runs = runs_of(members, node, rail, np.zeros_like(order), split=True)
            one = np.arange(0, runs.count, 2)
            size = members.edge_bytes[runs.owner[one]]
            found.append(between(rates, runs, one, one + 1, size, aligned))
        members = self._members[Pattern.ALL_PAIRS]
        if len(members.group):
            found.append(all_pairs(rates, members, node, rail, order, aligned))
        return Flows.joined(found)

    def _phase_times(self, flows: Flows, node: Ints, index: Ints) -> list[PhaseTime]:
        rates, rails = self._rates, self._cluster.rails
        links, phase, seconds = [], [], []
        starts = [0, 2 * len(node), 2 * len(node) + 2 * rails * rates.domain.shape[1]]
        for table in rates.uplink_s_per_byte:
            starts.append(starts[-1] + 2 * rails * len(table))
        of_flow = self._phase_of[flows.group]
        near = flows.level < rates.first_network
        links.append(2 * flows.rank[near] + flows.inward[near])
        phase.append(of_flow[near])
        seconds.append(
            flows.bytes[near] * rates.port_s_per_byte[node[flows.rank[near]], flows.level[near]]
        )
        far = ~near
        nic = flows.node[far] * rails + flows.rail[far]
        links.append(starts[1] + 2 * nic + flows.inward[far])
        phase.append(of_flow[far])
        slower = rates.nic_slower[flows.node[far], flows.rail[far]]
        seconds.append(flows.bytes[far] * rates.nic_s_per_byte[flows.level[far]] * slower)
        for level, table in enumerate(rates.uplink_s_per_byte):
            if not len(table):
                continue
            same_sort = near if level < rates.first_network else far
            crossing = same_sort & (flows.level > level)
            domain = rates.domain[level, flows.node[crossing]]
            lane = flows.rail[crossing] if level >= rates.first_network else 0
            links.append(starts[2 + level] + 2 * (domain * rails + lane) + flows.inward[crossing])
            phase.append(of_flow[crossing])
            slower = rates.uplink_slower[level][domain, lane]
            seconds.append(flows.bytes[crossing] * table[domain] * slower)
        keys = np.concatenate(phase) * starts[-1] + np.concatenate(links)
        busy, which = np.unique(keys, return_inverse=True)
        load = np.bincount(which, weights=np.concatenate(seconds), minlength=len(busy))
        waits, farthest = self._waits(flows)
        found = []
        edges = np.searchsorted(busy, np.arange(len(self._phases) + 1) * starts[-1])
        for number, ((name, op), groups) in enumerate(self._phases.items()):
            part = slice(edges[number], edges[number + 1])
            transfer, link = 0.0, None
            if edges[number] < edges[number + 1]:
                top = int(np.argmax(load[part])) + int(edges[number])
                transfer = float(load[top])
                link = self._link(int(busy[top]) % starts[-1], starts, node, index)
            tier = self._cluster.tier_names[int(farthest[groups].max())]
            latency = float(waits[groups].max())
            found.append(PhaseTime(name, op, len(groups), transfer, latency, link, tier))
        return found

    def _waits(self, flows: Flows) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], Ints]:
        """By group the seconds that its steps take in turn, and the farthest level of a byte."""
        farthest = np.zeros(len(self._phase_of), dtype=np.int64)
        np.maximum.at(farthest, flows.group, flows.level)
        moving = np.zeros(len(self._phase_of), dtype=bool)
        moving[flows.group] = True
        return np.where(moving, self._steps * self._rates.latency_s[farthest], 0.0), farthest

    def _link(self, key: int, starts: list[int], node: Ints, index: Ints) -> Link:
        cluster, rails = self._cluster, self._cluster.rails
        outward = key % 2 == 0
        if key < starts[1]:
            rank = key // 2
            name = cluster.nodes[int(node[rank])].name
            return Link(PORT, NODE_TIER, name, int(index[rank]), outward)
        if key < starts[2]:
            number, rail = divmod((key - starts[1]) // 2, rails)
            return Link(NIC, NODE_TIER, cluster.nodes[number].name, rail, outward)
        level = next(at for at in range(len(starts) - 3) if key < starts[at + 3])
        domain, rail = divmod((key - starts[2 + level]) // 2, rails)
        member = int(np.flatnonzero(self._rates.domain[level] == domain)[0])
        tier = cluster.tier_names[level]
        return Link(UPLINK, tier, cluster.nodes[member].domains[tier], rail, outward)
