"""Several files become one cluster, and what they leave open or contradict is said."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput, Problem
from railweave.placement.importers.clusters import UNKNOWN_ACCELERATOR, Choices, assembled
from railweave.placement.importers.facts import ANY_NODE, Facts, Machine, Network, TierFacts
from railweave.placement.links import NodeLinks

LEAVES = {f"n{i}": f"leaf{i // 2}" for i in range(8)}
PODS = {f"n{i}": f"pod{i // 4}" for i in range(8)}
NV = NodeLinks(matrix=(("X", "NV4"), ("NV4", "X")))


def tree(*tiers: tuple[str, dict[str, str]], **numbers: float) -> Facts:
    domains: dict[str, dict[str, str]] = {}
    for name, of_node in tiers:
        for node, domain in of_node.items():
            domains.setdefault(node, {})[name] = domain
    found = tuple(TierFacts(name, numbers.get(name)) for name, _ in tiers)
    return Facts("tree", {}, Network(found, domains))


def machine(name: str = ANY_NODE, **facts: object) -> Facts:
    return Facts("machine", {}, machines={name: Machine(**facts)})  # type: ignore[arg-type]


def test_a_tree_and_a_machine_without_a_name_make_nodes_that_are_all_like_it() -> None:
    found = assembled(
        {
            "tree.conf": tree(("leaf", LEAVES), ("pod", PODS)),
            "dgx.txt": machine(accelerator="H100-SXM", devices=2, links=NV, nics=("mlx5_0",)),
        }
    )
    cluster = found.cluster
    assert [tier.name for tier in cluster.tiers] == ["leaf", "pod", "spine"]
    assert {node.devices for node in cluster.nodes} == {2}
    assert {node.accelerator for node in cluster.nodes} == {"H100-SXM"}
    assert {node.links for node in cluster.nodes} == {"links-1"}
    assert cluster.node("n5").domains == {"leaf": "leaf2", "pod": "pod1"}


def test_tiers_of_several_files_are_ordered_by_how_many_domains_they_have() -> None:
    found = assembled({"pods": tree(("pod", PODS)), "leaves": tree(("leaf", LEAVES))})
    assert [tier.name for tier in found.cluster.tiers] == ["leaf", "pod", "spine"]


def test_what_no_file_says_is_assumed_aloud() -> None:
    found = assembled({"t": tree(("leaf", LEAVES))})
    assert {node.devices for node in found.cluster.nodes} == {1}
    assert {node.accelerator for node in found.cluster.nodes} == {UNKNOWN_ACCELERATOR}
    text = "\n".join(found.warnings)
    for word in ("devices:", "accelerator:", "bandwidth:", "latency:"):
        assert word in text


def test_what_an_operator_adds_is_used_and_no_longer_warned_of() -> None:
    chosen = Choices(accelerator="H200", devices=8, rails=4, nic_bytes_per_s=5e10, name="site")
    found = assembled({"t": tree(("leaf", LEAVES))}, chosen)
    assert found.cluster.name == "site"
    assert (found.cluster.nodes[0].accelerator, found.cluster.nodes[0].devices) == ("H200", 8)
    assert found.cluster.rails == 4
    assert {tier.bandwidth for tier in found.cluster.tiers} == {5e10}
    assert [w for w in found.warnings if not w.startswith("latency")] == []


def test_a_tier_with_one_domain_is_the_spine_and_gives_its_numbers() -> None:
    found = assembled({"t": tree(("leaf", LEAVES), ("core", dict.fromkeys(LEAVES, "c")), core=1e9)})
    assert [tier.name for tier in found.cluster.tiers] == ["leaf", "spine"]
    assert found.cluster.tiers[-1].bandwidth == 1e9


def test_a_tier_in_which_every_node_is_alone_is_left_out() -> None:
    hosts = {node: node for node in LEAVES}
    found = assembled({"t": tree(("hostname", hosts), ("leaf", LEAVES))})
    assert [tier.name for tier in found.cluster.tiers] == ["leaf", "spine"]


def test_tiers_that_part_nodes_alike_are_one() -> None:
    other = {node: domain.replace("leaf", "switch-") for node, domain in LEAVES.items()}
    found = assembled({"a": tree(("leaf", LEAVES)), "b": tree(("rack", other))})
    assert [tier.name for tier in found.cluster.tiers] == ["leaf", "spine"]
    assert found.cluster.node("n0").domains == {"leaf": "leaf0"}


def test_files_that_contradict_each_other_are_refused_with_nodes_and_files() -> None:
    wrong = {**LEAVES, "n1": "leaf3"}
    with pytest.raises(InvalidInput) as error:
        assembled({"a.conf": tree(("leaf", LEAVES)), "b.conf": tree(("leaf", wrong))})
    for word in ("n1", "a.conf", "b.conf", "leaf3", "--without-tier"):
        assert word in str(error.value)


def test_domains_that_cross_are_refused_with_nodes_and_files() -> None:
    crossing = {f"n{i}": f"rack{i % 2}" for i in range(8)}
    with pytest.raises(InvalidInput) as error:
        assembled({"a.conf": tree(("leaf", LEAVES)), "b.conf": tree(("rack", crossing))})
    assert "n0 and n1" in str(error.value)
    assert "b.conf" in str(error.value)
    kept = assembled(
        {"a.conf": tree(("leaf", LEAVES)), "b.conf": tree(("rack", crossing))},
        Choices(without_tiers=("rack",)),
    )
    assert [tier.name for tier in kept.cluster.tiers] == ["leaf", "spine"]


def test_nodes_of_unknown_domain_are_each_alone() -> None:
    found = assembled(
        {"t": tree(("leaf", LEAVES)), "x": machine("x1", devices=8), "y": machine("x2", devices=8)}
    )
    assert found.cluster.node("x1").domains["leaf"] != found.cluster.node("x2").domains["leaf"]
    assert any("x1, x2" in warning for warning in found.warnings)


def test_a_long_and_a_short_name_are_one_node() -> None:
    found = assembled({"t": tree(("leaf", LEAVES)), "m": machine("n3.site.example", devices=4)})
    assert len(found.cluster.nodes) == 8
    assert found.cluster.node("n3").devices == 4
    assert any("n3.site.example = n3" in warning for warning in found.warnings)


def test_two_nameless_machines_need_to_know_their_nodes() -> None:
    facts = {
        "t": tree(("leaf", LEAVES)),
        "a.txt": machine(devices=8),
        "b.txt": machine(devices=4),
    }
    with pytest.raises(InvalidInput, match="--machine FILE=PATTERN"):
        assembled(facts)
    found = assembled(facts, Choices(machine_nodes={"a.txt": "n[0-3]"}))
    assert [node.devices for node in found.cluster.nodes] == [8] * 4 + [4] * 4


def test_two_files_of_different_formats_tell_of_one_machine() -> None:
    matrix = machine(devices=2, links=NV)
    rates = Facts("rates", {}, machines={ANY_NODE: Machine(devices=2, nvlink_bytes_per_s=5e10)})
    for files in ({"a": matrix, "b": rates}, {"a": matrix, "b": rates, "t": tree(("l", LEAVES))}):
        cluster = assembled(files).cluster
        assert cluster.links["links-1"].bandwidth == {"NV": 5e10}
        assert {node.links for node in cluster.nodes} == {"links-1"}
    assert len(assembled({"a": matrix, "b": rates}).cluster.nodes) == 1


def test_files_that_contradict_each_other_on_a_machine_need_patterns() -> None:
    other = Facts("rates", {}, machines={ANY_NODE: Machine(devices=4)})
    with pytest.raises(InvalidInput, match="--machine"):
        assembled({"a": machine(devices=2), "b": other, "t": tree(("leaf", LEAVES))})


def test_a_named_machine_can_stand_for_other_nodes() -> None:
    facts = {"t": tree(("leaf", LEAVES)), "hw.xml": machine("n0", devices=8)}
    found = assembled(facts, Choices(machine_nodes={"hw.xml": "n*"}))
    assert {node.devices for node in found.cluster.nodes} == {8}


def test_two_ports_of_a_card_are_one_rail() -> None:
    ports = tuple(f"mlx5_{i}" for i in range(16))
    assert assembled({"m": machine(devices=8, nics=ports)}).cluster.rails == 8


def test_what_an_operator_says_completes_a_machine_that_leaves_it_open() -> None:
    facts = Facts("m", {}, None, {ANY_NODE: Machine()}, not_alone=Problem("", "no count", "say it"))
    with pytest.raises(InvalidInput, match="say it"):
        assembled({"m": facts})
    chosen = Choices(accelerator="Gaudi2", devices=8)
    assert assembled({"m": facts}, chosen).cluster.nodes[0].devices == 8


def test_lone_machines_become_nodes_named_after_their_files() -> None:
    found = assembled({"dir/dgx1.txt": machine(devices=8), "dir/dgx2.txt": machine(devices=4)})
    assert [(node.name, node.devices) for node in found.cluster.nodes] == [("dgx1", 8), ("dgx2", 4)]


def test_a_node_that_a_file_calls_faulty_takes_no_work() -> None:
    found = assembled({"m": machine("n1", devices=8, faulty="links 3 and 5 are inactive")})
    assert found.cluster.node("n1").usable_devices == ()


def test_facts_that_make_no_cluster_are_refused_alone_and_welcome_beside_others() -> None:
    log = Facts("log", {}, not_alone=Problem("", "measurements only", "add a topology file"))
    with pytest.raises(InvalidInput, match="add a topology file"):
        assembled({"nccl.log": log})
    assert len(assembled({"nccl.log": log, "t": tree(("leaf", LEAVES))}).cluster.nodes) == 8
