"""Small random clusters and PCGs for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Op

Device = tuple[str, int]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    inner = draw(st.integers(0, 3))
    tiers = [f"tier{level}" for level in range(inner)]
    nodes: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        domains = {}
        path = ""
        for tier in reversed(tiers):  # a domain's name holds its parent's, so domains nest
            path += draw(st.sampled_from("ba"))
            domains[tier] = path
        name = draw(st.sampled_from("xyz")) + str(number)
        devices = draw(st.integers(1, 4))
        nodes.append({"name": name, "accelerator": "V100", "devices": devices, "domains": domains})
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "random",
            "tiers": [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in [*tiers, "spine"]],
            "rails": draw(st.integers(1, 4)),
            "cross_rail": draw(st.sampled_from(["nvlink", "spine"])),
            "nodes": nodes,
        }
    )


@st.composite
def instances(draw: st.DrawFn) -> tuple[PCG, Cluster, list[Device]]:
    cluster = draw(clusters())
    slots = [(node.name, index) for node in cluster.nodes for index in range(node.devices)]
    devices = draw(st.permutations(slots))[: draw(st.integers(1, len(slots)))]
    world = len(devices)
    groups = []
    for number in range(draw(st.integers(0, 5))):
        op = draw(st.sampled_from(list(Op)))
        if op is Op.SEND_RECV and world < 2:
            continue
        count = 2 if op is Op.SEND_RECV else draw(st.integers(1, world))
        choices = ["auto", "tree"] if op is Op.ALL_REDUCE else ["auto"]
        groups.append(
            {
                "name": f"g{number}",
                "op": op.value,
                "ranks": draw(st.permutations(range(world)))[:count],
                "bytes": draw(st.floats(0, 1e12)),
                "algorithm": draw(st.sampled_from(choices)),
            }
        )
    data = {"format": "railweave.pcg/1", "world_size": world, "groups": groups}
    return PCG.parse(data), cluster, devices
