"""A cluster as a tree in the terminal: tiers, domains, nodes, and what is free on them."""

from __future__ import annotations

from collections import Counter

from rich.text import Text
from rich.tree import Tree

from ...placement.cluster import Cluster, Node, NodeState, Tier
from ...placement.domains import Domain, DomainTree
from ...placement.names import natural
from ...placement.svg import bytes_text, plural

MOST_NODES = 64
_MOST_CELLS = 16
_MOST_NAMES = 4
_STYLE = {"free": "green", "busy": "yellow", "drained": "blue", "faulty": "red"}
_CELL = {"free": "■", "busy": "□", "drained": "-", "faulty": "x"}


def cluster_tree(cluster: Cluster, all_nodes: bool = False) -> Tree:
    """The cluster from its spine down. Beyond MOST_NODES nodes, the nearest domains are summed up
    unless `all_nodes`."""
    tree = DomainTree.of(cluster)
    nodes = {node.name: node for node in cluster.nodes}
    detailed = all_nodes or len(nodes) <= MOST_NODES
    label = Text.assemble(
        (cluster.name, "bold"), "  ", _tier_text(cluster.tiers[-1]), "; ", _sum(cluster.nodes)
    )
    drawn = Tree(label, guide_style="dim")
    _grow(drawn, cluster, tree, tree.root, nodes, detailed)
    return drawn


def _grow(
    branch: Tree,
    cluster: Cluster,
    tree: DomainTree,
    domain: Domain,
    nodes: dict[str, Node],
    detailed: bool,
) -> None:
    tiers = {tier.name: tier for tier in cluster.tiers}
    for child in sorted(tree.children(domain), key=lambda child: natural(child.name)):
        if child.tier not in tiers:
            if detailed:
                branch.add(_node_text(nodes[child.name]))
            continue
        inside = [nodes[name] for name in tree.nodes(child)]
        label = Text.assemble(
            (child.name, "bold"), "  ", _tier_text(tiers[child.tier]), "; ", _sum(inside)
        )
        _grow(branch.add(label), cluster, tree, child, nodes, detailed)


def _tier_text(tier: Tier) -> str:
    text = f"{tier.name} {bytes_text(tier.bandwidth)}/s, {_latency_text(tier.latency)}"
    return text + (f", {tier.oversubscription:g}:1" if tier.oversubscription > 1 else "")


def _latency_text(latency_s: float) -> str:
    return f"{latency_s * 1e6:.3g} µs" if latency_s < 1e-3 else f"{latency_s * 1e3:.3g} ms"


def _node_text(node: Node) -> Text:
    text = Text.assemble((node.name, _STYLE[node.state]), f"  {node.devices} {node.accelerator} ")
    if node.devices <= _MOST_CELLS:
        for index in range(node.devices):
            state = _device_state(node, index)
            text.append(_CELL[state], _STYLE[state])
    else:
        text.append(f"{len(node.usable_devices)} free")
    if node.state is not NodeState.FREE:
        text.append(f"  {node.state}", _STYLE[node.state])
    elif len(node.usable_devices) < node.devices:
        text.append(f"  {node.devices - len(node.usable_devices)} in use", "dim")
    return text


def _device_state(node: Node, index: int) -> str:
    if node.state is not NodeState.FREE:
        return node.state.value
    return "free" if index in node.usable_devices else "busy"


def _sum(nodes: tuple[Node, ...] | list[Node]) -> Text:
    devices, free = sum(n.devices for n in nodes), sum(len(n.usable_devices) for n in nodes)
    text = Text(f"{plural(len(nodes), 'node')}, {plural(devices, 'device')}, {free:,} free")
    states = Counter(node.state for node in nodes)
    for state in (NodeState.DRAINED, NodeState.FAULTY):
        if states[state]:
            names = [node.name for node in nodes if node.state is state]
            shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
            text.append(f", {states[state]} {state} ({shown})", _STYLE[state])
    return text
