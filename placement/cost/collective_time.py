"""Seconds of a collective: the algorithm and protocol that take least, as NCCL's tuner chooses.

Latencies are those of NCCL (src/graph/tuning.cc); rates and the cost of segments are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ..collectives import exchange_of
from ..pcg import Algorithm, Op
from .constants import Constants
from .spans import Span


class Links(NamedTuple):
    """Rates that a device sees.

    scale_up: bytes/s a device and direction within an island. network: bytes/s a device and
    direction at each network tier; latency: seconds of each, one way; oversubscription: of each.
    switch_reduces: the scale-up switch adds in flight (NVLS). network_reduces: of each tier,
    whether its switches do (SHARP). rails_apart: devices of different rails on different nodes
    meet only at the last tier, since nothing forwards inside the node.
    """

    scale_up: float
    network: tuple[float, ...]
    latency: tuple[float, ...]
    oversubscription: tuple[float, ...]
    switch_reduces: bool
    network_reduces: tuple[bool, ...]
    rails_apart: bool = False


class Choice(NamedTuple):
    """How a collective is done, and how long it takes."""

    algorithm: str
    protocol: str
    seconds: float


class _Protocol(NamedTuple):
    """A protocol's part of the rate, and its latencies in us: at the start and a hop."""

    name: str
    rate: float
    tree_base: float
    ring_base: float
    tree_hop: float
    ring_hop: float
    tree_net: float
    ring_net: float


_PROTOCOLS = (
    _Protocol("LL", 0.5, 6.8, 6.6, 0.6, 0.6, 5.0, 2.7),
    _Protocol("LL128", 0.92, 14.0, 14.0, 1.25, 1.9, 8.5, 4.0),
    _Protocol("Simple", 1.0, 8.4, 8.4, 4.0, 3.4, 14.0, 14.0),
)
_SIMPLE = _PROTOCOLS[2]
_TREE_RATE = 0.92
_NVLS_US, _NVLS_TREE_US = 25.0, 20.9
_COLLNET_US, _COLLNET_HOP_US = 31.0, 0.4
_DIRECT_US, _DIRECT_HOP_US, _DIRECT_NET_US = 14.0, 0.6, 4.0
_S_PER_US = 1e-6


def collective(
    op: Op,
    size: float,
    span: Span,
    links: Links,
    constants: Constants,
    networks: int = 0,
    part_away: float = 1.0,
) -> Choice:
    """The quickest way to do `op` over `size` bytes (as in a PCG), its launch by the host aside.

    networks: as in `network_rate`. part_away: of the bytes of an all-to-all for other islands, what
    is sent there, where some are copies that can be made there. A group of one rank takes no time.
    """
    if span.ranks <= 1 or size <= 0:
        return Choice("none", "none", 0.0)
    if op is Op.ALL_TO_ALL:
        return _all_to_all(size, span, links, constants, part_away)
    if op is Op.SEND_RECV:
        return _send(size, span, links, constants)
    choices = _candidates(op, size, span, links, constants, networks)
    return min(choices, key=lambda choice: choice.seconds)


def network_rate(span: Span, links: Links, networks: int = 0) -> float:
    """Bytes/s at which a ring of this span leaves its islands, the slowest tier deciding.

    A group with r ranks an island drives r NICs (or `networks` of them, if given). All groups of
    the job that lie alike send at once: of the R ranks of a group in a domain only one ring edge
    a NIC leaves it, so a tier is short where oversubscription x r / R is over 1.
    """
    used = min(span.per_island, networks) if networks else span.per_island
    rate = math.inf
    for tier in range(span.tier + 1):
        crowd = links.oversubscription[tier] * used / span.per_domain[tier]
        rate = min(rate, used * links.network[tier] / max(1.0, crowd))
    return rate


def _candidates(
    op: Op, size: float, span: Span, links: Links, constants: Constants, networks: int
) -> Iterator[Choice]:
    """Every algorithm and protocol for a reduction, a gather or a scatter."""
    n, islands, reduces = span.ranks, span.islands, op is Op.ALL_REDUCE
    ring = exchange_of(op, n, size, Algorithm.RING)
    crossings = ring.steps // (n - 1) * (islands - 1)
    inside = links.scale_up * constants.link_share
    across = network_rate(span, links, networks) * constants.network_share
    rate = across if n == islands else min(inside, across)
    segment = constants.network_segment_s if islands > 1 else constants.segment_s
    far = 2 * links.latency[span.tier] / _S_PER_US if islands > 1 else 0.0
    for p in _PROTOCOLS:
        inside_us = p.ring_base + (ring.steps - crossings) * p.ring_hop
        latency = inside_us + crossings * (p.ring_net + far)
        yield _choice("ring", p.name, latency, ring.edge_bytes / (rate * p.rate), segment)
    if not reduces:
        return
    depth = math.log2(islands)
    tree = exchange_of(op, n, size, Algorithm.TREE)
    both_ways = tree.edge_bytes + tree.back_bytes
    for p in _PROTOCOLS:
        latency = p.tree_base + 2 * ((n / islands - 1) * p.tree_hop + depth * (p.tree_net + far))
        yield _choice("tree", p.name, latency, both_ways / (rate * p.rate * _TREE_RATE), segment)
    if links.switch_reduces and span.per_island > 2:
        in_switch = size / (links.scale_up * constants.switch_share)
        if islands == 1:
            yield _choice("nvls", "Simple", _NVLS_US, in_switch, segment)
        else:
            latency = _NVLS_US + 2 * depth * (_NVLS_TREE_US + far)
            seconds = max(in_switch, 2 * size / across)
            yield _choice("nvls-tree", "Simple", latency, seconds, segment)
    if islands > 1 and links.network_reduces[span.tier]:
        seconds = max(size / across, 2 * size / inside if n > islands else 0.0)
        latency = _COLLNET_US + 2 * ((n / islands - 1) * _COLLNET_HOP_US + far)
        yield _choice("collnet", "Simple", latency, seconds, segment)


def _all_to_all(
    size: float, span: Span, links: Links, constants: Constants, part_away: float
) -> Choice:
    """Every rank to every other; what leaves an island goes by the rail of its receiver (PXN).

    A rank then sends over the network to one rank of each other island; the island's own links
    carry everything once. Where rails stay apart, what goes to other rails takes the last tier.
    """
    n = span.ranks
    pair_bytes = exchange_of(Op.ALL_TO_ALL, n, size, Algorithm.DIRECT).edge_bytes
    inside = pair_bytes * (n - 1) / (links.scale_up * constants.link_share)
    latency = _DIRECT_US + (span.per_island - 1) * _DIRECT_HOP_US
    if span.islands == 1:
        return _choice("direct", "Simple", latency, inside, constants.segment_s)
    outside = 0.0
    for tier in range(span.tier + 1):
        rate = links.network[tier] * constants.network_share / links.oversubscription[tier]
        outside = max(outside, pair_bytes * (n - span.per_domain[tier]) / rate)
    if links.rails_apart:
        local = span.per_island
        rate = links.network[-1] * constants.network_share / links.oversubscription[-1]
        outside = max(outside, pair_bytes * (n - local) * (local - 1) / local / rate)
        latency += (n - local) * _DIRECT_HOP_US
    far = 2 * links.latency[span.tier] / _S_PER_US
    latency += (span.islands - 1) * _DIRECT_NET_US + far
    seconds = max(inside, part_away * outside)
    return _choice("rail-local", "Simple", latency, seconds, constants.network_segment_s)


def _send(size: float, span: Span, links: Links, constants: Constants) -> Choice:
    if span.islands == 1:
        seconds = size / (links.scale_up * constants.link_share)
        return _choice("send", "Simple", _SIMPLE.ring_base, seconds, constants.segment_s)
    rate = min(links.network[t] / links.oversubscription[t] for t in range(span.tier + 1))
    latency = _SIMPLE.ring_net + links.latency[span.tier] / _S_PER_US
    seconds = size / (rate * constants.network_share)
    return _choice("send", "Simple", latency, seconds, constants.network_segment_s)


def _choice(
    algorithm: str, protocol: str, latency_us: float, wire_s: float, segment_s: float
) -> Choice:
    seconds = latency_us * _S_PER_US + wire_s + 2 * math.sqrt(segment_s * wire_s)
    return Choice(algorithm, protocol, seconds)
