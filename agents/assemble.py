"""From inventories, labels and probes to the cluster file."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..placement.cluster import NODE_TIER, Cluster, Node, Tier
from ..placement.errors import InvalidInput, Problem
from ..placement.inference.infer import SPINE, Inference, Prefer, infer
from ..placement.inference.measurements import Measurement
from ..placement.links import NodeLinks
from ..placement.names import lone_domain, natural, some
from .device_links import Matrix, node_links
from .inventory import NodeInventory
from .nics import LinkState

DOMAIN_LABEL = "domain.railweave.io/"
BANDWIDTH_LABEL = "bandwidth.railweave.io/"
LATENCY_LABEL = "latency.railweave.io/"
_ASSUMED_BYTES_PER_S = 1.25e9
_ASSUMED_LATENCY_S = 50e-6
_MOST_NOTES = 10
_SURE = 0.95

Labels = Mapping[str, Mapping[str, str]]
Domains = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Assembly:
    """A cluster, and what a reader should know of how its numbers came about."""

    cluster: Cluster
    notes: tuple[str, ...]


def assemble_cluster(
    inventories: Sequence[NodeInventory],
    measurements: Sequence[Measurement],
    labels: Labels,
    tier_order: Sequence[str] | None = None,
    name: str = "cluster",
    prefer: Prefer = "labels",
) -> Assembly:
    """The cluster that nodes with these labels and measurements make.

    labels: Ray's labels by node name. tier_order: the labelled tiers, nearest first; by default
    those with most domains come first. prefer: which counts where a label and the measurements put
    a node into different domains. Nodes without devices are measured but left out of the file,
    where the others stand by name. Raises InvalidInput naming the nodes whose labels do not nest.
    """
    nodes = [inventory.node for inventory in inventories]
    tiers = order_tiers(nodes, labels, tier_order)
    domains = find_domains(nodes, labels, tiers)
    problems = nesting_problems(nodes, domains, tiers)
    if problems:
        raise InvalidInput("node labels", problems)
    labelled = {node: _domain_labels(labels.get(node, {})) for node in nodes}
    inferred = infer(nodes, measurements, labelled, prefer, tiers)
    notes = _doubts(inferred)
    numbers = _tiers(inferred, labels, inventories, notes)
    inner = inferred.tiers[:-1]
    domains = {node: dict(zip(inner, inferred.paths[node], strict=True)) for node in nodes}
    found = [_node(inventory, domains[inventory.node], notes) for inventory in inventories]
    described, links_of = _links(inventories)
    found = [node and node.model_copy(update={"links": links_of.get(node.name)}) for node in found]
    with_devices = tuple(
        sorted((node for node in found if node is not None), key=lambda node: natural(node.name))
    )
    if not with_devices:
        fix = (
            "start a node with GPUs, or declare devices with "
            """ray start --resources='{"railweave_device": 8}'"""
        )
        raise InvalidInput("nodes", [Problem("", "no node has a device", fix)])
    taken = {node.name for node in with_devices}
    rails = _rails([i for i in inventories if i.node in taken], notes)
    cluster = Cluster(name=name, tiers=numbers, rails=rails, links=described, nodes=with_devices)
    return Assembly(cluster, tuple(notes))


def order_tiers(
    nodes: Sequence[str], labels: Labels, tier_order: Sequence[str] | None = None
) -> list[str]:
    """The labelled tiers, nearest first, without the spine. Raises InvalidInput."""
    named = {
        key.removeprefix(DOMAIN_LABEL)
        for node in nodes
        for key in labels.get(node, {})
        if key.startswith(DOMAIN_LABEL)
    }
    problems = [
        Problem(
            f"{DOMAIN_LABEL}{tier}",
            f"{tier!r} is the name of the tier {where}",
            "give the label another tier's name",
        )
        for tier, where in ((NODE_TIER, "inside a node"), (SPINE, "that joins all nodes"))
        if tier in named
    ]
    if tier_order is not None:
        problems += _order_problems(named, tier_order)
    if problems:
        raise InvalidInput("node labels", problems)
    if tier_order is not None:
        return list(tier_order)
    every = find_domains(nodes, labels, sorted(named))
    counts = {tier: len({every[node][tier] for node in nodes}) for tier in named}
    return sorted(named, key=lambda tier: (-counts[tier], tier))


def find_domains(nodes: Sequence[str], labels: Labels, tiers: Sequence[str]) -> Domains:
    """Each node's domain at each tier; a node without a label is a domain of its own."""
    domains: Domains = {node: {} for node in nodes}
    for tier in tiers:
        key = DOMAIN_LABEL + tier
        used = {labels[node][key] for node in nodes if key in labels.get(node, {})}
        for node in nodes:
            domain = labels.get(node, {}).get(key)
            if domain is None:
                domain = lone_domain(node, used)
            domains[node][tier] = domain
    return domains


def nesting_problems(nodes: Sequence[str], domains: Domains, tiers: Sequence[str]) -> list[Problem]:
    """Where a domain lies in two domains of the next tier; names the nodes."""
    problems = []
    for lower, upper in pairwise(tiers):
        members: dict[str, dict[str, list[str]]] = {}
        for node in nodes:
            by_upper = members.setdefault(domains[node][lower], {})
            by_upper.setdefault(domains[node][upper], []).append(node)
        for domain, by_upper in members.items():
            if len(by_upper) > 1:
                shown = "; ".join(f"{up}: {some(names)}" for up, names in by_upper.items())
                problems.append(
                    Problem(
                        f"{DOMAIN_LABEL}{lower}={domain}",
                        f"its nodes lie in {len(by_upper)} domains of {upper!r} ({shown})",
                        f"correct their {lower} or {upper} labels, or give the order of the tiers",
                    )
                )
    return problems


def _domain_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """A node's domains by tier, as its labels give them."""
    return {
        key.removeprefix(DOMAIN_LABEL): domain
        for key, domain in labels.items()
        if key.startswith(DOMAIN_LABEL)
    }


def _doubts(inferred: Inference) -> list[str]:
    """What a reader should know of the domains: differing labels, lone and slow nodes, doubts."""
    notes = [str(each) for each in inferred.contradictions[:_MOST_NOTES]]
    if len(inferred.contradictions) > _MOST_NOTES:
        notes.append(f"{len(inferred.contradictions) - _MOST_NOTES} more labels contradict probes")
    reasons: dict[str, list[str]] = {}
    for node, reason in inferred.unknown.items():
        reasons.setdefault(reason, []).append(node)
    notes += [f"of unknown domain, each alone: {some(n)}; {why}" for why, n in reasons.items()]
    for node, added_s in inferred.slow_s.items():
        notes.append(f"{node} adds {added_s * 1e6:.0f} us to each of its round trips")
    doubtful = [
        f"{each.tier} {each.name} ({each.confidence:.2f})"
        for each in inferred.domains
        if each.confidence is not None and each.confidence < _SURE and len(each.nodes) > 1
    ]
    if doubtful:
        notes.append(f"domains of low confidence: {some(doubtful)}; probe again")
    return notes


def _order_problems(named: set[str], tier_order: Sequence[str]) -> list[Problem]:
    problems = []
    for tier in sorted(named - set(tier_order)):
        found = f"nodes are labelled with {tier!r}, which the order does not name"
        problems.append(Problem("order of tiers", found, "add it, nearest tier first"))
    for tier, count in Counter(tier_order).items():
        if tier not in named and tier not in (NODE_TIER, SPINE):
            found = f"no node is labelled with {tier!r}"
            fix = f"remove it, or label nodes with {DOMAIN_LABEL}{tier}"
            problems.append(Problem("order of tiers", found, fix))
        elif tier in (NODE_TIER, SPINE):
            found = f"{tier!r} is always there"
            problems.append(Problem("order of tiers", found, "name only the labelled tiers"))
        elif count > 1:
            problems.append(Problem("order of tiers", f"{tier!r} given twice", "name it once"))
    return problems


def _tiers(
    inferred: Inference,
    labels: Labels,
    inventories: Sequence[NodeInventory],
    notes: list[str],
) -> tuple[Tier, ...]:
    tiers = inferred.tiers
    measured = dict(zip(tiers, inferred.numbers, strict=True))
    rates = {tier: each.bytes_per_s for tier, each in measured.items()}
    latencies = {tier: each.latency_s for tier, each in measured.items()}
    speeds = [
        nic.bytes_per_s
        for inventory in inventories
        for nic in inventory.nics
        if nic.bytes_per_s and not nic.virtual and nic.state is LinkState.UP
    ]
    bandwidth = _filled("bandwidth", tiers, rates, _declared(BANDWIDTH_LABEL, labels), notes)
    latency = _filled("latency", tiers, latencies, _declared(LATENCY_LABEL, labels), notes)
    if not bandwidth:
        value = statistics.median(speeds) if speeds else _ASSUMED_BYTES_PER_S
        source = "the nominal rate of the interfaces" if speeds else "an assumption"
        notes.append(f"bandwidth: nothing measured or declared; {value:g} bytes/s is {source}")
        bandwidth = dict.fromkeys(tiers, value)
    if not latency:
        notes.append(
            f"latency: nothing measured or declared; {_ASSUMED_LATENCY_S:g} s is an assumption"
        )
        latency = dict.fromkeys(tiers, _ASSUMED_LATENCY_S)
    return tuple(
        Tier(
            name=tier,
            bandwidth=bandwidth[tier],
            latency=latency[tier],
            oversubscription=measured[tier].oversubscription or 1.0,
        )
        for tier in tiers
    )


def _filled(
    what: str,
    tiers: Sequence[str],
    measured: Mapping[str, float | None],
    declared: Mapping[str, float],
    notes: list[str],
) -> dict[str, float]:
    """A number for each tier: measured, else declared, else that of a neighbour; empty if none."""
    numbers: dict[str, float] = {}
    for tier in tiers:
        if (value := measured[tier]) is not None:
            numbers[tier] = value
        elif tier in declared:
            numbers[tier] = declared[tier]
            notes.append(f"{what} of {tier} is as its label declares; no probe met there")
    if not numbers:
        return {}
    known = [index for index, tier in enumerate(tiers) if tier in numbers]
    for index, tier in enumerate(tiers):
        if index not in known:
            nearest = min(known, key=lambda k: (abs(k - index), k))
            numbers[tier] = numbers[tiers[nearest]]
            notes.append(f"{what} of {tier} is that of {tiers[nearest]}; no probe met there")
    return numbers


def _declared(prefix: str, labels: Labels) -> dict[str, float]:
    """Numbers that labels declare for tiers: the median where nodes differ. Raises InvalidInput."""
    values: dict[str, list[float]] = {}
    problems = []
    for node, of_node in labels.items():
        for key, text in of_node.items():
            if not key.startswith(prefix):
                continue
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if 0 < value < float("inf"):
                values.setdefault(key.removeprefix(prefix), []).append(value)
            else:
                found = f"{text!r} on node {node}"
                problems.append(Problem(key, found, "give a positive number in SI units"))
    if problems:
        raise InvalidInput("node labels", problems)
    return {tier: statistics.median(found) for tier, found in values.items()}


def _node(inventory: NodeInventory, domains: Mapping[str, str], notes: list[str]) -> Node | None:
    if not inventory.devices:
        return None
    kinds = Counter(device.accelerator for device in inventory.devices)
    kind = kinds.most_common(1)[0][0]
    if len(kinds) > 1:
        others = ", ".join(sorted(set(kinds) - {kind}))
        notes.append(f"{inventory.node}: only its {kind} devices are used, not its {others}")
    usable = tuple(d.index for d in inventory.devices if d.accelerator == kind)
    count = max(device.index for device in inventory.devices) + 1
    return Node(
        name=inventory.node,
        accelerator=kind,
        devices=count,
        domains=dict(domains),
        free_devices=None if usable == tuple(range(count)) else usable,
    )


def _links(
    inventories: Sequence[NodeInventory],
) -> tuple[dict[str, NodeLinks], dict[str, str]]:
    """The different ways in which nodes join their devices, by a name, and the name for each."""
    names: dict[Matrix, str] = {}
    described: dict[str, NodeLinks] = {}
    of_node: dict[str, str] = {}
    for inventory in sorted(inventories, key=lambda one: natural(one.node)):
        count = max((device.index for device in inventory.devices), default=-1) + 1
        links = node_links(inventory.links, count)
        if links is not None:
            name = names.setdefault(inventory.links, f"links-{len(names) + 1}")
            described[name], of_node[inventory.node] = links, name
    return described, of_node


def _rails(inventories: Sequence[NodeInventory], notes: list[str]) -> int:
    """NICs a node, counted by RDMA devices that are up; 1 where a node has none."""
    counts = {
        sum(nic.rdma_device is not None and nic.state is LinkState.UP for nic in inventory.nics)
        for inventory in inventories
    }
    if len(counts) > 1:
        shown = ", ".join(map(str, sorted(counts)))
        notes.append(f"nodes differ in RDMA interfaces that are up ({shown}); rails is the least")
    return max(1, min(counts))
