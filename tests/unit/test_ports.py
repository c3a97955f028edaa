"""Port plans: what they promise, what they refuse, and the size they hold."""

from __future__ import annotations

import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from railweave.placement import PCG, Cluster, InvalidInput, evaluate
from railweave.placement.paths.ecmp_hash import Crc32Hash, FiveTuple, RecordedHash, packed
from railweave.placement.paths.flows import Flow, network_flows
from railweave.placement.paths.port_plan import PortPlan
from railweave.placement.paths.ports import Method, Upper, plan_ports

ROOT = Path(__file__).resolve().parents[2]


def clos(units: int, nodes_per_unit: int, cross_rail: str = "nvlink", rails: int = 8) -> Cluster:
    """Units of nodes of 8 devices under one first-tier switch a rail; 20 units a pod."""
    nodes = [
        {
            "name": f"n{number:04d}",
            "accelerator": "A100-80G",
            "devices": 8,
            "domains": {"tor": f"u{number // nodes_per_unit}"},
        }
        for number in range(units * nodes_per_unit)
    ]
    tiers = [{"name": name, "bandwidth": 25e9, "latency": 1e-6} for name in ("tor", "spine")]
    data = {"name": "clos", "tiers": tiers, "rails": rails, "cross_rail": cross_rail}
    return Cluster.parse({"format": "railweave.cluster/1", **data, "nodes": nodes})


def pcg(world_size: int, *groups: tuple[str, str, list[int], float]) -> PCG:
    rows = [dict(zip(("name", "op", "ranks", "bytes"), group, strict=True)) for group in groups]
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world_size, "groups": rows})


def flow(source: str, destination: str, name: str = "f", size: float = 1.0) -> Flow:
    return Flow(name, source, destination, f"tor-{source}", f"tor-{destination}", size)


def test_a_ring_is_one_connection_from_each_member_to_the_next_in_ring_order() -> None:
    cluster = clos(2, 2)
    devices = [("n0003", 0), ("n0000", 0), ("n0002", 0), ("n0001", 0)]
    flows = network_flows(pcg(4, ("dp", "all_reduce", [0, 1, 2, 3], 4.0)), cluster, devices)
    assert [f.name for f in flows] == [
        "dp: rank 1 -> rank 3",
        "dp: rank 3 -> rank 2",
        "dp: rank 2 -> rank 0",
        "dp: rank 0 -> rank 1",
    ]
    assert {f.bytes for f in flows} == {2 * 3 / 4 * 4.0}
    assert [f.tier for f in flows] == ["tor", "spine", "tor", "spine"]


def test_groups_of_the_same_ranks_share_their_connections() -> None:
    cluster = clos(2, 1)
    groups = [("grads", "reduce_scatter", [0, 1], 8.0), ("weights", "all_gather", [1, 0], 2.0)]
    flows = network_flows(pcg(2, *groups), cluster, [("n0000", 0), ("n0001", 0)])
    assert [(f.name, f.bytes) for f in flows] == [
        ("grads: rank 0 -> rank 1", 5.0),
        ("grads: rank 1 -> rank 0", 5.0),
    ]


def test_a_tree_and_a_ring_over_the_same_ranks_are_counted_apart() -> None:
    cluster = clos(2, 2, cross_rail="spine")
    devices = [("n0000", 0), ("n0001", 1), ("n0002", 2), ("n0003", 3)]
    rows = [
        {"name": "ring", "op": "all_reduce", "ranks": [0, 1, 2, 3], "bytes": 8.0},
        {"name": "tree", "op": "broadcast", "ranks": [0, 1, 2, 3], "bytes": 3.0},
    ]
    both = PCG.parse({"format": "railweave.pcg/1", "world_size": 4, "groups": rows})
    carried = {"tor": 0.0, "spine": 0.0}
    for found in network_flows(both, cluster, devices):
        carried[found.tier] += found.bytes
    counted = evaluate(both, cluster, devices).traffic_bytes
    assert carried == {tier: counted[tier] for tier in carried}


def test_traffic_for_another_rail_leaves_by_that_rail_unless_rails_meet_at_the_spine() -> None:
    one_send = pcg(2, ("pp", "send_recv", [0, 1], 1.0))
    devices = [("n0000", 1), ("n0001", 5)]
    (forwarded,) = network_flows(one_send, clos(2, 1), devices)
    assert (forwarded.source_switch, forwarded.destination_switch) == ("u0/rail5", "u1/rail5")
    (direct,) = network_flows(one_send, clos(2, 1, cross_rail="spine"), devices)
    assert (direct.source_switch, direct.destination_switch) == ("u0/rail1", "u1/rail5")
    (shared,) = network_flows(one_send, clos(2, 1), devices, rail_switches=False)
    assert (shared.source_switch, shared.destination_switch) == ("u0", "u1")


def test_given_addresses_are_used_and_a_missing_one_is_named() -> None:
    one_send = pcg(2, ("pp", "send_recv", [0, 1], 1.0))
    devices = [("n0000", 2), ("n0001", 2)]
    known = {("n0000", 2): "192.168.0.1", ("n0001", 2): "192.168.0.2"}
    (found,) = network_flows(one_send, clos(2, 1), devices, addresses=known)
    assert (found.source, found.destination) == ("192.168.0.1", "192.168.0.2")
    del known["n0001", 2]
    with pytest.raises(InvalidInput, match=r"addresses\['n0001', 2\]: missing; give the address"):
        network_flows(one_send, clos(2, 1), devices, addresses=known)


def test_a_rank_on_an_unknown_node_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"devices\[1\]: no node 'n9'"):
        network_flows(pcg(2), clos(2, 1), [("n0000", 0), ("n9", 0)])


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ([("n0000", 0)], "1 devices for 2 ranks; give one device a rank"),
        ([("n0000", 0), ("n0001", 8)], r"devices\[1\]: device index 8 out of range"),
        ([("n0000", 0), ("n0000", 0)], r"devices\[1\]: device 0 of n0000 already has rank 0"),
    ],
)
def test_devices_that_are_not_one_a_rank_are_named(
    devices: list[tuple[str, int]], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        network_flows(pcg(2, ("pp", "send_recv", [0, 1], 1.0)), clos(2, 1), devices)


def test_what_is_no_address_or_that_of_two_nodes_is_named() -> None:
    job, devices = pcg(2, ("pp", "send_recv", [0, 1], 1.0)), [("n0000", 0), ("n0001", 0)]
    wrong = {("n0000", 0): "10.0.0.300", ("n0001", 0): "fe80::1", ("n0002", 0): "FE80:0::1"}
    with pytest.raises(InvalidInput) as told:
        network_flows(job, clos(3, 1), devices, addresses=wrong)
    assert "addresses['n0000', 0]: found '10.0.0.300'; give an IPv4" in str(told.value)
    assert "FE80:0::1 is also the address of n0001, rail 0" in str(told.value)
    bonded = {("n0000", 0): "10.0.0.1", ("n0000", 1): "10.0.0.1", ("n0001", 0): "10.0.0.2"}
    assert len(network_flows(job, clos(2, 1), devices, addresses=bonded)) == 1


def test_flows_below_one_switch_need_no_port() -> None:
    below = Flow("f", "10.0.0.1", "10.0.0.2", "t0", "t0", 1.0)
    plan = plan_ports([below], 4, Crc32Hash(4))
    assert plan.connections == ()
    assert plan.first.least_connections == plan.first.planned.connections == 0


def test_many_connections_of_one_pair_get_distinct_ports_over_all_uplinks() -> None:
    plan = plan_ports([flow("10.0.0.1", "10.0.0.2", f"f{i}") for i in range(16)], 4, Crc32Hash(4))
    assert len({c.src_port for c in plan.connections}) == 16
    assert sorted(c.uplink for c in plan.connections) == sorted([0, 1, 2, 3] * 4)
    assert plan.first.planned.connections == plan.first.least_connections == 4


def test_a_connection_that_no_port_brings_onto_its_uplink_is_named() -> None:
    flows = [flow("10.0.0.1", "10.0.0.2", name) for name in ("first", "second")]
    with pytest.raises(InvalidInput) as caught:
        plan_ports(flows, 2, lambda five_tuple: 0)
    (problem,) = caught.value.problems
    assert problem.place == "second (10.0.0.1 -> 10.0.0.2:4791)"
    assert "none of 16384 source ports 49152-65535 takes uplink 1" in problem.found
    assert "the others reach: 0" in problem.found


def test_a_range_with_too_few_ports_is_refused() -> None:
    flows = [flow("10.0.0.1", "10.0.0.2", f"f{i}") for i in range(3)]
    with pytest.raises(InvalidInput, match="2 are taken by connections of the same two addresses"):
        plan_ports(flows, 1, lambda five_tuple: 0, ports=range(50000, 50002))


def test_a_hash_that_names_uplinks_that_do_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the hash gives uplink 7 of 4; make it return 0 to 3"):
        plan_ports([flow("10.0.0.1", "10.0.0.2")], 4, lambda five_tuple: 7)


def test_traced_paths_serve_as_the_hash_and_untraced_ports_are_not_chosen() -> None:
    traced = [("10.0.0.1", "10.0.0.2", port, 4791, port % 2) for port in (50003, 50008)]
    flows = [flow("10.0.0.1", "10.0.0.2", name) for name in ("first", "second")]
    plan = plan_ports(flows, 2, RecordedHash.from_rows(traced))
    assert {(c.src_port, c.uplink) for c in plan.connections} == {(50008, 0), (50003, 1)}
    assert plan.first.default is None


@pytest.mark.parametrize("method", list(Method))
def test_every_method_gives_ports_that_hash_to_its_uplinks(method: Method) -> None:
    hash_ = Crc32Hash(3)
    flows = [flow(f"10.0.0.{i % 4}", f"10.0.1.{i % 3}", f"f{i}") for i in range(24)]
    plan = plan_ports(flows, 3, hash_, method=method)
    for c in plan.connections:
        assert hash_(FiveTuple(packed(c.src), packed(c.dst), 17, c.src_port, 4791)) == c.uplink
    assert plan.first.planned.connections >= plan.first.least_connections
    if method is not Method.GREEDY:
        assert plan.first.planned.connections == plan.first.least_connections


@pytest.mark.parametrize("method", list(Method))
def test_both_layers_of_a_small_clos_come_out_even(method: Method) -> None:
    flows = [
        Flow(
            name=f"f{i}",
            source=f"10.0.0.{i}",
            destination=f"10.0.1.{i}",
            source_switch=f"t{i // 4}",
            destination_switch=f"t{(i // 4 + 2 + i % 2) % 8}",
            bytes=1.0,
            source_group=f"p{i // 8}",
            destination_group=f"p{(i // 4 + 2 + i % 2) % 8 // 2}",
        )
        for i in range(32)
    ]
    upper = Upper(2, Crc32Hash(2, shift=16))
    plan = plan_ports(flows, 4, Crc32Hash(4), upper=upper, method=method)
    assert plan.upper is not None
    assert all(c.upper_uplink is not None for c in plan.connections)
    if method is not Method.GREEDY:
        assert plan.first.planned.connections == plan.first.least_connections == 1
    if method is Method.COLOURING:
        assert plan.upper.planned.connections == plan.upper.least_connections == 1


def test_one_hash_for_both_layers_is_refused_by_name_where_it_leaves_uplinks_out() -> None:
    flows = [
        Flow(f"f{i}", f"10.0.0.{i}", "10.0.1.0", f"t{i}", "t9", 1.0, 4791, "", "p0", "p1")
        for i in range(4)
    ]
    with pytest.raises(
        InvalidInput, match=r"takes uplink \d then \d .* the others reach: 0 then 0"
    ):
        plan_ports(flows, 4, Crc32Hash(4), upper=Upper(4, Crc32Hash(4)))


def test_a_second_layer_that_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="has no second tier"):
        plan_ports([flow("10.0.0.1", "10.0.0.2")], 4, Crc32Hash(4), upper=Upper(2, Crc32Hash(2)))


def test_a_plan_is_written_and_read_back(tmp_path: Path) -> None:
    plan = plan_ports([flow("10.0.0.1", "10.0.0.2")], 4, Crc32Hash(4))
    plan.save(tmp_path / "ports.json")
    assert PortPlan.load(tmp_path / "ports.json") == plan


def test_a_damaged_plan_is_refused_with_the_place() -> None:
    data = plan_ports([flow("10.0.0.1", "10.0.0.2")], 4, Crc32Hash(4)).to_data()
    data["connections"][0]["src_port"] = 70000
    with pytest.raises(InvalidInput, match=r"connections\[0\]\.src_port"):
        PortPlan.parse(data)


def test_16000_devices_are_planned_at_the_least_maximum_within_seconds() -> None:
    nodes = random.Random(4).sample(range(2000), 2000)  # 100 units of 20 nodes, one ring a rail
    flows = [
        Flow(
            name=f"rail {rail}: {here} -> {there}",
            source=f"10.{rail}.{here >> 8}.{here & 255}",
            destination=f"10.{rail}.{there >> 8}.{there & 255}",
            source_switch=f"u{here // 20}/rail{rail}",
            destination_switch=f"u{there // 20}/rail{rail}",
            bytes=1e9,
        )
        for rail in range(8)
        for here, there in pairwise([*nodes, nodes[0]])
    ]
    started = time.perf_counter()
    plan = plan_ports(flows, 20, Crc32Hash(20))
    elapsed = time.perf_counter() - started
    assert len(plan.connections) > 15_700
    assert plan.first.planned.connections == plan.first.least_connections == 1
    assert plan.first.greedy.connections == 2
    assert plan.first.default is not None
    assert plan.first.default.connections > 3
    assert elapsed < 60  # 0.4 s alone; other tests share the machine


def test_the_page_on_ports_runs_as_written() -> None:
    page = (ROOT / "docs" / "ports.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    shared: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/ports.md", "exec"), shared)
