"""Inputs of simulators: SimAI topologies and bandwidths, ASTRA-sim networks, htsim fat trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def facts_of(text: str, name: str) -> Facts:
    source = Source.of_text("input.txt", text)
    importer = recognised(source)
    assert importer is not None and importer.name == name
    return read_source(source)


def simai(units: int, servers: int, gpus: int, spines: int, wide: bool = False) -> str:
    """Units of servers whose GPU i hangs on the unit's leaf i; every leaf on every spine."""
    total = units * servers * gpus
    nv = 1 if wide else units * servers
    leaves = units * gpus
    first_leaf, first_spine = total + nv, total + nv + leaves
    links = []
    for gpu in range(total):
        server, unit = gpu // gpus, gpu // gpus // servers
        links.append(f"{gpu} {total if wide else total + server} 2400Gbps 0.000025ms 0")
        links.append(f"{gpu} {first_leaf + unit * gpus + gpu % gpus} 100Gbps 0.0005ms 0")
    for leaf in range(leaves):
        links += [
            f"{first_leaf + leaf} {first_spine + k} 400Gbps 0.0005ms 0" for k in range(spines)
        ]
    ids = " ".join(str(total + k) for k in range(nv + leaves + spines))
    nodes = total + nv + leaves + spines
    head = f"{nodes} {gpus} {nv} {leaves + spines} {len(links)} H100"
    return "\n".join([head, ids, *links]) + "\n"


def test_a_topology_gives_servers_rails_rates_and_latencies() -> None:
    facts = facts_of(simai(units=2, servers=3, gpus=4, spines=2), "simai-topology")
    network = facts.network
    assert network is not None and network.spine is not None
    assert network.rails == 4
    assert network.tiers[0].bytes_per_s == 12.5e9
    assert network.tiers[0].latency_s == pytest.approx(1e-6)
    assert network.spine.latency_s == pytest.approx(2e-6)
    assert network.domains["server2"] == network.domains["server0"] != network.domains["server3"]
    assert facts.summary["servers"] == 6 and facts.summary["leaf_switches"] == 8
    assert {"links": 24, "gbps": 2400.0, "latency_ns": 25.0} in facts.summary["link_kinds"]
    assert facts.machines["server0"].devices == 4


def test_an_nvswitch_of_several_servers_is_a_domain_of_its_own() -> None:
    facts = facts_of(simai(units=1, servers=3, gpus=4, spines=1, wide=True), "simai-topology")
    assert facts.network is not None and facts.network.tiers[0].scale_up
    assert len({has["nvlink"] for has in facts.network.domains.values()}) == 1


@settings(max_examples=15)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_any_rail_optimised_topology_is_read_back(
    units: int, servers: int, gpus: int, spines: int
) -> None:
    facts = facts_of(simai(units, servers, gpus, spines), "simai-topology")
    network = facts.network
    assert network is not None and network.rails == gpus
    if units > 1:
        assert len({has["leaf"] for has in network.domains.values()}) == units
        assert network.spine is not None
        assert network.spine.oversubscription == max(1, servers * 100 / (spines * 400))


GOOD = simai(1, 2, 2, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n".join(GOOD.split("\n")[:-3]), "links; the header tells of"),
        (GOOD + "0 6 100Gbps 0.0005ms 0\n", "links; the header tells of"),
        (GOOD.replace("0 6 100Gbps", "0 99 100Gbps"), "node 99 of"),
        (GOOD.replace("0 6 100Gbps", "0 0 100Gbps"), "with itself"),
        (GOOD.replace("0 6 100Gbps", "0 6 fast"), "line 4"),
        (GOOD.replace("0 6 100Gbps", "0 6 1e999Gbps"), "out of range"),
        (GOOD.replace("4 5 6 7 8\n", "4 5 6 7 7\n"), "different switch ids"),
        (GOOD.replace("9 2 2 3", "9 3 2 3"), "in servers of 3"),
        (GOOD.replace("9 2 2 3", "999999999 2 2 3"), "nodes of which"),
    ],
)
def test_a_topology_that_does_not_fit_its_header_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text, "simai-topology")
    assert told in str(caught.value)


def test_bus_bandwidths_are_read_though_they_are_no_yaml_and_unset_ones_stay_unset() -> None:
    facts = facts_of(
        "test\nTP:\nallreduce,: 300\nalltoall,: null\nDP:\nallgather,: 380.5\nPP:\nbusbw: 47.5\n",
        "simai-busbw",
    )
    assert facts.measurements["bus_bandwidth"] == {
        "TP": {"all_reduce": 300e9},
        "DP": {"all_gather": 380.5e9},
        "PP": {"send_recv": 47.5e9},
    }
    assert facts.summary["unset"] == ["TP all_to_all"]
    assert facts.not_alone is not None
    for line, told in (("allreduce,: fast", "line 3"), ("allreduce,: -3", "line 3")):
        with pytest.raises(InvalidInput, match=told):
            facts_of(f"test\nTP:\n{line}\nallgather,: 1\nalltoall,: 2\n", "simai-busbw")


def astra(topology: str, npus: str, bandwidth: str, latency: str) -> str:
    return (
        f"topology: [ {topology} ]\nnpus_count: [ {npus} ]\nbandwidth: [ {bandwidth} ]  # GB/s\n"
        f"latency: [ {latency} ]  # ns\n"
    )


def test_one_dimension_is_the_inside_of_a_node() -> None:
    facts = facts_of(astra("Switch", "8", "400.0", "936.25"), "astra-sim-network")
    assert facts.network is None
    assert facts.machines[ANY_NODE].devices == 8
    assert facts.summary["bandwidth_gigabytes_per_s"] == [400]
    assert facts.summary["latency_ns"] == [936.25]


def test_more_dimensions_are_tiers() -> None:
    text = astra("Ring, FullyConnected, Switch", "4, 2, 3", "200, 100, 50", "50, 500, 2000")
    facts = facts_of(text, "astra-sim-network")
    network = facts.network
    assert network is not None and network.spine is not None
    assert len(network.domains) == 6
    assert network.tiers[0].bytes_per_s == 100e9
    assert network.spine.latency_s == pytest.approx(2e-6)
    assert network.domains["node3"] == {"leaf": "leaf1"}
    assert facts.summary["npus"] == 24


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (astra("Switch, Ring", "8", "400", "9"), "lists of different lengths"),
        (astra("Hypercube", "8", "400", "9"), "unknown topology 'Hypercube'"),
        (astra("Switch", "8.5", "400", "9"), "line 2: npus_count 8.5"),
        (astra("Switch", "8", "fast", "9"), "line 3: bandwidth 'fast'"),
        (astra("Switch, Switch", "8, 9999999", "400, 1", "9, 9"), "whole number"),
        (astra("Ring, Ring, Ring", "8, 99999, 99999", "4, 4, 4", "9, 9, 9"), "at most"),
    ],
)
def test_networks_that_make_no_sense_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text, "astra-sim-network")
    assert told in str(caught.value)


HTSIM = """\
Nodes 16
Tiers 2
Podsize 16
Tier 0
Downlink_speed_Gbps 200
Radix_Down 4
Radix_Up 2
Downlink_Latency_ns 500
Tier 1
Downlink_speed_Gbps 200
Radix_Down 4
Downlink_Latency_ns 1000
"""


def test_a_fat_tree_has_switches_rates_and_oversubscription_of_its_ports() -> None:
    facts = facts_of(HTSIM, "astra-sim-htsim")
    network = facts.network
    assert network is not None and network.spine is not None
    assert facts.summary["leaf_switches"] == 4 and facts.summary["middle_switches"] == 2
    assert network.domains["node5"] == {"leaf": "leaf1"}
    assert network.spine.oversubscription == 2
    assert network.spine.latency_s == pytest.approx(3e-6)
    assert network.spine.bytes_per_s == 25e9


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (HTSIM.replace("Nodes 16", "Nodes 15"), "must divide each other"),
        (HTSIM.replace("Tiers 2", "Tiers 3"), "describe each tier"),
        (HTSIM.replace("Radix_Up 2\n", ""), "Tier 0: no radix_up"),
        (HTSIM.replace("Tier 1\n", "Tier 0\n"), "tier 0 again"),
        (HTSIM.replace("Downlink_Latency_ns 500", "Downlink_Latency_ns soon"), "line 8"),
        (HTSIM.replace("Radix_Up 2", "Radix_Sideways 2"), "unknown key"),
        (HTSIM.replace("Nodes 16", "Nodes 999999999"), "at most"),
    ],
)
def test_a_damaged_fat_tree_is_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text, "astra-sim-htsim")
    assert told in str(caught.value)
