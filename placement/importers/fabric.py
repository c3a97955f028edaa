"""An InfiniBand fabric as its ports tell it: ends, links seen from one side or both, hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .source import Source

GBPS_A_LANE: Mapping[str, float] = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Gb/s of data of one lane, after its line code (InfiniBand architecture specification)."""
WIDTHS = (1, 2, 4, 8, 12)
"""Lanes of a link."""
_VENDOR = re.compile(r"^MT\d+\b|ConnectX|Mellanox Technologies|^NVIDIA\b|^localhost\b", re.I)
_SYSTEM = re.compile(r"^[^;:]+;([^;:]+):([^;:/]+)/(?:(.+)/)?[^/]+$")


@dataclass
class End:
    """A switch, adapter or router.

    line: of its own record, None where it is only referred to. lid: its address in the fabric.
    guid: where the end is kept under another identifier. identifiers: GUIDs of it and its ports.
    """

    kind: str
    name: str = ""
    line: int | None = None
    lid: int | None = None
    guid: str = ""
    identifiers: list[str] = field(default_factory=list)

    @property
    def aggregates(self) -> bool:
        """Whether it is the reduction unit of a switch, which shows as an adapter."""
        return "aggregation node" in self.name.lower()

    @property
    def host(self) -> str:
        """The name of the node it is in; empty where it has the name that its maker gave it."""
        if self.kind != "ca" or self.aggregates or not self.name or _VENDOR.search(self.name):
            return ""
        return self.name.split()[0].strip("'\"")


@dataclass
class Link:
    """What joins two ports. sides: ports that tell of it, with the line of each."""

    ports: tuple[tuple[str, int], tuple[str, int]]
    speed: str | None
    bytes_per_s: float | None
    sides: dict[tuple[str, int], int]


@dataclass
class Fabric:
    """Ends by identifier, links by port, and ports that are there and lead nowhere."""

    source: Source
    ends: dict[str, End] = field(default_factory=dict)
    links: dict[frozenset[tuple[str, int]], Link] = field(default_factory=dict)
    down: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _strange: set[str] = field(default_factory=set)
    _used: dict[tuple[str, int], tuple[tuple[str, int], int]] = field(default_factory=dict)

    def end(self, key: str, kind: str, name: str = "", line: int | None = None) -> End:
        """The end of that identifier; what is told of it later completes it."""
        known = self.ends.setdefault(key, End(kind, name, line))
        known.name = known.name or name
        known.line = known.line or line
        return known

    def link(
        self,
        line: int,
        port: tuple[str, int],
        peer: tuple[str, int],
        width: int | None,
        speed: str | None,
    ) -> None:
        """A link as `port` tells it. Raises InvalidInput where a port is joined to two others."""
        for one, other in ((port, peer), (peer, port)):
            known, there = self._used.setdefault(one, (other, line))
            if known != other:
                found = (
                    f"port {one[1]} of {self._called(one[0])} is joined to port {other[1]} of "
                    f"{self._called(other[0])} and, line {there}, to port {known[1]} of "
                    f"{self._called(known[0])}"
                )
                raise self.source.refuse(f"line {line}", found, "one of the lines is wrong")
        if port == peer:
            found = f"port {port[1]} of {self._called(port[0])} is joined to itself"
            raise self.source.refuse(f"line {line}", found, "correct the line")
        said = speed if width is None or speed is None else f"{width}x{speed}"
        rate = None
        if width in WIDTHS and width is not None and speed is not None and speed in GBPS_A_LANE:
            rate = width * GBPS_A_LANE[speed] * 1e9 / 8
        elif speed is not None and said not in self._strange:
            self._strange.add(str(said))
            self.warnings.append(f"line {line}: the speed {said!r} is not known")
        key = frozenset((port, peer))
        link = self.links.get(key)
        if link is None:
            self.links[key] = Link((port, peer), said, rate, {port: line})
            return
        link.sides.setdefault(port, line)
        if said and link.speed and said != link.speed:
            self.warnings.append(
                f"line {line}: the link has {said} at this end and {link.speed} at the other; "
                "the slower is taken"
            )
            rates = [one for one in (rate, link.bytes_per_s) if one is not None]
            if rate is not None and rate == min(rates):
                link.speed = said
            link.bytes_per_s = min(rates, default=None)
        elif link.speed is None:
            link.speed, link.bytes_per_s = said, rate

    def _called(self, key: str) -> str:
        end = self.ends.get(key)
        return repr(end.name or key) if end else repr(key)


def identifier(text: str) -> str:
    """A GUID as 16 hex digits, however it is written."""
    return text.lower().removeprefix("0x").rpartition("-")[2].zfill(16)


def system_and_module(name: str) -> tuple[str, str]:
    """A switch's name without what its maker adds, and its module in a director switch.

    `MF0;core-1:MCS8500/L01/U1` is module L01 of core-1.
    """
    match = _SYSTEM.match(name)
    return (match[1], match[3] or "") if match else (name, "")
