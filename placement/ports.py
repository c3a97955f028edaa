"""Source ports that spread a placement's connections evenly over equal-cost uplinks (RoCE, ECMP).

A switch picks the uplink of a connection by hashing its five-tuple, and the sender is free to
choose its source port. So the uplinks are chosen first, evenly, and then a port that hashes to
each. Uplink u of every switch leads to the same spine or leaf u, which has one downlink to every
switch: the uplink decides the downlink too.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from .ecmp_hash import UDP, FiveTuple, UplinkHash, packed
from .edge_colouring import (
    Edge,
    balanced_colours,
    cp_sat_colours,
    greedy_colours,
    least_max_load,
    max_load,
    max_weight_load,
)
from .errors import InvalidInput, Problem
from .files import read_data, validated, write_text_atomically
from .flows import Flow
from .quantities import NonNegative

FORMAT: Final = "railweave.ports/1"
DYNAMIC_PORTS: Final = range(49152, 65536)
"""Ports that no service is registered on (RFC 6335), and the range RoCEv2 senders draw from."""


class Method(StrEnum):
    """How uplinks are chosen."""

    COLOURING = "colouring"
    """Edge colouring: the least possible maximum, always."""
    GREEDY = "greedy"
    """One connection after another onto the least used link; a comparison."""
    CP_SAT = "cp_sat"
    """An integer program; a comparison, and an independent proof of the least maximum."""


class PlannedConnection(BaseModel):
    """A connection with the source port to bind and the uplink it then takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    src: str
    dst: str
    dst_port: int = Field(ge=1, le=65535)
    src_port: int = Field(ge=1, le=65535)
    uplink: int = Field(ge=0)
    bytes: NonNegative


class LinkLoad(BaseModel):
    """The fullest link: connections on it, and bytes a step on the one with most bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: int = Field(ge=0)
    bytes: NonNegative


@dataclass(frozen=True)
class PortPlan:
    """Ports for every connection that leaves its first switch.

    least_connections: no choice of uplinks has a link with fewer connections than this at most.
    planned, greedy, default: the fullest link with the planned ports, with the uplinks that the
        greedy rule takes, and with random ports (None when the hash does not know those).
    """

    uplinks: int
    connections: tuple[PlannedConnection, ...]
    least_connections: int
    planned: LinkLoad
    greedy: LinkLoad
    default: LinkLoad | None

    def to_data(self) -> dict[str, Any]:
        """Plain data in the format `railweave.ports/1`."""
        return {"format": FORMAT, **_Record.model_validate(vars(self)).model_dump(mode="json")}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan (JSON)."""
        write_text_atomically(path, json.dumps(self.to_data(), allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan. Raises InvalidInput."""
        return cls.parse(read_data(path), os.fspath(path))

    @classmethod
    def parse(cls, data: Any, source: str = "ports") -> Self:
        """A plan from plain data. Raises InvalidInput."""
        record = validated(_Record, data, source, FORMAT)
        values = {name: getattr(record, name) for name in type(record).model_fields}
        del values["format"]
        return cls(**values)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: str = FORMAT
    uplinks: int = Field(ge=1)
    least_connections: int = Field(ge=0)
    planned: LinkLoad
    greedy: LinkLoad
    default: LinkLoad | None
    connections: tuple[PlannedConnection, ...]


def plan_ports(
    flows: Sequence[Flow],
    uplinks: int,
    uplink_hash: UplinkHash,
    *,
    ports: range = DYNAMIC_PORTS,
    method: Method = Method.COLOURING,
    protocol: int = UDP,
    seed: int = 0,
) -> PortPlan:
    """Source ports such that no up- or downlink carries more connections than it must.

    With the colouring every switch has at most ceil(its connections / uplinks) on each link, in
    either direction: the least possible. Counts are minimised; bytes are only reported, though each
    switch's heaviest connections are kept apart. Flows that stay below their first switch need no
    port and are left out. `ports` are the candidates in order of preference; the ports of
    connections between one pair of addresses and one destination port are distinct. `seed` draws
    the ports of the comparison `default`.

    Raises InvalidInput naming every connection that no candidate port brings onto its uplink.
    """
    if uplinks < 1:
        raise ValueError(f"uplinks is {uplinks}; a switch has 1 or more")
    crossing = [flow for flow in flows if flow.source_switch != flow.destination_switch]
    edges = _edges(crossing)
    weights = [flow.bytes for flow in crossing]
    greedy = greedy_colours(edges, uplinks)
    if method is Method.COLOURING:
        chosen = balanced_colours(edges, uplinks, weights)
    else:
        chosen = greedy if method is Method.GREEDY else cp_sat_colours(edges, uplinks, seed=seed)
    tuples = [_ByPort(flow, protocol) for flow in crossing]
    planned_ports = _chosen_ports(crossing, tuples, chosen, uplinks, uplink_hash, ports)
    usual = _usual_uplinks(tuples, uplink_hash, ports, seed)

    def load(colouring: Sequence[int]) -> LinkLoad:
        return LinkLoad(
            connections=max_load(edges, colouring), bytes=max_weight_load(edges, colouring, weights)
        )

    return PortPlan(
        uplinks=uplinks,
        connections=tuple(
            PlannedConnection.model_construct(
                name=flow.name,
                src=flow.source,
                dst=flow.destination,
                dst_port=flow.destination_port,
                src_port=port,
                uplink=uplink,
                bytes=flow.bytes,
            )
            for flow, port, uplink in zip(crossing, planned_ports, chosen, strict=True)
        ),
        least_connections=least_max_load(edges, uplinks),
        planned=load(chosen),
        greedy=load(greedy),
        default=None if usual is None else load(usual),
    )


def _edges(flows: Sequence[Flow]) -> list[Edge]:
    """Sending switches on the left, receiving ones on the right, numbered apart."""
    number: dict[tuple[int, str], int] = {}
    return [
        (
            number.setdefault((0, flow.source_switch), len(number)),
            number.setdefault((1, flow.destination_switch), len(number)),
        )
        for flow in flows
    ]


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
    uplink_of: Sequence[int],
    uplinks: int,
    uplink_hash: UplinkHash,
    ports: range,
) -> list[int]:
    taken: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    chosen: list[int] = []
    problems: list[Problem] = []
    for flow, five_tuple, wanted in zip(flows, tuples, uplink_of, strict=True):
        used = taken[five_tuple.key]
        for port in ports:
            if uplink_hash(five_tuple(port)) == wanted and port not in used:
                used.add(port)
                chosen.append(port)
                break
        else:
            found = [uplink_hash(five_tuple(port)) for port in ports]
            problems.append(_no_port(flow, wanted, found, uplinks, ports, len(used)))
    if problems:
        raise InvalidInput("ports", problems)
    return chosen


def _no_port(
    flow: Flow, wanted: int, found: list[int | None], uplinks: int, ports: range, used: int
) -> Problem:
    known = sorted({uplink for uplink in found if uplink is not None})
    outside = [uplink for uplink in known if not 0 <= uplink < uplinks]
    place = f"{flow.name} ({flow.source} -> {flow.destination}:{flow.destination_port})"
    shown = f"{ports.start}-{ports.stop - 1}" if len(ports) else "(none)"
    if outside:
        text = f"the hash gives uplink {outside[0]} of {uplinks}"
        return Problem(place, text, f"make it return 0 to {uplinks - 1}")
    reached = ", ".join(map(str, known)) or "none"
    text = (
        f"none of {len(ports)} source ports {shown} takes uplink {wanted} "
        f"({found.count(None)} have no known uplink; the others reach: {reached}; "
        f"{used} are taken by connections of the same two addresses)"
    )
    return Problem(place, text, "widen the range of ports, or trace more of them")


def _usual_uplinks(
    tuples: Sequence[_ByPort], uplink_hash: UplinkHash, ports: range, seed: int
) -> list[int] | None:
    """Uplinks under random distinct ports, as senders draw them; None when one is not known."""
    draw = random.Random(seed)
    taken: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    uplinks = []
    for five_tuple in tuples:
        port = next(p for p in _draws(draw, ports) if p not in taken[five_tuple.key])
        taken[five_tuple.key].add(port)
        uplink = uplink_hash(five_tuple(port))
        if uplink is None:
            return None
        uplinks.append(uplink)
    return uplinks


def _draws(draw: random.Random, ports: range) -> Iterator[int]:
    while True:
        yield draw.choice(ports)
