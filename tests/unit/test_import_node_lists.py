"""Lists by node: port GUIDs, NVLink partitions, and Oracle's blocks and islands."""

from __future__ import annotations

import json

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

UUID = "5e797fc6-0f46-421a-8724-0e102c0f72{:02x}"


def facts_of(text: str, name: str) -> Facts:
    source = Source.of_text("list.txt", text)
    importer = recognised(source)
    assert importer is not None and importer.name == name
    return read_source(source)


@pytest.mark.parametrize(
    "text",
    [
        "VM_hostname a1\n0ff08c4321664e96\nVM_hostname b2\n0x0ff08c43217299f2\n\n",
        "a1: 0x0ff08c4321664e96\nb2: 0xff08c43217299f2\n",
        "a1: CA 'mlx5_0'\na1: \tPort GUID: 0x0ff08c4321664e96\n"
        "b2: CA 'mlx5_0'\nb2: \tPort GUID: 0x0ff08c43217299f2\n",
    ],
)
def test_names_by_guid_in_every_form(text: str) -> None:
    facts = facts_of(text, "ibstat-names")
    assert facts.aliases == {"0ff08c4321664e96": "a1", "0ff08c43217299f2": "b2"}
    assert facts.network is None
    assert facts.not_alone is not None and "no links" in facts.not_alone.found


def test_a_host_may_have_several_guids_and_a_guid_one_host() -> None:
    facts = facts_of("a: 0x00155dfffd33ff33\na: 0x00155dfffd33ff34\n", "ibstat-names")
    assert facts.summary["guids_of_host"] == {"a": ["00155dfffd33ff33", "00155dfffd33ff34"]}
    with pytest.raises(InvalidInput, match=r"line 2: GUID .* is that of 'b' and, line 1, of 'a'"):
        facts_of("a: 0x00155dfffd33ff33\nb: 0x00155dfffd33ff33\n", "ibstat-names")


def test_partitions_by_uuid_differ_in_any_digit() -> None:
    text = "".join(f"n{k}: {UUID.format(k % 3)}\n" for k in range(9))
    facts = facts_of(text, "cluster-uuids")
    assert facts.summary["nvlink_partitions"] == 3
    assert facts.summary["nodes_per_partition"] == [3]
    assert facts.summary["clique_ids"] == "unknown"
    assert facts.network is not None and facts.network.tiers[0].scale_up
    assert facts.network.domains["n0"] == facts.network.domains["n3"]


def test_cliques_part_a_cluster_and_zero_uuids_are_no_partition() -> None:
    zero = "00000000-0000-0000-0000-000000000000"
    text = f"a: {UUID.format(1)}.0\nb: {UUID.format(1)}.1\nc: {zero}\n"
    facts = facts_of(text, "cluster-uuids")
    assert facts.summary["nvlink_partitions"] == 2
    assert facts.network is not None and facts.network.domains["c"] == {}
    assert any("c; each stands alone" in warning for warning in facts.warnings)


def test_what_nvidia_smi_prints_on_every_node_is_read_too() -> None:
    text = "".join(
        f"{node}:         CliqueId : 32766\n{node}:         ClusterUUID : {UUID.format(7)}\n"
        for node in ("a", "b")
    )
    facts = facts_of(text, "cluster-uuids")
    assert facts.summary["nodes_of_partition"] == {f"{UUID.format(7)}.32766": "a,b"}


def test_a_node_in_two_partitions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="line 2: 'a' is in"):
        facts_of(f"a: {UUID.format(1)}\na: {UUID.format(2)}\n", "cluster-uuids")


_XX = '"XX"'


def imds(island: str, network: str, local: str, **more: str) -> str:
    told = {"customerHPCIslandId": island, "customerNetworkBlock": network}
    return json.dumps({**told, "customerLocalBlock": local, **more})


def test_oracle_blocks_nest_from_local_block_to_island() -> None:
    text = (
        f"a: {imds('i', 'n1', 'l1', customerGpuMemoryFabric='f')}\n"
        f"b: {imds('i', 'n1', 'l2')}\nc: {imds('i', 'n2', 'l3')}\nd: curl: (7) no route\n"
    )
    facts = facts_of(text, "oci-hosts")
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains["b"] == {"local-block": "l2", "network-block": "n1"}
    assert facts.network.domains["a"]["nvlink"] == "f"
    assert any("line 4" in warning for warning in facts.warnings)


def test_without_gpu_memory_fabrics_nvlink_is_unknown() -> None:
    facts = facts_of(f"a: {imds('i', 'n', 'l')}\nb: {imds('j', 'm', 'k')}\n", "oci-hosts")
    assert facts.summary["gpu_memory_fabrics"] == "unknown"
    assert facts.summary["trees"] == 2
    assert facts.network is not None and facts.network.spine is None


def test_the_list_of_compute_hosts_has_the_same_in_other_words() -> None:
    items = [
        {
            "id": f"h{k}",
            "hpc-island-id": "i",
            "network-block-id": f"n{k // 2}",
            "local-block-id": f"l{k}",
            "gpu-memory-fabric-id": None,
        }
        for k in range(4)
    ]
    facts = facts_of(json.dumps({"data": {"items": items}}), "oci-hosts")
    assert facts.network is not None
    assert facts.network.domains["h3"] == {"local-block": "l3", "network-block": "n1"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"a: {imds('i', 'n', 'l')}\nb: {imds('j', 'n', 'k')}\n", "network-block 'n' lies in"),
        (
            f"a: {imds('i', 'n', 'l')}\na: {imds('i', 'n', 'l')}\n",
            "line 2: host 'a' is there twice",
        ),
        (f"a: {imds('i', 'n', 'l')}\nb: {imds('i', 'n', 'l')[:-9]}\n", "line 2"),
        (
            f"a: {imds('i', 'n', 'l')}\nb: {imds('i', 'n', 'XX').replace(_XX, '7')}",
            "customerLocalBlock is 7",
        ),
    ],
)
def test_contradictions_and_cut_lines_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text, "oci-hosts")
    assert told in str(caught.value)
