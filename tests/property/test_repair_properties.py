"""Repairs of small placements against all of them: the least traffic, and no move too many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Evaluator, Infeasible, Placement
from railweave.placement.repair import repair

Device = tuple[str, int]


@st.composite
def losses(draw: st.DrawFn, rails: bool) -> tuple[PCG, Cluster, Placement, list[Any]]:
    nodes: list[dict[str, Any]] = []
    slots: list[Device] = []
    for number in range(draw(st.integers(2, 5))):
        devices = draw(st.integers(1, 3))
        pod, rack = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
        nodes.append(
            {
                "name": f"n{number}",
                "accelerator": draw(st.sampled_from("AAB")),
                "devices": devices,
                "domains": {"rack": pod + rack, "pod": pod},
                "state": draw(st.sampled_from(["free"] * 5 + ["busy"])),
            }
        )
        slots += [(f"n{number}", index) for index in range(devices)]
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")]
    cluster = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "tiers": tiers,
            "rails": draw(st.integers(2, 3)),
            "cross_rail": "spine" if rails else "nvlink",
            "nodes": nodes,
        }
    )
    devices = draw(st.permutations(slots))[: draw(st.integers(1, min(6, len(slots))))]
    world = len(devices)
    groups = []
    for number in range(draw(st.integers(0, 5))):
        op = draw(st.sampled_from(["all_reduce", "all_to_all", "send_recv", "broadcast"]))
        if op == "send_recv" and world < 2:
            continue
        count = 2 if op == "send_recv" else draw(st.integers(1, world))
        ranks = draw(st.permutations(range(world)))[:count]
        size = draw(st.integers(0, 9)) * 1e9
        groups.append({"name": f"g{number}", "op": op, "ranks": ranks, "bytes": size})
    kinds = {node["name"]: node["accelerator"] for node in nodes}
    needy = sorted(draw(st.sets(st.integers(0, world - 1), max_size=2)))
    requires = [{"ranks": [r], "accelerator": kinds[devices[r][0]]} for r in needy]
    pcg = PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": world,
            "groups": groups,
            "requires": requires,
        }
    )
    traffic = Evaluator(pcg, cluster)(devices).traffic_bytes
    lost: list[Any] = draw(st.lists(st.sampled_from(sorted(kinds)), max_size=2, unique=True))
    lost += draw(st.lists(st.sampled_from(slots), max_size=2, unique=True))
    return pcg, cluster, Placement(list(devices), traffic, 0.0, False), lost


def every_repair(
    pcg: PCG, cluster: Cluster, before: list[Device], lost: list[Any], forced: set[int], most: int
) -> Iterator[list[Device]]:
    """All placements in which the forced ranks and at most `most` others have moved."""
    kept = {d for r, d in enumerate(before) if r not in forced}
    usable = {(n.name, index) for n in cluster.nodes for index in n.usable_devices} | kept
    slots = sorted(d for d in usable if d[0] not in lost and d not in lost)
    kinds = {node.name: node.accelerator for node in cluster.nodes}
    needs = pcg.required_accelerators()
    if most == 0:
        ranks = sorted(forced)
        choices: Iterator[tuple[Device, ...]] = permutations(
            [s for s in slots if s not in kept], len(ranks)
        )
    else:
        ranks = list(range(pcg.world_size))
        choices = permutations(slots, len(ranks))
    for choice in choices:
        devices = list(before)
        for rank, device in zip(ranks, choice, strict=True):
            devices[rank] = device
        others = sum(devices[r] != d for r, d in enumerate(before) if r not in forced)
        if others <= most and all(kinds[devices[r][0]] == kind for r, kind in needs.items()):
            yield devices


def check(case: tuple[PCG, Cluster, Placement, list[Any]], most: int) -> None:
    pcg, cluster, before, lost = case
    forced = {r for r, d in enumerate(before.devices) if d[0] in lost or d in lost}
    count = Evaluator(pcg, cluster)
    options = list(every_repair(pcg, cluster, before.devices, lost, forced, most))
    costs = [tuple(count(devices).traffic_bytes.values())[::-1] for devices in options]
    if not costs:
        with pytest.raises(Infeasible, match="short"):
            repair(before, pcg, cluster, lost, max_moves=most)
        return
    found = repair(before, pcg, cluster, lost, max_moves=most)
    moved = [r for r, d in enumerate(before.devices) if found.placement.devices[r] != d]
    assert found.moved == moved and set(found.forced) == forced <= set(moved)
    assert len(moved) - len(forced) <= most
    assert found.placement.devices in options
    cost = tuple(found.placement.traffic_bytes.values())[::-1]
    assert cost == pytest.approx(min(costs), rel=1e-9, abs=1.0)
    fewest = min(
        sum(new != old for new, old in zip(devices, before.devices, strict=True))
        for devices, other in zip(options, costs, strict=True)
        if other == pytest.approx(cost, rel=1e-9, abs=1.0)
    )
    assert len(moved) == fewest


relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@given(losses(rails=False))
@relaxed
def test_only_lost_ranks_move_and_the_spares_are_the_best_of_all(
    case: tuple[PCG, Cluster, Placement, list[Any]],
) -> None:
    check(case, most=0)


@given(losses(rails=True))
@relaxed
def test_where_rails_meet_only_at_the_spine_the_spares_are_the_best_of_all(
    case: tuple[PCG, Cluster, Placement, list[Any]],
) -> None:
    check(case, most=0)


@given(losses(rails=False), st.integers(1, 3))
@settings(relaxed, max_examples=30)
def test_further_moves_stay_within_their_number_and_are_the_best_of_all(
    case: tuple[PCG, Cluster, Placement, list[Any]], most: int
) -> None:
    check(case, most)
