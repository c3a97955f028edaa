"""What schedulers describe: Kueue's levels, Volcano's HyperNodes, HiveD's cells."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def facts_of(text: str, name: str) -> Facts:
    source = Source.of_text("objects.yaml", text)
    importer = recognised(source)
    assert importer is not None and importer.name == name
    return read_source(source)


KUEUE = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: t}
spec:
  levels: [{nodeLabel: a/block}, {nodeLabel: kubernetes.io/hostname}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: f}
spec: {topologyName: other, nodeLabels: {kind: "${type}"}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: q}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: f
      resources: [{name: nvidia.com/gpu, nominalQuota: GPUS}]
"""


def test_kueue_levels_are_keys_of_labels_and_need_nodes() -> None:
    facts = facts_of(KUEUE.replace("GPUS", "64"), "kueue-topology")
    assert facts.summary["topologies"] == {"t": ["a/block", "kubernetes.io/hostname"]}
    assert facts.summary["gpu_quota"] == 64
    assert facts.not_alone is not None and "no nodes" in facts.not_alone.found
    assert any("'other'" in warning for warning in facts.warnings)


def test_places_of_a_template_are_named_and_never_read_as_numbers() -> None:
    facts = facts_of(KUEUE.replace("GPUS", '"${count}"'), "kueue-topology")
    assert facts.summary["unresolved"] == ["${type}", "${count}"]
    assert facts.summary["gpu_quota"] == ["unresolved: ${count}"]
    assert any(warning.startswith("line 10: ${type}") for warning in facts.warnings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (KUEUE.replace("levels: [{", "levels: [{nodeLabel: a/block}, {"), "twice"),
        (KUEUE.replace("levels: [{nodeLabel: a/block}, ", "levels: [5, "), "no mapping"),
        (KUEUE.replace("kind: Topology", "kind: Topologies"), "no Topology"),
        (KUEUE.replace("metadata: {name: t}", "metadata: {}"), "a name that is nothing"),
    ],
)
def test_damaged_kueue_objects_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text, "kueue-topology")
    assert told in str(caught.value)


def hypernode(name: str, tier: Any, *members: str | dict[str, Any], kind: str = "Node") -> Any:
    listed = [
        {"type": kind, "selector": {"exactMatch": {"name": m}}} if isinstance(m, str) else m
        for m in members
    ]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": listed},
    }


def volcano(*objects: Any) -> Facts:
    return facts_of(yaml.safe_dump_all(objects), "volcano-hypernode")


TREE = (
    hypernode("s0", 1, "n0", "n1"),
    hypernode("s1", 1, "n2"),
    hypernode("s2", 2, "s0", "s1", kind="HyperNode"),
)


def test_hypernodes_make_a_tree() -> None:
    facts = volcano(*TREE)
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains["n1"] == {"leaf": "s0"}
    assert facts.summary["hypernodes_of_tier"] == {1: ["s0", "s1"], 2: ["s2"]}
    assert facts.summary["roots"] == ["s2"]
    assert facts.warnings == ()


def test_missing_fields_are_warned_of_and_patterns_name_no_nodes() -> None:
    old = {
        "version": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "name": "s9",
        "spec": {"tier": 1, "members": [{"name": "n9"}]},
    }
    pattern = {"type": "Node", "selector": {"regexMatch": {"pattern": "^gpu-.*$"}}}
    facts = volcano(*TREE, old, hypernode("s8", 1, pattern, "n8"))
    told = "\n".join(facts.warnings)
    for part in ("without apiVersion: s9", "without metadata: s9", "type of members", "^gpu-.*$"):
        assert part in told
    assert facts.network is not None and {"n8", "n9"} <= set(facts.network.domains)


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ((*TREE, hypernode("s3", 2, "s0", kind="HyperNode")), "'s0' lies under 's3'"),
        ((*TREE, hypernode("s3", 1, "n0")), "node 'n0' lies under 's3'"),
        ((*TREE[:2], hypernode("s2", 1, "s0", kind="HyperNode")), "of tier 1 holds 's0' of tier 1"),
        (
            (hypernode("a", 2, "b", kind="HyperNode"), hypernode("b", 1, "a", kind="HyperNode")),
            "below themselves",
        ),
        ((*TREE, hypernode("s5", 3, "gone", kind="HyperNode")), "'gone', which is not described"),
        ((*TREE, hypernode("s5", "three", "n7")), "tier"),
        ((*TREE, TREE[0]), "described twice"),
    ],
)
def test_contradicting_hypernodes_are_refused(objects: tuple[Any, ...], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        volcano(*objects)
    assert told in str(caught.value)


def test_a_configuration_of_discovery_is_refused_without_its_secrets() -> None:
    config = {
        "networkTopologyDiscovery": [
            {
                "source": "ufm",
                "enabled": True,
                "config": {"token": "s3cret", "endpoint": "https://u"},
            },
            {
                "source": "label",
                "enabled": False,
                "config": {"networkTopologyTypes": {"t": [{"nodeLabel": "a/tor"}]}},
            },
        ]
    }
    wrapped = {"kind": "ConfigMap", "data": {"config.yaml": yaml.safe_dump(config)}}
    for document in (config, wrapped):
        with pytest.raises(InvalidInput) as caught:
            facts_of(yaml.safe_dump(document), "volcano-hypernode")
        told = str(caught.value)
        assert "2 sources (ufm on, label off)" in told and "t (tor)" in told
        assert "s3cret" not in told and "https" not in told


HIVED: dict[str, Any] = {
    "kubeApiServerAddress": "http://10.0.0.1",
    "physicalCluster": {
        "cellTypes": {
            "SOCKET": {"childCellType": "V100", "childCellNumber": 4},
            "NODE": {"childCellType": "SOCKET", "childCellNumber": 2, "isNodeLevel": True},
            "RACK": {"childCellType": "NODE", "childCellNumber": 2},
            "IDLE": {"childCellType": "NODE", "childCellNumber": 9},
        },
        "physicalCells": [
            {"cellType": "RACK", "cellChildren": [{"cellAddress": "a"}, {"cellAddress": "b"}]},
            {
                "cellType": "RACK",
                "pinnedCellId": "p",
                "cellChildren": [{"cellAddress": "c"}, {"cellAddress": "d"}],
            },
            {"cellType": "NODE", "cellAddress": "e"},
        ],
    },
    "virtualClusters": {
        "v": {
            "virtualCells": [{"cellType": "RACK.NODE", "cellNumber": 1}],
            "pinnedCells": [{"pinnedCellId": "p"}, {"pinnedCellId": "gone"}],
        }
    },
}


def hived(**changes: Any) -> Facts:
    config = json.loads(json.dumps(HIVED))
    physical = config["physicalCluster"]
    physical["physicalCells"] += changes.get("cells", [])
    physical["cellTypes"] |= changes.get("types", {})
    return facts_of(yaml.safe_dump(config), "hived-cells")


def test_cells_give_nodes_devices_and_racks() -> None:
    facts = hived()
    assert facts.summary["devices_by_kind"] == {"V100": 40}
    assert facts.summary["nodes"] == 5 and facts.summary["top_cells"] == 3
    assert facts.summary["cell_types_not_used"] == ["IDLE"]
    assert facts.summary["pinned"] == ["p"]
    assert facts.network is not None and facts.network.spine is None
    leaves = {node: has.get("leaf") for node, has in facts.network.domains.items()}
    assert leaves["a"] == leaves["b"] != leaves["c"] == leaves["d"]
    assert leaves["e"] is None
    assert facts.machines["a"].devices == 8
    assert any("'gone'" in warning for warning in facts.warnings)


def test_a_node_may_have_two_kinds_whose_devices_do_not_collide() -> None:
    types = {"T4N": {"childCellType": "T4", "childCellNumber": 2, "isNodeLevel": True}}
    cell = {
        "cellType": "T4N",
        "cellAddress": "a",
        "cellChildren": [{"cellAddress": 8}, {"cellAddress": 9}],
    }
    facts = hived(types=types, cells=[cell])
    assert facts.summary["node_cells"] == 6 and facts.summary["nodes"] == 5
    assert facts.machines["a"].accelerator == "V100"
    assert any("several kinds (V100 8, T4 2)" in warning for warning in facts.warnings)
    with pytest.raises(InvalidInput, match="device 0 of node 'a' is both 'T4' and 'V100'"):
        hived(types=types, cells=[{"cellType": "T4N", "cellAddress": "a"}])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"cells": [{"cellType": "NOPE"}]}, "physicalCells[3]: unknown cellType"),
        ({"cells": [{"cellType": "RACK"}]}, "0 children; its type has 2"),
        ({"cells": [{"cellType": "SOCKET"}]}, "no cell of node level"),
        ({"cells": [{"cellType": "NODE"}]}, "is no name"),
        ({"cells": [{"cellType": "NODE", "cellAddress": "a"}]}, "twice"),
        ({"types": {"V100": {"childCellType": "NODE", "childCellNumber": 1}}}, "within themselves"),
        ({"types": {"X": {"childCellType": "NODE", "childCellNumber": 10**9}}}, "childCellNumber"),
        (
            {
                "types": {
                    "BIG": {"childCellType": "A", "childCellNumber": 99, "isNodeLevel": True},
                    "A": {"childCellType": "B", "childCellNumber": 4096},
                },
                "cells": [{"cellType": "BIG", "cellAddress": "x"}],
            },
            "more than 4096 devices",
        ),
    ],
)
def test_cells_that_do_not_fit_their_types_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        hived(**changes)
    assert told in str(caught.value)
