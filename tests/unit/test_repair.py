"""Repairing a placement: what moves, where to, and what is told when it cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import PCG, Cluster, Infeasible, InvalidInput, Placement, evaluate, place
from railweave.placement.repair import repair


def fabric(pods: int = 2, racks: int = 2, nodes: int = 3, devices: int = 4) -> dict[str, Any]:
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")]
    names = [(p, r, n) for p in range(pods) for r in range(racks) for n in range(nodes)]
    return {
        "format": "railweave.cluster/1",
        "name": "small",
        "tiers": tiers,
        "rails": devices,
        "nodes": [
            {
                "name": f"p{p}r{r}n{n}",
                "accelerator": "A",
                "devices": devices,
                "domains": {"rack": f"p{p}r{r}", "pod": f"p{p}"},
            }
            for p, r, n in names
        ],
    }


def rings(nodes: int, tensor: int = 4) -> PCG:
    """One data-parallel ring a device, over `nodes` nodes, and a tensor-parallel one a node."""
    world = nodes * tensor
    groups: list[dict[str, Any]] = [
        {
            "name": f"dp/{t}",
            "op": "all_reduce",
            "ranks": list(range(t, world, tensor)),
            "bytes": 1e9,
        }
        for t in range(tensor)
    ]
    groups += [
        {
            "name": f"tp/{n}",
            "op": "all_reduce",
            "ranks": list(range(n * tensor, (n + 1) * tensor)),
            "bytes": 9e9,
        }
        for n in range(nodes)
    ]
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def placed(pcg: PCG, cluster: Cluster, *nodes: str) -> Placement:
    count = pcg.world_size // len(nodes)
    devices = [(node, index) for node in nodes for index in range(count)]
    return Placement(devices, evaluate(pcg, cluster, devices).traffic_bytes, 0.0, False)


def test_the_ranks_of_a_lost_node_move_together_to_the_nearest_free_node() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(2)
    before = placed(pcg, cluster, "p1r0n0", "p1r0n1")
    found = repair(before, pcg, cluster, lost=["p1r0n1"])
    assert found.forced == found.moved == [4, 5, 6, 7]
    assert found.placement.devices == [
        *before.devices[:4],
        *(("p1r0n2", index) for index in range(4)),
    ]
    assert found.placement.traffic_bytes == before.traffic_bytes == found.before_bytes
    assert found.added_spine_bytes == 0


def test_a_lost_device_is_replaced_on_its_own_node_when_one_is_free_there() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(2, tensor=2)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    found = repair(before, pcg, cluster, lost=[("p0r0n0", 1)])
    assert found.moved == [1]
    node, device = found.placement.devices[1]
    assert node == "p0r0n0" and device in (2, 3)


def test_the_ranks_of_a_node_are_split_only_when_no_free_node_is_whole() -> None:
    data, pcg = fabric(), rings(2)
    for node in data["nodes"]:
        node["free_devices"] = [0, 1] if node["name"] in ("p0r0n2", "p0r1n0") else []
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    found = repair(before, pcg, cluster, lost=["p0r0n1"])
    assert found.moved == [4, 5, 6, 7]
    assert {node for node, _ in found.placement.devices[4:]} == {"p0r0n2", "p0r1n0"}


@pytest.mark.parametrize("state", ["free", "busy", "drained", "faulty"])
def test_surviving_devices_stay_usable_whatever_the_cluster_says_of_them(state: str) -> None:
    data, pcg = fabric(), rings(2)
    data["nodes"][0] |= {"state": state, "free_devices": []}
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    found = repair(before, pcg, cluster, lost=["p0r0n1"])
    assert found.placement.devices[:4] == before.devices[:4]


def test_a_node_that_is_no_longer_in_the_cluster_counts_as_lost() -> None:
    data, pcg = fabric(), rings(2)
    before = placed(pcg, Cluster.parse(data), "p0r0n0", "p0r0n1")
    data["nodes"] = data["nodes"][1:]
    found = repair(before, pcg, Cluster.parse(data), lost=[])
    assert found.moved == [0, 1, 2, 3]


def test_nothing_moves_when_nothing_of_the_job_is_lost() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(2)
    before = placed(pcg, cluster, "p0r0n0", "p1r0n1")
    found = repair(before, pcg, cluster, lost=["p0r1n0"])
    assert found.moved == [] and found.placement.devices == before.devices


@pytest.mark.parametrize("max_moves", [1, 3, 4, 8, 100])
@pytest.mark.parametrize("cross_rail", ["nvlink", "spine"])
@pytest.mark.parametrize("pods", [1, 2])
def test_moves_that_help_nothing_are_not_made_whether_a_node_of_ranks_may_move_or_not(
    max_moves: int, cross_rail: str, pods: int
) -> None:
    cluster = Cluster.parse(fabric(pods=pods, racks=1) | {"cross_rail": cross_rail})
    pcg = rings(nodes=3)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1", "p0r0n2")
    fixed = repair(before, pcg, cluster, lost=[], max_moves=max_moves)
    assert fixed.moved == fixed.forced == []
    assert fixed.placement.devices == before.devices


def test_other_ranks_move_only_as_far_as_allowed_and_only_when_it_helps() -> None:
    data, pcg = fabric(), rings(3)
    for node in data["nodes"]:
        if node["name"] in ("p0r0n2", "p0r1n0", "p0r1n1", "p0r1n2"):
            node["state"] = "busy"
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1", "p1r0n0")
    # Two of three nodes are left, one in each pod; spares are in the second pod only.
    kept = repair(before, pcg, cluster, lost=["p0r0n1"])
    assert kept.moved == [4, 5, 6, 7]
    assert kept.placement.cross_spine_bytes == before.cross_spine_bytes
    same = repair(before, pcg, cluster, lost=["p0r0n1"], max_moves=3)
    assert same.moved == kept.moved
    free = repair(before, pcg, cluster, lost=["p0r0n1"], max_moves=4)
    assert free.moved == list(range(8))
    assert free.placement.cross_spine_bytes == 0


def test_the_repair_tells_what_placing_anew_would_give() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(3)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1", "p1r0n0")
    found = repair(before, pcg, cluster, lost=["p0r0n1"], compare=True)
    assert found.fresh is not None
    assert found.fresh.cross_spine_bytes == 0
    assert "p0r0n1" not in {node for node, _ in found.fresh.devices}
    assert found.placement.lower_bound_bytes <= found.fresh.lower_bound_bytes
    assert not found.placement.proved_optimal


def test_too_few_spares_are_told_by_number_kind_and_place() -> None:
    data, pcg = fabric(), rings(2)
    for node in data["nodes"]:
        node["state"] = "drained" if node["name"] == "p0r0n2" else "busy"
    data["nodes"][-1] |= {"state": "free", "free_devices": [0]}
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    with pytest.raises(Infeasible) as caught:
        repair(before, pcg, cluster, lost=["p0r0n1"])
    assert "4 ranks need another device and 1 are free: 3 short" in str(caught.value)
    assert "p0r0n2 (4 A, drained, meets the job at rack)" in str(caught.value)


def test_ranks_get_a_spare_of_the_kind_they_need() -> None:
    data = fabric()
    for node in data["nodes"]:
        node["accelerator"] = "B" if node["name"].startswith("p0r0") else "A"
    pcg = PCG.parse(
        rings(2).to_data() | {"requires": [{"ranks": [4, 5, 6, 7], "accelerator": "A"}]}
    )
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r1n0")
    found = repair(before, pcg, cluster, lost=["p0r1n0", "p0r1n1"])
    assert {node for node, _ in found.placement.devices[4:]} == {"p0r1n2"}
    data["nodes"] = [n for n in data["nodes"] if n["accelerator"] == "B" or n["name"] == "p0r1n0"]
    with pytest.raises(Infeasible, match="4 ranks need another A device and 0 are free: 4 short"):
        repair(before, pcg, Cluster.parse(data), lost=["p0r1n0"])


def test_any_rank_prefers_a_spare_of_the_kind_it_had() -> None:
    data, pcg = fabric(), rings(2)
    data["nodes"][2]["accelerator"] = "B"
    data["nodes"][1]["accelerator"] = "B"
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r1n0", "p0r1n1")
    found = repair(before, pcg, cluster, lost=["p0r1n1", "p0r1n2"])
    assert {node for node, _ in found.placement.devices[4:]} == {"p0r0n0"}


def test_a_spare_keeps_the_rails_of_the_ranks_it_takes() -> None:
    data, pcg = fabric(), rings(2)
    data["cross_rail"] = "spine"
    cluster = Cluster.parse(data)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    found = repair(before, pcg, cluster, lost=["p0r0n1"])
    assert [index for _, index in found.placement.devices] == [0, 1, 2, 3] * 2
    assert found.placement.cross_spine_bytes == 0


def test_what_does_not_fit_together_is_refused() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(2)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    with pytest.raises(InvalidInput, match="did you mean 'p0r0n1'"):
        repair(before, pcg, cluster, lost=["p0r0n11"])
    with pytest.raises(InvalidInput, match="give 0 or more"):
        repair(before, pcg, cluster, lost=["p0r0n1"], max_moves=-1)
    with pytest.raises(InvalidInput, match="8 devices for 12 ranks"):
        repair(before, rings(3), cluster, lost=["p0r0n1"])


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        (("p0r0n1", 4), "device 4 of 'p0r0n1'; it has 0 to 3"),
        (("p0r0n1", -1), "device -1 of 'p0r0n1'; it has 0 to 3"),
        (("p0r0n1", True), "found .'p0r0n1', True.; give a node's name"),
        (("p0r0n1",), "found .'p0r0n1',.; give a node's name"),
        (("p0r0n1", 0, 1), "give a node's name"),
        (5, "found 5; give a node's name"),
        (None, "found None; give a node's name"),
    ],
)
def test_a_loss_that_names_no_device_is_refused(lost: Any, told: str) -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(2)
    before = placed(pcg, cluster, "p0r0n0", "p0r0n1")
    with pytest.raises(InvalidInput, match=told):
        repair(before, pcg, cluster, lost=[lost])


def test_a_device_the_job_never_had_on_a_node_that_is_gone_is_refused() -> None:
    data, pcg = fabric(), rings(2)
    before = placed(pcg, Cluster.parse(data), "p0r0n0", "p0r0n1")
    del data["nodes"][1]
    said = "device 4 of 'p0r0n1'; the cluster has no such node any more, and the job no such device"
    with pytest.raises(InvalidInput, match=said):
        repair(before, pcg, Cluster.parse(data), lost=[("p0r0n1", 4)])


def test_a_device_that_its_node_does_not_have_any_more_may_be_named_as_lost() -> None:
    data, pcg = fabric(), rings(2)
    before = placed(pcg, Cluster.parse(data), "p0r0n0", "p0r0n1")
    data["nodes"][1]["devices"] = 3
    data["nodes"][2]["devices"] = 5
    found = repair(before, pcg, Cluster.parse(data), lost=[("p0r0n1", 3)])
    assert found.moved == found.forced == [7]


def test_a_placement_of_the_solver_can_be_repaired() -> None:
    cluster, pcg = Cluster.parse(fabric()), rings(3)
    before = place(pcg, cluster, time_limit_s=0.2)
    lost = before.devices[0][0]
    found = repair(before, pcg, cluster, lost=[lost])
    assert lost not in {node for node, _ in found.placement.devices}
    assert found.placement.cross_spine_bytes == before.cross_spine_bytes == 0
