"""Topologies of containerlab: nodes with kinds, and links between their interfaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem
from .facts import Facts
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, shown, values_of
from .registry import Importer
from .source import Source
from .switch_graph import Cable, levels, network_of

NAME = "containerlab"
_HOST_KINDS = ("linux", "k8s-kind", "ext-container", "generic_vm")
_OUTSIDE = ("host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy")
_SWITCH_NAME = re.compile(
    r"(?<![a-z])(leaf|spine|super-?spine|tor|core|agg\w*|switch|sw|router|rtr|border|br)(?![a-z])",
    re.I,
)
_MAC = re.compile(r"base_?mac", re.I)
_MOST_SHOWN = 6


@dataclass
class _Lab:
    """kinds, switches: by node. stands: the node that stands for others of one device."""

    kinds: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    stands: dict[str, str] = field(default_factory=dict)
    macs: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def certainty(source: Source) -> float:
    """How sure it is: a topology with nodes that have kinds."""
    if not re.search(r"^[\"'{ ]*topology[\"']?\s*:", source.text, re.M):
        return 0.0
    if not source.documents:
        return 0.4 if "endpoints" in source.text and "kind" in source.text else 0.0
    first = source.documents[0]
    topology = first.get("topology") if isinstance(first, dict) else None
    return 0.95 if isinstance(topology, dict) and isinstance(topology.get("nodes"), dict) else 0.0


def read(source: Source) -> Facts:
    """Switches, hosts and links. Raises InvalidInput naming what cannot be used."""
    data = mapping_of(source, values_of(source)[0], "the lab")
    topology = mapping_of(source, data.get("topology"), "topology")
    lab = _read_nodes(source, topology)
    links = list_of(source, topology.get("links"), "topology.links")
    devices = list(dict.fromkeys(lab.stands.values()))
    hosts = [name for name in devices if not lab.switches[name]]
    switches = [name for name in devices if lab.switches[name]]
    if not links:
        of_kind = Counter(lab.kinds.values())
        told = ", ".join(f"{count} {kind}" for kind, count in of_kind.items())
        found = (
            f"{len(lab.kinds)} nodes ({len(switches)} switches, {len(hosts)} hosts: {told}) and "
            "0 links: topology.links is missing"
        )
        raise source.refuse(source.line_of("topology:"), found, "a fabric needs its links")
    cables = _read_links(source, lab, links)
    called = _device_names(lab)
    network = network_of(hosts, cables, called)
    level = levels(hosts, cables)
    for mac, names in lab.macs.items():
        owners = list(dict.fromkeys(called[lab.stands[name]] for name in names))
        if len(owners) > 1:
            shown_owners = ", ".join(owners)
            lab.warnings.append(f"the same system MAC {mac} twice: {shown_owners}")
    by_tier = Counter(level[name] for name in switches if name in level)
    meets: dict[str, list[str]] = {}
    for cable in cables:
        for low, high in ((cable.a, cable.b), (cable.b, cable.a)):
            if level.get(low, 0) and level.get(high, 0) > level[low]:
                meets.setdefault(called[low], []).append(called[high])
    summary: dict[str, Any] = {
        "name": str(data.get("name", "")),
        "containers": len(lab.kinds),
        "switches": len(switches),
        "hosts": len(hosts),
        "links": len(cables),
        "switch_list": [called[name] for name in switches],
        "host_list": hosts,
        "tiers": max(level.values(), default=0),
        "switches_by_tier": [by_tier[tier] for tier in sorted(by_tier)],
        "above": {low: sorted(set(high)) for low, high in meets.items()},
        "link_speeds": "unknown",
        **network_summary(network),
    }
    alone = None
    if not hosts:
        found = f"{len(switches)} switches, {len(cables)} links and no host"
        alone = Problem("", found, "add the hosts, or hand in a file that has them")
    return Facts(
        NAME,
        summary,
        network if hosts else None,
        not_alone=alone,
        warnings=tuple(lab.warnings),
    )


def _read_nodes(source: Source, topology: Mapping[str, Any]) -> _Lab:
    nodes = mapping_of(source, topology.get("nodes"), "topology.nodes")
    groups = mapping_of(source, topology.get("groups") or {}, "topology.groups")
    defaults = mapping_of(source, topology.get("defaults") or {}, "topology.defaults")
    lab = _Lab()
    shares: dict[str, str] = {}
    for key, value in nodes.items():
        name = name_of(source, key, "topology.nodes")
        body = mapping_of(source, value if value is not None else {}, f"topology.nodes.{name}")
        group = groups.get(str(body.get("group")))
        inherited = group if isinstance(group, dict) else {}
        kind = body.get("kind", inherited.get("kind", defaults.get("kind")))
        if not isinstance(kind, str):
            fix = "give it a kind, or one in defaults"
            raise source.refuse(f"topology.nodes.{name}", f"kind {shown(kind)}", fix)
        lab.kinds[name] = kind
        lab.switches[name] = _is_switch(name, kind, body)
        mode = str(body.get("network-mode", ""))
        if mode.startswith("container:"):
            shares[name] = mode.partition(":")[2]
        env = body.get("env")
        for variable, mac in env.items() if isinstance(env, dict) else ():
            if _MAC.search(str(variable)):
                lab.macs.setdefault(str(mac).lower(), []).append(name)
    if not lab.kinds:
        raise source.refuse("topology.nodes", "no nodes", "hand in the whole file")
    for name in lab.kinds:
        path = [name]
        while path[-1] in shares and path[-1] not in lab.stands:
            path.append(shares[path[-1]])
            if path[-1] not in lab.kinds:
                found = f"network-mode names {path[-1]!r}, which is no node"
                raise source.refuse(f"topology.nodes.{name}", found, "add the node")
            if len(path) > len(lab.kinds):
                found = "network-mode leads back to the node itself"
                raise source.refuse(f"topology.nodes.{name}", found, "break the circle")
        lab.stands |= dict.fromkeys(path, lab.stands.get(path[-1], path[-1]))
    return lab


def _is_switch(name: str, kind: str, body: Mapping[str, Any]) -> bool:
    """Whether a node forwards: by its kind, and for a plain container by labels and name."""
    if kind not in _HOST_KINDS:
        return True
    labels = body.get("labels")
    told = [str(one) for one in labels.values()] if isinstance(labels, dict) else []
    return any(_SWITCH_NAME.search(text) for text in (name, str(body.get("group", "")), *told))


def _read_links(source: Source, lab: _Lab, links: list[Any]) -> list[Cable]:
    cables = []
    places = places_of(source, r"[\"'\s\[]([\w.-]+:[\w./-]+)")
    seen: dict[tuple[str, str], str] = {}
    for index, value in enumerate(links):
        at = f"topology.links[{index}]"
        link = mapping_of(source, value, at)
        ends = [
            _end(source, at, one)
            for one in list_of(source, link.get("endpoints", link.get("endpoint")), at)
        ]
        place = places.get(":".join(ends[0]), at) if ends else at
        if len(ends) != 2:
            raise source.refuse(place, f"a link with {len(ends)} endpoints", "give it two")
        if any(node in _OUTSIDE and node not in lab.kinds for node, _ in ends):
            lab.warnings.append(f"{place}: a link to the outside is left out")
            continue
        for end in ends:
            if end[0] not in lab.kinds:
                found = f"a link to {end[0]!r}, which is no node"
                raise source.refuse(place, found, "add the node to topology.nodes")
            if end in seen:
                found = f"interface {':'.join(end)} has two links, the first in {seen[end]}"
                raise source.refuse(place, found, "one of them is wrong")
            seen[end] = place
        a, b = (lab.stands[node] for node, _ in ends)
        if a == b:
            lab.warnings.append(f"{place}: a link of {a!r} with itself is left out")
            continue
        cables.append(Cable(a, b))
    return cables


def _end(source: Source, place: str, value: Any) -> tuple[str, str]:
    if isinstance(value, dict):
        node = name_of(source, value.get("node"), place)
        return node, name_of(source, value.get("interface", "?"), place)
    text = name_of(source, value, place)
    node, colon, port = text.partition(":")
    if not colon or not node or not port:
        raise source.refuse(place, f"endpoint {text[:60]!r}", "write node:interface")
    return node, port


def _shared_start(names: list[str]) -> str:
    low, high = min(names), max(names)
    pairs = enumerate(zip(low, high, strict=False))
    return low[: next((k for k, (a, b) in pairs if a != b), len(low))]


def _device_names(lab: _Lab) -> dict[str, str]:
    """What devices are called that several containers make: what their names share."""
    parts: dict[str, list[str]] = {}
    for name, kept in lab.stands.items():
        parts.setdefault(kept, []).append(name)
    called = {}
    for kept, names in parts.items():
        called[kept] = _shared_start(names).rstrip("-_.") if len(names) > 1 else kept
        called[kept] = called[kept] or kept
    twice = {name for name, count in Counter(called.values()).items() if count > 1}
    return {kept: kept if name in twice else name for kept, name in called.items()}


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "containerlab topology", "*.clab.yml", certainty, read),
)
