"""The communication topology graph and the domain tree, on fabrics small enough to draw."""

from __future__ import annotations

import io
import json
from typing import Any

import networkx as nx
import pytest
from railweave.placement import (
    Cluster,
    Domain,
    DomainTree,
    InvalidInput,
    build_ctg,
    device_id,
    domain_tree_of,
    nic_id,
    switch_id,
    to_graphml,
    to_node_link,
)


def railed(**changes: Any) -> Cluster:
    """Two ToR units of two nodes in one pod, and one unit in another; four devices, two rails."""
    tors = ["t0", "t0", "t1", "t1", "t2"]
    pods = {"t0": "p0", "t1": "p0", "t2": "p1"}
    data: dict[str, Any] = {
        "format": "railweave.cluster/1",
        "name": "railed",
        "tiers": [
            {"name": "tor", "bandwidth": 25e9, "latency": 2e-6},
            {"name": "pod", "bandwidth": 25e9, "latency": 4e-6, "oversubscription": 2},
            {"name": "spine", "bandwidth": 20e9, "latency": 10e-6, "oversubscription": 4},
        ],
        "rails": 2,
        "nodes": [
            {
                "name": f"n{number}",
                "accelerator": "A100-80G",
                "devices": 4,
                "domains": {"tor": tor, "pod": pods[tor]},
            }
            for number, tor in enumerate(tors)
        ],
    }
    return Cluster.parse(data | changes)


def test_the_domain_tree_knows_parents_children_nodes_and_devices() -> None:
    tree = DomainTree.of(railed())
    assert tree.tiers == ("node", "tor", "pod", "spine")
    assert tree.root == Domain("spine", "spine")
    assert tree.children(tree.root) == [Domain("pod", "p0"), Domain("pod", "p1")]
    assert tree.parent(Domain("tor", "t1")) == Domain("pod", "p0")
    assert tree.parent(tree.root) is None
    assert tree.nodes(Domain("pod", "p0")) == ["n0", "n1", "n2", "n3"]
    assert tree.devices(Domain("tor", "t2")) == [("n4", index) for index in range(4)]
    assert tree.children(Domain("node", "n0")) == []
    assert tree.path("n2") == [("node", "n2"), ("tor", "t1"), ("pod", "p0"), ("spine", "spine")]
    assert [tree.meeting_tier("n0", other) for other in ("n0", "n1", "n2", "n4")] == [
        "node",
        "tor",
        "pod",
        "spine",
    ]


def test_an_unknown_tier_or_node_is_named() -> None:
    tree = DomainTree.of(railed())
    with pytest.raises(KeyError, match="no tier 'rack'; the tiers are node, tor, pod, spine"):
        tree.domains("rack")
    with pytest.raises(KeyError, match="no node 'n9'"):
        tree.path("n9")


def test_each_rail_has_switches_of_its_own_and_devices_hang_on_the_nic_of_their_rail() -> None:
    graph = build_ctg(railed())
    assert graph.has_edge(device_id("n0", 3), nic_id("n0", 1))
    assert graph.has_edge(nic_id("n0", 1), switch_id(1, "t0", 1))
    assert graph.has_edge(switch_id(1, "t0", 1), switch_id(2, "p0", 1))
    assert not graph.has_edge(switch_id(1, "t0", 1), switch_id(2, "p0", 0))
    assert {data["kind"] for _, data in graph.nodes(data=True)} == {"device", "nic", "switch"}


def test_rails_share_a_spine_only_where_they_meet_there() -> None:
    apart = build_ctg(railed())
    assert [name for name in apart if name.startswith("switch:3")] == [
        switch_id(3, "spine", 0),
        switch_id(3, "spine", 1),
    ]
    together = build_ctg(railed(cross_rail="spine"))
    assert [name for name in together if name.startswith("switch:3")] == [switch_id(3, "spine")]


def test_a_link_is_as_wide_as_the_nics_below_it_over_the_oversubscription() -> None:
    links = build_ctg(railed()).edges
    width = "bandwidth_bytes_per_s"
    assert links[nic_id("n0", 0), switch_id(1, "t0", 0)][width] == 25e9
    assert links[switch_id(1, "t0", 0), switch_id(2, "p0", 0)][width] == 2 * 25e9 / 2
    assert links[switch_id(2, "p0", 0), switch_id(3, "spine", 0)][width] == 4 * 20e9 / 4
    assert links[device_id("n0", 0), switch_id(0, "n0")][width] == 300e9


def test_inside_a_node_of_unknown_accelerator_links_are_as_wide_as_a_nic() -> None:
    nodes = [{"name": "n", "accelerator": "homemade", "devices": 2, "domains": {}}]
    tiers = [{"name": "spine", "bandwidth": 1e9, "latency": 0}]
    graph = build_ctg(railed(nodes=nodes, tiers=tiers))
    assert graph.edges[device_id("n", 0), switch_id(0, "n")]["bandwidth_bytes_per_s"] == 1e9


@pytest.mark.parametrize("cross_rail", ["nvlink", "spine"])
def test_latencies_on_the_shortest_path_add_up_to_those_of_the_tier(cross_rail: str) -> None:
    cluster = railed(cross_rail=cross_rail)
    graph = build_ctg(cluster)
    tree = DomainTree.of(cluster)
    by_tier = {tier.name: tier.latency for tier in cluster.tiers} | {"node": 0.0}
    for other in ("n0", "n1", "n2", "n4"):
        seconds = nx.shortest_path_length(
            graph, device_id("n0", 0), device_id(other, 2), weight="latency_s"
        )
        assert seconds == pytest.approx(by_tier[tree.meeting_tier("n0", other)])


def test_a_scale_up_tier_joins_devices_past_the_nics() -> None:
    tiers = [
        {"name": "nvl", "bandwidth": 900e9, "latency": 1e-6, "scale_up": True},
        {"name": "leaf", "bandwidth": 50e9, "latency": 3e-6},
        {"name": "spine", "bandwidth": 50e9, "latency": 5e-6},
    ]
    nodes = [
        {
            "name": f"n{number}",
            "accelerator": "GB200",
            "devices": 4,
            "domains": {"nvl": f"r{number // 2}", "leaf": "l0"},
        }
        for number in range(4)
    ]
    cluster = railed(tiers=tiers, nodes=nodes, rails=4)
    graph = build_ctg(cluster)
    up = graph.edges[switch_id(0, "n0"), switch_id(1, "r0")]
    assert (up["kind"], up["bandwidth_bytes_per_s"]) == ("scale_up", 4 * 900e9)
    assert graph.has_edge(nic_id("n0", 3), switch_id(2, "l0", 3))
    assert domain_tree_of(graph) == DomainTree.of(cluster)


def test_a_damaged_link_keeps_its_place_and_shows_its_health() -> None:
    link = (nic_id("n0", 0), switch_id(1, "t0", 0))
    graph = build_ctg(railed(), {link: 0.25})
    assert graph.edges[link]["health"] == 0.25
    assert domain_tree_of(graph) == DomainTree.of(railed())


def test_health_of_a_link_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        build_ctg(
            railed(),
            {
                (nic_id("n9", 0), switch_id(1, "t0", 0)): 0.5,
                (nic_id("n0", 0), nic_id("n0", 1)): 0.5,
                (nic_id("n0", 0), switch_id(1, "t0", 0)): 1.5,
            },
        )
    text = str(caught.value)
    assert "no 'nic:n9/0' in the graph" in text
    assert "the two are not linked" in text
    assert "health 1.5; give a number from 0 to 1" in text


def test_a_cable_that_joins_two_units_below_their_pod_is_reported() -> None:
    graph = build_ctg(railed())
    graph.add_edge(nic_id("n0", 0), switch_id(1, "t1", 0), health=1.0)
    with pytest.raises(InvalidInput) as caught:
        domain_tree_of(graph)
    assert "of tor 't1'" in str(caught.value) or "of tor 't0'" in str(caught.value)
    assert "name one tor for both" in str(caught.value)


def test_nodes_that_nothing_joins_to_the_rest_are_reported() -> None:
    graph = build_ctg(railed())
    for rail in (0, 1):
        graph.remove_edge(switch_id(2, "p1", rail), switch_id(3, "spine", rail))
        graph.add_edge(switch_id(2, "p1", rail), f"switch:3:island/rail{rail}")
        graph.nodes[f"switch:3:island/rail{rail}"].update(
            kind="switch", level=3, tier="spine", domain="spine"
        )
    with pytest.raises(InvalidInput, match="spine 'spine' is in parts that no link joins"):
        domain_tree_of(graph)


def test_a_node_without_a_switch_at_a_tier_is_alone_there() -> None:
    graph = build_ctg(railed())
    for rail in (0, 1):
        graph.remove_node(switch_id(1, "t2", rail))
        graph.add_edge(nic_id("n4", rail), switch_id(2, "p1", rail))
    tree = domain_tree_of(graph)
    assert tree.path("n4") == [("node", "n4"), ("tor", "n4"), ("pod", "p1"), ("spine", "spine")]


def test_switches_without_a_domain_name_are_named_by_the_first_of_them() -> None:
    graph = build_ctg(railed())
    for _, data in graph.nodes(data=True):
        if data.get("tier") == "tor":
            del data["domain"]
    tree = domain_tree_of(graph)
    assert tree.path("n0")[1] == tree.path("n1")[1] == ("tor", switch_id(1, "t0", 0))


def test_node_link_json_and_graphml_hold_the_whole_graph() -> None:
    graph = build_ctg(railed())
    data = json.loads(json.dumps(to_node_link(graph), allow_nan=False))
    again = nx.node_link_graph(data, edges="edges")
    assert nx.utils.graphs_equal(graph, again)
    read = nx.read_graphml(io.StringIO(to_graphml(graph)))
    assert domain_tree_of(read) == DomainTree.of(railed())
    assert read.edges == graph.edges


def test_names_that_are_markup_survive_graphml() -> None:
    nodes = [{"name": '<&"n>', "accelerator": "V100", "devices": 1, "domains": {}}]
    tiers = [{"name": "spine", "bandwidth": 1e9, "latency": 0}]
    graph = build_ctg(railed(nodes=nodes, tiers=tiers))
    assert set(nx.read_graphml(io.StringIO(to_graphml(graph)))) == set(graph)
