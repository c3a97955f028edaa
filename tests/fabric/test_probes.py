"""What probes promise on a fabric: its rates, its paths, each NIC, and its faults."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import pytest
from railweave.agents.prober import ProbeSettings
from railweave.agents.trace import TracedPath, equal_cost_paths, trace
from railweave.placement.inference.measurements import Measurement, ProbeKind
from railweave.placement.inference.traced_links import LinkFault, find_faults

from fabric import namespaces
from fabric.discovery import Prober, probing
from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.topology import Plan

SETTINGS = ProbeSettings(transfer_bytes=2**20, transfer_s=0.3, pings=5, connect_s=1, paths=16)
NEAR, FAR = ("h0-0", "h0-1"), ("h0-2", "h1-2")
MOST_TIMES = 8


@pytest.fixture(scope="module")
def prober(fabric: Fabric) -> Iterator[Prober]:
    with probing(fabric) as found:
        yield found


@pytest.fixture(scope="module")
def healthy(fabric: Fabric, prober: Prober) -> list[Measurement]:
    """Every path of the fabric when all was well."""
    return prober.paths(fabric.plan.domains(), SETTINGS)


def best_rates(prober: Prober, pair: tuple[str, str], expected: float) -> tuple[float, float]:
    """The best of some probes in each direction: other work on the machine only slows them."""
    there = back = 0.0
    for _ in range(MOST_TIMES):
        [found] = prober.round(ProbeKind.BANDWIDTH, [pair], SETTINGS)
        assert found.lost is None
        there = max(there, found.there_bytes_per_s or 0)
        back = max(back, found.back_bytes_per_s or 0)
        if min(there, back) > 0.95 * expected:
            break
    return there, back


def test_segments_that_a_lossy_link_drops_are_counted(prober: Prober, faults: Faults) -> None:
    [well] = prober.round(ProbeKind.BANDWIDTH, [FAR], SETTINGS)
    with faults.wire_lossy(0, 0, 0.05), faults.wire_lossy(0, 1, 0.05):
        tried = [prober.round(ProbeKind.BANDWIDTH, [FAR], SETTINGS)[0] for _ in range(5)]
    assert well.loss is not None and well.loss < 0.01
    # A probe whose own first segments are lost may fail.
    lossy = [each.loss for each in tried if each.loss is not None]
    assert 0.01 < statistics.median(lossy) < 0.25


def traced(fabric: Fabric, source: str, sink: str, ports: range) -> tuple[TracedPath, ...]:
    address = fabric.hosts[sink].address
    # Nothing listens on the discard port: the host's refusal shows that it was reached.
    return namespaces.within(fabric.namespace(source), lambda: trace(address, 9, list(ports)))


def test_latency_tells_near_from_far_and_moves_nothing(fabric: Fabric, prober: Prober) -> None:
    near, far = prober.round(ProbeKind.LATENCY, [NEAR, FAR], SETTINGS)
    assert near.moved_bytes == far.moved_bytes == 0
    assert near.round_trip_min_s and far.round_trip_min_s
    assert far.round_trip_min_s > 4 * fabric.plan.delay_s > 10 * near.round_trip_min_s
    assert near.bytes_per_s is None


def test_bandwidth_in_each_direction_is_that_of_the_slowest_link(
    fabric: Fabric, prober: Prober, faults: Faults
) -> None:
    near, far, slow = fabric.plan.host_bytes_per_s, fabric.plan.spine_bytes_per_s, 30e6 / 8
    assert best_rates(prober, NEAR, near) == pytest.approx((near, near), rel=0.15)
    assert best_rates(prober, FAR, far) == pytest.approx((far, far), rel=0.15)
    with faults.nic_slow(NEAR[1], 30):
        assert best_rates(prober, NEAR, slow) == pytest.approx((slow, slow), rel=0.15)


def test_paths_of_a_pair_are_one_over_each_spine(fabric: Fabric) -> None:
    found = traced(fabric, "h0-0", "h1-1", range(40000, 40016))
    assert len(found) == 16 and all(path.reached for path in found)
    wires = {(wire.switch, wire.spine): wire for wire in fabric.wires}
    assert set(equal_cost_paths(found)) == {
        (fabric.plan.gateway(0), wires[0, spine].spine_address, wires[1, spine].leaf_address)
        for spine in range(fabric.plan.spines)
    }
    assert set(equal_cost_paths(traced(fabric, *NEAR, range(40000, 40004)))) == {()}


def test_a_traced_port_takes_the_path_that_the_kernel_would_pick(fabric: Fabric) -> None:
    source, sink = fabric.hosts["h0-0"].address, fabric.hosts["h1-1"].address
    for path in traced(fabric, "h0-0", "h1-1", range(41000, 41004)):
        shown = namespaces.command(
            f"ip -n {fabric.leaf(0)} -o route get {sink} from {source} iif br0 "
            f"ipproto tcp sport {path.source_port} dport 9".split()
        )
        assert f" via {path.hops[1]} " in shown


def test_a_path_that_ends_early_says_where(fabric: Fabric, faults: Faults) -> None:
    with faults.wire_down(1, 0, converged=False):
        found = traced(fabric, "h0-0", "h1-1", range(42000, 42012))
    dead = [path for path in found if not path.reached]
    wires = {(wire.switch, wire.spine): wire for wire in fabric.wires}
    assert {path.hops[2:] for path in found if path.reached} == {(wires[1, 1].leaf_address,)}
    assert {path.hops[1:] for path in dead} <= {(), (wires[0, 0].spine_address,)}
    assert (wires[0, 0].spine_address,) in {path.hops[1:] for path in dead}


def test_nodes_that_a_partition_cuts_off_fail_and_hold_up_no_other(
    prober: Prober, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railweave.agents.prober._ANSWER_S", 1.0)
    with faults.partition([0], [1]):
        near, cut = prober.round(ProbeKind.LATENCY, [NEAR, ("h0-2", "h1-1")], SETTINGS)
    assert near.lost is None
    assert cut.lost and "the probe server of h1-1" in cut.lost


def addresses(fabric: Fabric, switch: int, spine: int) -> set[str]:
    """Both ends of a wire."""
    wire = fabric.wires[switch * fabric.plan.spines + spine]
    return {wire.leaf_address, wire.spine_address}


def over(fabric: Fabric, spine: int) -> set[str]:
    """All links of a spine; with two leaves a fault of one shows on the other, too."""
    return addresses(fabric, 0, spine) | addresses(fabric, 1, spine)


def test_links_that_are_slow_late_or_dead_are_told_by_their_paths(
    fabric: Fabric, prober: Prober, faults: Faults, healthy: list[Measurement]
) -> None:
    domains = fabric.plan.domains()
    assert [each.lost for each in healthy if each.lost] == []
    with faults.wire_slow(1, 0, fabric.plan.spine_mbit / 2.5):
        found = find_faults(prober.paths(domains, SETTINGS), healthy)
    assert {change.fault for change in found} == {LinkFault.SLOW}
    assert {change.address for change in found} == over(fabric, 0)
    assert [change.factor for change in found] == pytest.approx([0.4] * 4, rel=0.2)
    with faults.wire_down(0, 1):
        found = find_faults(prober.paths(domains, SETTINGS), healthy)
    assert {(c.address, c.fault) for c in found} == {
        (address, LinkFault.DEAD) for address in over(fabric, 1)
    }
    with faults.wire_late(1, 1, 4 * fabric.plan.delay_s):
        found = find_faults(prober.paths(domains, SETTINGS), healthy)
    assert {(c.address, c.fault) for c in found} == {
        (address, LinkFault.LATE) for address in over(fabric, 1)
    }


def test_each_nic_is_probed_through_its_own_rail() -> None:
    plan = Plan(leaves=1, spines=1, hosts_per_leaf=2, rails=2)
    settings = SETTINGS.model_copy(update={"rails": (0, 1)})
    with Fabric(plan) as railed, probing(railed) as prober:
        with Faults(railed).nic_slow("h0-1", 20, rail=1):
            slow = [prober.round(ProbeKind.BANDWIDTH, [NEAR], settings) for _ in range(3)]
        with Faults(railed).nic_down("h0-1", rail=1):
            down = prober.round(ProbeKind.LATENCY, [NEAR], settings)
    assert [each.rail for each in slow[0]] == [0, 1]
    best = [max(each[rail].bytes_per_s or 0 for each in slow) for rail in range(2)]
    assert best == pytest.approx([plan.host_bytes_per_s, 20e6 / 8], rel=0.15)
    assert (down[0].lost, bool(down[1].lost)) == (None, True)
