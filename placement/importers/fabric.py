"""An InfiniBand fabric as its ports tell it: ends, links seen from one side or both, hosts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem
from .facts import Facts, Network
from .network_summary import network_summary
from .source import Source
from .switch_graph import Cable, levels, network_of

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
_MOST_SHOWN = 6
_MOST_LISTED = 1000
_VENDOR = re.compile(r"^MT\d+\b|ConnectX|Mellanox Technologies|^NVIDIA\b|^localhost\b", re.I)
_MANAGER = re.compile(r"(?<![a-z])c?(ufm|opensm|mgmt)(?![a-z])", re.I)
_GUID = re.compile(r"[0-9a-f]{16}")
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


def fabric_facts(fabric: Fabric, format_name: str, incomplete: str | None = None) -> Facts:
    """Facts of a fabric. incomplete: why its file is only a part, where it is."""
    if not fabric.links:
        return _no_links(fabric, format_name)
    called = _switch_names(fabric)
    hosts, managers = _hosts(fabric)
    nodes = list(dict.fromkeys(hosts.values()))
    nameless = [key for key, end in fabric.ends.items() if _is_adapter(end) and not end.host]
    placed = {*hosts, *nameless} | {k for k, end in fabric.ends.items() if end.kind != "ca"}
    cables = [
        Cable(hosts.get(a, a), hosts.get(b, b), link.bytes_per_s)
        for link in fabric.links.values()
        for (a, _), (b, _) in [link.ports]
        if a in placed and b in placed
    ]
    beside = [key for key in nameless if key not in hosts]
    network = network_of(nodes, cables, called, beside)
    if incomplete:
        network = Network(network.tiers, network.domains, network.spine)
    leaves = _leaves(fabric, hosts, levels([*nodes, *beside], cables))
    summary = {
        **_ends_summary(fabric, leaves, hosts, managers),
        **_links_summary(fabric, leaves),
        "hosts_of_leaf": {called[leaf]: len(names) for leaf, names in leaves.items()},
        "tiers": len(network.tiers) + (network.spine is not None),
        **network_summary(network),
    }
    warnings = [*fabric.warnings, *_warnings(fabric, hosts, managers)]
    if incomplete:
        warnings.append(incomplete)
    aliases = {
        one: host
        for key, host in hosts.items()
        for one in [identifier(key), *fabric.ends[key].identifiers]
        if _GUID.fullmatch(one)
    }
    alone = None
    if not nodes:
        found = f"{len(fabric.links)} links and no adapter of a host: switches alone are no cluster"
        alone = Problem("", found, "hand in a file that has the hosts too")
    return Facts(
        format_name,
        summary,
        network if nodes else None,
        not_alone=alone,
        aliases=aliases,
        warnings=tuple(warnings),
    )


def _no_links(fabric: Fabric, format_name: str) -> Facts:
    """Facts of ends without a link, which make no fabric."""
    adapters = [end for end in fabric.ends.values() if _is_adapter(end)]
    switches = [end for end in fabric.ends.values() if end.kind == "switch"]
    names = ", ".join(repr(end.name) for end in (*adapters, *switches)[:_MOST_SHOWN])
    found = f"{len(adapters)} CA, {len(switches)} switches, 0 links ({names}): no fabric is seen"
    if fabric.down:
        found += f"; {len(fabric.down)} ports without a peer: {', '.join(fabric.down[:4])}"
    elif adapters:
        found += ", its port is down" if len(adapters) == 1 else ", their ports are down"
    first = min((end.line for end in fabric.ends.values() if end.line), default=None)
    place = f"line {first}" if first else ""
    summary = {**_ends_summary(fabric, {}, {}, []), **_links_summary(fabric, {})}
    alone = Problem(place, found, "run it from a host whose port is active")
    return Facts(format_name, summary, not_alone=alone, warnings=tuple(fabric.warnings))


def _switch_names(fabric: Fabric) -> dict[str, str]:
    """What each switch is called: its short name, with the identifier where several have it."""
    names = {}
    for key, end in fabric.ends.items():
        system, module = system_and_module(end.name)
        names[key] = f"{system}/{module}" if module else system or key
    counts = Counter(names[key] for key, end in fabric.ends.items() if end.kind == "switch")
    return {key: f"{name} {key}" if counts[name] > 1 else name for key, name in names.items()}


def _hosts(fabric: Fabric) -> tuple[dict[str, str], list[str]]:
    """The node of each adapter that has one, and the nodes that only manage the fabric."""
    named = {key: end.host for key, end in fabric.ends.items() if end.host}
    if not named:
        named = {
            key: identifier(end.guid or key) for key, end in fabric.ends.items() if _is_adapter(end)
        }
    managers = sorted({host for host in named.values() if _MANAGER.search(host)})
    if len(managers) == len(set(named.values())):
        managers = []
    return {key: host for key, host in named.items() if host not in managers}, managers


def _is_adapter(end: End) -> bool:
    """Whether it is an adapter of a machine and not the reduction unit of a switch."""
    return end.kind == "ca" and not end.aggregates


def _leaves(
    fabric: Fabric, hosts: Mapping[str, str], level: Mapping[str, int]
) -> dict[str, set[str]]:
    """Switches of the lowest level, with the nodes on each."""
    leaves: dict[str, set[str]] = {}
    for link in fabric.links.values():
        (a, _), (b, _) = link.ports
        for switch, adapter in ((a, b), (b, a)):
            if adapter in hosts and level.get(switch) == 1:
                leaves.setdefault(switch, set()).add(hosts[adapter])
    return leaves


def _ends_summary(
    fabric: Fabric,
    leaves: Mapping[str, set[str]],
    hosts: Mapping[str, str],
    managers: list[str],
) -> dict[str, Any]:
    switches = {key: end for key, end in fabric.ends.items() if end.kind == "switch"}
    directors: dict[str, list[str]] = {}
    for end in switches.values():
        system, module = system_and_module(end.name)
        if module:
            directors.setdefault(system, []).append(module)
    modules = sum(map(len, directors.values()))
    adapters = [end for end in fabric.ends.values() if _is_adapter(end)]
    unnamed = [end for end in adapters if not end.host]
    others = [
        key
        for key, end in switches.items()
        if key not in leaves and not system_and_module(end.name)[1]
    ]
    summary: dict[str, Any] = {
        "switch_records": sum(end.line is not None for end in switches.values()),
        "switches_only_referred_to": sum(end.line is None for end in switches.values()),
        "switches": len(switches) - modules + len(directors),
        "directors": {name: sorted(parts) for name, parts in directors.items()},
        "leaf_switches": len(leaves),
        "other_switches": len(others),
        "cas": len(adapters),
        "cas_without_node_name": len(unnamed),
        "hosts": len(set(hosts.values())),
        "management_hosts": managers,
        "aggregation_nodes": sum(end.aggregates for end in fabric.ends.values()),
    }
    routers = sum(end.kind == "router" for end in fabric.ends.values())
    listed = [
        {
            "guid": end.guid or key,
            "name": end.name,
            **({"lid": end.lid} if end.lid is not None else {}),
        }
        for key, end in switches.items()
    ]
    summary["switch_list"] = listed[:_MOST_LISTED]
    return summary | ({"routers": routers} if routers else {})


def _links_summary(fabric: Fabric, leaves: Mapping[str, set[str]]) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    speeds: dict[str, Counter[str]] = {}
    pairs: Counter[frozenset[str]] = Counter()
    for link in fabric.links.values():
        kind = _kind(fabric, link)
        kinds[kind] += 1
        if link.speed:
            speeds.setdefault(kind, Counter())[link.speed] += 1
        (a, _), (b, _) = link.ports
        if kind == "switch":
            pairs[frozenset((a, b))] += 1
    every: Counter[str] = sum(speeds.values(), Counter())
    slow = degraded(fabric)
    to_spines = {pair: n for pair, n in pairs.items() if sum(end in leaves for end in pair) == 1}
    names = _switch_names(fabric)
    parallel = {
        " - ".join(sorted(names[end] for end in pair)): n for pair, n in pairs.items() if n > 1
    }
    return {
        "links": len(fabric.links),
        "links_to_hosts": kinds["host"],
        "links_between_switches": kinds["switch"],
        "links_to_aggregation_nodes": kinds["aggregation"],
        "links_by_speed": dict(every.most_common()),
        "links_of_unknown_speed": len(fabric.links) - sum(every.values()),
        "links_degraded": len(slow),
        "degraded": slow[:_MOST_LISTED],
        "leaf_spine_links": sum(to_spines.values()),
        "leaf_spine_pairs": len(to_spines),
        "switch_pairs": len(pairs),
        "parallel_links": dict(list(parallel.items())[:_MOST_LISTED]),
        "ports_down": fabric.down,
    }


def degraded(fabric: Fabric) -> list[str]:
    """Links that are slower than most of their kind, each with its line."""
    rates: dict[str, Counter[float]] = {}
    for link in fabric.links.values():
        if link.bytes_per_s:
            rates.setdefault(_kind(fabric, link), Counter())[link.bytes_per_s] += 1
    usual = {kind: counts.most_common(1)[0][0] for kind, counts in rates.items()}
    names = _switch_names(fabric)
    found = []
    for link in fabric.links.values():
        expected = usual.get(_kind(fabric, link))
        if link.bytes_per_s and expected and link.bytes_per_s < expected:
            ends = " - ".join(f"{names[key]} port {port}" for key, port in link.ports)
            found.append(f"line {min(link.sides.values())}: {ends} has {link.speed}")
    return found


def _kind(fabric: Fabric, link: Link) -> str:
    ends = [fabric.ends[key] for key, _ in link.ports]
    if any(end.aggregates for end in ends):
        return "aggregation"
    return "host" if any(end.kind == "ca" for end in ends) else "switch"


def _warnings(fabric: Fabric, hosts: Mapping[str, str], managers: list[str]) -> list[str]:
    warnings = []
    adapters = [(key, end) for key, end in fabric.ends.items() if _is_adapter(end)]
    nameless = [key for key, end in adapters if not end.host]
    if nameless and len(nameless) < len(adapters):
        warnings.append(
            f"{len(nameless)} adapters have no node name and are left out: "
            f"{', '.join(nameless[:_MOST_SHOWN])}; a list of names and GUIDs would place them"
        )
    elif nameless:
        warnings.append("no adapter has a node name; each counts as a node, called by its GUID")
    if managers:
        shown = ", ".join(managers[:_MOST_SHOWN])
        warnings.append(f"left out, because they manage the fabric: {shown}")
    one_sided = [
        link
        for link in fabric.links.values()
        if len(link.sides) == 1 and all(fabric.ends[key].line for key, _ in link.ports)
    ]
    if one_sided:
        lines = ", ".join(str(next(iter(link.sides.values()))) for link in one_sided[:4])
        warnings.append(
            f"{len(one_sided)} links are told by one end only, although the file describes both "
            f"(lines {lines}{', ...' if len(one_sided) > 4 else ''})"
        )
    slow = degraded(fabric)
    if slow:
        warnings.append(f"{len(slow)} links are slower than the others of their kind: {slow[0]}")
    linked = {hosts.get(key) for link in fabric.links.values() for key, _ in link.ports}
    unplaced = [host for host in dict.fromkeys(hosts.values()) if host not in linked]
    if unplaced:
        shown = ", ".join(sorted(unplaced)[:_MOST_SHOWN])
        warnings.append(f"{len(unplaced)} hosts have no link and stand alone: {shown}")
    return warnings
