"""Small random clusters of uneven speeds and jobs of every operation, to predict times of."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Op

Device = tuple[str, int]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to 7 nodes of 1 to 4 devices, up to 3 inner tiers, of any speeds."""
    inner = draw(st.integers(0, 3))
    cross_rail = draw(st.sampled_from(["nvlink", "nvlink", "spine"]))
    scale_up = draw(st.integers(0, inner)) if cross_rail == "nvlink" else 0
    names = [*(f"tier{level}" for level in range(inner)), "spine"]
    tiers = [
        {
            "name": name,
            "bandwidth": draw(st.sampled_from([1e9, 2e9, 5e9])),
            "latency": draw(st.sampled_from([0.0, 1e-6, 4e-6])),
            "oversubscription": draw(st.sampled_from([1.0, 1.0, 3.0])),
            "scale_up": level < scale_up,
        }
        for level, name in enumerate(names)
    ]
    nodes: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 7))):
        path, domains = "", {}
        for name in reversed(names[:-1]):
            path += draw(st.sampled_from("ba"))
            domains[name] = path
        nodes.append(
            {
                "name": draw(st.sampled_from("xyz")) + str(number),
                "accelerator": draw(st.sampled_from(["V100", "H100-SXM", "unheard of"])),
                "devices": draw(st.integers(1, 4)),
                "domains": domains,
            }
        )
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "random",
            "tiers": tiers,
            "rails": draw(st.integers(1, 4)),
            "cross_rail": cross_rail,
            "nodes": nodes,
        }
    )


@st.composite
def jobs(draw: st.DrawFn, world: int) -> PCG:
    """Up to 6 groups of every operation and algorithm, in phases of one or several groups."""
    algorithms = {
        Op.ALL_REDUCE: ["ring", "tree", "auto"],
        Op.BROADCAST: ["ring", "tree", "direct", "auto"],
    }
    groups = []
    for number in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from(list(Op)))
        if op is Op.SEND_RECV and world < 2:
            continue
        count = 2 if op is Op.SEND_RECV else draw(st.integers(1, world))
        groups.append(
            {
                "name": draw(st.sampled_from(["g", "h"])) + f"{number}",
                "op": op.value,
                "ranks": draw(st.permutations(range(world)))[:count],
                "bytes": draw(st.sampled_from([0.0, 1e6, 3e9, 7e8])),
                "algorithm": draw(st.sampled_from(algorithms.get(op, ["auto"]))),
            }
        )
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


@st.composite
def instances(draw: st.DrawFn) -> tuple[PCG, Cluster, list[Device]]:
    cluster = draw(clusters())
    slots = [(node.name, index) for node in cluster.nodes for index in range(node.devices)]
    devices = draw(st.permutations(slots))[: draw(st.integers(1, len(slots)))]
    return draw(jobs(len(devices))), cluster, devices
