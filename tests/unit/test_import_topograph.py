"""Topograph: models, instance lists, and NVLink domains beside and across the tiers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

MODEL = """\
# two pods
switches:
  core:
    labels: {topology.kubernetes.io/region: r1}
    switches: [s1, s2]
  s1:
    switches:
    - l1
    - l2
  s2:
    switches: [l3]
blocks:
- switch: l1
  nodes: ["[101-102]"]
  annotations: {accelerator.topology.test/domain: nv1}
- switch: l2
  nodes: ["n[1-2]", n9]
  annotations: {accelerator.topology.test/domain: nv2}
- switch: l3
  nodes: [x]
"""


def facts_of(text: str, name: str = "topograph-model") -> Facts:
    source = Source.of_text("model", text)
    importer = recognised(source)
    assert importer is not None and importer.name == name
    return read_source(source)


def test_a_model_gives_tiers_below_its_root_and_nvlink_domains() -> None:
    facts = facts_of(MODEL)
    network = facts.network
    assert network is not None and network.spine is not None
    assert [tier.name for tier in network.tiers] == ["nvlink", "leaf", "pod"]
    assert network.tiers[0].scale_up
    assert network.domains["102"] == {"nvlink": "nv1", "leaf": "l1", "pod": "s1"}
    assert network.domains["x"] == {"leaf": "l3", "pod": "s2"}
    assert facts.summary["switches"] == 6
    assert facts.summary["switches_not_declared"] == ["l1", "l2", "l3"]
    assert facts.summary["accelerator_domains"] == {"nv1": "[101-102]", "nv2": "n[1-2,9]"}
    assert facts.summary["switch_labels"]["core"] == {"topology.kubernetes.io/region": "r1"}


def test_an_nvlink_domain_over_several_leaves_makes_one_of_them() -> None:
    facts = facts_of(MODEL.replace("nv2", "nv1"))
    assert facts.network is not None
    leaves = {node: has["leaf"] for node, has in facts.network.domains.items()}
    assert leaves["101"] == leaves["n9"] != leaves["x"]
    assert any("reach over several domains of leaf" in warning for warning in facts.warnings)


def test_sub_domains_are_a_nearer_tier() -> None:
    text = MODEL.replace("{accelerator.topology.test/domain: nv1}", "") + (
        "  annotations:\n    accelerator.topology.test/domain: nv9\n"
        "    accelerator.topology.test/sub-domain: rack-1\n"
    )
    facts = facts_of(text.replace("  annotations: \n", ""))
    assert facts.network is not None
    assert facts.network.domains["x"]["nvlink-part"] == "rack-1"


def test_blocks_without_switches_are_domains_only() -> None:
    text = "blocks:\n- nodes: [a1, a2]\n  annotations: {accelerator.topology.test/domain: d}\n"
    facts = facts_of(text)
    assert facts.network is not None and facts.network.spine is None
    assert facts.network.domains == {"a1": {"nvlink": "d"}, "a2": {"nvlink": "d"}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MODEL.replace("[l3]", "[l3, l1]"), "'l1' lies under 's2'"),
        (MODEL.replace("[l3]", "[core]"), "below themselves"),
        (MODEL.replace("nodes: [x]", "nodes: [n9]"), "node 'n9' is in two blocks"),
        (MODEL.replace("nodes: [x]", 'nodes: ["x[0-99999999]"]'), "at most"),
        (MODEL.replace("nodes: [x]", "nodes: [{a: 1}]"), "is no name"),
        (MODEL.replace("  s2:\n    switches: [l3]", "  s2: 5"), "no mapping"),
        (MODEL[: MODEL.index("blocks:")] + "blocks: [{nodes: [", "line"),
    ],
)
def test_a_damaged_model_is_refused_with_the_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_source(Source.of_text("model", text), "topograph-model")
    assert told in str(caught.value)


def instances(**layers: list[str]) -> str:
    listed = [{"id": name, "network_layers": path} for name, path in layers.items()]
    return json.dumps({"instances": listed}, indent=1)


def test_instances_have_the_nearest_switch_first() -> None:
    facts = facts_of(instances(a=["l1", "s1"], b=["l1", "s1"], c=["l2", "s1"]), "topograph-output")
    assert facts.network is not None
    assert facts.network.domains["b"] == {"leaf": "l1"}
    assert facts.network.spine is not None


def test_instances_listed_root_first_are_told_by_counting() -> None:
    facts = facts_of(instances(a=["s1", "l1"], b=["s1", "l1"], c=["s1", "l2"]), "topograph-output")
    assert facts.network is not None
    assert facts.network.domains["c"] == {"leaf": "l2"}
    assert any("other way round" in warning for warning in facts.warnings)


def test_what_lambda_s_api_answers_is_read_without_its_page_token() -> None:
    listed = [
        {
            "id": f"i-{k}",
            "networkPath": [{"id": f"l{k // 2}"}, {"id": "s"}],
            "nvlink": {"domain_id": "d", "clique_id": str(k // 2)} if k else None,
        }
        for k in range(4)
    ]
    facts = facts_of(json.dumps({"data": listed, "page_token": "s3cret"}), "topograph-output")
    assert facts.network is not None
    assert facts.network.domains["i-3"] == {"nvlink": "d.1", "leaf": "l1"}
    assert facts.network.domains["i-0"] == {"leaf": "l0"}
    assert any("more pages" in warning for warning in facts.warnings)
    assert "s3cret" not in "".join(facts.warnings)


def test_contradicting_instances_are_refused_with_their_line() -> None:
    text = instances(a=["l1", "s1"], b=["l1", "s2"], c=["l2", "s2"], d=["l2", "s1"])
    with pytest.raises(InvalidInput, match=r"line \d+: leaf 'l1' lies in pod 's1' by a"):
        facts_of(text, "topograph-output")


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=2, max_size=4))
def test_any_tree_of_instances_is_read_back_in_either_order(shape: list[list[int]]) -> None:
    layers = {
        f"i-{p}-{k}-{i}": [f"l-{p}-{k}", f"p-{p}", "root"]
        for p, leaves in enumerate(shape)
        for k, count in enumerate(leaves)
        for i in range(count)
    }
    facts = facts_of(instances(**layers), "topograph-output")
    assert facts.network is not None and facts.network.spine is not None
    for name, path in layers.items():
        assert facts.network.domains[name] == {"leaf": path[0], "pod": path[1]}
    if any(len(leaves) > 1 for leaves in shape):
        turned = facts_of(
            instances(**{name: path[::-1] for name, path in layers.items()}), "topograph-output"
        )
        assert turned.network == facts.network
