"""Repairs under constraints: they hold for the result, and on small jobs no repair is cheaper."""

from __future__ import annotations

import random
from itertools import permutations
from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import (
    PCG,
    AtMost,
    Balanced,
    Cluster,
    Constraints,
    Evaluator,
    Infeasible,
    Pin,
    Placement,
    Segments,
    Together,
    clos_8_rail,
    evaluate,
    occupied,
    place,
    repair,
)

Device = tuple[str, int]
TIERS = ("node", "rack", "pod")


@st.composite
def cases(draw: st.DrawFn) -> tuple[PCG, Cluster, Placement, Constraints, list[Any]]:
    """A placement of at most 5 ranks that satisfies constraints, and what is lost of it."""
    nodes: list[dict[str, Any]] = []
    for number in range(draw(st.integers(3, 5))):
        pod, rack = draw(st.sampled_from("ab")), draw(st.sampled_from("xy"))
        nodes.append(
            {
                "name": f"n{number}",
                "accelerator": "A",
                "devices": draw(st.integers(1, 3)),
                "domains": {"rack": pod + rack, "pod": pod},
            }
        )
    cluster = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "tiers": [
                {"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")
            ],
            "nodes": nodes,
        }
    )
    slots = [(n["name"], index) for n in nodes for index in range(n["devices"])]
    world = draw(st.integers(2, min(5, len(slots))))
    groups = []
    for number in range(draw(st.integers(1, 3))):
        op = draw(st.sampled_from(["all_reduce", "all_to_all", "broadcast"]))
        ranks = draw(st.permutations(range(world)))[: draw(st.integers(2, world))]
        size = draw(st.integers(1, 9)) * 1e9
        groups.append({"name": f"g{number}", "op": op, "ranks": ranks, "bytes": size})
    data = {"format": "railweave.pcg/1", "world_size": world, "groups": groups}
    names = [n["name"] for n in nodes]
    tier = st.sampled_from(TIERS)
    options: dict[str, Any] = {
        "at_most": st.builds(AtMost, nodes=st.integers(1, 2), tier=st.sampled_from(TIERS[1:])),
        "together": st.builds(Together, tier=tier, required=st.booleans()),
        "segments": st.builds(Segments, ranks=st.integers(2, 3), tier=tier),
        "balanced": st.builds(Balanced, tier=tier),
        "excluded_nodes": st.lists(st.sampled_from(names), max_size=1).map(tuple),
        "whole_nodes": st.booleans(),
        "pinned": st.builds(Pin, rank=st.integers(0, world - 1), node=st.sampled_from(names)).map(
            lambda pin: (pin,)
        ),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(options)), min_size=1, max_size=2))
    wanted = {name: draw(options[name]) for name in sorted(chosen)}
    if any(pin.node in wanted.get("excluded_nodes", ()) for pin in wanted.get("pinned", ())):
        wanted.pop("excluded_nodes")
    wish = Constraints(**wanted)
    pcg = PCG.parse(data)
    try:
        before = place(pcg, cluster, 0.2, constraints=wish)
    except Infeasible:
        before = place(pcg, cluster, 0.2)
    held = sorted({name for name, _ in before.devices})
    lost: list[Any] = draw(st.lists(st.sampled_from(held), min_size=1, max_size=1))
    lost += draw(st.lists(st.sampled_from(before.devices), max_size=1))
    return pcg, cluster, before, wish, lost


@given(cases())
@settings(
    max_examples=examples(30),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_the_result_satisfies_the_constraints_and_none_with_these_moves_is_cheaper(
    case: tuple[PCG, Cluster, Placement, Constraints, list[Any]],
) -> None:
    pcg, cluster, before, wish, lost = case
    gone = {d for d in before.devices if d[0] in lost or d in lost}
    usable = cluster.with_nodes(
        tuple(
            n.model_copy(
                update={
                    "free_devices": tuple(
                        i
                        for i in range(n.devices)
                        if n.name not in lost and (n.name, i) not in lost
                    )
                }
            )
            for n in cluster.nodes
        )
    )
    slots = [(n.name, i) for n in usable.nodes for i in n.usable_devices]
    strict = wish.model_copy(update={"together": None}) if _preferred(wish) else wish
    good = [
        list(choice)
        for choice in permutations(slots, pcg.world_size)
        if not strict.broken(usable, choice)
    ]
    try:
        found = repair(before, pcg, cluster, lost, constraints=wish)
    except Infeasible as error:
        kept = [r for r, d in enumerate(before.devices) if d not in gone]
        # Refused only where the ranks that could stay cannot all stay.
        assert not any(all(g[r] == before.devices[r] for r in kept) for g in good), str(error)
        return
    devices = found.placement.devices
    assert devices in good
    assert {r for r, d in enumerate(before.devices) if d in gone} <= set(found.forced)
    assert set(found.moved) <= set(found.forced)
    if _preferred(wish):
        return  # how far it may widen is the repair's choice
    count = Evaluator(pcg, cluster)
    same = [
        g
        for g in good
        if all(g[r] == before.devices[r] for r in range(pcg.world_size) if r not in found.forced)
    ]
    costs = [tuple(count(g).traffic_bytes.values())[::-1] for g in same]
    assert tuple(found.placement.traffic_bytes.values())[::-1] == pytest.approx(min(costs))


def _preferred(wish: Constraints) -> bool:
    return wish.together is not None and not wish.together.required


def grid(stages: int, replicas: int) -> PCG:
    groups: list[dict[str, Any]] = []
    for s in range(stages):
        for t in range(8):
            ranks = [(s * replicas + d) * 8 + t for d in range(replicas)]
            groups.append({"name": f"dp{s}/{t}", "op": "all_reduce", "ranks": ranks, "bytes": 3e9})
        for d in range(replicas):
            first = (s * replicas + d) * 8
            ranks = list(range(first, first + 8))
            groups.append({"name": f"tp{s}/{d}", "op": "all_reduce", "ranks": ranks, "bytes": 9e9})
            for t in range(8 if s + 1 < stages else 0):
                ends = [first + t, first + replicas * 8 + t]
                name = f"pp{s}/{d}/{t}"
                groups.append({"name": name, "op": "send_recv", "ranks": ends, "bytes": 5e8})
    world = stages * replicas * 8
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


WISHES = {
    "at_most": Constraints(at_most=AtMost(nodes=12, tier="tor")),
    "segments of a node": Constraints(segments=Segments(ranks=8)),
    "segments of two nodes": Constraints(segments=Segments(ranks=16, tier="tor")),
    "balanced": Constraints(balanced=Balanced(tier="pod")),
    "whole nodes and spares": Constraints(whole_nodes=True, spares=4),
    "together": Constraints(together=Together(tier="pod")),
}


@pytest.mark.parametrize("name", WISHES)
@pytest.mark.parametrize("seed", [918_273_645, 5_550_123])
def test_a_job_of_many_nodes_keeps_its_constraints_and_what_stays_stays(
    name: str, seed: int
) -> None:
    cluster = occupied(clos_8_rail(12, units_per_pod=3), 0.1, seed)
    pcg = grid(4, 6) if name == "together" else grid(4, 16)
    wish = WISHES[name]
    before = place(pcg, cluster, 0.3, seed=seed, constraints=wish)
    nodes = sorted({node for node, _ in before.devices})
    lost: list[Any] = random.Random(seed).sample(nodes, 4)
    lost.append(next(d for d in before.devices if d[0] not in lost))
    found = repair(before, pcg, cluster, lost, constraints=wish, placed_on=cluster)
    gone = {node for node in lost if isinstance(node, str)}
    assert wish.model_copy(update={"spares": 0}).broken(cluster, found.placement.devices) == []
    assert not {node for node, _ in found.placement.devices} & gone
    assert found.moved == found.forced
    if name != "segments of two nodes":
        whole = name in ("segments of a node", "whole nodes and spares")
        assert len(found.forced) == 4 * 8 + (8 if whole else 1)
    assert (
        found.placement.traffic_bytes
        == evaluate(pcg, cluster, found.placement.devices).traffic_bytes
    )
    assert before.lower_bound_bytes <= found.placement.lower_bound_bytes
    if wish.spares:
        assert len(found.placement.spares) == 4 and not set(found.placement.spares) & gone


def test_further_moves_keep_the_constraints_and_help() -> None:
    cluster = occupied(clos_8_rail(12, units_per_pod=3), 0.1, 77)
    pcg = grid(4, 16)
    wish = Constraints(at_most=AtMost(nodes=12, tier="tor"), segments=Segments(ranks=8))
    before = place(pcg, cluster, 0.3, constraints=wish)
    lost = random.Random(4).sample(sorted({node for node, _ in before.devices}), 6)
    costs = []
    for most in (0, 16, 64):
        found = repair(before, pcg, cluster, lost, max_moves=most, constraints=wish)
        assert wish.broken(cluster, found.placement.devices) == []
        assert len(found.moved) - len(found.forced) <= most
        costs.append(found.placement.cross_spine_bytes)
    assert costs == sorted(costs, reverse=True)
