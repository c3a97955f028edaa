"""The time model: hand-made cases of every link that can be the slowest, and its speed."""

from __future__ import annotations

import time
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, InvalidInput, Op
from railweave.placement.timed.link_time import NIC, PORT, UPLINK, TimeModel, communication_time

RACK = {"name": "rack", "bandwidth": 10e9, "latency": 2e-6}
SPINE = {"name": "spine", "bandwidth": 10e9, "latency": 5e-6, "oversubscription": 4}


def cluster(racks: list[int], devices: int = 2, **more: Any) -> Cluster:
    """Racks of so many nodes `r<rack>n<node>`; the links out of a rack oversubscribed 4:1."""
    data = {
        "format": "railweave.cluster/1",
        "name": "c",
        "tiers": [RACK, SPINE],
        "rails": 2,
        "nodes": [
            {
                "name": f"r{r}n{n}",
                "accelerator": "V100",
                "devices": devices,
                "domains": {"rack": f"r{r}"},
            }
            for r, count in enumerate(racks)
            for n in range(count)
        ],
    }
    return Cluster.parse(data | more)


def job(world_size: int, *groups: tuple[str, str, list[int], float]) -> PCG:
    listed = [{"name": n, "op": op, "ranks": ranks, "bytes": size} for n, op, ranks, size in groups]
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world_size, "groups": listed})


def test_a_ring_in_a_node_takes_its_bytes_over_the_scale_up_bandwidth() -> None:
    found = communication_time(
        job(2, ("g", "all_reduce", [0, 1], 150e9)), cluster([1]), [("r0n0", 0), ("r0n0", 1)]
    )
    [phase] = found.phases
    assert phase.transfer_s == pytest.approx(1.0)  # 2 (n - 1) / n = 1 times 150 GB at 150 GB/s
    assert phase.latency_s == pytest.approx(2 * 0.6e-6)
    assert phase.busiest is not None
    assert phase.busiest.sort == PORT
    assert phase.tier == "node"


def test_a_ring_over_nodes_uses_the_nics_of_all_its_members() -> None:
    devices = [("r0n0", 0), ("r0n0", 1), ("r0n1", 0), ("r0n1", 1)]
    pcg = job(4, ("g", "all_gather", [0, 1, 2, 3], 40e9))
    [phase] = communication_time(pcg, cluster([2]), devices).phases
    assert phase.transfer_s == pytest.approx(30e9 / 2 / 10e9)
    assert phase.latency_s == pytest.approx(3 * 2e-6)
    assert phase.busiest is not None
    assert phase.busiest.sort == NIC


def test_an_oversubscribed_uplink_limits_what_leaves_a_rack() -> None:
    devices = [("r0n0", 0), ("r0n1", 0), ("r1n0", 0), ("r1n1", 0)]
    pcg = job(4, ("a0", "send_recv", [0, 2], 10e9), ("a1", "send_recv", [1, 3], 10e9))
    [phase] = communication_time(pcg, cluster([2, 2]), devices).phases
    # Two nodes' NICs of the rail at 10 GB/s, a quarter of it upwards: 20 GB at 5 GB/s.
    assert phase.transfer_s == pytest.approx(4.0)
    assert phase.latency_s == pytest.approx(5e-6)
    assert phase.busiest is not None
    assert (phase.busiest.sort, phase.busiest.index) == (UPLINK, 0)
    assert str(phase.busiest) == "rack r0 rail 0 uplinks, out"


def test_groups_of_one_phase_share_links_and_phases_follow_each_other() -> None:
    devices = [("r0n0", 0), ("r0n1", 0), ("r0n2", 0)]
    edges = [("send_recv", [0, 1], 10e9), ("send_recv", [0, 2], 10e9)]
    together = job(3, ("a0", *edges[0]), ("a1", *edges[1]))
    apart = job(3, ("a", *edges[0]), ("b", *edges[1]))
    assert communication_time(together, cluster([3]), devices).total_s == pytest.approx(
        2.0 + 2e-6, rel=1e-12
    )
    assert communication_time(apart, cluster([3]), devices).total_s == pytest.approx(
        2.0 + 4e-6, rel=1e-12
    )
    crosswise = job(3, ("a0", *edges[0]), ("a1", "send_recv", [2, 0], 10e9))
    assert communication_time(crosswise, cluster([3]), devices).total_s == pytest.approx(
        1.0 + 2e-6, rel=1e-12
    )


def test_phases_are_named_by_what_their_groups_share() -> None:
    pcg = job(
        3,
        ("dp/1/tp2", "all_reduce", [0, 1], 1.0),
        ("dp/0/tp10", "all_reduce", [1, 2], 1.0),
        ("dp/0/tp3", "all_gather", [1, 2], 1.0),
    )
    devices = [("r0n0", 0), ("r0n1", 0), ("r0n2", 0)]
    phases = communication_time(pcg, cluster([3]), devices).phases
    assert [(p.name, p.op, p.groups) for p in phases] == [
        ("dp/*/tp*", Op.ALL_GATHER, 1),
        ("dp/*/tp*", Op.ALL_REDUCE, 2),
    ]


def test_bytes_for_another_rail_travel_on_the_receivers_rail_or_over_the_spine() -> None:
    pcg = job(2, ("g", "send_recv", [0, 1], 10e9))
    devices = [("r0n0", 0), ("r0n1", 1)]
    [near] = communication_time(pcg, cluster([2]), devices).phases
    assert near.tier == "rack"
    assert near.busiest is not None
    assert near.busiest.index == 1
    [far] = communication_time(pcg, cluster([2], cross_rail="spine"), devices).phases
    assert far.tier == "spine"
    assert far.transfer_s == pytest.approx(10e9 / (2 * 10e9 / 4))


def test_a_scale_up_domain_wider_than_a_node_needs_no_nic() -> None:
    tiers = [RACK | {"bandwidth": 100e9, "scale_up": True}, SPINE]
    pcg = job(2, ("g", "send_recv", [0, 1], 10e9))
    [phase] = communication_time(
        pcg, cluster([2, 1], tiers=tiers), [("r0n0", 0), ("r0n1", 0)]
    ).phases
    assert phase.transfer_s == pytest.approx(0.1)
    assert phase.busiest is not None
    assert phase.busiest.sort == PORT


def test_a_group_without_bytes_or_peers_takes_no_time() -> None:
    pcg = job(2, ("a", "all_reduce", [0, 1], 0.0), ("b", "all_to_all", [1], 5e9))
    found = communication_time(pcg, cluster([2]), [("r0n0", 0), ("r0n1", 0)])
    assert found.total_s == 0.0
    assert [phase.busiest for phase in found.phases] == [None, None]


@pytest.mark.parametrize(
    ("devices", "fault"),
    [
        ([("r0n0", 0)], "1 devices for 2 ranks"),
        ([("r0n0", 0), ("r0n0", 0)], "given twice"),
        ([("r0n0", 0), ("r9n0", 0)], "no device 0 on a node 'r9n0'"),
        ([("r0n0", 0), ("r0n0", 7)], "no device 7"),
    ],
)
def test_devices_that_cannot_be_are_refused(devices: list[tuple[str, int]], fault: str) -> None:
    with pytest.raises(InvalidInput, match=fault):
        communication_time(job(2), cluster([2]), devices)


def test_sixteen_thousand_ranks_are_predicted_in_well_under_a_second() -> None:
    nodes, rails = 2048, 8
    big = cluster([32] * 64, devices=8, rails=rails)
    ranks = range(nodes * rails)
    groups: list[tuple[str, str, list[int], float]] = [
        (f"dp/{r}/{s}", "all_reduce", list(ranks[s * 1024 + r : (s + 1) * 1024 : 8]), 1e9)
        for r in range(rails)
        for s in range(16)
    ]
    groups += [
        (f"ep/{b}", "all_to_all", list(ranks[32 * b : 32 * b + 32]), 1e9) for b in range(512)
    ]
    groups += [(f"pp/{r}", "send_recv", [r, (r + 1024) % len(ranks)], 1e9) for r in ranks]
    groups += [("all", "all_reduce", list(ranks), 1e9), ("every", "all_to_all", list(ranks), 1e9)]
    model = TimeModel(job(len(ranks), *groups), big)
    devices = [(node.name, index) for node in big.nodes for index in range(8)]
    start = time.process_time()
    found = model(devices)
    assert time.process_time() - start < 7
    assert found.total_s > 0
