"""Synthetic clusters have the shape their names promise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from railweave.placement import (
    Cluster,
    CrossRail,
    DomainTree,
    InvalidInput,
    NodeState,
    build_ctg,
    clos_8_rail,
    domain_tree_of,
    dual_plane,
    fat_tree,
    nvl_domains,
    occupied,
)


def shape(cluster: Cluster) -> dict[str, int]:
    tree = DomainTree.of(cluster)
    return {tier: len(tree.domains(tier)) for tier in tree.tiers}


def device_count(cluster: Cluster) -> int:
    return sum(node.devices for node in cluster.nodes)


def test_the_clos_of_a_hundred_units_has_sixteen_thousand_devices_in_five_pods() -> None:
    cluster = clos_8_rail()
    assert device_count(cluster) == 16_000
    assert shape(cluster) == {"node": 2000, "tor": 100, "pod": 5, "spine": 1}
    assert (cluster.rails, cluster.cross_rail) == (8, CrossRail.NVLINK)
    assert cluster.tiers[0].bandwidth == 25e9  # 200 Gb/s


def test_a_unit_has_one_tor_a_rail() -> None:
    graph = build_ctg(clos_8_rail(units=2, nodes_per_unit=3, units_per_pod=1))
    tors = Counter(data["domain"] for _, data in graph.nodes(data=True) if data.get("level") == 1)
    assert tors == {"u0": 8, "u1": 8}


def test_the_last_pod_takes_what_is_left() -> None:
    tree = DomainTree.of(clos_8_rail(units=5, nodes_per_unit=2, units_per_pod=2))
    assert [len(tree.children(pod)) for pod in tree.domains("pod")] == [2, 2, 1]


def test_rails_may_meet_only_at_the_spine() -> None:
    assert clos_8_rail(units=1, cross_rail="spine").cross_rail is CrossRail.SPINE


def test_a_fat_tree_says_where_it_is_oversubscribed() -> None:
    cluster = fat_tree(
        16, nodes_per_rack=4, racks_per_pod=4, rack_oversubscription=2, pod_oversubscription=4
    )
    assert shape(cluster) == {"node": 64, "rack": 16, "pod": 4, "spine": 1}
    assert [tier.oversubscription for tier in cluster.tiers] == [1, 2, 4]
    assert cluster.rails == 1


def test_a_fat_tree_without_pods_has_two_tiers() -> None:
    cluster = fat_tree(3, nodes_per_rack=2, racks_per_pod=None, rack_oversubscription=3)
    assert cluster.tier_names == ("node", "rack", "spine")
    assert cluster.tiers[1].oversubscription == 3


def test_an_nvl72_domain_joins_seventy_two_devices_nearer_than_any_nic() -> None:
    cluster = nvl_domains(16)
    assert device_count(cluster) == 16 * 72
    assert shape(cluster) == {"node": 288, "nvl": 16, "pod": 2, "spine": 1}
    assert cluster.tiers[0].scale_up
    assert cluster.tiers[0].bandwidth == 900e9


def test_the_planes_of_a_dual_plane_fabric_never_meet_in_the_network() -> None:
    cluster = dual_plane(4, nodes_per_segment=2)
    assert shape(cluster) == {"node": 8, "leaf": 4, "spine": 1}
    graph = build_ctg(cluster)
    switches = [name for name, data in graph.nodes(data=True) if data.get("level", 0) > 0]
    for one, other in graph.subgraph(switches).edges:
        assert graph.nodes[one]["rail"] == graph.nodes[other]["rail"]


ALL: dict[str, Callable[[], Cluster]] = {
    "clos_8_rail": lambda: clos_8_rail(units=12, nodes_per_unit=11, units_per_pod=5),
    "fat_tree": lambda: fat_tree(11, nodes_per_rack=3, racks_per_pod=2),
    "nvl_domains": lambda: nvl_domains(11, domains_per_pod=3),
    "dual_plane": lambda: dual_plane(12, nodes_per_segment=12),
}


@pytest.mark.parametrize("name", ALL)
def test_names_sort_in_the_order_of_the_nodes(name: str) -> None:
    cluster = ALL[name]()
    names = [node.name for node in cluster.nodes]
    assert names == sorted(names)
    for tier in cluster.tier_names[1:-1]:
        domains = [node.domains[tier] for node in cluster.nodes]
        assert domains == sorted(domains)


@pytest.mark.parametrize("name", ALL)
def test_a_fabric_survives_its_file_and_its_graph(name: str) -> None:
    cluster = ALL[name]()
    assert Cluster.parse(cluster.to_data()) == cluster
    assert domain_tree_of(build_ctg(cluster)) == DomainTree.of(cluster)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: clos_8_rail(units=0), "units: found 0; give a whole number, 1 or more"),
        (lambda: clos_8_rail(units_per_pod=-1), "units_per_pod: found -1"),
        (lambda: clos_8_rail(units=2.5), "units: found 2.5"),  # type: ignore[arg-type]
        (lambda: clos_8_rail(units=True), "units: found True"),
        (lambda: clos_8_rail(rails=0), "rails: found 0"),
        (lambda: clos_8_rail(units=10**6), "20,000,000 nodes in all; ask for 1,000,000 at most"),
        (lambda: clos_8_rail(accelerator="A100"), "accelerator: found 'A100'; use one of V100"),
        (lambda: clos_8_rail(cross_rail="pxn"), "cross_rail: found 'pxn'"),
        (lambda: clos_8_rail(nic_bandwidth_bytes_per_s=float("nan")), "tiers[0].bandwidth"),
        (lambda: fat_tree(1, pod_oversubscription=0.5), "tiers[2].oversubscription"),
        (lambda: fat_tree(1, racks_per_pod=0), "racks_per_pod: found 0"),
        (lambda: nvl_domains(0), "domains: found 0"),
        (lambda: dual_plane(1, planes=0), "planes: found 0"),
        (lambda: occupied(fat_tree(1), 1.5, 0), "fraction: found 1.5; give a number from 0 to 1"),
        (lambda: occupied(fat_tree(1), float("nan"), 0), "fraction: found nan"),
        (lambda: occupied(fat_tree(1), 0, 0, most_nodes_per_job=0), "most_nodes_per_job: found 0"),
    ],
)
def test_a_silly_parameter_is_named(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build()
    assert message in str(caught.value)


def test_an_occupied_cluster_is_busy_to_the_node_and_in_pieces() -> None:
    cluster = clos_8_rail(units=40)
    used = occupied(cluster, 0.5, seed=1)
    states = Counter(node.state for node in used.nodes)
    assert states == {NodeState.FAULTY: 8, NodeState.BUSY: 396, NodeState.FREE: 396}
    free = [node.state is NodeState.FREE for node in used.nodes]
    edges = sum(one != other for one, other in pairwise(free))
    assert edges > 20
    assert used.tiers == cluster.tiers


def test_the_same_seed_gives_the_same_cluster_and_another_seed_another() -> None:
    cluster = clos_8_rail(units=4)
    assert occupied(cluster, 0.3, seed=7) == occupied(cluster, 0.3, seed=7)
    assert occupied(cluster, 0.3, seed=7) != occupied(cluster, 0.3, seed=8)


def test_nodes_that_were_not_free_stay_as_they_are() -> None:
    cluster = fat_tree(2)
    drained = cluster.nodes[0].model_copy(update={"state": NodeState.DRAINED})
    used = occupied(cluster.with_nodes((drained, *cluster.nodes[1:])), 1.0, 0, faulty_fraction=0)
    assert used.nodes[0].state is NodeState.DRAINED
    assert {node.state for node in used.nodes[1:]} == {NodeState.BUSY}


def test_the_time_for_sixteen_thousand_devices_and_their_graph_does_not_explode() -> None:
    start = time.process_time()
    graph = build_ctg(clos_8_rail())
    assert time.process_time() - start < 30
    assert sum(data["kind"] == "device" for _, data in graph.nodes(data=True)) == 16_000
