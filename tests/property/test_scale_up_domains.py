"""Scale-up domains, of a node or wider: tensor-parallel groups stay whole; kinds stay apart."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Infeasible, evaluate, place
from railweave.placement.constraints import Constraints, Pin, SameKind
from railweave.placement.fabrics import nvl_domains
from railweave.placement.jobs.tensor_groups import split_groups

relaxed = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def grid(stages: int, replicas: int, tensor: int, shuffle: int = 0, experts: int = 0) -> PCG:
    world = stages * replicas * tensor
    ids = list(range(world))
    if shuffle:
        random.Random(shuffle).shuffle(ids)
    number = np.array(ids).reshape(stages, replicas, tensor)
    groups: list[dict[str, Any]] = []

    def add(kind: str, op: str, ranks: Any, size: float) -> None:
        name = f"{kind}/{len(groups)}"
        groups.append({"name": name, "op": op, "ranks": [int(r) for r in ranks], "bytes": size})

    for s in range(stages):
        for d in range(replicas):
            add("tp", "all_reduce", number[s, d], 40e9)
            if s + 1 < stages:
                for t in range(tensor):
                    add("pp", "send_recv", number[s : s + 2, d, t], 3e8)
        for t in range(tensor):
            add("dp", "all_reduce", number[s, :, t], 4e9)
        for d in range(0, replicas if experts else 0, experts or 1):
            add("ep", "all_to_all", number[s, d : d + experts].ravel(), 2e9)
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def partial_racks(racks: int, missing: float, seed: int) -> Cluster:
    """NVL72 racks, four to a pod, of which some nodes are not there."""
    whole = nvl_domains(racks, domains_per_pod=4)
    chance = random.Random(seed)
    return whole.with_nodes(tuple(n for n in whole.nodes if chance.random() >= missing))


@pytest.mark.parametrize("tensor", [8, 24, 64])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_tensor_groups_wider_than_a_node_stay_in_one_scale_up_domain(
    tensor: int, missing: float
) -> None:
    racks = 8
    where = partial_racks(racks, missing, seed=tensor)
    inside = dict.fromkeys((n.domains["nvl"] for n in where.nodes), 0)
    for node in where.nodes:
        inside[node.domains["nvl"]] += node.devices
    whole = sum(room // tensor for room in inside.values())
    replicas = min(6, whole // 2)
    assert replicas > 0, "some racks of these seeds are whole"
    job = grid(2, replicas, tensor, shuffle=tensor)
    placement = place(job, where, time_limit_s=0.3)
    assert split_groups(job, where, placement.devices) == []
    assert placement.traffic_bytes == evaluate(job, where, placement.devices).traffic_bytes


def test_expert_groups_wider_than_a_node_are_blocks_of_a_scale_up_domain() -> None:
    job, where = grid(2, 8, 8, shuffle=3, experts=8), partial_racks(8, 0.05, seed=5)
    placement = place(job, where, time_limit_s=0.3)
    domain = {node.name: node.domains["nvl"] for node in where.nodes}
    for group in job.groups:
        if group.name.startswith(("ep", "tp")):
            assert len({domain[placement.devices[rank][0]] for rank in group.ranks}) == 1


def small(free: list[int], tensor: int, groups: int, spread: float) -> tuple[PCG, Cluster]:
    """A ring through all ranks and tensor groups that are cheaper to split than the ring is."""
    ranks = list(range(tensor * groups))
    listed = [{"name": "dp/0", "op": "all_reduce", "ranks": ranks, "bytes": spread}]
    for g in range(groups):
        held = ranks[g * tensor : (g + 1) * tensor]
        listed.append({"name": f"tp/{g}", "op": "all_reduce", "ranks": held, "bytes": 1.0})
    job = PCG.parse({"format": "railweave.pcg/1", "world_size": len(ranks), "groups": listed})
    nodes = [
        {
            "name": f"n{i}",
            "accelerator": "A",
            "devices": 8,
            "free_devices": list(range(count)),
            "domains": {"pod": f"p{i // 2}"},
        }
        for i, count in enumerate(free)
    ]
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "small", "tiers": tiers, "nodes": nodes}
    return job, Cluster.parse(data)


def test_a_tensor_group_is_not_split_to_save_spine_traffic_unless_the_request_says_so() -> None:
    # One pod has eight devices, but no node of it four; the nodes with four are in two pods.
    job, where = small([4, 1, 3, 3, 4, 1], 4, 2, 100.0)
    where = where.with_nodes(
        tuple(
            node.model_copy(update={"domains": {"pod": pod}})
            for node, pod in zip(where.nodes, ["a", "a", "b", "b", "c", "c"], strict=True)
        )
    )
    bigger = where.with_nodes(
        (*where.nodes, where.nodes[2].model_copy(update={"name": "n6", "domains": {"pod": "b"}}))
    )
    kept = place(job, bigger)
    assert split_groups(job, bigger, kept.devices) == []
    assert kept.cross_spine_bytes > 0
    lifted = place(job, bigger, constraints=Constraints(split_tensor_groups=True))
    assert lifted.cross_spine_bytes == 0
    assert split_groups(job, bigger, lifted.devices) != []


def test_the_rule_keeps_pins_and_says_when_it_cannot_be_kept() -> None:
    job, where = small([4, 4, 3, 3], 4, 2, 100.0)
    pinned = Constraints(pinned=(Pin(rank=5, node="n0", device=2),))
    placement = place(job, where, constraints=pinned)
    assert placement.devices[5] == ("n0", 2)
    assert split_groups(job, where, placement.devices) == []
    job, where = small([4, 3, 3, 3], 4, 2, 100.0)
    placement = place(job, where)
    assert len(split_groups(job, where, placement.devices)) >= 1
    assert any("tensor-parallel groups are split" in note for note in placement.notes)


@given(st.integers(0, 10**6))
@relaxed
def test_whole_groups_cost_the_least_of_all_placements_that_keep_them(seed: int) -> None:
    chance = random.Random(seed)
    job, where = small([chance.randint(1, 4) for _ in range(4)], 2, 2, 10.0)
    free = {node.name: len(node.usable_devices) for node in where.nodes}
    least: list[float] | None = None
    for homes in product(free, repeat=2):
        if all(2 * homes.count(name) <= free[name] for name in homes):
            taken = dict.fromkeys(free, 0)
            devices = []
            for home in homes:
                devices += [(home, taken[home]), (home, taken[home] + 1)]
                taken[home] += 2
            cost = list(evaluate(job, where, devices).traffic_bytes.values())[::-1]
            least = cost if least is None or cost < least else least
    if sum(free.values()) < job.world_size:
        return
    placement = place(job, where)
    if least is None:
        assert split_groups(job, where, placement.devices) != [] or max(free.values()) < 2
        return
    assert split_groups(job, where, placement.devices) == []
    assert list(placement.traffic_bytes.values())[::-1] == pytest.approx(least)
    assert placement.lower_bound_bytes <= least[0] * (1 + 1e-9)


def two_kinds(counts: list[tuple[str, int, str]]) -> Cluster:
    nodes = [
        {"name": f"n{i}", "accelerator": kind, "devices": count, "domains": {"pod": pod}}
        for i, (kind, count, pod) in enumerate(counts)
    ]
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "kinds", "tiers": tiers, "nodes": nodes}
    return Cluster.parse(data)


def kinds_of(where: Cluster, devices: list[tuple[str, int]]) -> list[str]:
    kind = {node.name: node.accelerator for node in where.nodes}
    return [kind[name] for name, _ in devices]


def test_a_job_on_one_kind_takes_the_kind_that_costs_least_and_is_bounded() -> None:
    where = two_kinds([("A", 4, "p"), ("B", 2, "p"), ("B", 2, "q"), ("B", 4, "q"), ("A", 4, "q")])
    job = grid(1, 3, 2)
    anyhow = place(job, where)
    wish = Constraints(same_kind=SameKind(per="job"))
    placement = place(job, where, constraints=wish)
    assert set(kinds_of(where, placement.devices)) == {"B"}
    assert placement.proved_optimal
    assert placement.cross_spine_bytes >= anyhow.cross_spine_bytes
    assert wish.broken(where, placement.devices) == []
    assert wish.broken(where, [("n0", 0), ("n1", 0)]) != []


def test_stages_may_differ_in_kind_but_none_mixes_them() -> None:
    where = two_kinds([("A", 4, "p"), ("B", 4, "p"), ("A", 4, "q"), ("B", 4, "q")])
    job = grid(2, 4, 2, shuffle=4)
    placement = place(job, where, constraints=Constraints(same_kind=SameKind()))
    found = kinds_of(where, placement.devices)
    for group in job.groups:
        if not group.name.startswith("pp"):
            assert len({found[rank] for rank in group.ranks}) == 1
    with pytest.raises(Infeasible, match="same_kind: the whole job on one kind"):
        place(job, where, constraints=Constraints(same_kind=SameKind(per="job")))


def test_without_a_wish_any_kind_serves_any_rank() -> None:
    where = two_kinds([("A", 4, "p"), ("B", 4, "p"), ("A", 8, "q")])
    placement = place(grid(1, 4, 2), where)
    assert placement.cross_spine_bytes == 0.0


@given(st.integers(0, 10**6))
@relaxed
def test_many_stages_on_kinds_of_their_own_are_as_good_as_all_ways(seed: int) -> None:
    chance = random.Random(seed)
    where = two_kinds(
        [(chance.choice("AB"), chance.randint(2, 4), chance.choice("pq")) for _ in range(6)]
    )
    job = grid(2, 2, 2, shuffle=seed + 1)
    room = dict.fromkeys("AB", 0)
    for node in where.nodes:
        room[node.accelerator] += node.devices
    best = float("inf")
    stages = [
        sorted({rank for g in job.groups if g.name.startswith("dp") for rank in g.ranks} & part)
        for part in _stages(job)
    ]
    for kinds in product("AB", repeat=2):
        if all(room[k] >= 4 * kinds.count(k) for k in kinds):
            needs = [
                {"ranks": ranks, "accelerator": kind}
                for ranks, kind in zip(stages, kinds, strict=True)
            ]
            best = min(
                best, place(PCG.parse(job.to_data() | {"requires": needs}), where).cross_spine_bytes
            )
    wish = Constraints(same_kind=SameKind())
    if best == float("inf"):
        with pytest.raises(Infeasible):
            place(job, where, constraints=wish)
        return
    found = place(job, where, constraints=wish)
    assert found.cross_spine_bytes == pytest.approx(best)
    assert found.lower_bound_bytes <= best * (1 + 1e-9)


def _stages(job: PCG) -> list[set[int]]:
    parts: list[set[int]] = []
    for group in job.groups:
        if group.name.startswith("pp"):
            continue
        mine = set(group.ranks)
        for part in [part for part in parts if part & mine]:
            mine |= part
            parts.remove(part)
        parts.append(mine)
    return parts
