"""Placing by time: where the fewest bytes are not the fastest, and what is promised besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, InvalidInput, Placement, place
from railweave.placement.constraints import Constraints
from railweave.placement.jobs.tensor_groups import split_groups
from railweave.placement.timed.link_time import communication_time
from railweave.scheduler.cli.main import run

LIMIT_S = 0.2


def cluster(
    pods: dict[str, list[int]], *, rack_up: float = 1.0, pod_up: float = 1.0, **more: Any
) -> Cluster:
    """Racks of so many nodes of one device by pod; links out of racks and pods oversubscribed."""
    tiers = [
        {"name": "rack", "bandwidth": 10e9, "latency": 1e-6},
        {"name": "pod", "bandwidth": 10e9, "latency": 2e-6, "oversubscription": rack_up},
        {"name": "spine", "bandwidth": 10e9, "latency": 3e-6, "oversubscription": pod_up},
    ]
    nodes = [
        {
            "name": f"{pod}r{rack}n{n}",
            "accelerator": "V100",
            "devices": 1,
            "domains": {"rack": f"{pod}r{rack}", "pod": pod},
        }
        for pod, racks in pods.items()
        for rack, count in enumerate(racks)
        for n in range(count)
    ]
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    return Cluster.parse(data | more)


def rings(count: int, size: int, each: float = 10e9) -> PCG:
    groups = [
        {
            "name": f"dp/{r}",
            "op": "all_gather",
            "ranks": list(range(r * size, (r + 1) * size)),
            "bytes": each,
        }
        for r in range(count)
    ]
    data = {"format": "railweave.pcg/1", "world_size": count * size, "groups": groups}
    return PCG.parse(data)


def both(pcg: PCG, on: Cluster) -> tuple[float, Placement]:
    """Seconds of the placement by bytes, and the placement by time."""
    by_time = place(pcg, on, LIMIT_S, objective="time")
    found = communication_time(pcg, on, by_time.devices).total_s
    assert by_time.communication_s == pytest.approx(found, rel=1e-9)
    return communication_time(pcg, on, place(pcg, on, LIMIT_S).devices).total_s, by_time


def test_narrow_links_out_of_small_racks_outweigh_the_spine() -> None:
    # Pod p0 holds the ring without the spine, but through the few uplinks of racks of two. Racks of
    # three have more, and lie in different pods.
    on = cluster({"p0": [2, 2], "p1": [3], "p2": [3]}, rack_up=8.0)
    by_bytes, by_time = both(rings(1, 4), on)
    assert place(rings(1, 4), on).cross_spine_bytes == 0.0
    assert by_bytes == pytest.approx(7.5e9 / (2 * 10e9 / 8), rel=1e-3)
    assert by_time.communication_s == pytest.approx(7.5e9 / (3 * 10e9 / 8), rel=1e-3)
    assert {on.node(name).domains["pod"] for name, _ in by_time.devices} == {"p1", "p2"}
    assert by_time.communication_bound_s == by_time.communication_s


def test_crossings_are_spread_over_the_uplinks_of_uneven_pods() -> None:
    # The fewest bytes cross wherever that is; the fastest crossings keep off the small pod's few
    # uplinks.
    on = cluster({"p0": [6], "p1": [5], "p2": [2]}, pod_up=4.0)
    pcg = PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": 12,
            "groups": [
                {"name": f"pp/{i}", "op": "send_recv", "ranks": [i, i + 1], "bytes": 4e9}
                for i in range(11)
            ]
            + [
                {"name": f"far/{i}", "op": "send_recv", "ranks": [i, i + 6], "bytes": 1e9}
                for i in range(6)
            ],
        }
    )
    by_bytes, by_time = both(pcg, on)
    assert by_time.communication_s is not None
    assert by_time.communication_s < by_bytes * 0.99


def test_ranks_of_unequal_load_are_spread_over_the_rails() -> None:
    nodes = [
        {"name": name, "accelerator": "V100", "devices": 4, "domains": {}} for name in ("a", "b")
    ]
    on = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "rails",
            "tiers": [{"name": "spine", "bandwidth": 10e9, "latency": 1e-6}],
            "rails": 2,
            "nodes": nodes,
        }
    )
    # Two heavy pairs cross the nodes; the ranks of a node belong together, and by bytes all
    # devices of a node are alike: ranks 0 and 1 on devices 0 and 1, or 0 and 2, which share a NIC.
    groups = [
        {
            "name": f"tp/{n}",
            "op": "all_reduce",
            "ranks": list(range(4 * n, 4 * n + 4)),
            "bytes": 1e9,
        }
        for n in range(2)
    ]
    groups += [
        {"name": f"pp/{i}", "op": "send_recv", "ranks": [i, 4 + i], "bytes": 40e9} for i in (0, 2)
    ]
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 8, "groups": groups})
    by_bytes, by_time = both(pcg, on)
    assert by_time.communication_s is not None
    assert by_time.communication_s < by_bytes * 0.6
    assert by_time.communication_bound_s == pytest.approx(by_time.communication_s, rel=1e-6)


def test_a_large_job_gets_no_slower_than_by_bytes_and_faster_where_uplinks_are_thin() -> None:
    on = cluster({f"p{p}": [8, 8, 5] for p in range(6)}, rack_up=4.0, pod_up=2.0)
    groups = [
        {
            "name": f"dp/{s}",
            "op": "all_reduce",
            "ranks": list(range(s * 12, s * 12 + 12)),
            "bytes": 3e9,
        }
        for s in range(9)
    ] + [
        {
            "name": f"pp/{s}/{d}",
            "op": "send_recv",
            "ranks": [s * 12 + d, s * 12 + 12 + d],
            "bytes": 2e9,
        }
        for s in range(8)
        for d in range(12)
    ]
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 108, "groups": groups})
    by_bytes, by_time = both(pcg, on)
    assert by_time.communication_s is not None
    assert by_time.communication_bound_s is not None
    assert by_time.communication_s < by_bytes * 0.95
    assert by_time.communication_bound_s <= by_time.communication_s
    assert place(pcg, on, LIMIT_S, objective="time").devices == by_time.devices


def tensor_pairs() -> tuple[PCG, Cluster]:
    """Two tensor-parallel pairs that say little, and heavy pairs of one rank of each; two nodes."""
    nodes = [
        {"name": name, "accelerator": "V100", "devices": 2, "domains": {}} for name in ("a", "b")
    ]
    on = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "pairs",
            "tiers": [{"name": "spine", "bandwidth": 10e9, "latency": 1e-6}],
            "nodes": nodes,
        }
    )
    groups = [
        {"name": f"tp/{t}", "op": "all_reduce", "ranks": [2 * t, 2 * t + 1], "bytes": 1e8}
        for t in range(2)
    ]
    groups += [
        {"name": f"pp/{i}", "op": "send_recv", "ranks": [i, 2 + i], "bytes": 40e9} for i in (0, 1)
    ]
    return PCG.parse({"format": "railweave.pcg/1", "world_size": 4, "groups": groups}), on


def test_tensor_groups_stay_whole_however_much_faster_they_would_be_split() -> None:
    pcg, on = tensor_pairs()
    whole = place(pcg, on, LIMIT_S, objective="time")
    assert split_groups(pcg, on, whole.devices) == []
    split = place(
        pcg, on, LIMIT_S, constraints=Constraints(split_tensor_groups=True), objective="time"
    )
    assert len(split_groups(pcg, on, split.devices)) == 2
    assert split.communication_s is not None and whole.communication_s is not None
    assert split.communication_s < whole.communication_s / 2


def test_tensor_groups_of_a_job_too_large_to_search_through_stay_whole_too() -> None:
    # Racks of two devices with links between them hold the pairs of a pipeline; the small pod p2
    # has few uplinks.
    on = cluster({"p0": [2] * 7, "p1": [2] * 6, "p2": [2, 2]}, pod_up=4.0)
    tiers = (on.tiers[0].model_copy(update={"scale_up": True}), *on.tiers[1:])
    on = on.model_copy(update={"tiers": tiers})
    groups = [
        {"name": f"tp/{t}", "op": "all_reduce", "ranks": [2 * t, 2 * t + 1], "bytes": 1e8}
        for t in range(13)
    ]
    groups += [
        {"name": f"{name}/{i}", "op": "send_recv", "ranks": [i, i + far], "bytes": size}
        for name, far, size, count in (("pp", 2, 4e9, 24), ("far", 12, 1e9, 13))
        for i in range(count)
    ]
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 26, "groups": groups})
    by_bytes, by_time = both(pcg, on)
    assert split_groups(pcg, on, by_time.devices) == []
    assert by_time.communication_s is not None
    assert by_time.communication_s < by_bytes * 0.9


def test_a_placement_by_time_is_written_and_read_with_its_seconds(tmp_path: Path) -> None:
    on = cluster({"p0": [2, 2]})
    placement = place(rings(1, 4), on, LIMIT_S, objective="time")
    placement.save(tmp_path / "placement.json")
    again = Placement.load(tmp_path / "placement.json")
    assert again == placement
    assert again.communication_s is not None
    assert place(rings(1, 4), on).communication_s is None


def test_an_unknown_objective_and_constraints_with_time_are_refused() -> None:
    on = cluster({"p0": [2, 2]})
    with pytest.raises(InvalidInput, match="use 'bytes' or 'time'"):
        place(rings(1, 2), on, objective="money")  # type: ignore[arg-type]
    wish = Constraints(whole_nodes=True)
    with pytest.raises(InvalidInput, match="drop the constraints"):
        place(rings(1, 2), on, constraints=wish, objective="time")


def test_the_command_prints_the_predicted_time_and_what_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = str(tmp_path / "cluster.json"), str(tmp_path / "pcg.json")
    cluster({"p0": [2, 2]}).save(files[0])
    rings(1, 4).save(files[1])
    call = ["place", "--cluster", files[0], "--pcg", files[1], "--time-limit", str(LIMIT_S)]
    assert run([*call, "--objective", "time"]) == 0
    assert "s a step predicted, proved the least possible" in capsys.readouterr().out
    assert run(call) == 0
    assert "predicted" not in capsys.readouterr().out
    assert run([*call, "--objective", "money"]) == 2
