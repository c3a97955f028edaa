"""The time model equals a slow one that follows every byte from rank to rank."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from railweave.placement import PCG, Cluster, Op
from railweave.placement.timed.link_time import communication_time
from timed_instances import Device, instances


class Reference:
    """Seconds by phase and link, message by message."""

    def __init__(self, pcg: PCG, cluster: Cluster, devices: list[Device]) -> None:
        self.cluster, self.devices = cluster, devices
        self.node = {node.name: node for node in cluster.nodes}
        self.tiers = list(cluster.tiers)
        self.scale_up = sum(tier.scale_up for tier in self.tiers)
        self.load: defaultdict[tuple[str, Op], Counter[tuple[Any, ...]]] = defaultdict(Counter)
        self.wait: defaultdict[tuple[str, Op], float] = defaultdict(float)
        for group in pcg.groups:
            self.phase = (re.sub("[0-9]+", "*", group.name), group.op)
            self.load[self.phase]
            self.farthest = -1
            n, size = len(group.ranks), group.bytes
            tree = group.algorithm == "tree" or (
                group.op is Op.BROADCAST and group.algorithm == "auto"
            )
            doublings = math.ceil(math.log2(n)) if n > 1 else 0
            steps = 1
            if group.op is Op.ALL_REDUCE and not tree:
                self.ring(group.ranks, 2 * (n - 1) / n * size)
                steps = 2 * (n - 1)
            elif group.op is Op.ALL_REDUCE:
                self.chain(group.ranks, size, both=True)
                steps = 2 * doublings
            elif group.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER):
                self.ring(group.ranks, (n - 1) / n * size)
                steps = n - 1
            elif group.op is Op.BROADCAST:
                self.chain(group.ranks, size, both=False)
                steps = doublings if tree else n - 1 if group.algorithm == "ring" else 1
            elif group.op is Op.ALL_TO_ALL:
                for one in group.ranks:
                    for other in group.ranks:
                        if one != other:
                            self.message([one], [other], size / n)
            else:
                self.message([group.ranks[0]], [group.ranks[1]], size)
            if self.farthest >= 0:
                hop = [0.6e-6, *(tier.latency for tier in self.tiers)][self.farthest]
                self.wait[self.phase] = max(self.wait[self.phase], steps * hop)

    def total_s(self) -> float:
        return sum(max(load.values(), default=0) + self.wait[p] for p, load in self.load.items())

    def stops(self, ranks: tuple[int, ...]) -> list[list[int]]:
        """The ranks by node, nodes in ring order."""

        def key(rank: int) -> tuple[str, ...]:
            node = self.node[self.devices[rank][0]]
            return (*(node.domains[t.name] for t in self.tiers[-2::-1]), node.name)

        found: dict[str, list[int]] = {}
        for rank in sorted(ranks, key=key):
            found.setdefault(self.devices[rank][0], []).append(rank)
        return list(found.values())

    def ring(self, ranks: tuple[int, ...], size: float) -> None:
        stops = self.stops(ranks)
        for stop in stops:
            self.inside(stop, size, len(stop) - (len(stops) > 1))
        if len(stops) > 1:
            for one, other in pairwise([*stops, stops[0]]):
                self.message(one, other, size)

    def chain(self, ranks: tuple[int, ...], size: float, both: bool) -> None:
        stops = self.stops(ranks)
        for stop in stops:
            self.inside(stop, size * (2 if both else 1), len(stop) - 1)
        for one, other in pairwise(stops):
            self.message(one, other, size, aligned=False)
            if both:
                self.message(other, one, size, aligned=False)

    def inside(self, ranks: list[int], size: float, edges: int) -> None:
        """`edges` edges among the members of a node, spread evenly over them."""
        if len(ranks) > 1 and size:
            self.farthest = max(self.farthest, 0)
            for rank in ranks:
                for way in ("out", "in"):
                    speed = self.inner(self.devices[rank][0])
                    share = size * edges / len(ranks)
                    self.load[self.phase]["port", self.devices[rank], way] += share / speed

    def inner(self, name: str) -> float:
        known = {"V100": 150e9, "H100-SXM": 450e9}
        return known.get(self.node[name].accelerator, self.tiers[0].bandwidth)

    def message(
        self, senders: list[int], receivers: list[int], size: float, aligned: bool | None = None
    ) -> None:
        """Bytes from a node to another, over all members at its ends evenly."""
        if size == 0:
            return
        by_rail = self.cluster.cross_rail == "spine" if aligned is None else aligned
        rails = self.cluster.rails
        home, far = self.devices[senders[0]][0], self.devices[receivers[0]][0]
        level = self.level(home, far)
        if level == 0 or self.tiers[level - 1].scale_up:
            for ranks, way in ((senders, "out"), (receivers, "in")):
                for rank in ranks:
                    self.near(self.devices[rank], level, size / len(ranks), way)
            return
        have = Counter(self.devices[rank][1] % rails for rank in senders)
        want = Counter(self.devices[rank][1] % rails for rank in receivers)
        for rail in range(rails):
            out, into = have[rail] / len(senders), want[rail] / len(receivers)
            if not by_rail:
                out = into
            straight = min(out, into)
            self.beyond(home, rail, level, size * straight, "out")
            self.beyond(far, rail, level, size * straight, "in")
            self.beyond(home, rail, len(self.tiers), size * (out - straight), "out")
            self.beyond(far, rail, len(self.tiers), size * (into - straight), "in")

    def level(self, home: str, far: str) -> int:
        if home == far:
            return 0
        one, other = self.node[home].domains, self.node[far].domains
        for level, tier in enumerate(self.tiers[:-1], start=1):
            if one[tier.name] == other[tier.name]:
                return level
        return len(self.tiers)

    def near(self, device: Device, level: int, size: float, way: str) -> None:
        self.farthest = max(self.farthest, level)
        load = self.load[self.phase]
        nearest, tier = self.tiers[0], self.tiers[level - 1]
        slowest = 1 / self.inner(device[0])
        if level:
            slowest = max(1 / tier.bandwidth, nearest.oversubscription / nearest.bandwidth)
        load["port", device, way] += size * slowest
        for below in range(1, level):
            domain = self.node[device[0]].domains[self.tiers[below - 1].name]
            ends = sum(self.within(n, below, domain) * n.devices for n in self.cluster.nodes)
            load["up", below, domain, 0, way] += size / self.capacity(below, ends)

    def beyond(self, name: str, rail: int, level: int, size: float, way: str) -> None:
        if size <= 1e-9:
            return
        self.farthest = max(self.farthest, level)
        load = self.load[self.phase]
        nearest, tier = self.tiers[self.scale_up], self.tiers[level - 1]
        slowest = max(1 / tier.bandwidth, nearest.oversubscription / nearest.bandwidth)
        load["nic", name, rail, way] += size * slowest
        for below in range(self.scale_up + 1, level):
            domain = self.node[name].domains[self.tiers[below - 1].name]
            ends = sum(self.within(n, below, domain) for n in self.cluster.nodes)
            load["up", below, domain, rail, way] += size / self.capacity(below, ends)

    def within(self, node: Any, level: int, domain: str) -> bool:
        return bool(node.domains[self.tiers[level - 1].name] == domain)

    def capacity(self, below: int, ends: int) -> float:
        return ends * self.tiers[below].bandwidth / self.tiers[below].oversubscription


@given(instances())
@settings(
    max_examples=examples(60),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_the_model_equals_one_that_follows_every_message(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    pcg, cluster, devices = instance
    found = communication_time(pcg, cluster, devices)
    slow = Reference(pcg, cluster, devices)
    assert {(p.name, p.op) for p in found.phases} == set(slow.load)
    for phase in found.phases:
        loads = slow.load[phase.name, phase.op]
        busiest = max(loads.values(), default=0.0)
        assert phase.transfer_s == pytest.approx(busiest, rel=1e-9)
        assert phase.latency_s == pytest.approx(slow.wait[phase.name, phase.op], rel=1e-9)
        assert (phase.busiest is None) == (not loads)
    assert found.total_s == pytest.approx(slow.total_s(), rel=1e-9)
    assert found.total_s == pytest.approx(sum(p.seconds for p in found.phases), rel=1e-12)
