"""ibnetdiscover and ibsim: switches, hosts, links and speeds, whole files and cut ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


class Net:
    """A fabric that prints itself as ibnetdiscover does."""

    def __init__(self) -> None:
        self.ends: dict[str, tuple[str, str]] = {}
        self.ports: dict[str, list[tuple[int, str, int, str]]] = {}

    def switch(self, name: str) -> str:
        key = f"S-{len(self.ends):016x}"
        self.ends[key] = ("Switch", f"MF0;{name}:MQM9700/U1")
        return key

    def adapter(self, name: str) -> str:
        key = f"H-{0xAA0000 + len(self.ends):016x}"
        self.ends[key] = ("Ca", name)
        return key

    def link(self, a: str, b: str, speed: str = "4xNDR", count: int = 1) -> None:
        for _ in range(count):
            at, there = len(self.ports.get(a, ())) + 1, len(self.ports.get(b, ())) + 1
            self.ports.setdefault(a, []).append((at, b, there, speed))
            self.ports.setdefault(b, []).append((there, a, at, speed))

    def record(self, key: str) -> str:
        kind, name = self.ends[key]
        guid = key[2:]
        lines = [f"vendid=0x2c9\n{'switchguid' if kind == 'Switch' else 'caguid'}=0x{guid}"]
        extra = " enhanced port 0 lid 7 lmc 0" if kind == "Switch" else ""
        lines.append(f'{kind}\t64 "{key}"\t\t# "{name}"{extra}')
        for at, peer, there, speed in self.ports.get(key, ()):
            tail = f"({peer[2:].lstrip('0')})" if peer[0] == "H" else ""
            mine = f"({guid})" if kind == "Ca" else ""
            said = f'"{self.ends[peer][1]}" lid 9 {speed}'
            lines.append(f'[{at}]{mine}\t"{peer}"[{there}]{tail} \t\t# {said}')
        return "\n".join(lines) + "\n\n"

    def text(self, keys: list[str] | None = None) -> str:
        head = "#\n# Topology file: generated on Mon Jan  1 00:00:00 2026\n#\n\n"
        return head + "".join(self.record(key) for key in (keys or list(self.ends)))


def facts_of(text: str) -> Facts:
    source = Source.of_text("ib.txt", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "ibnetdiscover"
    return read_source(source)


def two_tier(leaves: int = 4, hosts: int = 4, spines: int = 2, uplinks: int = 1) -> Net:
    net = Net()
    tops = [net.switch(f"spine-{k}") for k in range(spines)]
    for leaf in range(leaves):
        switch = net.switch(f"leaf-{leaf}")
        for top in tops:
            net.link(switch, top, count=uplinks)
        for host in range(hosts):
            net.link(switch, net.adapter(f"gpu-{leaf}-{host} mlx5_0"))
    return net


def test_a_whole_fabric_gives_tiers_rates_and_oversubscription() -> None:
    facts = facts_of(two_tier(spines=2, uplinks=1).text())
    network = facts.network
    assert network is not None and network.spine is not None
    assert [tier.name for tier in network.tiers] == ["leaf"]
    assert network.domains["gpu-2-1"] == {"leaf": "leaf-2"}
    assert network.tiers[0].bytes_per_s == 50e9
    assert network.tiers[0].oversubscription == 1
    assert network.spine.oversubscription == 2
    assert network.rails == 1
    assert facts.summary["leaf_switches"] == 4
    assert facts.summary["other_switches"] == 2
    assert facts.summary["hosts"] == 16
    assert facts.summary["links"] == 24
    assert facts.summary["leaf_spine_links"] == 8
    assert facts.warnings == ()


def test_parallel_links_are_counted_and_add_up() -> None:
    facts = facts_of(two_tier(uplinks=2).text())
    assert facts.summary["leaf_spine_links"] == 16
    assert facts.summary["leaf_spine_pairs"] == 8
    assert facts.summary["parallel_links"]["leaf-0 - spine-0"] == 2
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.spine.oversubscription == 1


def test_hosts_with_a_link_to_each_of_eight_leaves_share_a_domain_of_rails() -> None:
    net = Net()
    spine = net.switch("spine")
    for unit in range(2):
        leaves = [net.switch(f"u{unit}-rail{rail}") for rail in range(8)]
        for leaf in leaves:
            net.link(leaf, spine, count=4)
        for host in range(4):
            for rail, leaf in enumerate(leaves):
                net.link(leaf, net.adapter(f"gpu-{unit}-{host} mlx5_{rail}"))
    facts = facts_of(net.text())
    assert facts.network is not None
    assert facts.network.rails == 8
    assert facts.network.domains["gpu-1-3"] == {"leaf": "u1-rail0"}
    assert facts.network.domains["gpu-0-0"] == {"leaf": "u0-rail0"}
    assert facts.summary["cas"] == 64 and facts.summary["hosts"] == 8


def test_the_modules_of_a_director_are_one_switch_through_which_leaves_join() -> None:
    net = Net()
    spine = net.switch("big:MCS8500/S01/U1".partition(":")[0])
    net.ends[spine] = ("Switch", "MF0;big:MCS8500/S01/U1")
    for line in range(2):
        module = net.switch("x")
        net.ends[module] = ("Switch", f"MF0;big:MCS8500/L0{line + 1}/U1")
        net.link(module, spine)
        for leaf in range(2):
            switch = net.switch(f"leaf-{line}-{leaf}")
            net.link(switch, module)
            for host in range(2):
                net.link(switch, net.adapter(f"n{line}{leaf}{host} HCA-1"))
    facts = facts_of(net.text())
    assert facts.summary["switch_records"] == 7
    assert facts.summary["switches"] == 5
    assert facts.summary["directors"] == {"big": ["L01", "L02", "S01"]}
    assert facts.network is not None
    assert facts.network.domains["n101"] == {"leaf": "leaf-1-0", "pod": "big/L02"}


def test_aggregation_nodes_and_managers_are_no_hosts() -> None:
    net = two_tier()
    leaf = next(key for key, (_, name) in net.ends.items() if "leaf-0" in name)
    net.link(leaf, net.adapter("Mellanox Technologies Aggregation Node"))
    net.link(leaf, net.adapter("dc1-ufm-01 mlx5_0"))
    facts = facts_of(net.text())
    assert facts.summary["aggregation_nodes"] == 1
    assert facts.summary["management_hosts"] == ["dc1-ufm-01"]
    assert facts.network is not None and len(facts.network.domains) == 16
    assert facts.summary["links_to_aggregation_nodes"] == 1


def test_a_manager_on_a_spine_does_not_make_it_a_leaf() -> None:
    net = two_tier(leaves=4, hosts=8)
    net.link(next(iter(net.ends)), net.adapter("login1 mlx5_0"))
    facts = facts_of(net.text())
    assert facts.network is not None
    assert facts.network.domains["gpu-1-0"] == {"leaf": "leaf-1"}
    assert len({has["leaf"] for has in facts.network.domains.values()}) == 5


def test_a_slow_link_is_named_with_its_line() -> None:
    net = two_tier()
    leaf = next(key for key, (_, name) in net.ends.items() if "leaf-0" in name)
    net.link(leaf, net.adapter("gpu-x mlx5_0"), speed="1xNDR")
    facts = facts_of(net.text())
    assert facts.summary["links_degraded"] == 1
    assert "1xNDR" in facts.summary["degraded"][0]
    assert any("slower than the others" in warning for warning in facts.warnings)
    assert facts.network is not None and facts.network.tiers[0].bytes_per_s == 50e9


def test_a_cut_file_is_read_with_a_warning_of_what_is_missing() -> None:
    net = two_tier()
    text = net.text([key for key, (_, name) in net.ends.items() if "leaf" in name])
    facts = facts_of(text.rstrip()[:-20])
    assert facts.network is not None
    assert facts.summary["switches_only_referred_to"] == 2
    assert facts.network.rails is None
    told = next(warning for warning in facts.warnings if "incomplete" in warning)
    assert "2 switches and 1" in told and "last line is cut" in told


def test_adapters_without_a_name_of_their_own_are_counted_and_left_out() -> None:
    net = two_tier()
    leaf = next(key for key, (_, name) in net.ends.items() if "leaf-0" in name)
    for name in ("MT4129 ConnectX7   Mellanox Technologies", "localhost mlx5_0"):
        net.link(leaf, net.adapter(name))
    facts = facts_of(net.text())
    assert facts.summary["cas_without_node_name"] == 2
    assert facts.summary["hosts"] == 16
    assert any("2 adapters have no node name" in warning for warning in facts.warnings)


def test_where_no_adapter_has_a_name_the_guids_are_the_nodes() -> None:
    net = Net()
    leaf = net.switch("leaf")
    keys = [net.adapter("Mellanox Technologies") for _ in range(2)]
    for key in keys:
        net.link(leaf, key)
    facts = facts_of(net.text())
    assert facts.network is not None
    assert set(facts.network.domains) == {key[2:] for key in keys}


def test_guids_are_other_names_of_the_hosts() -> None:
    net = two_tier(1, 1, 1)
    facts = facts_of(net.text())
    assert set(facts.aliases.values()) == {"gpu-0-0"}
    assert all(len(guid) == 16 for guid in facts.aliases)


def test_ibsim_nets_have_no_speeds_and_width_alone_is_no_rate() -> None:
    facts = facts_of(
        'Switch 8 "Sw1"\n[1]\t"Hca1"[1] w=12\n[3]\t"Sw2"[3]\n[4] "Sw2"[4]\n\n'
        'Switch 8 "Sw2"\n[1]\t"Hca2"[2]\n[3]\t"Sw1"[3]\n[4]\t"Sw1"[4]\n\n'
        'Hca 2 "Hca1"\n[1] "Sw1"[1]\n\nHca 2 "Hca2"\n[2]\t"Sw2"[1]\n'
    )
    assert facts.summary["hosts"] == 2 and facts.summary["links"] == 4
    assert facts.summary["parallel_links"] == {"Sw1 - Sw2": 2}
    assert facts.summary["links_of_unknown_speed"] == 4
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.spine.bytes_per_s is None
    assert facts.network.spine.oversubscription is None


def test_links_told_by_one_end_only_and_ends_that_differ_are_warned_of() -> None:
    text = (
        'Switch 8 "S-1" # "a" base port 0 lid 1 lmc 0\n[1] "H-a"[1](a) # "h1 mlx5_0" lid 2 4xHDR\n'
        '[2] "S-2"[2] # "b" lid 3 4xHDR\n\n'
        'Switch 8 "S-2" # "b" base port 0 lid 3 lmc 0\n[2] "S-1"[2] # "a" lid 1 4xEDR\n'
        '[3] "H-b"[1](b) # "h2 mlx5_0" lid 4 4xHDR\n\n'
        'Ca 1 "H-a" # "h1 mlx5_0"\n[1](a) "S-1"[1] # lid 2 lmc 0 "a" lid 1 4xHDR\n\n'
        'Ca 1 "H-b" # "h2 mlx5_0"\n\n'
    )
    told = "\n".join(facts_of(text).warnings)
    assert "1 links are told by one end only" in told
    assert "4xEDR at this end and 4xHDR at the other" in told


def test_ends_without_links_or_hosts_make_no_cluster() -> None:
    down = facts_of('Ca 1 "H-a"\t\t# "n1 HCA-1"\n')
    assert down.network is None and down.not_alone is not None
    assert "line 1: 1 CA, 0 switches, 0 links ('n1 HCA-1')" in str(down.not_alone)
    assert "port is down" in down.not_alone.found
    bare = facts_of('Switch 4 "S-1"\n[1] "S-2"[1]\n\nSwitch 4 "S-2"\n[1] "S-1"[1]\n')
    assert bare.not_alone is not None and "no adapter" in bare.not_alone.found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('Switch 4 "S-1"\n[1] "H-a"[1]\n[1] "H-b"[1]\n', "line 3: port 1 of 'S-1' is joined"),
        ('Switch 4 "S-1"\n[1] "H-a"[1]\n[2] "H-a"[1]\n', "line 3: port 1 of 'H-a'"),
        ('Switch 4 "S-1"\n[1] "H-a"[1]\n\nSwitch 4 "S-1"\n', "line 4: 'S-1' is described again"),
        ('Switch 4 "S-1"\n[9] "H-a"[1]\n', "line 2: port 9 of a node with 4 ports"),
        ('Switch 4 "S-1"\n[1] "H-a\n[2] "H-b"[1]\n', "line 2"),
        ('Switch 4 "S-1"\nwhat is this\n[2] "H-b"[1]\n', "line 2"),
        ('[1] "H-b"[1]\nSwitch 4 "S-1"\n', "line 1: a port outside of any record"),
        ('Switch 4 "S-1"\n[1] "unknown"[1]\n', "line 2"),
        ('Switch 4 "S-1"\n[1] "S-1"[1]\n', "itself"),
        ('Switch 999 "S-1"\n[1] "H-a"[1]\n', "at most 255"),
    ],
)
def test_what_cannot_be_used_is_refused_with_line_and_reason(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text)
    assert told in str(caught.value)


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.randoms())
def test_any_two_tier_fabric_printed_in_any_order_is_read_back(
    leaves: int, hosts: int, spines: int, uplinks: int, rng: random.Random
) -> None:
    net = two_tier(leaves, hosts, spines, uplinks)
    keys = list(net.ends)
    rng.shuffle(keys)
    facts = facts_of(net.text(keys))
    assert facts.summary["links"] == leaves * (hosts + spines * uplinks)
    assert facts.network is not None and facts.network.spine is not None
    if leaves > 1 and hosts > 1:
        for node, has in facts.network.domains.items():
            assert has["leaf"] == f"leaf-{node.split('-')[1]}"
        assert facts.network.spine.oversubscription == max(1, hosts / (spines * uplinks))
    assert facts.warnings == ()
