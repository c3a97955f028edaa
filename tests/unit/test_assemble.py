"""What assembling promises: labels become tiers, probes become numbers, doubts become notes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.agents.assemble import Assembly, assemble_cluster
from railweave.agents.heartbeat import HeartbeatBook
from railweave.agents.inventory import Device, NodeInventory
from railweave.agents.nics import LinkState, Nic
from railweave.placement import Cluster, InvalidInput
from railweave.placement.inference import Measurement, Probing
from simulated_network import SimulatedNetwork

Labels = dict[str, dict[str, str]]


def node(
    name: str, devices: int = 2, kind: str = "declared", nics: tuple[Nic, ...] = ()
) -> NodeInventory:
    found = tuple(Device(index=i, accelerator=kind) for i in range(devices))
    return NodeInventory(node=name, host=name, cpus=4, memory_bytes=2**33, devices=found, nics=nics)


def pair(
    a: str, b: str, rate: float, round_trip_s: float, back: float | None = None
) -> Measurement:
    return Measurement(
        a=a,
        b=b,
        round_trip_min_s=round_trip_s,
        round_trip_median_s=2 * round_trip_s,
        spread_s=0.0,
        there_bytes_per_s=rate,
        back_bytes_per_s=rate if back is None else back,
    )


def domains(**of_nodes: str) -> Labels:
    """`a="tor:t0 pod:p0"` as Ray labels."""
    return {
        name: {
            f"domain.railweave.io/{part.split(':')[0]}": part.split(":")[1] for part in text.split()
        }
        for name, text in of_nodes.items()
    }


FOUR = domains(a="tor:t0 pod:p0", b="tor:t0 pod:p0", c="tor:t1 pod:p0", d="tor:t2 pod:p1")
PROBES = [
    pair("a", "b", 10e9, 2e-6),
    pair("a", "c", 6e9, 8e-6),
    pair("b", "c", 4e9, 12e-6),
    pair("a", "d", 1e9, 40e-6, back=3e9),
    pair("d", "b", 2e9, 60e-6),
]


def assembled(labels: Mapping[str, Mapping[str, str]], probes: list[Measurement]) -> Assembly:
    return assemble_cluster([node(name) for name in labels], probes, labels)


def test_tiers_are_ordered_by_their_number_of_domains_and_joined_by_the_spine() -> None:
    cluster = assembled(FOUR, PROBES).cluster
    assert [tier.name for tier in cluster.tiers] == ["tor", "pod", "spine"]
    assert cluster.node("c").domains == {"tor": "t1", "pod": "p0"}


def test_a_tiers_numbers_are_medians_over_the_pairs_that_meet_there() -> None:
    found = assembled(FOUR, PROBES)
    tor, pod, spine = found.cluster.tiers
    assert (tor.bandwidth, tor.latency) == (10e9, 1e-6)
    assert (pod.bandwidth, pod.latency) == (5e9, pytest.approx(5e-6))
    assert (spine.bandwidth, spine.latency) == (2e9, pytest.approx(25e-6))
    assert found.notes == ()


def test_nodes_stand_in_the_order_in_which_people_number_them() -> None:
    inventories = [node(name) for name in ("n10", "spare", "n2", "n1", "m-3")]
    cluster = assemble_cluster(inventories, [], {}).cluster
    assert [each.name for each in cluster.nodes] == ["m-3", "n1", "n2", "n10", "spare"]


def test_an_order_given_by_the_operator_is_kept() -> None:
    labels = domains(a="rack:r0 row:w0", b="rack:r0 row:w0", c="rack:r1 row:w1")
    inventories = [node(name) for name in labels]
    for order in (["rack", "row"], ["row", "rack"]):
        cluster = assemble_cluster(inventories, [], labels, order).cluster
        assert [tier.name for tier in cluster.tiers] == [*order, "spine"]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (["tor"], "labelled with 'pod', which the order does not name"),
        (["tor", "pod", "row"], "no node is labelled with 'row'"),
        (["tor", "pod", "spine"], "'spine' is always there"),
        (["tor", "tor", "pod"], "'tor' given twice"),
    ],
)
def test_an_order_that_does_not_fit_the_labels_is_refused(order: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        assemble_cluster([node(name) for name in FOUR], [], FOUR, order)


def test_domains_that_do_not_nest_are_an_error_that_names_the_nodes() -> None:
    labels = domains(a="tor:t0 pod:p0", b="tor:t0 pod:p1", c="tor:t1 pod:p1", d="tor:t2 pod:p1")
    with pytest.raises(InvalidInput) as error:
        assembled(labels, [])
    assert "domain.railweave.io/tor=t0" in str(error.value)
    assert "its nodes lie in 2 domains of 'pod' (p0: a; p1: b)" in str(error.value)


def test_a_node_without_a_label_is_a_domain_of_its_own() -> None:
    labels = domains(a="pod:p0", b="pod:p0") | {"c": {}, "d": {}, "only-c": {}}
    labels["e"] = domains(e="pod:only-c")["e"]
    found = assembled(labels, []).cluster
    assert len({n.domains["pod"] for n in found.nodes}) == 5
    assert found.node("a").domains == found.node("b").domains


def test_a_node_whose_upper_label_is_missing_is_named_with_its_neighbours() -> None:
    labels = domains(a="tor:t0 pod:p0", b="tor:t0", c="tor:t1 pod:p0", d="tor:t2 pod:p0")
    with pytest.raises(InvalidInput, match=r"p0: a; only-b: b"):
        assembled(labels, [])


def test_nodes_without_devices_are_measured_but_left_out() -> None:
    labels = domains(head="pod:p0", a="pod:p0", b="pod:p1")
    inventories = [node("head", devices=0), node("a"), node("b")]
    probes = [pair("head", "a", 7e9, 4e-6), pair("a", "b", 1e9, 9e-6)]
    cluster = assemble_cluster(inventories, probes, labels).cluster
    assert [n.name for n in cluster.nodes] == ["a", "b"]
    assert cluster.tiers[0].bandwidth == 7e9


def test_a_tier_without_a_probe_takes_its_label_then_its_neighbour_and_says_so() -> None:
    labels = {name: dict(of_node) for name, of_node in FOUR.items()}
    labels["a"]["bandwidth.railweave.io/spine"] = "5e8"
    labels["a"]["latency.railweave.io/spine"] = "0.001"
    found = assembled(labels, PROBES[:1])
    tor, pod, spine = found.cluster.tiers
    assert (tor.bandwidth, pod.bandwidth, spine.bandwidth) == (10e9, 10e9, 5e8)
    assert (tor.latency, pod.latency, spine.latency) == (1e-6, 1e-6, 1e-3)
    assert found.notes == (
        "bandwidth of spine is as its label declares; no probe met there",
        "bandwidth of pod is that of tor; no probe met there",
        "latency of spine is as its label declares; no probe met there",
        "latency of pod is that of tor; no probe met there",
    )


def test_without_any_probe_the_interfaces_rate_is_used_and_said() -> None:
    nics = (
        Nic(name="eth0", state=LinkState.UP, bytes_per_s=3.125e9),
        Nic(name="veth0", state=LinkState.UP, bytes_per_s=1.25e9, virtual=True),
        Nic(name="eth1", state=LinkState.DOWN, bytes_per_s=50e9),
    )
    found = assemble_cluster([node("a", nics=nics)], [], {"a": {}})
    assert [tier.name for tier in found.cluster.tiers] == ["spine"]
    assert found.cluster.tiers[0].bandwidth == 3.125e9
    assert any("nominal rate of the interfaces" in note for note in found.notes)
    alone = assemble_cluster([node("a")], [], {})
    assert any("is an assumption" in note for note in alone.notes)


def test_rails_are_the_rdma_interfaces_that_every_node_has() -> None:
    def with_rdma(name: str, up: int) -> NodeInventory:
        nics = tuple(
            Nic(
                name=f"ib{i}",
                state=LinkState.UP if i < up else LinkState.DOWN,
                rdma_device=f"mlx5_{i}",
            )
            for i in range(8)
        )
        return node(name, devices=8, nics=nics)

    same = assemble_cluster([with_rdma("a", 8), with_rdma("b", 8)], [], {})
    assert same.cluster.rails == 8
    mixed = assemble_cluster([with_rdma("a", 8), with_rdma("b", 7)], [], {})
    assert mixed.cluster.rails == 7
    assert any("RDMA interfaces that are up (7, 8)" in note for note in mixed.notes)


def test_lost_and_foreign_devices_are_kept_out_of_use() -> None:
    devices = [("H200", 0), ("H200", 2), ("B200", 3)]
    found = tuple(Device(index=index, accelerator=kind) for kind, index in devices)
    inventory = NodeInventory(node="a", host="a", cpus=1, memory_bytes=1, devices=found)
    result = assemble_cluster([inventory], [], {})
    assert result.cluster.node("a").devices == 4
    assert result.cluster.node("a").usable_devices == (0, 2)
    assert "a: only its H200 devices are used, not its B200" in result.notes


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("domain.railweave.io/node", "'node' is the name of the tier inside a node"),
        ("domain.railweave.io/spine", "'spine' is the name of the tier that joins all nodes"),
        ("bandwidth.railweave.io/pod", "'x' on node a"),
        ("latency.railweave.io/pod", "give a positive number in SI units"),
    ],
)
def test_labels_that_mean_nothing_are_refused(label: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        assemble_cluster([node("a")], [], {"a": {label: "x"}})


def test_a_cluster_without_devices_says_how_to_get_some() -> None:
    with pytest.raises(InvalidInput, match="no node has a device"):
        assemble_cluster([node("a", devices=0)], [], {})


def test_an_assembled_cluster_is_a_cluster_file(tmp_path: Path) -> None:
    cluster = assembled(FOUR, PROBES).cluster
    cluster.save(tmp_path / "cluster.yaml")
    assert Cluster.load(tmp_path / "cluster.yaml") == cluster


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), min_size=1))
def test_labels_that_nest_by_construction_always_assemble(
    places: list[tuple[int, int, int]],
) -> None:
    labels = {
        f"n{i}": {
            "domain.railweave.io/tor": f"{pod}-{tor}-{leaf}",
            "domain.railweave.io/leaf": f"{pod}-{tor}",
            "domain.railweave.io/pod": f"{pod}",
        }
        for i, (pod, tor, leaf) in enumerate(places)
    }
    order = ["tor", "leaf", "pod"]
    inventories = [node(name) for name in labels]
    cluster = assemble_cluster(inventories, [], labels, order).cluster
    assert [tier.name for tier in cluster.tiers] == [*order, "spine"]
    assert len(assemble_cluster(inventories, [], labels).cluster.nodes) == len(places)


def test_a_node_is_lost_after_three_missed_beats_and_back_with_the_next() -> None:
    book = HeartbeatBook(period_s=1, missed=3)
    book.observe("a", 10.0)
    book.observe("b", 10.5)
    assert book.lost(13.0) == ()
    assert book.lost(13.2) == ("a",)
    assert book.lost(14.0) == ("a", "b")
    book.observe("a", 14.0)
    assert book.lost(14.0) == ("b",)
    assert book.silence_s("b", 14.0) == 3.5
    book.forget("b")
    assert book.lost(100.0) == ("a",)
    assert book.silence_s("b", 100.0) is None


def test_a_late_beat_does_not_undo_a_newer_one() -> None:
    book = HeartbeatBook(period_s=1, missed=1)
    book.observe("a", 10.0)
    book.observe("a", 5.0)
    assert book.lost(10.5) == ()
    with pytest.raises(ValueError, match="cannot be kept"):
        HeartbeatBook(period_s=0)


def _two_racks() -> SimulatedNetwork:
    return SimulatedNetwork.regular(
        (2, 8),
        [3e-6, 6e-6],
        shuffled=False,
        noise=0.03,
        rates_bytes_per_s=[10e9, 10e9],
        oversubscription=[1.0, 2.0],
    )


def _probed(net: SimulatedNetwork) -> list[Measurement]:
    probing = Probing(net.names)
    found: list[Measurement] = []
    while (asked := probing.next_round()) is not None:
        measured = net.probe(asked)
        found += measured
        probing.add(asked, measured)
    return found


def test_without_labels_the_domains_are_those_that_probes_tell() -> None:
    net = _two_racks()
    cluster = assemble_cluster([node(name) for name in net.names], _probed(net), {}).cluster
    assert [tier.name for tier in cluster.tiers] == ["tier1", "spine"]
    found: dict[str, set[str]] = {}
    for each in cluster.nodes:
        found.setdefault(each.domains["tier1"], set()).add(each.name)
    assert set(map(frozenset, found.values())) == net.domains(0)
    assert cluster.tiers[1].oversubscription == pytest.approx(2.0, rel=0.1)
    assert cluster.tiers[1].latency == pytest.approx(6e-6, rel=0.1)


def test_a_label_that_probes_contradict_is_noted_and_the_setting_decides() -> None:
    net = _two_racks()
    labels = domains(**{name: f"rack:r{path[0]}" for name, path in net.paths.items()})
    labels["n2"] = labels["n12"]
    inventories, probes = [node(name) for name in net.names], _probed(net)
    trusting = assemble_cluster(inventories, probes, labels)
    assert trusting.cluster.node("n2").domains == {"rack": "r1"}
    assert "n2: rack is 'r1' by its label, but measured with the nodes of 'r0'" in trusting.notes[0]
    measuring = assemble_cluster(inventories, probes, labels, prefer="measurements")
    assert measuring.cluster.node("n2").domains == {"rack": "r0"}
    assert measuring.cluster.node("n12").domains == {"rack": "r1"}
