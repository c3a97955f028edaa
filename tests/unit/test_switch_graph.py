"""Tiers and domains from hosts, switches and cables, with what links can carry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.importers.switch_graph import MOST_TIERS, Cable, levels, network_of


def clos(
    pods: int, leaves: int, hosts: int, aggregations: int = 2, cores: int = 2, rate: float = 50e9
) -> tuple[list[str], list[Cable]]:
    """Three tiers: every leaf on every aggregation switch of its pod, those on every core."""
    names, cables = [], []
    for p in range(pods):
        for leaf in range(leaves):
            for h in range(hosts):
                names.append(f"h{p}{leaf}{h}")
                cables.append(Cable(names[-1], f"l{p}{leaf}", rate))
            cables += [Cable(f"l{p}{leaf}", f"a{p}{k}", rate) for k in range(aggregations)]
        cables += [
            Cable(f"a{p}{k}", f"c{core}", rate)
            for k in range(aggregations)
            for core in range(cores)
        ]
    return names, cables


def test_levels_are_hops_from_the_nearest_host() -> None:
    hosts, cables = clos(2, 2, 2)
    found = levels(hosts, [*cables, Cable("x", "y")])
    assert (found["h000"], found["l00"], found["a00"], found["c0"]) == (0, 1, 2, 3)
    assert "x" not in found


def test_oversubscription_is_the_worst_on_the_way_up() -> None:
    network = network_of(*clos(pods=2, leaves=2, hosts=4, aggregations=2, cores=1))
    assert [tier.name for tier in network.tiers] == ["leaf", "pod"]
    assert network.tiers[0].oversubscription == 1
    assert network.tiers[1].oversubscription == 2
    assert network.spine is not None and network.spine.oversubscription == 4
    assert network.spine.bytes_per_s == 50e9


def test_parallel_links_carry_more_and_join_no_more() -> None:
    hosts, cables = clos(2, 2, 4, aggregations=1, cores=1)
    doubled = [Cable(c.a, c.b, c.bytes_per_s, 4 if not c.a.startswith("h") else 1) for c in cables]
    one, four = network_of(hosts, cables), network_of(hosts, doubled)
    assert one.domains == four.domains
    assert one.tiers[1].oversubscription == 4 and four.tiers[1].oversubscription == 1


def test_what_a_file_does_not_tell_of_rates_stays_unknown() -> None:
    hosts, cables = clos(2, 2, 2)
    bare = [Cable(c.a, c.b) for c in cables]
    for tier in (*network_of(hosts, bare).tiers, network_of(hosts, bare).spine):
        assert tier is not None
        assert (tier.bytes_per_s, tier.oversubscription, tier.latency_s) == (None, None, None)
    mixed = [*bare[:-1], cables[-1]]
    spine = network_of(hosts, mixed).spine
    assert spine is not None and spine.oversubscription is None and spine.bytes_per_s is None


def test_one_slow_link_does_not_change_the_rate_of_its_tier() -> None:
    hosts, cables = clos(1, 2, 8)
    slow = [Cable(cables[0].a, cables[0].b, 1e9), *cables[1:]]
    assert network_of(hosts, slow).tiers[0].bytes_per_s == 50e9


def test_fabrics_that_nothing_joins_have_no_spine() -> None:
    hosts, cables = clos(2, 2, 2, cores=0)
    network = network_of(hosts, cables)
    assert network.spine is None
    assert [tier.name for tier in network.tiers] == ["leaf", "pod"]
    assert network.domains["h000"]["pod"] != network.domains["h100"]["pod"]


def test_leaves_that_are_joined_directly_stay_apart() -> None:
    hosts = [f"h{k}" for k in range(4)]
    cables = [Cable(host, f"l{k // 2}", 10e9) for k, host in enumerate(hosts)]
    network = network_of(hosts, [*cables, Cable("l0", "l1", 10e9)])
    assert [has["leaf"] for has in network.domains.values()] == ["l0", "l0", "l1", "l1"]
    assert network.spine is not None and network.spine.oversubscription == 4


def test_hosts_with_a_switch_of_their_own_meet_above_it() -> None:
    hosts = [f"h{k}" for k in range(4)]
    own = [Cable(host, f"own-{host}", 10e9) for host in hosts]
    up = [Cable(f"own-{host}", f"tor{k // 2}", 10e9) for k, host in enumerate(hosts)]
    network = network_of(hosts, [*own, *up, Cable("tor0", "top"), Cable("tor1", "top")])
    assert [tier.name for tier in network.tiers] == ["leaf", "pod"]
    assert [has["pod"] for has in network.domains.values()] == ["tor0", "tor0", "tor1", "tor1"]


def test_an_odd_host_on_a_spine_does_not_flatten_the_fabric() -> None:
    hosts, cables = clos(1, 4, 8, aggregations=2, cores=0)
    network = network_of([*hosts, "manager"], [*cables, Cable("manager", "a00", 50e9)])
    leaves = {has["leaf"] for has in network.domains.values()}
    assert leaves == {"l00", "l01", "l02", "l03", "manager"}


def test_ends_beside_the_hosts_count_in_what_links_must_carry() -> None:
    hosts, cables = clos(1, 2, 2, aggregations=1, cores=0)
    more = [Cable(f"other{k}", f"l0{k}", 50e9) for k in range(2)]
    with_them = network_of(hosts, [*cables, *more], beside=["other0", "other1"])
    assert set(with_them.domains) == set(hosts)
    assert with_them.spine is not None and with_them.spine.oversubscription == 3


def test_latency_is_the_way_up_and_down() -> None:
    hosts = ["a", "b"]
    cables = [Cable(h, f"l{h}", 1e9, 1, 1e-6) for h in hosts]
    cables += [Cable(f"l{h}", "s", 1e9, 1, 2e-6) for h in hosts]
    spine = network_of(hosts, cables).spine
    assert spine is not None and spine.latency_s == pytest.approx(6e-6)


def test_hosts_without_cables_stand_alone_and_none_is_no_error() -> None:
    assert network_of(["a", "b"], []).domains == {"a": {"leaf": "a"}, "b": {"leaf": "b"}}
    assert network_of([], []).domains == {}


def test_a_chain_of_switches_is_no_fabric() -> None:
    length = MOST_TIERS * 3
    chain = [Cable(f"s{k}", f"s{k + 1}") for k in range(length)]
    hosts = [f"h{k}" for k in range(length)]
    ladder = [Cable(f"h{k}", f"t{k}-0") for k in range(length)]
    ladder += [Cable(f"t{k}-{j}", f"t{k}-{j + 1}") for k in range(length) for j in range(k)]
    ladder += [Cable(f"t{k}-{k}", f"s{k}") for k in range(length)]
    with pytest.raises(InvalidInput, match=f"more than {MOST_TIERS} tiers"):
        network_of(hosts, [*chain, *ladder])


@settings(max_examples=25)
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)
)
def test_any_clos_is_taken_apart_into_its_pods_and_leaves(
    pods: int, leaves: int, hosts: int, aggregations: int, cores: int
) -> None:
    names, cables = clos(pods, leaves, hosts, aggregations, cores)
    network = network_of(names, cables)
    assert network.spine is not None and network.rails == 1
    for name, has in network.domains.items():
        if "leaf" in has and leaves > 1:
            assert has["leaf"] == f"l{name[1]}{name[2]}"
        if "pod" in has:
            assert has["pod"] == f"a{name[1]}0"
    told = [tier.oversubscription for tier in (*network.tiers, network.spine)]
    assert all(one is not None and one >= 1 for one in told)
