"""AWS instance topology: root first, told from the values, with what is missing or contradicts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def instance(name: str, *path: str, **more: Any) -> dict[str, Any]:
    return {"InstanceId": name, "InstanceType": "p5.48xlarge", "NetworkNodes": list(path), **more}


def facts_of(*instances: dict[str, Any], **more: Any) -> Facts:
    text = json.dumps({"Instances": list(instances), **more}, indent=1)
    source = Source.of_text("aws.json", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "aws-instance-topology"
    return read_source(source)


FOUR = (
    instance("i-1", "nn-1", "nn-2", "nn-4", CapacityBlockId="null"),
    instance("i-2", "nn-1", "nn-2", "nn-4"),
    instance("i-3", "nn-1", "nn-2", "nn-5"),
    instance("i-4", "nn-1", "nn-3", "nn-6"),
)


def test_the_last_network_node_is_the_leaf() -> None:
    facts = facts_of(*FOUR)
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains["i-3"] == {"leaf": "nn-5", "pod": "nn-2"}
    assert facts.summary["roots"] == ["nn-1"]
    assert facts.summary["switches"] == 6
    assert facts.summary["tiers"] == 3
    assert facts.summary["capacity_blocks"] == []
    assert facts.machines["i-1"].devices == 8


def test_lists_that_run_leaf_first_are_told_by_counting() -> None:
    turned = [{**one, "NetworkNodes": one["NetworkNodes"][::-1]} for one in FOUR]
    facts = facts_of(*turned)
    assert facts.network is not None
    assert facts.network.domains["i-3"] == {"leaf": "nn-5", "pod": "nn-2"}
    assert facts.summary["roots"] == ["nn-1"]
    assert any("other way round" in warning for warning in facts.warnings)


def test_one_instance_is_read_root_first() -> None:
    facts = facts_of(instance("i-1", "a", "b", "c"))
    assert facts.summary["leaf_of_instance"] == {"i-1": "c"}
    assert facts.network is not None and facts.network.domains == {"i-1": {}}


def test_ultraservers_are_nvlink_domains_and_other_capacity_blocks_are_not() -> None:
    ultra = [
        instance(f"i-{k}", "r", f"l{k}", CapacityBlockId="cb-1", InstanceType="p6e-gb200.36xlarge")
        for k in range(2)
    ]
    network = facts_of(*ultra).network
    assert network is not None
    assert network.tiers[0].scale_up and network.domains["i-0"]["nvlink"] == "cb-1"
    plain = facts_of(instance("i-9", "r", "l", CapacityBlockId="cb-2"))
    assert plain.network is not None and "nvlink" not in plain.network.domains["i-9"]
    assert plain.summary["capacity_blocks"] == ["cb-2"]


def test_more_pages_and_instances_without_topology_are_warned_of_without_the_token() -> None:
    facts = facts_of(*FOUR, instance("i-5"), NextToken="s3cret")
    told = "\n".join(facts.warnings)
    assert "more pages" in told and "i-5" in told and "s3cret" not in told
    assert "s3cret" not in json.dumps(facts.summary)


def test_pages_one_after_the_other_are_one_list() -> None:
    pages = [{"Instances": [one]} for one in FOUR]
    facts = read_source(Source.of_text("aws.json", json.dumps(pages[0])))
    assert facts.summary["instances"] == 1


def test_contradictions_are_refused_with_the_line() -> None:
    with pytest.raises(InvalidInput, match=r"line .*listed twice with different"):
        facts_of(*FOUR, instance("i-1", "nn-1", "nn-3", "nn-6"))
    with pytest.raises(InvalidInput, match="'nn-4' lies in pod 'nn-2' by i-1 and in 'nn-3'"):
        facts_of(*FOUR, instance("i-9", "nn-1", "nn-3", "nn-4"))
    with pytest.raises(InvalidInput, match="twice"):
        facts_of(instance("i-1", "a", "b", "a"))


@pytest.mark.parametrize(
    "text",
    [
        '{"Instances": [{"InstanceId": "i-1", "NetworkNodes": ["a", "b"',
        '{"Instances": [{"NetworkNodes": ["a"]}]}',
        '{"Instances": [{"InstanceId": "i", "NetworkNodes": [["a"]]}]}',
        '{"Instances": [{"InstanceId": "i", "NetworkNodes": "a"}]}',
        '{"Instances": ["NetworkNodes"], "x": {"NetworkNodes": 1}}',
        '{"Instances": [], "x": {"NetworkNodes": 1}}',
    ],
)
def test_damaged_files_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_source(Source.of_text("aws.json", text))
