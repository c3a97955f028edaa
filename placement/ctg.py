"""The communication topology graph: devices, NICs and switches, and the links between them."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from .cluster import NODE_TIER, Cluster, CrossRail, Node
from .domains import DomainTree
from .errors import InvalidInput, Problem

# Loading networkx takes as long as the rest of this package; most processes never draw a graph.
if TYPE_CHECKING:
    import networkx as nx

CTG: TypeAlias = "nx.Graph[str]"
Link = tuple[str, str]


def device_id(node: str, index: int) -> str:
    """The graph's name for a device."""
    return f"device:{node}/{index}"


def nic_id(node: str, rail: int) -> str:
    """The graph's name for the NIC of a node on a rail."""
    return f"nic:{node}/{rail}"


def switch_id(level: int, domain: str, rail: int | None = None) -> str:
    """The graph's name for a switch: level 0 is inside a node, 1 the first tier above it."""
    return f"switch:{level}:{domain}" if rail is None else f"switch:{level}:{domain}/rail{rail}"


def build_ctg(cluster: Cluster, link_health: Mapping[Link, float] | None = None) -> CTG:
    """The communication topology graph of a cluster.

    Nodes of the graph have `kind` ("device", "nic" or "switch"). Devices and NICs have `node` and
    `rail`, devices also `index`, `accelerator` and `state`. Switches have `level` (0 inside a
    node), `tier`, `domain`, `oversubscription`, and `rail` where each rail has switches of its
    own: at every network tier of a fabric with several rails, save the last tier when different
    rails meet there (`cross_rail: spine`).

    Links have `kind` ("scale_up", "host" or "network"), `bandwidth_bytes_per_s` per direction,
    `latency_s` and `health` (1 as built, 0 dead). Latencies along the shortest path between two
    devices add up to that of the tier where they meet. A link into a switch of a tier is as wide
    as the NICs below it together, over the tier's oversubscription. Links inside a node are as
    wide as the accelerator's scale-up links, or as a NIC where those are not known.

    `link_health` overrides the health of single links, by the names of their two ends.
    Raises InvalidInput when it names a link that does not exist or a health outside 0..1.
    """
    import networkx as nx

    graph: CTG = nx.Graph(
        name=cluster.name, rails=cluster.rails, cross_rail=cluster.cross_rail.value
    )
    for node in cluster.nodes:
        _add_node(graph, cluster, node)
    scale_up = [level for level, tier in enumerate(cluster.tiers, start=1) if tier.scale_up]
    network = [level for level, tier in enumerate(cluster.tiers, start=1) if not tier.scale_up]
    _add_scale_up_tiers(graph, cluster, scale_up)
    for rail in range(cluster.rails):
        _add_network_tiers(graph, cluster, network, rail)
    _set_health(graph, link_health or {})
    return graph


def domain_tree_of(graph: CTG) -> DomainTree:
    """The domain tree that the wiring of a CTG implies.

    Nodes share a domain at a tier when links join them without leaving that tier's switches and
    those of nearer tiers; links count whatever their health. The domain is named by the `domain`
    of its switches, else by the first of their names. A node that no switch of a tier reaches is
    a domain of its own there, named by the node. Raises InvalidInput when switches that are
    joined below their tier bear different domain names.
    """
    device_counts: Counter[str] = Counter()
    joined = _Joined()
    switches: dict[int, list[str]] = {}
    tiers = {0: NODE_TIER}
    for name, data in graph.nodes(data=True):
        if data["kind"] == "switch" and data["level"] > 0:
            switches.setdefault(data["level"], []).append(name)
            tiers[data["level"]] = data["tier"]
        else:
            joined.join(_host_id(data["node"]), name)
            device_counts[data["node"]] += data["kind"] == "device"
    hosts = sorted(device_counts)
    names_above: dict[str, list[str]] = {host: [] for host in hosts}
    problems: list[Problem] = []
    for level in sorted(switches):
        for switch in switches[level]:
            for neighbour in graph[switch]:
                if graph.nodes[neighbour].get("level", 0) <= level:
                    joined.join(switch, neighbour)
        parts = {host: joined.find(_host_id(host)) for host in hosts}
        names, found = _domain_names(graph, switches[level], joined)
        problems += found + _split_problems(tiers[level], names, parts)
        for host in hosts:
            names_above[host].append(names.get(parts[host], host))
    if problems:
        raise InvalidInput(str(graph.graph.get("name", "ctg")), problems)
    return DomainTree.from_paths(
        [tiers[level] for level in sorted(tiers)],
        {host: device_counts[host] for host in hosts},
        names_above,
    )


def to_node_link(graph: CTG) -> dict[str, Any]:
    """The graph as node-link data for JSON: `nodes`, `edges` and the graph's own attributes."""
    import networkx as nx

    data: dict[str, Any] = nx.node_link_data(graph, edges="edges")
    return data


def to_graphml(graph: CTG) -> str:
    """The graph as GraphML text."""
    import networkx as nx

    buffer = io.BytesIO()
    nx.write_graphml(graph, buffer, encoding="utf-8")
    return buffer.getvalue().decode()


def _add_node(graph: CTG, cluster: Cluster, node: Node) -> None:
    inner_rate = _inner_bandwidth(cluster, node)
    inside = switch_id(0, node.name)
    graph.add_node(
        inside,
        kind="switch",
        level=0,
        tier=NODE_TIER,
        domain=node.name,
        node=node.name,
        oversubscription=1.0,
    )
    nic_rate = next(
        (tier.bandwidth for tier in cluster.tiers if not tier.scale_up), cluster.tiers[0].bandwidth
    )
    for rail in range(cluster.rails):
        nic = nic_id(node.name, rail)
        graph.add_node(nic, kind="nic", node=node.name, rail=rail)
        if rail >= node.devices:
            # No device is next to it, but all may send through it.
            _link(graph, nic, inside, "host", nic_rate, 0.0)
    for index in range(node.devices):
        device, rail = device_id(node.name, index), index % cluster.rails
        graph.add_node(
            device,
            kind="device",
            node=node.name,
            index=index,
            rail=rail,
            accelerator=node.accelerator,
            state=node.state.value,
        )
        _link(graph, device, inside, "scale_up", inner_rate, 0.0)
        _link(graph, device, nic_id(node.name, rail), "host", nic_rate, 0.0)


def _inner_bandwidth(cluster: Cluster, node: Node) -> float:
    try:
        known = cluster.accelerator(node.accelerator).scale_up_bandwidth
    except InvalidInput:
        known = 0.0
    return known or cluster.tiers[0].bandwidth


def _add_scale_up_tiers(graph: CTG, cluster: Cluster, levels: list[int]) -> None:
    below = {node.name: switch_id(0, node.name) for node in cluster.nodes}
    devices = {below[node.name]: node.devices for node in cluster.nodes}
    for level in levels:
        _add_tier(graph, cluster, level, None, below, devices, "scale_up")


def _add_network_tiers(graph: CTG, cluster: Cluster, levels: list[int], rail: int) -> None:
    below = {node.name: nic_id(node.name, rail) for node in cluster.nodes}
    nics = dict.fromkeys(below.values(), 1)
    for level in levels:
        last = level == len(cluster.tiers)
        joined = cluster.rails == 1 or (last and cluster.cross_rail is CrossRail.SPINE)
        _add_tier(graph, cluster, level, None if joined else rail, below, nics, "network")


def _add_tier(
    graph: CTG,
    cluster: Cluster,
    level: int,
    rail: int | None,
    below: dict[str, str],
    ends: dict[str, int],
    kind: str,
) -> None:
    """Join what each node hangs below (`below`, by node) to a tier's switches, and move up to them.

    `ends` counts the NICs or devices at or below each graph node; both are updated in place.
    """
    tier = cluster.tiers[level - 1]
    latency = (tier.latency - _latency_below(cluster, level)) / 2
    linked: set[str] = set()
    for node in cluster.nodes:
        domain = node.domains.get(tier.name, tier.name)
        switch = switch_id(level, domain, rail)
        if switch not in graph:
            attributes = {"tier": tier.name, "domain": domain}
            graph.add_node(switch, kind="switch", level=level, **attributes)
            graph.nodes[switch]["oversubscription"] = tier.oversubscription
            if rail is not None:
                graph.nodes[switch]["rail"] = rail
        lower = below[node.name]
        below[node.name] = switch
        if lower not in linked:
            linked.add(lower)
            rate = tier.bandwidth * ends[lower] / tier.oversubscription
            _link(graph, lower, switch, kind, rate, max(0.0, latency))
            ends[switch] = ends.get(switch, 0) + ends[lower]


def _latency_below(cluster: Cluster, level: int) -> float:
    tier = cluster.tiers[level - 1]
    if level == 1 or cluster.tiers[level - 2].scale_up != tier.scale_up:
        return 0.0
    return cluster.tiers[level - 2].latency


def _link(
    graph: CTG, lower: str, upper: str, kind: str, bandwidth_bytes_per_s: float, latency_s: float
) -> None:
    graph.add_edge(
        lower,
        upper,
        kind=kind,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_s,
        health=1.0,
    )


def _set_health(graph: CTG, link_health: Mapping[Link, float]) -> None:
    problems = []
    for (one, other), health in link_health.items():
        place = f"link_health[{one!r}, {other!r}]"
        if not graph.has_edge(one, other):
            missing = [end for end in (one, other) if end not in graph]
            found = f"no {missing[0]!r} in the graph" if missing else "the two are not linked"
            problems.append(Problem(place, found, "name the two ends of a link of the CTG"))
        elif not 0 <= health <= 1:
            problems.append(Problem(place, f"health {health!r}", "give a number from 0 to 1"))
        else:
            graph.edges[one, other]["health"] = float(health)
    if problems:
        raise InvalidInput("ctg", problems)


class _Joined:
    """Sets of names that grow together (disjoint-set forest)."""

    def __init__(self) -> None:
        self._leaders: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The name that stands for the set this one is in."""
        leader = self._leaders.setdefault(name, name)
        while leader != name:
            above = self._leaders[leader]
            self._leaders[name] = above
            name, leader = leader, above
        return name

    def join(self, one: str, other: str) -> None:
        """Make one set of the sets of the two."""
        self._leaders[self.find(one)] = self.find(other)


def _host_id(node: str) -> str:
    return f"host:{node}"


def _domain_names(
    graph: CTG, switches: list[str], joined: _Joined
) -> tuple[dict[str, str], list[Problem]]:
    """The name of the domain that each set of joined graph nodes is at one tier."""
    names: dict[str, str] = {}
    named_by: dict[str, str] = {}
    problems = []
    for switch in sorted(switches, key=lambda name: ("domain" not in graph.nodes[name], name)):
        part = joined.find(switch)
        name = graph.nodes[switch].get("domain", names.get(part, switch))
        if names.setdefault(part, name) != name:
            tier = graph.nodes[switch]["tier"]
            found = (
                f"is of {tier} {name!r}, but joined at or below that tier to {named_by[part]} "
                f"of {tier} {names[part]!r}"
            )
            fix = f"name one {tier} for both, or join them at a farther tier"
            problems.append(Problem(switch, found, fix))
        named_by.setdefault(part, switch)
    return names, problems


def _split_problems(tier: str, names: dict[str, str], parts: dict[str, str]) -> list[Problem]:
    """A name that two separate sets of nodes would bear at one tier."""
    problems = []
    holders: dict[str, str] = {}
    for host, part in parts.items():
        name = names.get(part, host)
        if holders.setdefault(name, part) != part:
            found = f"{tier} {name!r} is in parts that no link joins"
            fix = f"link them at {tier} or below, or give the parts names of their own"
            problems.append(Problem(f"node {host}", found, fix))
    return problems
