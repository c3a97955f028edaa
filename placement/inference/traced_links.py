"""Links between routers, from probes of every path: which are slow, late or gone.

A router answers a trace with the address of the interface where the probe came in, so a hop stands
for one link in one direction: the one into that interface.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from .measurements import Measurement, Pair

NO_ANSWER = "*"
"""Stands in a path for a router that gave no address."""


class LinkFault(StrEnum):
    """What is wrong with a link."""

    DEAD = "dead"
    """Paths went over it before, and none does now."""
    SLOW = "slow"
    """No path over it reaches the bandwidth that its peers have, or that it had."""
    LATE = "late"
    """Every path over it takes longer than those of its peers, or than it took."""


@dataclass(frozen=True)
class TracedLink:
    """A link in one direction, by the address of the interface into which it leads.

    position: of its hop on the paths, from 0. bytes_per_s: of the fastest path over it;
    round_trip_s: of the quickest; None where not measured. pairs: whose paths pass it.
    """

    address: str
    position: int
    bytes_per_s: float | None
    round_trip_s: float | None
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class LinkChange:
    """A link at fault. factor: what is left of its bandwidth, or how many times its latency; 0 of a
    dead one. pairs: whose paths show it."""

    address: str
    fault: LinkFault
    factor: float
    pairs: tuple[Pair, ...]


def traced_links(measurements: Iterable[Measurement]) -> dict[str, TracedLink]:
    """The links that whole paths pass, by address."""
    over: dict[str, list[tuple[int, Measurement]]] = defaultdict(list)
    for found in measurements:
        if found.lost is None and found.hops:
            for position, address in enumerate(found.hops):
                if address != NO_ANSWER:
                    over[address].append((position, found))
    links = {}
    for address, passing in sorted(over.items()):
        rates = [m.there_bytes_per_s for _, m in passing if m.there_bytes_per_s is not None]
        trips = [m.round_trip_min_s for _, m in passing if m.round_trip_min_s is not None]
        links[address] = TracedLink(
            address=address,
            position=min(position for position, _ in passing),
            bytes_per_s=max(rates, default=None),
            round_trip_s=min(trips, default=None),
            pairs=tuple(sorted({(m.a, m.b) for _, m in passing})),
        )
    return links


def find_faults(
    now: Iterable[Measurement],
    before: Iterable[Measurement] = (),
    *,
    least_part: float = 0.75,
    most_times: float = 1.25,
) -> list[LinkChange]:
    """Links at fault, by address: against what they were, else against peers at the same hop.

    before: probes of paths from when all was well. least_part: of the bandwidth, below which a link
    is slow; most_times: of the round trip, above which it is late. A router's first hop is shared
    by all of its pairs' paths, so a fault there shows only against `before`.
    """
    links, healthy = traced_links(now), traced_links(before)
    peers: dict[int, list[TracedLink]] = defaultdict(list)
    for link in links.values():
        peers[link.position].append(link)
    found = [
        LinkChange(address, LinkFault.DEAD, 0.0, link.pairs)
        for address, link in healthy.items()
        if address not in links
    ]
    for address, link in links.items():
        reference = [healthy[address]] if address in healthy else peers[link.position]
        rates = [one.bytes_per_s for one in reference if one.bytes_per_s is not None]
        trips = [one.round_trip_s for one in reference if one.round_trip_s is not None]
        if rates and link.bytes_per_s is not None:
            part = link.bytes_per_s / statistics.median(rates)
            if part < least_part:
                found.append(LinkChange(address, LinkFault.SLOW, part, link.pairs))
        if trips and link.round_trip_s is not None:
            times = link.round_trip_s / statistics.median(trips)
            if times > most_times:
                found.append(LinkChange(address, LinkFault.LATE, times, link.pairs))
    return sorted(found, key=lambda change: (change.address, change.fault))
