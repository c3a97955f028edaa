"""Synthetic clusters: the common shapes of training networks, at any size.

Latencies are one-way times between two devices that meet at the tier: about 1 us for each switch
passed and 2 us for the two NICs. Names are padded with zeros, so that they sort in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .accelerators import CATALOG
from .cluster import Cluster, CrossRail
from .errors import InvalidInput, Problem

MOST_NODES = 1_000_000
LEAF_LATENCY_S = 3e-6
AGGREGATION_LATENCY_S = 5e-6
SPINE_LATENCY_S = 7e-6
NVSWITCH_LATENCY_S = 1e-6


def clos_8_rail(
    units: int = 100,
    *,
    nodes_per_unit: int = 20,
    units_per_pod: int = 20,
    rails: int = 8,
    devices_per_node: int = 8,
    accelerator: str = "A100-80G",
    nic_bandwidth_bytes_per_s: float = 25e9,
    spine_oversubscription: float = 1.0,
    cross_rail: CrossRail | str = CrossRail.NVLINK,
) -> Cluster:
    """Rail-optimised three-tier Clos: tiers `tor`, `pod`, `spine`.

    A unit is `nodes_per_unit` nodes under one ToR a rail; ToR r joins the NICs of rail r. The leaf
    layer joins the ToRs of one rail over the `units_per_pod` units of a pod, the spine joins all.
    The defaults are 16,000 devices in 100 units and 5 pods with 200 Gb/s NICs. The last pod takes
    what is left when the pods do not come out even. Raises InvalidInput.
    """
    _check(
        "clos_8_rail",
        accelerator,
        units * nodes_per_unit if _whole(units) and _whole(nodes_per_unit) else 0,
        units=units,
        nodes_per_unit=nodes_per_unit,
        units_per_pod=units_per_pod,
        rails=rails,
        devices_per_node=devices_per_node,
    )
    unit, pod = _namer("u", units), _namer("p", math.ceil(units / units_per_pod))
    member = _namer("n", nodes_per_unit)
    nodes = [
        _node(
            f"{unit(u)}{member(n)}",
            accelerator,
            devices_per_node,
            {"tor": unit(u), "pod": pod(u // units_per_pod)},
        )
        for u in range(units)
        for n in range(nodes_per_unit)
    ]
    tiers = [
        _tier("tor", nic_bandwidth_bytes_per_s, LEAF_LATENCY_S),
        _tier("pod", nic_bandwidth_bytes_per_s, AGGREGATION_LATENCY_S),
        _tier("spine", nic_bandwidth_bytes_per_s, SPINE_LATENCY_S, spine_oversubscription),
    ]
    name = f"clos-{rails}-rail-{units}x{nodes_per_unit}x{devices_per_node}"
    return _cluster("clos_8_rail", name, tiers, nodes, rails, cross_rail)


def fat_tree(
    racks: int,
    *,
    nodes_per_rack: int = 16,
    racks_per_pod: int | None = 8,
    devices_per_node: int = 8,
    accelerator: str = "H100-SXM",
    nic_bandwidth_bytes_per_s: float = 50e9,
    rack_oversubscription: float = 1.0,
    pod_oversubscription: float = 1.0,
) -> Cluster:
    """Plain fat-tree without rails: tiers `rack`, `pod`, `spine`; one NIC a node.

    `rack_oversubscription` is that of the links out of a rack, `pod_oversubscription` of those out
    of a pod. With `racks_per_pod=None` there are two tiers, and the racks meet at the spine.
    Raises InvalidInput.
    """
    _check(
        "fat_tree",
        accelerator,
        racks * nodes_per_rack if _whole(racks) and _whole(nodes_per_rack) else 0,
        racks=racks,
        nodes_per_rack=nodes_per_rack,
        devices_per_node=devices_per_node,
        racks_per_pod=1 if racks_per_pod is None else racks_per_pod,
    )
    rack, member = _namer("r", racks), _namer("n", nodes_per_rack)
    pod = _namer("p", math.ceil(racks / (racks_per_pod or 1)))
    nodes = []
    for r in range(racks):
        domains = {"rack": rack(r)}
        if racks_per_pod is not None:
            domains["pod"] = pod(r // racks_per_pod)
        nodes += [
            _node(f"{rack(r)}{member(n)}", accelerator, devices_per_node, domains)
            for n in range(nodes_per_rack)
        ]
    speed = nic_bandwidth_bytes_per_s
    tiers = [_tier("rack", speed, LEAF_LATENCY_S)]
    if racks_per_pod is None:
        tiers.append(_tier("spine", speed, AGGREGATION_LATENCY_S, rack_oversubscription))
    else:
        tiers.append(_tier("pod", speed, AGGREGATION_LATENCY_S, rack_oversubscription))
        tiers.append(_tier("spine", speed, SPINE_LATENCY_S, pod_oversubscription))
    name = f"fat-tree-{racks}x{nodes_per_rack}x{devices_per_node}"
    return _cluster("fat_tree", name, tiers, nodes, 1, CrossRail.NVLINK)


def nvl_domains(
    domains: int,
    *,
    nodes_per_domain: int = 18,
    domains_per_pod: int = 8,
    devices_per_node: int = 4,
    accelerator: str = "GB200",
    nic_bandwidth_bytes_per_s: float = 50e9,
    spine_oversubscription: float = 1.0,
) -> Cluster:
    """Wide scale-up domains such as NVL72: tiers `nvl` (scale-up), `pod`, `spine`.

    All devices of a domain reach each other over its NVLink switches, at the accelerator's
    scale-up bandwidth; every device has a NIC and a rail. Raises InvalidInput.
    """
    _check(
        "nvl_domains",
        accelerator,
        domains * nodes_per_domain if _whole(domains) and _whole(nodes_per_domain) else 0,
        domains=domains,
        nodes_per_domain=nodes_per_domain,
        domains_per_pod=domains_per_pod,
        devices_per_node=devices_per_node,
    )
    domain, member = _namer("d", domains), _namer("n", nodes_per_domain)
    pod = _namer("p", math.ceil(domains / domains_per_pod))
    nodes = [
        _node(
            f"{domain(d)}{member(n)}",
            accelerator,
            devices_per_node,
            {"nvl": domain(d), "pod": pod(d // domains_per_pod)},
        )
        for d in range(domains)
        for n in range(nodes_per_domain)
    ]
    scale_up = _tier("nvl", CATALOG[accelerator].scale_up_bandwidth, NVSWITCH_LATENCY_S)
    tiers = [
        scale_up | {"scale_up": True},
        _tier("pod", nic_bandwidth_bytes_per_s, LEAF_LATENCY_S),
        _tier("spine", nic_bandwidth_bytes_per_s, AGGREGATION_LATENCY_S, spine_oversubscription),
    ]
    name = f"nvl{nodes_per_domain * devices_per_node}-{domains}-domains"
    return _cluster("nvl_domains", name, tiers, nodes, devices_per_node, CrossRail.NVLINK)


def dual_plane(
    segments: int,
    *,
    nodes_per_segment: int = 16,
    planes: int = 2,
    devices_per_node: int = 8,
    accelerator: str = "H800",
    nic_bandwidth_bytes_per_s: float = 50e9,
    spine_oversubscription: float = 1.0,
) -> Cluster:
    """Two-tier fabric of separate planes: tiers `leaf`, `spine`.

    Device i uses plane `i mod planes`. A segment has one leaf a plane; the spines of a plane join
    its leaves and no other plane's, so traffic between planes changes over inside a node.
    Raises InvalidInput.
    """
    _check(
        "dual_plane",
        accelerator,
        segments * nodes_per_segment if _whole(segments) and _whole(nodes_per_segment) else 0,
        segments=segments,
        nodes_per_segment=nodes_per_segment,
        planes=planes,
        devices_per_node=devices_per_node,
    )
    segment, member = _namer("s", segments), _namer("n", nodes_per_segment)
    nodes = [
        _node(
            f"{segment(s)}{member(n)}",
            accelerator,
            devices_per_node,
            {"leaf": segment(s)},
        )
        for s in range(segments)
        for n in range(nodes_per_segment)
    ]
    tiers = [
        _tier("leaf", nic_bandwidth_bytes_per_s, LEAF_LATENCY_S),
        _tier("spine", nic_bandwidth_bytes_per_s, AGGREGATION_LATENCY_S, spine_oversubscription),
    ]
    name = f"{planes}-plane-{segments}x{nodes_per_segment}x{devices_per_node}"
    return _cluster("dual_plane", name, tiers, nodes, planes, CrossRail.NVLINK)


def _namer(prefix: str, count: int) -> Callable[[int], str]:
    width = len(str(count - 1))
    return lambda number: f"{prefix}{number:0{width}}"


def _node(name: str, accelerator: str, devices: int, domains: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "accelerator": accelerator, "devices": devices, "domains": domains}


def _tier(
    name: str, bandwidth: float, latency: float, oversubscription: float = 1.0
) -> dict[str, Any]:
    return {
        "name": name,
        "bandwidth": bandwidth,
        "latency": latency,
        "oversubscription": oversubscription,
    }


def _cluster(
    source: str,
    name: str,
    tiers: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
    rails: int,
    cross_rail: CrossRail | str,
) -> Cluster:
    data = {
        "format": "railweave.cluster/1",
        "name": name,
        "tiers": tiers,
        "rails": rails,
        "cross_rail": str(cross_rail),
        "nodes": nodes,
    }
    return Cluster.parse(data, source)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(source: str, accelerator: str, nodes: int, **counts: int) -> None:
    problems = [
        Problem(name, f"found {value!r}", "give a whole number, 1 or more")
        for name, value in counts.items()
        if not _whole(value) or value < 1
    ]
    if not problems and nodes > MOST_NODES:
        found = f"{nodes:,} nodes in all"
        problems.append(Problem("", found, f"ask for {MOST_NODES:,} at most"))
    if accelerator not in CATALOG:
        known = ", ".join(CATALOG)
        problems.append(Problem("accelerator", f"found {accelerator!r}", f"use one of {known}"))
    if problems:
        raise InvalidInput(source, problems)
