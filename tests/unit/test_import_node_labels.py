"""Labels of Kubernetes nodes: which rung is the leaf, what nodes hold, and which are in service."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

AWS = "topology.k8s.aws/network-node-layer-"
GCP = "cloud.google.com/gce-topology-"


def node(name: str, labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        **more,
    }


def facts_of(nodes: list[dict[str, Any]] | str) -> Facts:
    text = nodes if isinstance(nodes, str) else json.dumps({"kind": "List", "items": nodes})
    source = Source.of_text("nodes.json", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "node-labels"
    return read_source(source)


def aws(*path: str) -> dict[str, str]:
    return {f"{AWS}{k}": value for k, value in enumerate(path, 1)}


def test_layer_one_of_aws_is_the_root() -> None:
    facts = facts_of([node("a", aws("r", "p", "l1")), node("b", aws("r", "p", "l2"))])
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains == {"a": {"leaf": "l1"}, "b": {"leaf": "l2"}}


def test_layers_that_run_the_other_way_round_are_told_by_counting() -> None:
    nodes = [node(f"n{k}", aws(f"l{k // 2}", f"p{k // 4}", "r")) for k in range(8)]
    facts = facts_of(nodes)
    assert facts.network is not None
    assert facts.network.domains["n5"] == {"leaf": "l2", "pod": "p1"}
    assert facts.summary["label_of_tier"]["leaf"] == f"{AWS}1"
    assert any("other way round" in warning for warning in facts.warnings)


def test_blocks_of_gke_and_devices_of_machine_types() -> None:
    labels = {f"{GCP}block": "b", f"{GCP}subblock": "s", f"{GCP}host": "h"}
    nodes = [
        node(
            f"n{k}",
            {
                **labels,
                f"{GCP}subblock": f"s{k // 2}",
                f"{GCP}host": f"h{k}",
                "node.kubernetes.io/instance-type": "a3-megagpu-8g",
            },
        )
        for k in range(4)
    ]
    facts = facts_of(nodes)
    assert facts.network is not None
    assert facts.network.domains["n3"] == {"gce-host": "h3", "subblock": "s1"}
    assert facts.machines["n0"].devices == 8
    assert facts.machines["n0"].accelerator == "H100-SXM"


def test_cliques_are_nvlink_domains_and_the_product_is_the_kind() -> None:
    labels = {
        "nvidia.com/gpu.clique": "u.1",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.product": "NVIDIA-GB200",
    }
    facts = facts_of(
        [node("a", {**labels, **aws("r", "l")}), node("b", {**labels, **aws("r", "m")})]
    )
    assert facts.network is not None
    assert facts.network.domains["a"]["nvlink"] == facts.network.domains["b"]["nvlink"] == "u.1"
    assert facts.machines["a"].accelerator == "GB200"


def test_nodes_without_accelerators_are_left_out_and_ill_ones_take_no_work() -> None:
    gpu = {"capacity": {"nvidia.com/gpu": "8"}}
    down = {"conditions": [{"type": "Ready", "status": "Unknown"}], **gpu}
    facts = facts_of(
        [
            node("control", {"x": "y"}, status={"capacity": {"cpu": "8"}}),
            node("a", aws("r", "l"), status=gpu, spec={"providerID": "aws:///z/i-0a"}),
            node("b", aws("r", "l"), status=down),
            node("c", aws("r", "m"), status=gpu, spec={"unschedulable": True}),
        ]
    )
    assert facts.network is not None and set(facts.network.domains) == {"a", "b", "c"}
    assert facts.aliases == {"i-0a": "a"}
    assert facts.machines["b"].faulty and facts.machines["c"].faulty
    assert not facts.machines["a"].faulty
    assert any("control" in warning for warning in facts.warnings)


def test_the_table_of_kubectl_is_read() -> None:
    text = "NAME STATUS ROLES AGE VERSION LABELS\n" + "".join(
        f"n{k} Ready{',SchedulingDisabled' if k else ''} <none> 5d v1.31 "
        f"fabric.topograph.run/tier-0=l{k},fabric.topograph.run/tier-1=s\n"
        for k in range(2)
    )
    facts = facts_of(text)
    assert facts.network is not None
    assert facts.network.domains == {"n0": {"leaf": "l0"}, "n1": {"leaf": "l1"}}
    assert facts.machines["n1"].faulty


def test_a_site_s_own_labels_are_told_by_their_words() -> None:
    nodes = [
        node(
            f"n{k}", {"topology.lab.example/rack": f"r{k % 2}", "topology.lab.example/pod": f"p{k}"}
        )
        for k in (0, 1)
    ]
    network = facts_of(yaml.safe_dump_all(nodes)).network
    assert network is not None
    assert network.domains["n1"] == {"rack": "r1", "pod": "p1"}


def test_a_value_under_two_others_is_two_places_where_values_may_repeat() -> None:
    block, rack = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
    nodes = [node(f"n{b}{r}", {block: f"b{b}", rack: f"r{r}"}) for b in (0, 1) for r in (0, 1, 2)]
    facts = facts_of(nodes)
    assert facts.network is not None
    assert facts.network.domains["n11"] == {"rack": "b1/r1", "block": "b1"}
    assert any("repeat" in warning for warning in facts.warnings)


def test_nodes_with_zones_only_say_so() -> None:
    facts = facts_of([node(f"n{k}", {"topology.kubernetes.io/zone": f"z{k}"}) for k in (0, 1)])
    assert facts.network is not None and facts.network.domains["n0"] == {"zone": "z0"}
    assert any("but zones" in warning for warning in facts.warnings)


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([node("a", aws("r", "l")), node("a", aws("r", "l"))], "'a' is listed twice"),
        (
            [
                node("a", aws("r", "l")),
                node("b", aws("q", "l")),
                node("c", aws("r", "m")),
                node("d", aws("q", "m")),
            ],
            "leaf 'l' lies in pod 'r' by a",
        ),
        ([node("a", {**aws("r"), "x": {}})], "label x is a mapping"),  # type: ignore[dict-item]
        ([node("", aws("r"))], "is no name"),
    ],
)
def test_contradictions_are_refused(nodes: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(nodes)
    assert told in str(caught.value)


def test_a_cut_file_is_refused_with_its_line() -> None:
    text = json.dumps({"kind": "List", "items": [node("a", aws("r"))]}, indent=1)
    with pytest.raises(InvalidInput, match=r"line \d+ column \d+: not JSON"):
        facts_of(text[:-20])
