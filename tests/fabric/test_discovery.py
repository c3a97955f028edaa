"""Agents find out how the fabric is built: its domains exactly, its rates, paths and bad links."""

from __future__ import annotations

import random

import pytest
from railweave.agents.prober import ProbeSettings
from railweave.placement.inference.infer import infer
from railweave.placement.inference.measurements import Measurement
from railweave.placement.inference.probing import Probing
from railweave.placement.inference.traced_links import LinkFault, find_faults, traced_links

from fabric.discovery import probing
from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.raylets import Raylets
from fabric.topology import Plan

SMALL = Plan()
LARGE = Plan(leaves=8, spines=4, hosts_per_leaf=8, host_mbit=10, spine_mbit=5)
SETTINGS = ProbeSettings(transfer_bytes=2**21, transfer_s=0.3, pings=10, paths=32)
RUNS = 10


def leaves_of(plan: Plan, nodes: list[str]) -> set[frozenset[str]]:
    """The nodes below each leaf."""
    domains = plan.domains()
    return {
        frozenset(node for node in nodes if domains[node] == leaf)
        for leaf in {domains[node] for node in nodes}
    }


def check_tree(plan: Plan, nodes: list[str], measured: list[Measurement]) -> None:
    """The true domains and no others; the rates of both tiers within 15 %."""
    assert [each.lost for each in measured if each.lost] == []
    found = infer(nodes, measured)
    assert len(found.tiers) == 2
    assert {frozenset(domain.nodes) for domain in found.domains} == leaves_of(plan, nodes)
    assert found.unknown == {} and found.slow_s == {}
    leaf, spine = found.numbers
    assert leaf.bytes_per_s == pytest.approx(plan.host_bytes_per_s, rel=0.15)
    assert spine.bytes_per_s == pytest.approx(plan.spine_bytes_per_s, rel=0.15)
    assert spine.latency_s and leaf.latency_s
    assert spine.latency_s > 2 * plan.delay_s > 10 * leaf.latency_s


def check_wires(fabric: Fabric, healthy: list[Measurement]) -> None:
    """All wires in both directions were on some path, and each pair had a path a spine."""
    passed = {link.address for link in traced_links(healthy).values() if link.position > 0}
    assert passed == {
        address for wire in fabric.wires for address in (wire.leaf_address, wire.spine_address)
    }
    paths: dict[tuple[str, str], set[object]] = {}
    for each in healthy:
        paths.setdefault((each.a, each.b), set()).add(each.hops)
    assert {len(found) for found in paths.values()} == {fabric.plan.spines}


def discover(plan: Plan, seed: int) -> None:
    """Bring a fabric up and find out all about it, then a slow link and a dead one."""
    chance = random.Random(seed)
    with Fabric(plan, seed) as fabric, probing(fabric) as prober:
        names = sorted(fabric.hosts)
        chance.shuffle(names)
        probed = prober.explore(Probing(names, seed=seed), SETTINGS)
        check_tree(plan, names, probed.measurements)
        domains = plan.domains()
        healthy = prober.paths(domains, SETTINGS)
        check_wires(fabric, healthy)
        faults = Faults(fabric)
        bad = chance.sample(range(len(fabric.wires)), 2)
        for number, fault in zip(bad, (LinkFault.SLOW, LinkFault.DEAD), strict=True):
            wire = fabric.wires[number]
            broken = (
                faults.wire_slow(wire.switch, wire.spine, wire.mbit / 2.5)
                if fault is LinkFault.SLOW
                else faults.wire_down(wire.switch, wire.spine)
            )
            with broken:
                found = find_faults(prober.paths(domains, SETTINGS), healthy)
            # With two leaves, both wires of a spine are on all paths over it.
            suspects = [
                each
                for each in fabric.wires
                if each.spine == wire.spine and (plan.leaves == 2 or each.switch == wire.switch)
            ]
            ends = {end for each in suspects for end in (each.leaf_address, each.spine_address)}
            assert {(change.address, change.fault) for change in found} == {
                (end, fault) for end in ends
            }


def discover_with_ray(plan: Plan, hosts: list[str]) -> None:
    """Ray nodes on hosts of a fabric, whose agents find out the same."""
    with Fabric(plan) as fabric, Raylets(fabric, hosts) as raylets:
        state = str(raylets.folder / "state")
        said = raylets.run("fabric.ray_prober", state, SETTINGS.model_dump_json())
        measured = [Measurement.model_validate_json(line) for line in said.splitlines()]
        check_tree(plan, sorted(hosts), measured)


def test_a_small_fabric_is_found_out() -> None:
    discover(SMALL, seed=0)


def test_a_fabric_of_64_hosts_is_found_out() -> None:
    with Fabric(LARGE) as fabric, probing(fabric) as prober:
        names = random.Random(0).sample(sorted(fabric.hosts), len(fabric.hosts))
        probed = prober.explore(Probing(names), SETTINGS)
        check_tree(LARGE, names, probed.measurements)
        healthy = prober.paths(LARGE.domains(), SETTINGS)
        check_wires(fabric, healthy)
        assert probed.rounds <= 40


@pytest.mark.soak
def test_agents_on_ray_find_out_the_fabric_they_are_joined_by() -> None:
    discover_with_ray(SMALL, [f"h{leaf}-{index}" for leaf in range(2) for index in range(3)])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("plan", [SMALL, LARGE], ids=["small", "large"])
def test_a_fabric_is_found_out_every_time(plan: Plan, seed: int) -> None:
    discover(plan, seed)


@pytest.mark.soak
@pytest.mark.parametrize("_run", range(RUNS))
def test_agents_on_ray_find_out_the_whole_fabric_every_time(_run: int) -> None:
    discover_with_ray(SMALL, sorted(SMALL.domains()))
