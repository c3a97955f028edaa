"""The domain tree of a cluster and that of its graph are the same, whatever the cluster."""

from __future__ import annotations

import networkx as nx
from effort import examples
from hypothesis import given, settings
from railweave.placement import Cluster, DomainTree, build_ctg, device_id, domain_tree_of
from random_instances import clusters


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_the_graph_and_the_cluster_have_one_domain_tree(cluster: Cluster) -> None:
    assert domain_tree_of(build_ctg(cluster)) == DomainTree.of(cluster)


@settings(max_examples=examples(40), deadline=None)
@given(clusters())
def test_every_device_is_in_the_graph_and_reaches_every_other(cluster: Cluster) -> None:
    graph = build_ctg(cluster)
    for node in cluster.nodes:
        for index in range(node.devices):
            assert graph.nodes[device_id(node.name, index)]["rail"] == index % cluster.rails
    assert nx.is_connected(graph)


@settings(max_examples=examples(40), deadline=None)
@given(clusters())
def test_domains_of_a_tier_part_the_nodes(cluster: Cluster) -> None:
    tree = DomainTree.of(cluster)
    names = sorted(node.name for node in cluster.nodes)
    for tier in tree.tiers:
        members = [node for domain in tree.domains(tier) for node in tree.nodes(domain)]
        assert sorted(members) == names
