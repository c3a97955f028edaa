"""The connections of any placement carry exactly the bytes that the evaluator counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Op, evaluate
from railweave.placement.paths.ecmp_hash import Crc32Hash, FiveTuple, ToeplitzHash, XorHash, packed
from railweave.placement.paths.edge_colouring import least_max_load, max_load
from railweave.placement.paths.flows import network_flows
from railweave.placement.paths.planes import least_upper_load, plane_colours
from railweave.placement.paths.port_plan import PortPlan
from railweave.placement.paths.ports import Upper, plan_ports


@st.composite
def instances(draw: st.DrawFn) -> tuple[PCG, Cluster, list[tuple[str, int]]]:
    nodes: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        pod = draw(st.sampled_from("ab"))
        domains = {"tor": pod + draw(st.sampled_from("xyz")), "pod": pod}
        devices = draw(st.integers(1, 3))
        row = {"name": f"n{number}", "accelerator": "V100", "devices": devices, "domains": domains}
        nodes.append(row)
    cluster = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "random",
            "tiers": [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("tor", "pod", "sp")],
            "rails": draw(st.integers(1, 3)),
            "cross_rail": draw(st.sampled_from(["nvlink", "spine"])),
            "nodes": nodes,
        }
    )
    slots = [(node.name, index) for node in cluster.nodes for index in range(node.devices)]
    devices = draw(st.permutations(slots))[: draw(st.integers(1, len(slots)))]
    groups = []
    for number in range(draw(st.integers(0, 5))):
        op = draw(st.sampled_from(list(Op)))
        least = 2 if op is Op.SEND_RECV else 1
        if least > len(devices):
            continue
        count = 2 if op is Op.SEND_RECV else draw(st.integers(1, len(devices)))
        choices = ["auto", "tree"] if op is Op.ALL_REDUCE else ["auto"]
        groups.append(
            {
                "name": f"g{number}",
                "op": op.value,
                "ranks": draw(st.permutations(range(len(devices))))[:count],
                "bytes": draw(st.floats(1, 1e12)),
                "algorithm": draw(st.sampled_from(choices)),
            }
        )
    data = {"format": "railweave.pcg/1", "world_size": len(devices), "groups": groups}
    return PCG.parse(data), cluster, devices


@settings(max_examples=examples(100), deadline=None)
@given(instances(), st.integers(1, 3))
def test_flows_carry_what_the_evaluator_counts_at_every_tier_of_the_network(
    instance: tuple[PCG, Cluster, list[tuple[str, int]]], connections: int
) -> None:
    pcg, cluster, devices = instance
    flows = network_flows(pcg, cluster, devices, connections=connections)
    carried = dict.fromkeys(cluster.tier_names, 0.0)
    for flow in flows:
        carried[flow.tier] += flow.bytes
    counted = dict(evaluate(pcg, cluster, devices).traffic_bytes)
    counted["node"] = 0.0
    assert carried == pytest.approx(counted)
    first = cluster.tiers[0].name
    for flow in flows:
        assert (flow.source_switch == flow.destination_switch) == (flow.tier == first)


@st.composite
def two_layers(
    draw: st.DrawFn,
) -> tuple[list[tuple[int, int]], list[tuple[int, int] | None], int, int]:
    """Connections between first switches, four to a group, and the uplinks of both layers."""
    ends = st.tuples(st.integers(0, 11), st.integers(0, 11))
    pairs = draw(st.lists(ends.filter(lambda p: p[0] != p[1]), max_size=150))
    edges = [(here, 100 + there) for here, there in pairs]
    groups = [
        None if here // 4 == there // 4 else (200 + here // 4, 300 + there // 4)
        for here, there in pairs
    ]
    return edges, groups, draw(st.integers(1, 6)), draw(st.integers(1, 4))


@settings(max_examples=examples(100), deadline=None)
@given(two_layers())
def test_evening_out_the_second_layer_leaves_the_first_at_its_least(
    made: tuple[list[tuple[int, int]], list[tuple[int, int] | None], int, int],
) -> None:
    edges, groups, uplinks, upper_uplinks = made
    lower, upper = plane_colours(edges, groups, uplinks, upper_uplinks)
    assert max_load(edges, lower) == least_max_load(edges, uplinks)
    loads: Counter[tuple[int, int, int]] = Counter()
    planes: Counter[tuple[int, int]] = Counter()
    for pair, first, second in zip(groups, lower, upper, strict=True):
        assert (pair is None) == (second is None)
        for group in pair or ():
            assert second is not None
            assert 0 <= second < upper_uplinks
            planes[group, first] += 1
            loads[group, first, second] += 1
    worst = max(loads.values(), default=0)
    assert worst >= least_upper_load(groups, uplinks, upper_uplinks)
    assert worst == -(-max(planes.values(), default=0) // upper_uplinks)


@settings(max_examples=examples(60), deadline=None)
@given(instances(), st.integers(1, 3), st.integers(1, 3))
def test_with_two_layers_every_port_takes_both_uplinks(
    instance: tuple[PCG, Cluster, list[tuple[str, int]]], uplinks: int, upper_uplinks: int
) -> None:
    first, second = Crc32Hash(uplinks), Crc32Hash(upper_uplinks, shift=16)
    flows = network_flows(*instance)
    crossing = [flow for flow in flows if flow.source_switch != flow.destination_switch]
    plan = plan_ports(flows, uplinks, first, upper=Upper(upper_uplinks, second))
    assert plan.upper is not None
    assert plan.first.planned.connections == plan.first.least_connections
    assert plan.upper.planned.connections >= plan.upper.least_connections
    for flow, found in zip(crossing, plan.connections, strict=True):
        five_tuple = FiveTuple(packed(found.src), packed(found.dst), 17, found.src_port, 4791)
        assert first(five_tuple) == found.uplink
        if flow.source_group == flow.destination_group:
            assert found.upper_uplink is None
        else:
            assert second(five_tuple) == found.upper_uplink
    assert PortPlan.parse(plan.to_data()) == plan


@settings(max_examples=examples(60), deadline=None)
@given(instances(), st.integers(1, 4), st.sampled_from([Crc32Hash, XorHash, ToeplitzHash]))
def test_every_planned_port_takes_its_uplink_and_no_link_has_more_than_it_must(
    instance: tuple[PCG, Cluster, list[tuple[str, int]]],
    uplinks: int,
    kind: type[Crc32Hash | XorHash | ToeplitzHash],
) -> None:
    hash_ = kind(uplinks)
    flows = network_flows(*instance)
    crossing = [flow for flow in flows if flow.source_switch != flow.destination_switch]
    plan = plan_ports(flows, uplinks, hash_)
    assert [c.name for c in plan.connections] == [flow.name for flow in crossing]
    assert (
        plan.first.planned.connections
        == plan.first.least_connections
        <= plan.first.greedy.connections
    )
    named = set()
    for connection in plan.connections:
        key = (connection.src, connection.dst, connection.dst_port, connection.src_port)
        assert key not in named
        named.add(key)
        five_tuple = FiveTuple(
            packed(connection.src), packed(connection.dst), 17, connection.src_port, 4791
        )
        assert hash_(five_tuple) == connection.uplink
    assert PortPlan.parse(plan.to_data()) == plan
