"""Source ports that spread a placement's connections evenly over equal-cost uplinks (RoCE, ECMP).

A switch picks the uplink of a connection by hashing its five-tuple, and the sender is free to
choose its source port. So the uplinks are chosen first, evenly, and then a port that hashes to
each. Uplink u of every switch leads to the same spine or leaf u, which has one downlink to every
switch: the uplink decides the downlink too.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import InvalidInput, Problem
from .ecmp_hash import UDP, FiveTuple, UplinkHash, by_port, packed
from .edge_colouring import (
    Edge,
    balanced_colours,
    cp_sat_colours,
    greedy_colours,
    least_max_load,
    max_load,
    max_weight_load,
)
from .flows import Flow
from .planes import least_upper_load, plane_colours
from .port_plan import LayerLoads, LinkLoad, PlannedConnection, PortPlan

DYNAMIC_PORTS: Final = range(49152, 65536)
"""Ports that no service is registered on (RFC 6335), and the range RoCEv2 senders draw from."""

Uplinks = tuple[int, int | None]
"""Of the first switch, and of the switch that leads to, where that layer is planned and used."""


class Method(StrEnum):
    """How uplinks are chosen."""

    COLOURING = "colouring"
    """Edge colouring: the least possible maximum, always."""
    GREEDY = "greedy"
    """One connection after another onto the least used link; a comparison."""
    CP_SAT = "cp_sat"
    """An integer program; a comparison, and an independent proof of the least maximum."""


@dataclass(frozen=True)
class Upper:
    """The second layer of a fabric made of planes: uplinks of its switches, and their hash.

    Uplink c of every first switch leads to switch c of its group, and uplink m of that to the spine
    (c, m), which has one link down to switch c of every group. The two hashes must be independent:
    one function with two seeds often is not, and a plan is then refused with what can be reached.
    """

    uplinks: int
    uplink_hash: UplinkHash


def plan_ports(
    flows: Sequence[Flow],
    uplinks: int,
    uplink_hash: UplinkHash,
    *,
    upper: Upper | None = None,
    ports: range = DYNAMIC_PORTS,
    method: Method = Method.COLOURING,
    protocol: int = UDP,
    seed: int = 0,
) -> PortPlan:
    """Source ports such that no up- or downlink carries more connections than it must.

    With the colouring every first switch has at most ceil(its connections / uplinks) on each link,
    in either direction: the least possible. With `upper` the links a layer further up are evened
    out too, nearly always to their least possible maximum; the plan tells. Counts are minimised;
    bytes are only reported, though each switch's heaviest connections are kept apart. Flows that
    stay below their first switch need no port and are left out. `ports` are the candidates in order
    of preference; the ports of connections between one pair of addresses and one destination port
    are distinct. `seed` draws the ports of the comparison `default`.

    Raises InvalidInput naming every connection that no candidate port brings onto its uplinks.
    """
    for name, count in (("uplinks", uplinks), ("upper.uplinks", upper.uplinks if upper else 1)):
        if count < 1:
            raise ValueError(f"{name} is {count}; a switch has 1 or more")
    crossing = [flow for flow in flows if flow.source_switch != flow.destination_switch]
    if upper and not all(flow.source_group and flow.destination_group for flow in crossing):
        raise ValueError("flows name no group of switches: the cluster has no second tier to plan")
    job = _Job(crossing, uplinks, upper)
    chosen = job.chosen(method, seed)
    hashes = [uplink_hash, *([upper.uplink_hash] if upper else [])]
    tuples = [_ByPort(flow, protocol) for flow in crossing]
    planned_ports = _chosen_ports(crossing, tuples, chosen, job.widths, hashes, ports)
    greedy = job.chosen(Method.GREEDY, seed)
    usual = _usual_uplinks(tuples, hashes, ports, seed)
    layers = [job.loads(layer, chosen, greedy, usual) for layer in range(len(job.widths))]
    return PortPlan(
        first=layers[0],
        upper=layers[1] if upper else None,
        connections=tuple(
            PlannedConnection.model_construct(
                name=flow.name,
                src=flow.source,
                dst=flow.destination,
                dst_port=flow.destination_port,
                src_port=port,
                uplink=taken[0],
                upper_uplink=taken[1],
                bytes=flow.bytes,
            )
            for flow, port, taken in zip(crossing, planned_ports, chosen, strict=True)
        ),
    )


class _Job:
    """The connections to plan as edges between numbered switches, layer by layer."""

    def __init__(self, flows: Sequence[Flow], uplinks: int, upper: Upper | None) -> None:
        self.widths = [uplinks, *([upper.uplinks] if upper else [])]
        self._weights = [flow.bytes for flow in flows]
        number: dict[tuple[int, str], int] = {}

        def numbered(sender: str, receiver: str, side: int) -> Edge:
            return (
                number.setdefault((side, sender), len(number)),
                number.setdefault((side + 1, receiver), len(number)),
            )

        self._edges = [numbered(f.source_switch, f.destination_switch, 0) for f in flows]
        self._groups: list[Edge | None] = [
            numbered(f.source_group, f.destination_group, 2)
            if upper and f.source_group != f.destination_group
            else None
            for f in flows
        ]

    def chosen(self, method: Method, seed: int) -> list[Uplinks]:
        """Uplinks of each connection by that method."""
        if method is Method.COLOURING and len(self.widths) == 2:
            first, second = plane_colours(
                self._edges, self._groups, self.widths[0], self.widths[1], self._weights
            )
            return list(zip(first, second, strict=True))
        first = _coloured(method, self._edges, self.widths[0], self._weights, seed)
        above: list[int | None] = [None] * len(first)
        if len(self.widths) == 2:
            indices, edges = self._above([(colour, None) for colour in first])
            weights = [self._weights[index] for index in indices]
            found = _coloured(method, edges, self.widths[1], weights, seed)
            for index, colour in zip(indices, found, strict=True):
                above[index] = colour
        return list(zip(first, above, strict=True))

    def _above(self, taken: Sequence[Uplinks]) -> tuple[list[int], list[Edge]]:
        """Connections that use the upper layer, as edges between the switches of their planes."""
        width = self.widths[0]
        indices = [index for index, pair in enumerate(self._groups) if pair is not None]
        pairs = [
            (pair, first) for pair, (first, _) in zip(self._groups, taken, strict=True) if pair
        ]
        return indices, [(a * width + colour, b * width + colour) for (a, b), colour in pairs]

    def loads(
        self,
        layer: int,
        planned: Sequence[Uplinks],
        greedy: Sequence[Uplinks],
        usual: Sequence[Uplinks] | None,
    ) -> LayerLoads:
        """The fullest links of a layer."""
        least = (
            least_upper_load(self._groups, *self.widths)
            if layer
            else least_max_load(self._edges, self.widths[0])
        )
        return LayerLoads(
            uplinks=self.widths[layer],
            least_connections=least,
            planned=self._fullest(layer, planned),
            greedy=self._fullest(layer, greedy),
            default=None if usual is None else self._fullest(layer, usual),
        )

    def _fullest(self, layer: int, taken: Sequence[Uplinks]) -> LinkLoad:
        indices, edges = list(range(len(self._edges))), self._edges
        if layer:
            indices, edges = self._above(taken)
        colours = [colour for index in indices if (colour := taken[index][layer]) is not None]
        weights = [self._weights[index] for index in indices]
        return LinkLoad(
            connections=max_load(edges, colours), bytes=max_weight_load(edges, colours, weights)
        )


def _coloured(
    method: Method, edges: Sequence[Edge], colours: int, weights: Sequence[float], seed: int
) -> list[int]:
    if method is Method.COLOURING:
        return balanced_colours(edges, colours, weights)
    if method is Method.GREEDY:
        return greedy_colours(edges, colours)
    return cp_sat_colours(edges, colours, seed=seed)


class _ByPort:
    """A connection's five-tuple as a function of its source port."""

    __slots__ = ("_destination", "_destination_port", "_protocol", "_source", "key")

    def __init__(self, flow: Flow, protocol: int) -> None:
        self.key = (flow.source, flow.destination, flow.destination_port)
        self._source, self._destination = packed(flow.source), packed(flow.destination)
        self._protocol, self._destination_port = protocol, flow.destination_port

    def __call__(self, port: int) -> FiveTuple:
        return FiveTuple(
            self._source, self._destination, self._protocol, port, self._destination_port
        )


def _chosen_ports(
    flows: Sequence[Flow],
    tuples: Sequence[_ByPort],
    chosen: Sequence[Uplinks],
    widths: Sequence[int],
    hashes: Sequence[UplinkHash],
    ports: range,
) -> list[int]:
    taken: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    found: list[int] = []
    problems: list[Problem] = []
    for flow, five_tuple, (first, above) in zip(flows, tuples, chosen, strict=True):
        used = taken[five_tuple.key]
        like = five_tuple(0)
        uplink = by_port(hashes[0], like)
        upper = by_port(hashes[-1], like)
        for port in ports:
            if (
                uplink(port) == first
                and (above is None or upper(port) == above)
                and port not in used
            ):
                used.add(port)
                found.append(port)
                break
        else:
            wanted = [first] if above is None else [first, above]
            reached = [
                tuple(hash_(five_tuple(port)) for hash_, _ in zip(hashes, wanted, strict=False))
                for port in ports
            ]
            problems.append(_no_port(flow, wanted, reached, widths, ports, len(used)))
    if problems:
        raise InvalidInput("ports", problems)
    return found


def _no_port(
    flow: Flow,
    wanted: Sequence[int],
    reached: Sequence[tuple[int | None, ...]],
    widths: Sequence[int],
    ports: range,
    used: int,
) -> Problem:
    place = f"{flow.name} ({flow.source} -> {flow.destination}:{flow.destination_port})"
    for layer, width in enumerate(widths[: len(wanted)]):
        known_here = [uplink for u in reached if (uplink := u[layer]) is not None]
        outside = [uplink for uplink in known_here if not 0 <= uplink < width]
        if outside:
            text = f"the hash gives uplink {outside[0]} of {width}"
            return Problem(place, text, f"make it return 0 to {width - 1}")
    known = sorted({uplinks for uplinks in reached if None not in uplinks})
    shown = [", ".join(" then ".join(map(str, uplinks)) for uplinks in known[:40]) or "none"]
    if len(known) > 40:
        shown.append(f"and {len(known) - 40} more")
    candidates = f"{ports.start}-{ports.stop - 1}" if len(ports) else "(none)"
    text = (
        f"none of {len(ports)} source ports {candidates} takes uplink "
        f"{' then '.join(map(str, wanted))} "
        f"({sum(None in uplinks for uplinks in reached)} have no known uplink; the others reach: "
        f"{' '.join(shown)}; {used} are taken by connections of the same two addresses)"
    )
    return Problem(place, text, "widen the range of ports, or trace more of them")


def _usual_uplinks(
    tuples: Sequence[_ByPort], hashes: Sequence[UplinkHash], ports: range, seed: int
) -> list[Uplinks] | None:
    """Uplinks under random distinct ports, as senders draw them; None when one is not known."""
    draw = random.Random(seed)
    taken: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    found: list[Uplinks] = []
    for five_tuple in tuples:
        port = next(p for p in _draws(draw, ports) if p not in taken[five_tuple.key])
        taken[five_tuple.key].add(port)
        uplinks = [hash_(five_tuple(port)) for hash_ in hashes]
        if uplinks[0] is None or uplinks[-1] is None:
            return None
        found.append((uplinks[0], uplinks[1] if len(uplinks) == 2 else None))
    return found


def _draws(draw: random.Random, ports: range) -> Iterator[int]:
    while True:
        yield draw.choice(ports)
