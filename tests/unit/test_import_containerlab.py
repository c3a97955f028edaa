"""containerlab: which nodes are switches, what links join, devices of several containers."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

LAB = """\
name: lab
topology:
  defaults: {kind: linux}
  groups:
    fabric: {kind: nokia_srlinux}
  nodes:
    leaf1: {group: fabric}
    leaf2: {group: fabric}
    top: {kind: arista_ceos}
    a:
    b: {kind: linux}
    c: {kind: linux}
  links:
    - endpoints: ["leaf1:e1", "top:e1"]
    - endpoints: ["leaf2:e1", "top:e2"]
    - endpoints: ["a:eth1", "leaf1:e2"]
    - endpoints: ["b:eth1", "leaf1:e3"]
    - type: veth
      endpoints:
        - {node: c, interface: eth1}
        - {node: leaf2, interface: e2}
    - endpoints: ["a:eth9", "host:veth0"]
"""


def facts_of(text: str) -> Facts:
    source = Source.of_text("lab.clab.yml", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "containerlab"
    return read_source(source)


def test_kinds_tell_switches_from_hosts_also_by_groups_and_defaults() -> None:
    facts = facts_of(LAB)
    assert facts.summary["switches"] == 3 and facts.summary["hosts"] == 3
    assert facts.summary["links"] == 5
    assert facts.summary["tiers"] == 2 and facts.summary["switches_by_tier"] == [2, 1]
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains == {
        "a": {"leaf": "leaf1"},
        "b": {"leaf": "leaf1"},
        "c": {"leaf": "leaf2"},
    }
    assert facts.network.spine.bytes_per_s is None
    assert any("outside" in warning for warning in facts.warnings)


def test_a_plain_container_that_is_called_a_leaf_forwards() -> None:
    facts = facts_of(LAB.replace("fabric: {kind: nokia_srlinux}", "fabric: {kind: linux}"))
    assert facts.summary["switch_list"] == ["leaf1", "leaf2", "top"]


def test_two_planes_that_meet_only_above_stay_two_domains() -> None:
    nodes = "".join(f"    s{k}: {{kind: sonic-vs}}\n" for k in range(3))
    nodes += "".join(f"    h{k}: {{kind: linux}}\n" for k in range(4))
    links = "".join(f"    - endpoints: [h{k}:e, s{k // 2}:p{k}]\n" for k in range(4))
    links += "".join(f"    - endpoints: [s{k}:up, s2:d{k}]\n" for k in range(2))
    facts = facts_of(f"name: x\ntopology:\n  nodes:\n{nodes}  links:\n{links}")
    assert facts.network is not None
    assert [has["leaf"] for has in facts.network.domains.values()] == ["s0", "s0", "s1", "s1"]


def test_containers_of_one_network_namespace_are_one_device() -> None:
    text = """\
name: x
topology:
  nodes:
    r1-a: {kind: nokia_srsim, env: {SYSTEM_BASE_MAC: "aa:01"}}
    r1-1: {kind: nokia_srsim, network-mode: "container:r1-a"}
    r2-a: {kind: nokia_srsim, env: {SYSTEM_BASE_MAC: "aa:01"}}
    r2-1: {kind: nokia_srsim, network-mode: "container:r2-a"}
  links:
    - endpoints: ["r1-1:1/1", "r2-1:1/1"]
"""
    facts = facts_of(text)
    assert facts.summary["switches"] == 2 and facts.summary["containers"] == 4
    assert facts.summary["switch_list"] == ["r1", "r2"]
    assert facts.network is None and facts.not_alone is not None
    assert facts.warnings == ("the same system MAC aa:01 twice: r1, r2",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAB[: LAB.index("  links:")], "0 links: topology.links is missing"),
        (LAB.replace('"a:eth1"', '"z:eth1"'), "line 16: a link to 'z'"),
        (LAB.replace("leaf1:e3", "leaf1:e2"), "interface leaf1:e2 has two links"),
        (LAB.replace('["a:eth1", "leaf1:e2"]', '["a:eth1"]'), "a link with 1 endpoints"),
        (LAB.replace('"a:eth1"', '"a"'), "write node:interface"),
        (LAB.replace("defaults: {kind: linux}", "defaults: {}"), "topology.nodes.a: kind nothing"),
        (
            LAB.replace(
                "b: {kind: linux}", 'b: {kind: linux, network-mode: "container:c"}'
            ).replace("c: {kind: linux}", 'c: {kind: linux, network-mode: "container:b"}'),
            "back to the node",
        ),
        (LAB.replace("    b: {kind: linux}", "    b: ["), "line"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_source(Source.of_text("lab.yml", text), "containerlab")
    assert told in str(caught.value)
