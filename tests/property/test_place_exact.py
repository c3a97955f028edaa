"""Small jobs: place() equals the best of every possible placement, at every tier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Placement, place
from railweave.placement.evaluate import Evaluator

OPS = {
    "all_reduce": ["ring", "tree", "auto"],
    "all_gather": ["ring", "auto"],
    "reduce_scatter": ["ring", "auto"],
    "all_to_all": ["direct", "auto"],
    "send_recv": ["auto"],
    "broadcast": ["tree", "auto"],
}
UNITS = [1.0, 100.0, 0.1, 1 / 3, 123456.789, 1e15]
"""Every size of one instance is a small multiple of one of these, so that ties are ties."""


@st.composite
def clusters(draw: st.DrawFn, rails: bool) -> Cluster:
    tiers = draw(st.integers(0, 2))
    names = ["rack", "pod"][:tiers]
    nodes: list[dict[str, Any]] = []
    total = 0
    for index in range(draw(st.integers(1, 5))):
        devices = draw(st.integers(0, 3))
        rack = draw(st.integers(0, 2))
        domains = {"rack": f"r{rack}", "pod": f"p{rack % 2}"}
        node: dict[str, Any] = {
            "name": f"n{draw(st.integers(0, 9))}-{index}",
            "accelerator": draw(st.sampled_from(["A", "A", "B"])),
            "devices": devices,
            "domains": {name: domains[name] for name in names},
            "state": draw(st.sampled_from(["free"] * 6 + ["busy", "faulty"])),
        }
        if devices and draw(st.booleans()):
            node["free_devices"] = sorted(
                draw(st.sets(st.integers(0, devices - 1), max_size=devices))
            )
        total += devices
        if total > 7:
            break
        nodes.append(node)
    spec = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in [*names, "spine"]]
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "accelerators": {},
            "tiers": spec,
            "rails": draw(st.integers(2, 3)) if rails else draw(st.integers(1, 2)),
            "cross_rail": "spine" if rails else "nvlink",
            "nodes": nodes,
        }
    )


@st.composite
def pcgs(draw: st.DrawFn, most: int) -> PCG:
    world = draw(st.integers(1, most))
    unit = draw(st.sampled_from(UNITS))
    groups = []
    for index in range(draw(st.integers(0, 6))):
        op = draw(st.sampled_from(sorted(OPS)))
        if op == "send_recv" and world < 2:
            continue
        low, high = (2, 2) if op == "send_recv" else (1, world)
        ranks = draw(st.permutations(range(world)))[: draw(st.integers(low, high))]
        groups.append(
            {
                "name": f"g{index}",
                "op": op,
                "ranks": ranks,
                "bytes": draw(st.integers(0, 12)) * unit,
                "algorithm": draw(st.sampled_from(OPS[op])),
            }
        )
    requires = []
    if draw(st.integers(0, 3)) == 0:
        needy = draw(st.sets(st.integers(0, world - 1), min_size=1, max_size=2))
        requires.append({"ranks": sorted(needy), "accelerator": draw(st.sampled_from(["A", "B"]))})
    return PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": world,
            "groups": groups,
            "requires": requires,
        }
    )


def every_placement(pcg: PCG, cluster: Cluster, by_device: bool) -> Iterator[list[tuple[str, int]]]:
    """All valid placements; only one of those that differ in device alone unless by_device."""
    needs = pcg.required_accelerators()
    free = {node.name: list(node.usable_devices) for node in cluster.nodes}
    kinds = {node.name: node.accelerator for node in cluster.nodes}
    chosen: list[tuple[str, int]] = []

    def extend() -> Iterator[list[tuple[str, int]]]:
        rank = len(chosen)
        if rank == pcg.world_size:
            yield list(chosen)
            return
        for name, devices in free.items():
            if needs.get(rank, kinds[name]) != kinds[name]:
                continue
            for device in list(devices) if by_device else devices[:1]:
                devices.remove(device)
                chosen.append((name, device))
                yield from extend()
                chosen.pop()
                devices.append(device)
                devices.sort()

    yield from extend()


def assert_best(pcg: PCG, cluster: Cluster, by_device: bool) -> None:
    count = Evaluator(pcg, cluster)
    best: list[float] | None = None
    for devices in every_placement(pcg, cluster, by_device):
        cost = list(count(devices).traffic_bytes.values())[::-1]
        if best is None or less(cost, best):
            best = cost
    if best is None:
        with pytest.raises(ValueError, match="short"):
            place(pcg, cluster)
        return
    placement = place(pcg, cluster)
    assert_valid(placement, pcg, cluster)
    found = list(count(placement.devices).traffic_bytes.values())[::-1]
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9 * sum(best))
    assert placement.proved_optimal
    assert placement.lower_bound_bytes <= best[0] * (1 + 1e-9)
    assert placement.gap == pytest.approx(0.0, abs=1e-9)


def less(left: list[float], right: list[float]) -> bool:
    for one, other in zip(left, right, strict=True):
        if abs(one - other) > 1e-11 * max(one, other):
            return one < other
    return False


def assert_valid(placement: Placement, pcg: PCG, cluster: Cluster) -> None:
    free = {(node.name, device) for node in cluster.nodes for device in node.usable_devices}
    assert len(placement.devices) == pcg.world_size
    assert len(set(placement.devices)) == pcg.world_size
    assert set(placement.devices) <= free
    kinds = {node.name: node.accelerator for node in cluster.nodes}
    for rank, kind in pcg.required_accelerators().items():
        assert kinds[placement.devices[rank][0]] == kind


relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(clusters(rails=False), pcgs(5))
@relaxed
def test_a_small_job_gets_the_best_of_all_placements(cluster: Cluster, pcg: PCG) -> None:
    assert_best(pcg, cluster, by_device=False)


@given(clusters(rails=True), pcgs(4))
@relaxed
def test_where_rails_meet_only_at_the_spine_the_best_devices_are_found(
    cluster: Cluster, pcg: PCG
) -> None:
    assert_best(pcg, cluster, by_device=True)
