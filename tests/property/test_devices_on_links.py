"""Devices inside nodes: the fastest links that no tier pays for, counted apart from the solver."""

from __future__ import annotations

import random
from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.constraints import Constraints, Pin
from railweave.placement.pcg import Algorithm, Group, Op
from railweave.placement.timed.node_time import node_link_seconds

DGX1 = """
X NV1 NV1 NV2 NV2 SYS SYS SYS
NV1 X NV2 NV1 SYS NV2 SYS SYS
NV1 NV2 X NV2 SYS SYS NV1 SYS
NV2 NV1 NV2 X SYS SYS SYS NV1
NV2 SYS SYS SYS X NV1 NV1 NV2
SYS NV2 SYS SYS NV1 X NV2 NV1
SYS SYS NV1 SYS NV1 NV2 X NV2
SYS SYS SYS NV1 NV2 NV1 NV2 X
"""
"""A hybrid cube mesh, as `nvidia-smi topo -m` prints it on a DGX-1 with V100s."""
PCIE = """
X PIX PHB PHB SYS SYS SYS SYS
PIX X PHB PHB SYS SYS SYS SYS
PHB PHB X PIX SYS SYS SYS SYS
PHB PHB PIX X SYS SYS SYS SYS
SYS SYS SYS SYS X PIX PHB PHB
SYS SYS SYS SYS PIX X PHB PHB
SYS SYS SYS SYS PHB PHB X PIX
SYS SYS SYS SYS PHB PHB PIX X
"""
OPS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast"]

relaxed = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def cluster(nodes: list[dict[str, Any]], links: dict[str, Any], **more: Any) -> Cluster:
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "spine")]
    every = [
        {"name": f"n{i}", "accelerator": "A", "domains": {"rack": "r0"}} | node
        for i, node in enumerate(nodes)
    ]
    described = {name: {"matrix": matrix} for name, matrix in links.items()}
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": every}
    return Cluster.parse(data | {"links": described} | more)


def pcg(world: int, *groups: tuple[str, list[int], float], **more: Any) -> PCG:
    listed = [
        {"name": f"g{i}", "op": op, "ranks": ranks, "bytes": size}
        for i, (op, ranks, size) in enumerate(groups)
    ]
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": listed} | more)


def indices(job: PCG, where: Cluster) -> list[int]:
    placement = place(job, where)
    assert len({name for name, _ in placement.devices}) == 1
    assert placement.node_link_s == node_link_seconds(job, where, placement.devices)
    return [device for _, device in placement.devices]


def brute_seconds(job: PCG, where: Cluster, devices: list[tuple[str, int]]) -> float:
    """The same count by trying every order of every ring and every tree."""
    total = 0.0
    kinds = {node.name: node.links for node in where.nodes}
    for group in job.groups:
        for name in {devices[rank][0] for rank in group.ranks}:
            kind = kinds[name]
            held = [devices[rank][1] for rank in group.ranks if devices[rank][0] == name]
            if kind is not None and len(held) > 1:
                rates = where.links[kind].bytes_per_s
                total += _brute_group(group, rates, held)
    return total


def _brute_group(group: Group, rates: tuple[tuple[float, ...], ...], held: list[int]) -> float:
    n, size = len(group.ranks), group.bytes
    tree = group.op is Op.BROADCAST or group.resolved_algorithm is Algorithm.TREE
    if group.op is Op.ALL_TO_ALL:
        return sum(size / n / rates[a][b] for a in held for b in held if a != b)
    if group.op is Op.SEND_RECV:
        return size / rates[held[0]][held[1]]
    if tree:
        joined, total = {held[0]}, 0.0
        while len(joined) < len(held):
            cost, new = min((1 / rates[a][b], b) for a in joined for b in held if b not in joined)
            total += cost
            joined.add(new)
        return total * size * (1 if group.op is Op.BROADCAST else 2)
    each = (n - 1) / n * size * (2 if group.op is Op.ALL_REDUCE else 1)
    closed = len(held) == n
    return each * min(
        sum(1 / rates[a][b] for a, b in pairwise([*way, way[0]] if closed else way))
        for way in permutations(held)
    )


def random_matrix(chance: random.Random, size: int) -> list[list[Any]]:
    made: list[list[Any]] = [["X"] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            made[a][b] = made[b][a] = chance.choice([1e9, 2e9, 4e9, 25e9, "SYS", "NV2"])
    return made


@st.composite
def jobs_in_a_node(draw: st.DrawFn) -> tuple[PCG, Cluster]:
    chance = random.Random(draw(st.integers(0, 10**9)))
    size = draw(st.integers(2, 6))
    free = sorted(chance.sample(range(size), chance.randint(2, size)))
    node = {"devices": size, "free_devices": free, "links": "any"}
    world = draw(st.integers(2, len(free)))
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(OPS))
        count = 2 if op == "send_recv" else chance.randint(2, world)
        groups.append((op, chance.sample(range(world), count), float(chance.randint(1, 9))))
    where = cluster([node], {"any": random_matrix(chance, size)})
    return pcg(world, *groups), where


@given(jobs_in_a_node())
@relaxed
def test_in_one_node_the_devices_are_the_best_of_all(case: tuple[PCG, Cluster]) -> None:
    job, where = case
    placement = place(job, where)
    free = [("n0", device) for device in where.nodes[0].usable_devices]
    every = [brute_seconds(job, where, list(way)) for way in permutations(free, job.world_size)]
    found = node_link_seconds(job, where, placement.devices)
    assert found == pytest.approx(brute_seconds(job, where, placement.devices))
    assert placement.node_link_s == found
    assert found == pytest.approx(min(every))


@given(jobs_in_a_node(), st.integers(0, 10**9))
@relaxed
def test_links_never_cost_bytes_at_any_tier(case: tuple[PCG, Cluster], seed: int) -> None:
    job, _ = case
    chance = random.Random(seed)
    rails = {"rails": chance.randint(1, 3), "cross_rail": chance.choice(["nvlink", "spine"])}
    nodes = []
    for i in range(4):
        size = chance.randint(1, 4)
        nodes.append({"devices": size, "domains": {"rack": f"r{i % 2}"}, "links": f"l{size}"})
    described = {f"l{size}": random_matrix(chance, size) for size in range(1, 5)}
    with_links = cluster(nodes, described, **rails)
    plain = Cluster.parse(
        with_links.to_data()
        | {
            "links": {},
            "nodes": [
                {k: v for k, v in n.items() if k != "links"} for n in with_links.to_data()["nodes"]
            ],
        }
    )
    if sum(node["devices"] for node in nodes) < job.world_size:
        return
    there = place(job, with_links)
    without = place(job, plain)
    assert there.traffic_bytes == pytest.approx(without.traffic_bytes)
    assert there.proved_optimal == without.proved_optimal
    assert without.node_link_s is None
    assert (there.node_link_s or 0.0) <= (
        node_link_seconds(job, with_links, without.devices) or 0.0
    ) * (1 + 1e-9)


def test_a_pair_gets_the_widest_link_that_is_free() -> None:
    job = pcg(2, ("all_reduce", [0, 1], 1e9))
    whole = {"devices": 8, "links": "dgx1"}
    assert set(indices(job, cluster([whole], {"dgx1": rows(DGX1)}))) in ({0, 3}, {0, 4})
    part = whole | {"free_devices": [0, 1, 5, 7]}
    assert set(indices(job, cluster([part], {"dgx1": rows(DGX1)}))) == {1, 5}
    pcie = cluster(
        [{"devices": 8, "links": "pcie", "free_devices": [1, 2, 4, 6, 7]}], {"pcie": rows(PCIE)}
    )
    assert set(indices(job, pcie)) == {6, 7}


def test_a_group_of_four_stays_in_one_half_of_a_cube_mesh_and_under_one_socket() -> None:
    job = pcg(4, ("all_reduce", [0, 1, 2, 3], 1e9), ("all_to_all", [0, 1, 2, 3], 1e9))
    taken = {"devices": 8, "free_devices": [1, 2, 4, 5, 6, 7]}
    for name, text in (("dgx1", DGX1), ("pcie", PCIE)):
        where = cluster([taken | {"links": name}], {name: rows(text)})
        assert set(indices(job, where)) == {4, 5, 6, 7}


def test_two_groups_of_four_share_a_cube_mesh_without_a_path_over_the_sockets() -> None:
    one, other = [0, 2, 5, 7], [1, 3, 4, 6]
    job = pcg(8, ("all_reduce", one, 1e9), ("all_reduce", other, 1e9))
    placement = place(job, cluster([{"devices": 8, "links": "dgx1"}], {"dgx1": rows(DGX1)}))
    # Each ring has three double links and a single one; four devices have no ring of double ones.
    assert placement.node_link_s == pytest.approx(2 * 1.5e9 * (3 / 50e9 + 1 / 25e9))


def test_of_nodes_that_cost_the_same_the_one_with_the_better_links_is_taken() -> None:
    job = pcg(2, ("all_gather", [0, 1], 1e9))
    nodes = [
        {"devices": 8, "links": "pcie", "free_devices": [0, 4]},
        {"devices": 8, "links": "pcie", "free_devices": [3, 5]},
        {"devices": 8, "links": "dgx1", "free_devices": [2, 7]},
        {"devices": 8, "links": "dgx1", "free_devices": [0, 2, 4]},
    ]
    where = cluster(nodes, {"dgx1": rows(DGX1), "pcie": rows(PCIE)})
    assert sorted(place(job, where).devices) == [("n3", 0), ("n3", 4)]


def test_where_all_links_are_alike_or_unknown_devices_stay_in_order() -> None:
    alike = [["X" if a == b else "NV18" for a in range(8)] for b in range(8)]
    job = pcg(4, ("all_reduce", [0, 1, 2, 3], 1e9))
    assert indices(job, cluster([{"devices": 8, "links": "hgx"}], {"hgx": alike})) == [0, 1, 2, 3]
    unknown = cluster([{"devices": 8}], {"hgx": alike})
    placement = place(job, unknown)
    assert [device for _, device in placement.devices] == [0, 1, 2, 3]
    assert placement.node_link_s is None


def test_a_large_job_has_every_tensor_group_on_near_devices() -> None:
    tensor, replicas, stages = 4, 12, 2
    number = {
        (s, d, t): (s * tensor + t) * replicas + d
        for s in range(stages)
        for d in range(replicas)
        for t in range(tensor)
    }
    groups = []
    for s in range(stages):
        for d in range(replicas):
            groups.append(("all_reduce", [number[s, d, t] for t in range(tensor)], 1e9))
        for t in range(tensor):
            groups.append(("all_reduce", [number[s, d, t] for d in range(replicas)], 1e8))
    nodes = [{"devices": 8, "links": "dgx1", "domains": {"rack": f"r{i // 5}"}} for i in range(15)]
    job, where = pcg(96, *groups), cluster(nodes, {"dgx1": rows(DGX1)})
    placement = place(job, where, time_limit_s=0.3)
    for group in job.groups:
        if len(group.ranks) == tensor:
            found = [placement.devices[rank] for rank in group.ranks]
            assert len({(name, device // 4) for name, device in found}) == 1
    assert placement.traffic_bytes == evaluate(job, where, placement.devices).traffic_bytes


def test_nodes_with_more_devices_than_can_be_tried_whole_still_get_near_ones() -> None:
    # Twenty devices in five groups of four; the first device of each group is taken but in two.
    matrix = [
        ["X" if a == b else ("NV4" if a // 4 == b // 4 else "SYS") for a in range(20)]
        for b in range(20)
    ]
    free = [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19]
    job = pcg(4, ("all_reduce", [0, 1, 2, 3], 1e9))
    node = {"devices": 20, "links": "wide", "free_devices": free}
    found = indices(job, cluster([node], {"wide": matrix}))
    assert {device // 4 for device in found} in ({2}, {4})


def test_pinned_ranks_keep_their_device_and_the_others_take_the_best_beside_it() -> None:
    job = pcg(3, ("all_reduce", [0, 1, 2], 1e9))
    where = cluster([{"devices": 8, "links": "pcie"}], {"pcie": rows(PCIE)})
    wish = Constraints(pinned=(Pin(rank=1, node="n0", device=5),))
    found = place(job, where, constraints=wish).devices
    assert found[1] == ("n0", 5)
    assert {device // 4 for _, device in found} == {1}
    assert ("n0", 4) in found
