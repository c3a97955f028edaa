"""Kubernetes nodes as `kubectl get nodes` prints them: labels of the network, and devices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..accelerator_names import kind_of_product
from .accelerator_domains import with_accelerator_domains
from .facts import Facts, Machine
from .instance_types import machine_of_type
from .label_ladders import NVLINK_KEYS, PART_KEY, ZONES, LabelLadder, declared_ladder, ladders_in
from .ladders import NotNested, ladder_of
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, shown, values_of
from .registry import Importer
from .source import Source

NAME = "node-labels"
_HEADER = re.compile(r"^NAME\s+STATUS\s+.*\bLABELS\s*$", re.M)
_TYPE_KEYS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_GPU_KEYS = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910")
_MOST_SHOWN = 6


@dataclass
class _Node:
    labels: dict[str, str]
    place: str
    others: list[str] = field(default_factory=list)
    devices: int | None = None
    faulty: str = ""


def certainty(source: Source) -> float:
    """How sure it is: nodes with labels, as JSON, YAML or a table."""
    text = source.text
    if _HEADER.search(text[:10_000]):
        return 0.9
    if "labels" in text and re.search(r"kind\"?\s*:\s*\"?(Node|NodeList|List)\b", text):
        nodes = _objects(source)
        return 0.9 if any(_is_node(one) for one in nodes) or not source.documents else 0.0
    if "topology.k8s.aws/" in text or "gce-topology-" in text or "oci.oraclecloud.com/" in text:
        return 0.8 if re.search(r"[\"']?(Nodes|Topology|labels)[\"']?\s*:", text) else 0.0
    return 0.0


def read(source: Source) -> Facts:
    """Tiers, NVLink domains and machines. Raises InvalidInput naming line and reason."""
    return read_by_levels(source, {})


def read_by_levels(source: Source, levels: Mapping[str, Sequence[str]]) -> Facts:
    """The same, by the label keys that another file names where nodes have them.

    levels: by the name of a topology, its keys, the outermost first.
    """
    nodes = _table(source) if _HEADER.search(source.text[:10_000]) else _nodes(source)
    if not nodes:
        raise source.refuse("", "no node", "hand in the output of kubectl get nodes -o json")
    warnings: list[str] = []
    machines = {name: _machine(node) for name, node in nodes.items()}
    nodes = _with_devices(nodes, machines, warnings)
    keys = {key for node in nodes.values() for key in node.labels}
    declared = _declared(levels, keys, warnings)
    ladder, others = _chosen(nodes, declared or ladders_in(keys))
    tiers = list(ladder.keys.values())
    values = {
        name: {tier: node.labels[key] for key, tier in ladder.keys.items() if node.labels.get(key)}
        for name, node in nodes.items()
    }
    try:
        built = ladder_of(tiers, values, tiers, ladder.unique)
    except NotNested as error:
        fix = "the labels contradict; read them anew"
        raise source.refuse(nodes[error.nodes[1]].place, str(error), fix) from error
    domains: dict[str, str] = {}
    for key in reversed(NVLINK_KEYS):
        domains |= {name: n.labels[key] for name, n in nodes.items() if n.labels.get(key)}
    parts = {name: n.labels[PART_KEY] for name, n in nodes.items() if n.labels.get(PART_KEY)}
    network, found = with_accelerator_domains(built.network, domains, parts)
    warnings += [*built.warnings, *found]
    if others:
        names = ", ".join(other.name for other in others)
        warnings.append(f"labels of {ladder.name} are used; not those of {names}")
    lacking = [name for name, has in values.items() if len(has) < len(ladder.keys)]
    if lacking and ladder.keys:
        some = ", ".join(lacking[:_MOST_SHOWN])
        warnings.append(f"{len(lacking)} nodes lack labels of {ladder.name}: {some}")
    if not ladder.keys:
        warnings.append("no label tells of the network: all nodes are one domain")
    elif ladder.keys.keys() <= ZONES.keys.keys():
        warnings.append("no label tells of the network but zones")
    top = built.rungs[-1] if built.rungs else ""
    roots = list(dict.fromkeys(has[top] for has in values.values() if top in has))
    if len(roots) > 1:
        warnings.append(f"{len(roots)} trees that nothing joins: {', '.join(roots[:_MOST_SHOWN])}")
    key_of = {tier: key for key, tier in ladder.keys.items()}
    summary = {
        "nodes": len(nodes),
        "labels_of": ladder.name,
        "label_of_tier": dict(zip(tiers, (key_of[rung] for rung in built.rungs), strict=False)),
        "values_of_tier": dict(zip(tiers, built.counts.values(), strict=False)),
        "tiers": len(built.rungs),
        "roots": roots,
        "nvlink_domains": len(set(domains.values())) if domains else "unknown",
        "instance_types": dict(Counter(filter(None, (_type(n) for n in nodes.values())))),
        "zones": dict(_labels(nodes, "topology.kubernetes.io/zone")),
        "regions": dict(_labels(nodes, "topology.kubernetes.io/region")),
        **network_summary(network),
    }
    aliases = {other: name for name, node in nodes.items() for other in node.others}
    known = {name: m for name, m in machines.items() if name in nodes and m != Machine()}
    return Facts(NAME, summary, network, known, aliases=aliases, warnings=tuple(warnings))


def _objects(source: Source) -> list[Any]:
    found: list[Any] = []
    for document in source.documents:
        listed = document if isinstance(document, list) else [document]
        for one in listed:
            items = one.get("items", one.get("Nodes")) if isinstance(one, dict) else None
            found += items if isinstance(items, list) else [one]
    return found


def _is_node(value: Any) -> bool:
    return isinstance(value, dict) and (value.get("kind") == "Node" or "Topology" in value)


def _nodes(source: Source) -> dict[str, _Node]:
    values_of(source)
    places = places_of(source, r"\b[Nn]ame[\"']?\s*:\s*[\"']?([\w.-]+)")
    nodes: dict[str, _Node] = {}
    for index, value in enumerate(_objects(source)):
        at = f"node {index}"
        one = mapping_of(source, value, at)
        meta = one.get("metadata")
        if one.get("kind", "Node") != "Node":
            continue
        if isinstance(meta, dict):
            name = name_of(source, meta.get("name"), at)
            labels = meta.get("labels")
        else:
            name = name_of(source, one.get("Name", one.get("name")), at)
            labels = one.get("Topology", one.get("labels"))
        place = places.get(name, name)
        if name in nodes:
            raise source.refuse(place, f"node {name!r} is listed twice", "list it once")
        node = _Node(_texts(source, place, labels), place)
        _add_status(source, node, one)
        node.others += [
            other
            for other in (one.get("InstanceId"), node.labels.get("kubernetes.io/hostname"))
            if isinstance(other, str) and other and other != name
        ]
        nodes[name] = node
    return nodes


def _texts(source: Source, place: str, labels: Any) -> dict[str, str]:
    found = {}
    for key, value in mapping_of(source, labels or {}, place).items():
        if value is not None and not isinstance(value, str | int | float):
            raise source.refuse(place, f"label {key} is {shown(value)}", "a label is text")
        found[str(key)] = "" if value is None else str(value).strip()
    return found


def _add_status(source: Source, node: _Node, value: Mapping[str, Any]) -> None:
    """Devices, health and other names from the rest of a node object."""
    spec, status = value.get("spec"), value.get("status")
    if isinstance(spec, dict):
        provider = spec.get("providerID")
        if isinstance(provider, str) and provider.rpartition("/")[2]:
            node.others.append(provider.rpartition("/")[2])
        if spec.get("unschedulable") is True:
            node.faulty = "cordoned in Kubernetes"
    if not isinstance(status, dict):
        return
    capacity = status.get("capacity")
    if isinstance(capacity, dict):
        counts = [_count(capacity.get(key)) for key in _GPU_KEYS]
        node.devices = max((count for count in counts if count is not None), default=0)
    for condition in list_of(source, status.get("conditions"), node.place):
        ready = isinstance(condition, dict) and condition.get("type") == "Ready"
        if ready and condition.get("status") != "True":
            node.faulty = node.faulty or "not ready in Kubernetes"


def _count(value: Any) -> int | None:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return int(text) if re.fullmatch(r"\d{1,4}", text) else None


def _table(source: Source) -> dict[str, _Node]:
    """Nodes of `kubectl get nodes --show-labels`."""
    nodes: dict[str, _Node] = {}
    for number, line in enumerate(source.lines, 1):
        words = line.split()
        if not words or words[0] == "NAME":
            continue
        pairs = [pair.partition("=") for pair in words[-1].split(",")]
        if len(words) < 3 or not all(middle for _, middle, _ in pairs):
            found = f"{line.strip()[:60]!r} is no node with labels"
            raise source.refuse(f"line {number}", found, "hand in kubectl get nodes --show-labels")
        if words[0] in nodes:
            raise source.refuse(f"line {number}", f"node {words[0]!r} is listed twice", "once")
        nodes[words[0]] = _Node({key: value for key, _, value in pairs}, f"line {number}")
        if "NotReady" in words[1] or "SchedulingDisabled" in words[1]:
            nodes[words[0]].faulty = f"{words[1]} in Kubernetes"
    return nodes


def _type(node: _Node) -> str:
    return next((node.labels[key] for key in _TYPE_KEYS if key in node.labels), "")


def _machine(node: _Node) -> Machine:
    known = machine_of_type(_type(node)) or Machine()
    product = node.labels.get("nvidia.com/gpu.product", "").replace("-", " ").strip()
    count = _count(node.labels.get("nvidia.com/gpu.count"))
    devices = node.devices or (count if count is not None else known.devices)
    return Machine(
        accelerator=kind_of_product(product) if product else known.accelerator,
        devices=node.devices if devices is None else devices,
        faulty=node.faulty,
    )


def _with_devices(
    nodes: Mapping[str, _Node], machines: Mapping[str, Machine], warnings: list[str]
) -> dict[str, _Node]:
    """The nodes without those that are known to hold no accelerator, where others hold some."""
    if not any(machine.devices for machine in machines.values()):
        return dict(nodes)
    without = [name for name, machine in machines.items() if machine.devices == 0]
    if without:
        some = ", ".join(without[:_MOST_SHOWN])
        warnings.append(f"{len(without)} nodes without accelerators are left out: {some}")
    return {name: node for name, node in nodes.items() if name not in set(without)}


def _chosen(
    nodes: Mapping[str, _Node], ladders: Sequence[LabelLadder]
) -> tuple[LabelLadder, list[LabelLadder]]:
    """The ladder that labels most nodes with most tiers, and the others."""

    def told(ladder: LabelLadder) -> tuple[int, int]:
        labelled = sum(any(node.labels.get(key) for key in ladder.keys) for node in nodes.values())
        return labelled, len(ladder.keys)

    if not ladders:
        keys = {key for node in nodes.values() for key, value in node.labels.items() if value}
        zones = {key: tier for key, tier in ZONES.keys.items() if key in keys}
        return LabelLadder(ZONES.name, zones, ZONES.unique), []
    best = max(ladders, key=told)
    return best, [ladder for ladder in ladders if ladder is not best]


def _declared(
    levels: Mapping[str, Sequence[str]], keys: set[str], warnings: list[str]
) -> list[LabelLadder]:
    """The ladders that another file names, of which some node has a label."""
    found = []
    for name, declared in levels.items():
        ladder = declared_ladder(f"Topology {name}", declared)
        there = {key: tier for key, tier in ladder.keys.items() if key in keys}
        if there:
            found.append(LabelLadder(ladder.name, there, ladder.unique))
        elif ladder.keys:
            warnings.append(f"no node has a label of {ladder.name}: {', '.join(ladder.keys)}")
    return found


def _labels(nodes: Mapping[str, _Node], key: str) -> Counter[str]:
    return Counter(node.labels[key] for node in nodes.values() if node.labels.get(key))


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "labels of Kubernetes nodes (EKS, GKE, OKE, AKS and others)",
        "kubectl get nodes -o json",
        certainty,
        read,
        read_by_levels,
    ),
)
