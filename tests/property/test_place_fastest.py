"""Placing by time: small jobs get the least predicted time of every possible placement."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, place
from railweave.placement.bounds.time_bound import least_seconds
from railweave.placement.jobs.index import Fabric
from railweave.placement.jobs.tensor_groups import whole_groups
from railweave.placement.timed.link_time import TimeModel
from test_place_exact import assert_valid, every_placement
from timed_instances import jobs

FASTER = 1 - 1e-9


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to 7 devices in uneven racks and pods, with links of any speed."""
    cross_rail = draw(st.sampled_from(["nvlink", "nvlink", "spine"]))
    names = ["rack", "pod", "spine"]
    tiers = [
        {
            "name": name,
            "bandwidth": draw(st.sampled_from([1e9, 4e9])),
            "latency": draw(st.sampled_from([1e-6, 4e-6])),
            "oversubscription": draw(st.sampled_from([1.0, 3.0])),
        }
        for name in names
    ]
    if cross_rail == "nvlink" and draw(st.booleans()):
        tiers[0]["scale_up"] = True
    nodes: list[dict[str, Any]] = []
    left = 7
    while left > 0 and len(nodes) < 5:
        devices = draw(st.integers(1, min(3, left)))
        rack = draw(st.integers(0, 2))
        nodes.append(
            {
                "name": f"n{draw(st.integers(0, 9))}-{len(nodes)}",
                "accelerator": draw(st.sampled_from(["V100", "H100-SXM"])),
                "devices": devices,
                "domains": {"rack": f"r{rack}", "pod": f"p{rack % 2}"},
            }
        )
        left -= devices
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "tiers": tiers,
            "rails": draw(st.integers(1, 3)),
            "cross_rail": cross_rail,
            "nodes": nodes,
        }
    )


@st.composite
def instances(draw: st.DrawFn) -> tuple[PCG, Cluster]:
    cluster = draw(clusters())
    devices = sum(node.devices for node in cluster.nodes)
    return draw(jobs(draw(st.integers(1, min(4, devices))))), cluster


@given(instances())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_placement_of_a_small_job_is_faster(instance: tuple[PCG, Cluster]) -> None:
    pcg, cluster = instance
    model = TimeModel(pcg, cluster)
    least = min(model(d).total_s for d in every_placement(pcg, cluster, by_device=True))
    placement = place(pcg, cluster, objective="time")
    assert_valid(placement, pcg, cluster)
    assert placement.communication_s is not None
    assert placement.communication_bound_s is not None
    assert placement.communication_s == model(placement.devices).total_s
    assert placement.communication_s * FASTER <= least
    assert placement.communication_s >= least * FASTER
    assert placement.communication_bound_s >= placement.communication_s * (1 - 1e-7)
    assert "not proved the fastest possible" not in placement.notes


@given(instances())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_placement_with_the_same_tensor_groups_whole_is_faster(
    instance: tuple[PCG, Cluster],
) -> None:
    pcg, cluster = instance
    named = [
        group.model_copy(update={"name": group.name.replace("g", "tp")}) for group in pcg.groups
    ]
    pcg = PCG(world_size=pcg.world_size, groups=tuple(named))
    kept = set(whole_groups(pcg, cluster, place(pcg, cluster).devices))
    model = TimeModel(pcg, cluster)
    least = min(
        model(devices).total_s
        for devices in every_placement(pcg, cluster, by_device=True)
        if kept <= set(whole_groups(pcg, cluster, devices))
    )
    placement = place(pcg, cluster, objective="time")
    assert kept <= set(whole_groups(pcg, cluster, placement.devices))
    assert placement.communication_s is not None
    assert least * FASTER <= placement.communication_s <= least / FASTER


@given(instances(), st.integers(0, 10**6))
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_bound_on_time_is_below_every_placement(
    instance: tuple[PCG, Cluster], seed: int
) -> None:
    pcg, cluster = instance
    by_bytes = place(pcg, cluster, 1e-6, seed)
    model = TimeModel(pcg, cluster)
    least = min(model(d).total_s for d in every_placement(pcg, cluster, by_device=True))
    bound_bytes = by_bytes.lower_bound_bytes
    assert least_seconds(pcg, Fabric.of(cluster), bound_bytes) <= least
    limited = place(pcg, cluster, 1e-6, seed, objective="time")
    assert limited.communication_s is not None
    assert limited.communication_bound_s is not None
    assert limited.communication_bound_s <= least * (1 + 1e-9)
    assert limited.communication_s <= model(by_bytes.devices).total_s
    assert limited.lower_bound_bytes <= limited.cross_spine_bytes
