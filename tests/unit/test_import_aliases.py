"""Names from one file for the identifiers of another: GUIDs of ports, numbers of instances."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.clusters import assembled
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.node_aliases import with_given_names
from railweave.placement.importers.registry import read_source
from railweave.placement.importers.source import Source

IB = """\
Switch 8 "S-1" # "leaf1" base port 0 lid 1 lmc 0
[1] "H-00000000000000a1"[1](a1) # "X1 mlx5_0" lid 2 4xHDR
[2] "H-00000000000000a2"[1](a2) # "X2 mlx5_0" lid 3 4xHDR

Switch 8 "S-2" # "leaf2" base port 0 lid 4 lmc 0
[1] "H-00000000000000a3"[1](a3) # "X3 mlx5_0" lid 5 4xHDR
"""
NAMES = "".join(
    f"host {name}\n0x00000000000000a{k}\n" for k, name in enumerate(("alpha", "beta", "gamma"), 1)
)


def read(text: str, name: str = "file") -> Facts:
    return read_source(Source.of_text(name, text))


def test_a_list_of_names_and_guids_names_the_hosts_of_a_fabric() -> None:
    facts = {"ib": read(IB), "names": read(NAMES)}
    warnings: list[str] = []
    named = with_given_names(facts, warnings)["ib"]
    assert named.network is not None
    assert named.network.domains == {
        "alpha": {"leaf": "leaf1"},
        "beta": {"leaf": "leaf1"},
        "gamma": {"leaf": "leaf2"},
    }
    assert warnings == []
    cluster = assembled(facts).cluster
    assert {node.name for node in cluster.nodes} == {"alpha", "beta", "gamma"}


def test_names_that_match_nothing_are_warned_of() -> None:
    warnings: list[str] = []
    extra = NAMES + "host delta\n0x00000000000000ff\n"
    with_given_names({"ib": read(IB), "names": read(extra)}, warnings)
    assert warnings == ["names: 1 of 4 identifiers are not in ib"]


def test_instance_numbers_of_one_file_are_nodes_of_another() -> None:
    paths = [("i-1", "l1"), ("i-2", "l2")]
    aws = ", ".join(
        f'{{"InstanceId": "{i}", "NetworkNodes": ["r", "{leaf}"]}}' for i, leaf in paths
    )
    nodes = ", ".join(
        f'{{"kind": "Node", "metadata": {{"name": "ip-{k}", "labels": {{"a": "b"}}}}, '
        f'"spec": {{"providerID": "aws:///z/i-{k}"}}}}'
        for k in (1, 2)
    )
    facts = {
        "aws": read(f'{{"Instances": [{aws}]}}'),
        "kubectl": read(f'{{"kind": "List", "items": [{nodes}]}}'),
    }
    named = with_given_names(facts, [])
    assert named["aws"].network is not None
    assert named["aws"].network.domains == {"ip-1": {"leaf": "l1"}, "ip-2": {"leaf": "l2"}}


def test_ports_of_one_host_on_several_leaves_make_rails_of_one_domain() -> None:
    ports = {f"0x00155dfffd33ff{k:02x}": k for k in range(8)}
    lines = [
        f"SwitchName=s{rail} Nodes={','.join(g for g, k in ports.items() if k % 4 == rail)}"
        for rail in range(4)
    ]
    lines.append("SwitchName=top Switches=s[0-3]")
    names = "".join(f"h{k // 4}: {guid}\n" for guid, k in ports.items())
    facts = {"topology": read("\n".join(lines)), "names": read(names)}
    network = with_given_names(facts, [])["topology"].network
    assert network is not None
    assert network.rails == 4
    assert network.domains["h0"] == network.domains["h1"]


def test_two_names_for_one_node_are_refused() -> None:
    two = IB.replace("X2 mlx5_0", "X1 mlx5_1")
    with pytest.raises(InvalidInput, match="'alpha' by one identifier and 'beta' by another"):
        with_given_names({"ib": read(two), "names": read(NAMES)}, [])
