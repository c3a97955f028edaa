"""NetQ's graph of switches and hosts, and its compute nodes with NVLink domains and health."""

from __future__ import annotations

import json
from typing import Any

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def graph(links: list[tuple[str, str, int]], hosts: int = 4) -> list[dict[str, Any]]:
    def device(key: str, name: str, tier: int, kind: str) -> dict[str, Any]:
        return {"id": key, "name": name, "tier": tier, "device_type": kind}

    switches = [device(f"node{k}", f"leaf{k}", 1, "switch") for k in range(2)]
    tops = [device("node9", "spine", 2, "switch")]
    below = [device(f"node1{k}", f"dgx-{k}", -1, "discovered_via_lldp") for k in range(hosts)]
    return [
        {
            "nodes": [
                {"tier": 1, "compounded_nodes": switches},
                {"tier": 2, "compounded_nodes": tops},
                {"tier": -1, "compounded_nodes": below},
            ],
            "links": [
                {"id": f"{a}-*-{b}", "size": n, "compounded_links": [{}] * n} for a, b, n in links
            ],
        }
    ]


LINKS = [
    ("node10", "node0", 2),
    ("node0", "node11", 2),
    ("node12", "node1", 2),
    ("node13", "node1", 2),
    ("node0", "node9", 3),
    ("node1", "node9", 3),
]


def facts_of(data: Any, name: str) -> Facts:
    source = Source.of_text("netq.json", json.dumps(data, indent=1))
    importer = recognised(source)
    assert importer is not None and importer.name == name
    return read_source(source)


def test_a_graph_gives_tiers_whatever_way_its_links_are_named() -> None:
    facts = facts_of(graph(LINKS), "netq-topology-graph")
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains["dgx-1"] == {"leaf": "leaf0"}
    assert facts.network.rails == 2
    assert facts.summary["links"] == 14 and facts.summary["linked_pairs"] == 6
    assert facts.summary["switches_by_tier"] == {1: 2, 2: 1}


def test_a_host_without_link_stands_alone_with_a_warning() -> None:
    facts = facts_of(graph(LINKS, hosts=5), "netq-topology-graph")
    assert any("dgx-4" in warning for warning in facts.warnings)


@pytest.mark.parametrize(
    "links", [[("node10", "node77", 1)], [("node10", "node10", 1)], [("node10-*-node1", "x", 1)]]
)
def test_links_to_nowhere_are_refused(links: list[tuple[str, str, int]]) -> None:
    with pytest.raises(InvalidInput, match=r"links\[0\]"):
        facts_of(graph(links), "netq-topology-graph")


def test_a_graph_without_links_is_no_fabric() -> None:
    with pytest.raises(InvalidInput, match="4 hosts and 0 links"):
        facts_of(graph([]), "netq-topology-graph")


def node(name: str, gpus: list[str], **more: Any) -> dict[str, Any]:
    return {"Name": name, "GpuIDList": gpus, "DomainUUID": "d1", "Health": "HEALTHY", **more}


def test_compute_nodes_are_a_list_of_domains_and_no_fabric() -> None:
    location = {"ChassisID": 1, "SlotID": 5, "TrayIndex": 4}
    facts = facts_of(
        [node("n1", ["b", "a"], LocationInfo=location), node("n2", ["c", "d"])],
        "netq-compute-nodes",
    )
    assert facts.summary["gpus_of_nvlink_domain"] == {"d1": 4}
    assert facts.summary["location_of_node"]["n1"] == {"chassis": 1, "slot": 5, "tray": 4}
    assert facts.machines["n1"].devices == 2
    assert facts.network is not None and facts.network.tiers[0].scale_up
    assert facts.not_alone is not None and "no network" in facts.not_alone.found


def test_ill_nodes_take_no_work_and_unknown_domains_stay_unknown() -> None:
    facts = facts_of(
        [node("n1", ["a"], Health="DEGRADED"), node("n2", ["b"], DomainUUID="")],
        "netq-compute-nodes",
    )
    assert facts.machines["n1"].faulty == "NetQ says DEGRADED"
    assert facts.network is not None and facts.network.domains["n2"] == {}
    assert len(facts.warnings) == 2


def test_a_gpu_in_two_nodes_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"line \d+: GPU a is in 'n2' and in 'n1'"):
        facts_of([node("n1", ["a"]), node("n2", ["a"])], "netq-compute-nodes")
