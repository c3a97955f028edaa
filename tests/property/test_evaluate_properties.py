"""The evaluator against a list of every directed edge, written out naively."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Algorithm, Cluster, Group, Op, evaluate
from random_instances import Device, instances

Edge = tuple[Device, Device, float]


class Reference:
    """The accounting of docs/files.md, one directed edge after another."""

    def __init__(self, cluster: Cluster, devices: list[Device]) -> None:
        self.cluster = cluster
        self.devices = devices
        self.inner = [tier.name for tier in cluster.tiers[:-1]]

    def domain(self, device: Device, tier: str) -> object:
        if tier == "device":
            return device
        if tier == "node":
            return device[0]
        if tier == self.cluster.spine:
            return "everything"
        return self.cluster.node(device[0]).domains[tier]

    def meets(self, a: Device, b: Device, by_rail: bool) -> str:
        rail_a, rail_b = a[1] % self.cluster.rails, b[1] % self.cluster.rails
        if by_rail and a[0] != b[0] and rail_a != rail_b:
            return self.cluster.spine
        for tier in self.cluster.tier_names:
            if self.domain(a, tier) == self.domain(b, tier):
                return tier
        raise AssertionError

    def edges(self, group: Group) -> list[Edge]:
        devices = [self.devices[rank] for rank in group.ranks]
        n, size = len(devices), group.bytes
        if group.op is Op.SEND_RECV:
            return [(devices[0], devices[1], size)]
        if group.op is Op.ALL_TO_ALL:
            return [(a, b, size / n) for a, b in permutations(devices, 2)]
        if group.op is Op.BROADCAST:
            return [(a, b, size) for a, b in self.tree(devices)]
        if group.resolved_algorithm is Algorithm.TREE:
            down = self.tree(devices)
            return [(a, b, size) for pair in down for a, b in (pair, pair[::-1])]
        factor = 2 if group.op is Op.ALL_REDUCE else 1
        tiers = ["node", *self.inner][::-1]
        ring = sorted(devices, key=lambda d: (*(str(self.domain(d, t)) for t in tiers), d[1]))
        pairs = [(ring[i], ring[(i + 1) % n]) for i in range(n)] if n > 1 else []
        return [(a, b, factor * (n - 1) / n * size) for a, b in pairs]

    def tree(self, devices: list[Device]) -> list[tuple[Device, Device]]:
        """In every domain the first child domain's representative feeds those of the others."""
        found = []
        levels = ["device", *self.cluster.tier_names]
        representatives = sorted(devices)
        for tier in levels[1:]:
            leaders: dict[object, Device] = {}
            for device in representatives:
                leader = leaders.setdefault(self.domain(device, tier), device)
                if leader != device:
                    found.append((leader, device))
            representatives = list(leaders.values())
        return found

    def traffic(self, pcg: PCG) -> dict[str, float]:
        totals = dict.fromkeys(self.cluster.tier_names, 0.0)
        spine_rails = self.cluster.cross_rail == "spine"
        for group in pcg.groups:
            is_tree = group.op is Op.BROADCAST or group.resolved_algorithm is Algorithm.TREE
            point_to_point = group.op in (Op.SEND_RECV, Op.ALL_TO_ALL)
            by_rail = spine_rails and (point_to_point or not is_tree)
            for a, b, size in self.edges(group):
                totals[self.meets(a, b, by_rail)] += size
        return totals


@settings(max_examples=examples(120), deadline=None)
@given(instances())
def test_traffic_equals_the_sum_over_every_directed_edge(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    pcg, cluster, devices = instance
    expected = Reference(cluster, devices).traffic(pcg)
    assert evaluate(pcg, cluster, devices).traffic_bytes == pytest.approx(expected, rel=1e-12)


@settings(max_examples=examples(50), deadline=None)
@given(instances())
def test_the_groups_parts_add_up_to_the_whole(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    evaluation = evaluate(*instance)
    assert [part.name for part in evaluation.by_group] == [g.name for g in instance[0].groups]
    for tier, total in evaluation.traffic_bytes.items():
        parts = sum(part.bytes_by_tier[tier] for part in evaluation.by_group)
        assert parts == pytest.approx(total, rel=1e-12)


@settings(max_examples=examples(80), deadline=None)
@given(instances(), st.randoms(use_true_random=False))
def test_the_order_of_ranks_in_a_collective_does_not_matter(
    instance: tuple[PCG, Cluster, list[Device]], random: Any
) -> None:
    pcg, cluster, devices = instance
    groups = []
    for group in pcg.groups:
        ranks = list(group.ranks)
        if group.op is not Op.SEND_RECV:
            random.shuffle(ranks)
        groups.append(group.model_copy(update={"ranks": tuple(ranks)}))
    shuffled = PCG(world_size=pcg.world_size, groups=tuple(groups))
    assert evaluate(shuffled, cluster, devices) == evaluate(pcg, cluster, devices)


@settings(max_examples=examples(80), deadline=None)
@given(instances())
def test_a_ring_crosses_a_boundary_once_for_every_domain_it_visits(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    _, cluster, devices = instance
    if cluster.cross_rail == "spine":
        cluster = Cluster.parse(cluster.to_data() | {"cross_rail": "nvlink"})
    n = len(devices)
    group = Group(name="ring", op=Op.ALL_GATHER, ranks=tuple(range(n)), bytes=float(n))
    pcg = PCG(world_size=n, groups=(group,))
    traffic = evaluate(pcg, cluster, devices).traffic_bytes
    reference = Reference(cluster, devices)
    tiers = list(cluster.tier_names)
    for position, tier in enumerate(tiers[:-1]):
        domains = len({reference.domain(device, tier) for device in devices})
        crossing = sum(traffic[upper] for upper in tiers[position + 1 :])
        assert crossing == pytest.approx((domains if domains > 1 else 0) * (n - 1))
