"""Collectives: published rates and latencies, and how time follows size, place and algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement import Cluster, Op
from railweave.placement.cost.collective_time import Links, collective, network_rate
from railweave.placement.cost.constants import CONSTANTS
from railweave.placement.cost.spans import Span, packed

A100 = Links(300e9, (25e9,), (2e-6,), (1.0,), False, (False,))
H100 = Links(450e9, (50e9,), (2e-6,), (1.0,), True, (False,))
NODE = Span(8, 1, 8, -1, ())
GIB = 2**30


def nodes(count: int, per_node: int = 8) -> Span:
    """A group with so many ranks on each of some nodes of one switch."""
    return Span(count * per_node, count, per_node, 0, (per_node,))


def seconds(op: Op, size: float, span: Span, links: Links = A100) -> float:
    return collective(op, size, span, links, CONSTANTS).seconds


def bus_rate(size: float, ranks: int, links: Links) -> float:
    span = Span(ranks, 1, ranks, -1, ())
    return 2 * (ranks - 1) / ranks * size / seconds(Op.ALL_REDUCE, size, span, links)


@pytest.mark.parametrize(
    ("links", "ranks", "size", "published"),
    [
        (A100, 8, GIB, 229e9),  # vTrain's table
        (A100, 2, GIB, 197e9),
        (H100, 8, 8 * GIB, 480e9),  # nccl-tests, NVLS
        (H100, 8, GIB, 467e9),
    ],
)
def test_bus_rates_inside_a_node_are_the_published_ones(
    links: Links, ranks: int, size: int, published: float
) -> None:
    assert bus_rate(size, ranks, links) == pytest.approx(published, rel=0.15)


def test_a_switch_that_adds_is_used_for_large_all_reduces_alone() -> None:
    assert collective(Op.ALL_REDUCE, GIB, NODE, H100, CONSTANTS).algorithm == "nvls"
    assert collective(Op.ALL_REDUCE, 1024, NODE, H100, CONSTANTS).algorithm != "nvls"
    assert collective(Op.ALL_GATHER, GIB, NODE, H100, CONSTANTS).algorithm == "ring"


def test_small_reductions_over_many_nodes_take_a_tree_and_large_ones_a_ring() -> None:
    span = nodes(64)
    assert collective(Op.ALL_REDUCE, 64 * 1024, span, A100, CONSTANTS).algorithm == "tree"
    few = nodes(8)
    assert collective(Op.ALL_REDUCE, 4 * GIB, few, A100, CONSTANTS).algorithm == "ring"
    assert collective(Op.ALL_REDUCE, 1024, span, A100, CONSTANTS).protocol == "LL"
    assert collective(Op.ALL_REDUCE, 4 * GIB, span, A100, CONSTANTS).protocol == "Simple"


@given(
    op=st.sampled_from([Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER, Op.ALL_TO_ALL]),
    count=st.integers(1, 64),
    size=st.floats(1, 1e11),
    more=st.floats(1.01, 100),
)
def test_more_bytes_never_take_less_time(op: Op, count: int, size: float, more: float) -> None:
    span = nodes(count) if count > 1 else NODE
    assert seconds(op, size * more, span) >= seconds(op, size, span)


@given(count=st.integers(2, 256), size=st.floats(1e3, 1e10))
def test_a_gather_and_a_scatter_are_about_an_all_reduce_by_ring(count: int, size: float) -> None:
    span = nodes(count)
    halves = seconds(Op.ALL_GATHER, size, span) + seconds(Op.REDUCE_SCATTER, size, span)
    assert seconds(Op.ALL_REDUCE, size, span) <= halves * 1.01


def test_no_bytes_and_one_rank_take_no_time() -> None:
    assert seconds(Op.ALL_REDUCE, 0, NODE) == 0
    assert seconds(Op.ALL_REDUCE, 1e9, Span(1, 1, 1, -1, ())) == 0


def test_switches_that_reduce_halve_what_a_large_all_reduce_sends() -> None:
    span = nodes(64, 1)
    sharp = A100._replace(network_reduces=(True,))
    ratio = seconds(Op.ALL_REDUCE, GIB, span) / seconds(Op.ALL_REDUCE, GIB, span, sharp)
    assert ratio == pytest.approx(2 * 63 / 64, rel=0.1)
    assert collective(Op.ALL_REDUCE, GIB, span, sharp, CONSTANTS).algorithm == "collnet"


def test_switches_that_reduce_keep_latency_from_growing_with_nodes() -> None:
    sharp = A100._replace(network_reduces=(True,))
    small = 4096

    def growth(links: Links) -> float:
        few, many = nodes(4, 1), nodes(256, 1)
        return seconds(Op.ALL_REDUCE, small, many, links) - seconds(
            Op.ALL_REDUCE, small, few, links
        )

    assert growth(sharp) < growth(A100)


def test_a_group_on_whole_nodes_drives_all_their_nics() -> None:
    assert network_rate(nodes(4, 8), A100) == 8 * network_rate(nodes(4, 1), A100)


def test_oversubscription_slows_rings_only_as_far_as_many_leave_a_domain() -> None:
    links = A100._replace(network=(25e9, 25e9), latency=(2e-6, 2e-6), oversubscription=(1.0, 4.0))
    crowded = Span(64, 64, 1, 1, (1, 1))
    gathered = Span(64, 64, 1, 1, (1, 32))
    assert network_rate(crowded, links) == 25e9 / 4
    assert network_rate(gathered, links) == 25e9


def test_tokens_for_far_experts_take_as_long_as_their_nic_needs() -> None:
    size = 1e9
    found = seconds(Op.ALL_TO_ALL, size, nodes(8))
    nic = size * 56 / 64 / (25e9 * CONSTANTS.network_share)
    assert nic < found < 1.3 * nic
    assert found > 4 * seconds(Op.ALL_TO_ALL, size, NODE)


def test_all_to_all_without_forwarding_inside_nodes_crowds_the_last_tier() -> None:
    two = A100._replace(
        network=(25e9, 25e9),
        latency=(2e-6, 2e-6),
        oversubscription=(1.0, 4.0),
        network_reduces=(False, False),
    )
    span = Span(64, 8, 8, 0, (8,))
    apart = two._replace(rails_apart=True)
    ratio = seconds(Op.ALL_TO_ALL, 1e9, span, apart) / seconds(Op.ALL_TO_ALL, 1e9, span, two)
    assert ratio == pytest.approx(4 * 7 / 8, rel=0.05)


def test_a_send_to_another_node_waits_for_the_network() -> None:
    near, far = Span(2, 1, 2, -1, ()), nodes(2, 1)
    assert seconds(Op.SEND_RECV, 1e8, far) > 5 * seconds(Op.SEND_RECV, 1e8, near)


def clos(**tier: Any) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "clos",
            "rails": 4,
            "tiers": [
                {"name": "tor", "bandwidth": 25e9, "latency": 1e-6},
                {"name": "spine", "bandwidth": 25e9, "latency": 2e-6} | tier,
            ],
            "nodes": [
                {"name": f"n{n}", "accelerator": "A100-80G", "devices": 4,
                 "domains": {"tor": f"t{n % 2}"}}
                for n in range(4)
            ],
        }
    )  # fmt: skip


def test_devices_are_taken_domain_after_domain() -> None:
    ground = packed(clos())
    assert ground.levels[0].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert ground.levels[1].tolist() == [0] * 8 + [1] * 8


def test_a_span_says_where_the_worst_group_lies() -> None:
    ground = packed(clos())
    near, far = np.array([[0, 4], [8, 12]]), np.array([[0, 8], [4, 12]])
    assert ground.span_of(np.array([[0, 1, 2, 3]])) == Span(4, 1, 4, -1, ())
    assert ground.span_of(np.array([[0, 4, 8, 12]])) == Span(4, 4, 1, 1, (1, 2))
    assert ground.span_of(near) == Span(2, 2, 1, 0, (1,))
    assert ground.span_of(np.concatenate([near, far])) == Span(2, 2, 1, 1, (1, 1))
