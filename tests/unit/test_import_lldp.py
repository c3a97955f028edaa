"""LLDP neighbours in both forms of JSON, from one host and from many."""

from __future__ import annotations

import json
from typing import Any

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def facts_of(data: Any, name: str = "dgx-1.json") -> Facts:
    source = Source.of_text(name, json.dumps(data))
    importer = recognised(source)
    assert importer is not None and importer.name == "lldp"
    return read_source(source)


def neighbour(switch: str, port: str, forwards: bool | None = True, rate: str = "") -> Any:
    chassis: dict[str, Any] = {"id": {"type": "mac", "value": "00:01"}}
    if forwards is not None:
        chassis["capability"] = [
            {"type": "Bridge", "enabled": forwards},
            {"type": "Wlan", "enabled": True},
        ]
    told: dict[str, Any] = {"id": {"type": "ifname", "value": port}, "descr": port}
    if rate:
        told["auto-negotiation"] = {"supported": True, "current": rate}
    return {"via": "LLDP", "chassis": {switch: chassis}, "port": told}


def test_an_object_with_one_interface_and_a_list_of_several_are_the_same() -> None:
    one = facts_of({"lldp": {"interface": {"eth0": neighbour("leaf1", "swp1")}}})
    assert one.network is not None and one.network.domains == {"dgx-1": {"leaf": "leaf1"}}
    two = facts_of(
        {
            "lldp": {
                "interface": [
                    {"eth0": neighbour("leaf1", "swp1", rate="100GbaseSR4 - rest")},
                    {"eth1": neighbour("leaf2", "swp1", rate="100GbaseSR4 - rest")},
                ]
            }
        }
    )
    assert two.network is not None
    assert two.network.domains == {"dgx-1": {"leaf": "leaf1+leaf2"}}
    assert two.network.tiers[0].bytes_per_s == 12.5e9


def test_json0_wraps_every_value() -> None:
    chassis = {
        "name": [{"value": "leaf1"}],
        "id": [{"type": "mac", "value": "00:01"}],
        "capability": [{"type": "Bridge", "enabled": True}],
    }
    port = {"id": [{"type": "ifname", "value": "swp9"}], "descr": [{"value": "to dgx"}]}
    data = {
        "lldp": [
            {"interface": [{"name": "eth0", "via": "LLDP", "chassis": [chassis], "port": [port]}]}
        ]
    }
    facts = facts_of(data)
    assert facts.summary["neighbours_of_host"]["dgx-1"][0]["port"] == "to dgx"
    assert facts.network is not None and facts.network.domains == {"dgx-1": {"leaf": "leaf1"}}


def test_a_neighbour_that_forwards_nothing_is_no_switch() -> None:
    facts = facts_of({"lldp": {"interface": {"eth0": neighbour("ns-2", "eth1", forwards=False)}}})
    assert facts.network is None
    assert facts.not_alone is not None
    assert "none is a switch (eth0 -> ns-2 port eth1)" in facts.not_alone.found


def test_a_neighbour_that_says_nothing_of_itself_is_taken_for_a_switch_with_a_warning() -> None:
    facts = facts_of({"lldp": {"interface": {"eth0": neighbour("leaf1", "p", forwards=None)}}})
    assert facts.network is not None and facts.network.domains["dgx-1"] == {"leaf": "leaf1"}
    assert any("taken for a switch" in warning for warning in facts.warnings)


def test_the_answers_of_many_hosts_in_one_file_are_one_network() -> None:
    data = {
        f"dgx-{k}": {"lldp": {"interface": {"eth0": neighbour(f"leaf{k // 2}", f"swp{k}")}}}
        for k in range(4)
    }
    facts = facts_of(data)
    assert facts.network is not None
    assert facts.network.domains["dgx-3"] == {"leaf": "leaf1"}
    assert facts.summary["domains"]["leaf"]["leaf0"] == "dgx-[0-1]"


def test_a_neighbour_without_name_goes_by_its_id() -> None:
    data = {
        "lldp": {
            "interface": {
                "eth0": {
                    "chassis": {"id": {"type": "mac", "value": "00:07"}, "descr": "x"},
                    "port": {},
                }
            }
        }
    }
    assert facts_of(data).summary["switches"] == ["00:07"]


@pytest.mark.parametrize(
    "data",
    [
        {"lldp": {"interface": {"eth0": 5}}},
        {"lldp": {"interface": {"eth0": {"chassis": {"x": 7}, "port": {}}}}},
        {"lldp": {"interface": {"eth0": {"chassis": {"id": {}, "descr": "x"}}}}},
    ],
)
def test_damaged_answers_are_refused(data: Any) -> None:
    with pytest.raises(InvalidInput):
        facts_of(data)


def test_a_cut_answer_is_refused_with_its_line() -> None:
    text = json.dumps({"lldp": {"interface": {"eth0": neighbour("leaf1", "p")}}}, indent=1)
    with pytest.raises(InvalidInput, match=r"line .* not JSON"):
        read_source(Source.of_text("x", text[:-30]))
