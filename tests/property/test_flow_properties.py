"""The connections of any placement carry exactly the bytes that the evaluator counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Op, evaluate
from railweave.placement.ecmp_hash import Crc32Hash, FiveTuple, ToeplitzHash, XorHash, packed
from railweave.placement.flows import network_flows
from railweave.placement.ports import PortPlan, plan_ports


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


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=150, deadline=None)
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
    assert plan.planned.connections == plan.least_connections <= plan.greedy.connections
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
