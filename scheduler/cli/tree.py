"""A cluster as a tree in the terminal: tiers, domains, nodes, and what is free on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text
from rich.tree import Tree

from ...placement.cluster import NODE_TIER, Cluster, Node, NodeState, Tier
from ...placement.domains import Domain, DomainTree
from ...placement.drawing.svg import bytes_text, plural
from ...placement.inference.health import Between, Finding, Health
from ...placement.names import natural
from ..health_news import since

MOST_NODES = 64
_MOST_CELLS = 16
_MOST_NAMES = 4
_STYLE = {"free": "green", "busy": "yellow", "drained": "blue", "faulty": "red"}
_CELL = {"free": "■", "busy": "□", "drained": "-", "faulty": "x"}


def cluster_tree(
    cluster: Cluster, all_nodes: bool = False, findings: Sequence[Finding] = ()
) -> Tree:
    """The cluster from its spine down, with what of its network is not well beside its part.

    Beyond MOST_NODES nodes, the nearest domains are summed up unless `all_nodes`.
    """
    tree = DomainTree.of(cluster)
    nodes = {node.name: node for node in cluster.nodes}
    detailed = all_nodes or len(nodes) <= MOST_NODES
    label = Text.assemble(
        (cluster.name, "bold"), "  ", _tier_text(cluster.tiers[-1]), "; ", _sum(cluster.nodes)
    )
    bad = _by_part(findings)
    label.append_text(bad.get((cluster.spine, cluster.spine), Text()))
    drawn = Tree(label, guide_style="dim")
    _grow(drawn, cluster, tree, tree.root, nodes, detailed, bad)
    return drawn


def _by_part(findings: Sequence[Finding]) -> dict[tuple[str, str], Text]:
    """What is said beside a node or a domain, by its tier and name. Paths have no part."""
    found: dict[tuple[str, str], Text] = {}
    for each in findings:
        subject, what = each.subject, ""
        if isinstance(subject, str):
            part = (NODE_TIER, subject)
        elif isinstance(subject, Domain | Between):
            part = (subject.tier, subject.name)
            what = "links out of it: " if isinstance(subject, Domain) else "links inside it: "
        else:
            continue
        rail = "" if each.rail is None else f"rail {each.rail}: "
        style = "yellow" if each.health is Health.DEGRADED else "red"
        found.setdefault(part, Text()).append(f"  {what}{rail}{since(each)}", style)
    return found


def _grow(
    branch: Tree,
    cluster: Cluster,
    tree: DomainTree,
    domain: Domain,
    nodes: dict[str, Node],
    detailed: bool,
    bad: dict[tuple[str, str], Text],
) -> None:
    tiers = {tier.name: tier for tier in cluster.tiers}
    for child in sorted(tree.children(domain), key=lambda child: natural(child.name)):
        if child.tier not in tiers:
            if detailed:
                beside = bad.get((NODE_TIER, child.name), Text())
                branch.add(_node_text(nodes[child.name]).append_text(beside))
            continue
        inside = [nodes[name] for name in tree.nodes(child)]
        label = Text.assemble(
            (child.name, "bold"), "  ", _tier_text(tiers[child.tier]), "; ", _sum(inside)
        )
        label.append_text(bad.get((child.tier, child.name), Text()))
        _grow(branch.add(label), cluster, tree, child, nodes, detailed, bad)


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
