"""Where second copies go: another fault domain wherever there is one, and evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.cluster import Cluster
from railweave.scheduler.neighbours import neighbours


def cluster(racks: dict[str, str], pods: dict[str, str] | None = None) -> Cluster:
    """A cluster of nodes with the rack of each, and the pod of each rack."""
    pods = pods or {}
    tiers = [("rack", 1e-6), ("pod", 2e-6), ("spine", 3e-6)]
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "test",
            "tiers": [{"name": name, "bandwidth": 1e9, "latency": late} for name, late in tiers],
            "nodes": [
                {
                    "name": node,
                    "accelerator": "any",
                    "devices": 8,
                    "domains": {"rack": rack, "pod": pods.get(rack, "p0")},
                }
                for node, rack in racks.items()
            ],
        }
    )


def test_each_rack_keeps_the_copies_of_another() -> None:
    racks = {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}
    found = neighbours(list(racks), cluster(racks))
    assert {node: racks[other] for node, other in found.items()} == {
        "a0": "b",
        "a1": "b",
        "b0": "a",
        "b1": "a",
    }
    assert sorted(found.values()) == sorted(racks)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_no_copy_lies_in_the_domain_of_its_original_where_that_can_be(sizes: list[int]) -> None:
    racks = {f"{rack}-{index}": f"r{rack}" for rack, n in enumerate(sizes) for index in range(n)}
    nodes = list(racks)
    found = neighbours(nodes, cluster(racks))
    if len(nodes) == 1:
        assert found == {}
        return
    assert sorted(found) == sorted(nodes) == sorted(found.values())
    assert all(node != other for node, other in found.items())
    apart = sum(racks[node] != racks[other] for node, other in found.items())
    largest = max(sizes)
    assert apart == min(len(nodes), 2 * (len(nodes) - largest))


def test_a_job_in_one_rack_copies_to_near_racks_evenly() -> None:
    racks = {"a0": "a", "a1": "a", "b0": "b", "b1": "b", "c0": "c", "c1": "c"}
    net = cluster(racks, {"a": "p0", "b": "p0", "c": "p1"})
    found = neighbours(["a0", "a1"], net, list(racks))
    assert Counter(racks[other] for other in found.values()) == {"b": 2}
    assert len(set(found.values())) == 2


def test_a_job_of_one_node_copies_to_any_other_and_alone_to_none() -> None:
    racks = {"a0": "a", "a1": "a"}
    assert neighbours(["a0"], cluster(racks), ["a0", "a1"]) == {"a0": "a1"}
    assert neighbours(["a0"], cluster(racks), ["a0"]) == {}


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_of_nodes_decides_nothing(order: int) -> None:
    racks = {"a0": "a", "a1": "a", "b0": "b", "b1": "b", "c0": "c"}
    net = cluster(racks)
    assert neighbours(list(racks)[::order], net) == neighbours(list(racks), net)
