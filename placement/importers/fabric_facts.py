"""What an InfiniBand fabric says of a cluster: nodes, domains, and links that are not as others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..errors import Problem
from .fabric import End, Fabric, Link, identifier, system_and_module
from .facts import Facts, Network
from .network_summary import network_summary
from .switch_graph import Cable, levels, network_of

_MOST_SHOWN = 6
_MOST_LISTED = 1000
_MANAGER = re.compile(r"(?<![a-z])c?(ufm|opensm|mgmt)(?![a-z])", re.I)
_GUID = re.compile(r"[0-9a-f]{16}")


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
    slow = _degraded(fabric)
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


def _degraded(fabric: Fabric) -> list[str]:
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
    slow = _degraded(fabric)
    if slow:
        warnings.append(f"{len(slow)} links are slower than the others of their kind: {slow[0]}")
    linked = {hosts.get(key) for link in fabric.links.values() for key, _ in link.ports}
    unplaced = [host for host in dict.fromkeys(hosts.values()) if host not in linked]
    if unplaced:
        shown = ", ".join(sorted(unplaced)[:_MOST_SHOWN])
        warnings.append(f"{len(unplaced)} hosts have no link and stand alone: {shown}")
    return warnings
