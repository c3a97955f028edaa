"""Files that belong together complete each other: levels and labels, networks and machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from railweave.placement.importers.clusters import Choices, Imported, assembled, import_cluster
from railweave.placement.importers.registry import read_files, read_sources
from railweave.placement.importers.source import Source

SAMPLES = Path(__file__).resolve().parents[1] / "samples"


def topology(*keys: str, name: str = "t") -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": key} for key in keys]},
    }


def node(name: str, **labels: str) -> dict[str, Any]:
    named = {f"a.example/{key}": value for key, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": named}}


def read(nodes: list[dict[str, Any]], *topologies: dict[str, Any]) -> Imported:
    listed = json.dumps({"kind": "List", "apiVersion": "v1", "items": nodes})
    sources = [Source.of_text("nodes.json", listed)]
    if topologies:
        sources.append(Source.of_text("kueue.yaml", yaml.safe_dump_all(topologies)))
    return assembled(read_sources(sources))


FOUR = [node(f"n{k}", hall=f"h{k // 4}", row=f"r{k // 2 % 2}") for k in range(8)]


def test_labels_of_nodes_are_read_by_the_levels_that_kueue_uses() -> None:
    imported = read(FOUR, topology("a.example/hall", "a.example/row", "kubernetes.io/hostname"))
    assert [tier.name for tier in imported.cluster.tiers] == ["row", "hall", "spine"]
    rows = {each.name: each.domains["row"] for each in imported.cluster.nodes}
    assert rows["n0"] == rows["n1"] != rows["n2"]
    assert rows["n0"] != rows["n4"], "r0 of one hall is not r0 of another"
    assert imported.facts["nodes.json"].summary["labels_of"] == "Topology t"
    assert list(imported.facts) == ["nodes.json", "kueue.yaml"]


def test_without_the_levels_the_same_labels_say_nothing() -> None:
    imported = read(FOUR)
    assert [tier.name for tier in imported.cluster.tiers] == ["spine"]
    assert any("no label tells of the network" in warning for warning in imported.warnings)


def test_levels_that_no_node_has_are_told_and_the_usual_labels_are_used() -> None:
    labels = {"topology.k8s.aws/network-node-layer-1": "top"}
    nodes = [node(f"n{k}") for k in range(4)]
    for k, each in enumerate(nodes):
        each["metadata"]["labels"] = labels | {
            "topology.k8s.aws/network-node-layer-2": f"l{k // 2}"
        }
    imported = read(nodes, topology("b.example/row"))
    assert [tier.name for tier in imported.cluster.tiers] == ["leaf", "spine"]
    told = "nodes.json: no node has a label of Topology t: b.example/row"
    assert told in imported.warnings


def test_of_several_topologies_the_one_that_most_nodes_are_labelled_for_is_used() -> None:
    imported = read(
        FOUR,
        topology("a.example/hall", "b.example/row", name="half"),
        topology("a.example/hall", "a.example/row", name="whole"),
    )
    assert imported.facts["nodes.json"].summary["labels_of"] == "Topology whole"
    assert any("not those of Topology half" in warning for warning in imported.warnings)


def test_keys_that_end_alike_call_their_tiers_by_whole_keys() -> None:
    nodes = [node(f"n{k}", row=f"r{k // 2}") for k in range(8)]
    for k, each in enumerate(nodes):
        each["metadata"]["labels"]["b.example/row"] = f"s{k // 4}"
    imported = read(nodes, topology("b.example/row", "a.example/row"))
    names = [tier.name for tier in imported.cluster.tiers]
    assert names == ["a.example/row", "b.example/row", "spine"]


def sample(*formats: str) -> list[Path]:
    return [next((SAMPLES / name).iterdir()) for name in formats]


def test_a_switch_tree_and_the_matrix_of_its_nodes_make_one_cluster() -> None:
    paths = sample("slurm-topology-conf", "nvidia-smi-topo")
    imported = import_cluster(paths, Choices(accelerator="H100-SXM"))
    assert [tier.name for tier in imported.cluster.tiers] == ["leaf", "pod", "spine"]
    assert {each.devices for each in imported.cluster.nodes} == {4}
    assert imported.cluster.rails == 4
    assert len(imported.cluster.links) == 1


def test_guids_of_a_fabric_take_the_names_of_their_hosts() -> None:
    imported = import_cluster(sample("ibnetdiscover", "ibstat-names"))
    assert [each.name for each in imported.cluster.nodes] == ["gpu01", "gpu02", "gpu03", "gpu04"]


def test_instances_of_a_cloud_are_the_nodes_of_kubernetes_that_name_them() -> None:
    imported = import_cluster(sample("node-labels", "aws-instance-topology"))
    assert [tier.name for tier in imported.cluster.tiers] == ["leaf", "pod", "spine"]
    assert sorted(each.name for each in imported.cluster.nodes) == [f"gpu0{k}" for k in range(1, 9)]
    assert {each.devices for each in imported.cluster.nodes} == {8}


def test_a_file_given_twice_counts_once() -> None:
    paths = sample("slurm-topology-conf") * 2
    assert len(read_files(paths)) == 1


@pytest.mark.parametrize("formats", [("hwloc-xml", "nvidia-smi-topo")])
def test_one_node_needs_no_rates_of_a_network(formats: tuple[str, ...]) -> None:
    for path in sample(*formats):
        warnings = import_cluster([path]).warnings
        assert not any(warning.startswith(("bandwidth", "latency")) for warning in warnings)


def test_an_nvlink_domain_of_unknown_devices_has_an_assumed_rate() -> None:
    [path] = sample("cluster-uuids")
    told = "bandwidth: no file gives that of nvlink, nor the kind of device"
    assert any(warning.startswith(told) for warning in import_cluster([path]).warnings)
    known = import_cluster([path], Choices(accelerator="GB200"))
    assert not any(warning.startswith(told) for warning in known.warnings)
    assert known.cluster.tiers[0].bandwidth > 100e9


def fabric(**nodes_of: str) -> Source:
    lines = [f"SwitchName={leaf} Nodes={nodes}" for leaf, nodes in nodes_of.items()]
    lines.append(f"SwitchName=top Switches={','.join(nodes_of)}")
    return Source.of_text("topology.conf", "\n".join(lines) + "\n")


def partitions(**of: int) -> Source:
    lines = [f"{node}: 7d1c40a2-93b5-4f0e-8c11-2f6e90ad51{of[node]:02x}" for node in of]
    return Source.of_text("partitions.txt", "\n".join(lines) + "\n")


def test_a_node_of_unknown_leaf_lies_where_the_others_of_its_nvlink_domain_do() -> None:
    leaves = fabric(l1="a,f", l2="c", l3="d")
    imported = assembled(read_sources([leaves, partitions(a=1, b=1, c=2, d=3, e=3, f=4)]))
    leaf = {each.name: each.domains["leaf"] for each in imported.cluster.nodes}
    assert leaf["b"] == leaf["a"] == "l1" and leaf["e"] == leaf["d"] == "l3"
    assert any("such as b in l1" in warning for warning in imported.warnings)


def test_an_nvlink_domain_of_which_no_leaf_is_known_is_one_domain_of_its_own() -> None:
    imported = assembled(
        read_sources([fabric(l1="a,b", l2="c"), partitions(a=1, b=1, c=2, x=3, y=3)])
    )
    leaf = {each.name: each.domains["leaf"] for each in imported.cluster.nodes}
    assert leaf["x"] == leaf["y"] not in ("l1", "l2")


def test_a_machine_that_is_unlike_what_names_its_node_is_told() -> None:
    paths = sample("aws-instance-topology", "nvidia-smi-topo")
    imported = import_cluster(paths)
    told = [warning for warning in imported.warnings if warning.startswith("number of devices")]
    assert len(told) == 1 and "8 by the file that names the node, 4 by" in told[0]
    assert {each.devices for each in imported.cluster.nodes} == {8}
