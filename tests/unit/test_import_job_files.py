"""Rank tables, HCL configurations and NVLink states: what they tell of nodes, and what not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.registry import read_source
from railweave.placement.importers.source import Source


def read(value: Any) -> Facts:
    text = value if isinstance(value, str) else json.dumps(value, indent=1)
    return read_source(Source.of_text("file", text))


def refusal(value: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(value)
    return str(caught.value)


def server(name: str, ranks: list[int], **more: Any) -> dict[str, Any]:
    devices = [
        {"device_id": str(i), "device_ip": f"10.0.0.{rank}", "rank_id": str(rank)} | more
        for i, rank in enumerate(ranks)
    ]
    return {"server_id": name, "device": devices, "host_nic_ip": "reserve"}


def table(*servers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "version": "1.0",
        "server_count": str(len(servers)),
        "server_list": list(servers),
        "status": "completed",
    } | more


def test_a_rank_table_gives_servers_devices_and_ranks() -> None:
    facts = read(table(server("a", [0, 1]), server("b", [2, 3])))
    assert facts.format == "ascend-rank-table"
    assert [facts.machines[name].devices for name in ("a", "b")] == [2, 2]
    assert facts.summary["ranks"] == {"a": [0, 1], "b": [2, 3]}
    assert facts.summary["host_addresses"]["a"] is None
    assert facts.summary["addresses_known"] is True
    assert facts.warnings == ()


def test_a_table_without_addresses_is_good_for_the_shape_only() -> None:
    wrapped = {"RankTable": table(server("a", [0], device_ip=None), version="1.2")}
    facts = read(wrapped)
    assert facts.summary["usable_for"] == "shape only"
    assert "connections cannot be planned" in facts.warnings[0]


def test_super_pods_of_version_1_2_are_domains() -> None:
    pods = [{"super_pod_id": "4", "server_list": [{"server_id": "a"}, {"server_id": "b"}]}]
    facts = read(table(server("a", [0]), server("b", [1]), version="1.2", super_pod_list=pods))
    assert facts.network is not None
    assert facts.network.domains["b"] == {"super-pod": "super-pod-4"}
    assert facts.network.tiers[0].scale_up


def test_the_older_form_with_groups_is_read() -> None:
    instance = {
        "devices": [{"device_id": "1", "device_ip": "10.1.0.1"}],
        "rank_id": "0",
        "server_id": "10.1.0.9",
    }
    other = instance | {"rank_id": "1", "devices": [{"device_id": "2", "device_ip": "10.1.0.2"}]}
    facts = read({"status": "completed", "group_list": [{"instance_list": [instance, other]}]})
    assert facts.machines["10.1.0.9"].devices == 2
    assert facts.summary["ranks"] == {"10.1.0.9": [0, 1]}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (table(server("a", [0, 2])), "not ranks 0 to 1 once each; missing: 1"),
        (table(server("a", [0, 0])), "missing: 1"),
        (table(server("a", [0]), server_count="3"), "server_count is 3, but 1 servers are listed"),
        (table(server("a", [0]), server("a", [1])), "server a is there twice"),
        (table(server("a", [0]), status="initializing"), "'initializing', not completed"),
        (table(server("a", [0]), version="9"), "version '9'"),
        (table(server("a", [0], device_id="x")), "device_id 'x'"),
        (table(server("a", [0, 1], device_id="0")), "a device is there twice"),
        (table(server("", [0])), "a server without a name"),
        (table({"server_id": "a", "device": []}), "server a without devices"),
    ],
)
def test_contradictory_tables_are_refused(value: Any, reason: str) -> None:
    assert reason in refusal(value)


def test_a_gaudi_file_asks_to_confirm_what_it_only_implies() -> None:
    facts = read({"HCL_PORT": 5332, "HCL_TYPE": "HLS2", "HCL_COUNT": 16})
    assert facts.summary["accelerators_per_node"] == [8, 8]
    assert facts.not_alone is not None
    assert "links are not in the file" in facts.not_alone.found
    assert "confirm the template of HLS2" in facts.not_alone.fix
    named = read({"HCL_TYPE": "HLS3", "HCL_RANKS": ["10.0.0.1"] * 8 + ["10.0.0.2"] * 8})
    assert named.machines["10.0.0.2"].devices == 8
    assert named.machines["10.0.0.2"].accelerator == "Gaudi3"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"HCL_COUNT": 8}, "HCL_TYPE is None"),
        ({"HCL_TYPE": "HLS9", "HCL_COUNT": 8}, "HCL_TYPE 'HLS9'"),
        ({"HCL_TYPE": "HLS1", "HCL_COUNT": "many"}, "HCL_COUNT is 'many'"),
        ({"HCL_TYPE": "HLS1", "HCL_COUNT": 0}, "HCL_COUNT is 0"),
        ({"HCL_TYPE": "HLS1", "HCL_COUNT": 2, "HCL_RANKS": ["a"]}, "HCL_RANKS has 1"),
        ({"HCL_TYPE": "HLS1", "HCL_RANKS": [1]}, "no list of addresses"),
    ],
)
def test_a_gaudi_file_that_means_nothing_is_refused(value: Any, reason: str) -> None:
    assert reason in refusal(value)


def nvlinks(*gpus: list[str]) -> str:
    return "".join(
        f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: GPU-{i})\n"
        + "".join(f"\t Link {k}: {state}\n" for k, state in enumerate(states))
        for i, states in enumerate(gpus)
    )


UP, DOWN = "25 GB/s", "<inactive>"


def test_links_that_are_down_mark_the_node() -> None:
    facts = read(nvlinks([UP] * 4, [UP, DOWN, UP, DOWN]))
    machine = facts.machines[ANY_NODE]
    assert machine.faulty == "GPU 1: links 1, 3 inactive"
    assert (machine.devices, machine.accelerator) == (2, "A100-80G")
    assert machine.nvlink_bytes_per_s == 25e9
    assert facts.summary["degraded"] == ["GPU1"]


def test_links_that_no_gpu_of_the_board_uses_are_no_fault() -> None:
    facts = read(nvlinks([UP, DOWN], [DOWN, UP]))
    assert facts.machines[ANY_NODE].faulty == ""
    assert "links that the board does not use" in facts.warnings[0]
    assert read(nvlinks([DOWN] * 2, [DOWN] * 2)).summary["degraded"] == []


def test_output_that_is_left_out_leaves_the_other_gpus_unknown() -> None:
    facts = read("nvidia-smi nvlink -s\n....\n" + nvlinks([UP, DOWN]))
    assert facts.machines[ANY_NODE].devices is None
    assert facts.machines[ANY_NODE].faulty == "GPU 0: links 1 inactive"
    assert facts.not_alone is not None
    assert "line 2: part of the output is left out" in facts.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (nvlinks([UP]) + nvlinks([UP]), "line 3: GPU 0 is there twice"),
        (nvlinks([UP]) + "\t Link 0: 25 GB/s\n", "line 3: link 0 of GPU 0 is there twice"),
        ("\t Link 0: 25 GB/s\nGPU 0: A\n", "line 1: a link before the first GPU"),
    ],
)
def test_contradictory_nvlink_states_are_refused(text: str, reason: str) -> None:
    assert reason in refusal(text)
