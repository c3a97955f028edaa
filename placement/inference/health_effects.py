"""What findings mean for placement: states of nodes, and the health of the CTG's links."""

from __future__ import annotations

from collections.abc import Iterable

from ..cluster import NODE_TIER, Cluster, Node, NodeState
from ..ctg import CTG, Link, build_ctg
from ..domains import Domain
from .health import Finding, Health

DRAIN_BELOW = 0.5
"""A node with less than this part of its usual speed slows every job it is in: it is drained."""


def avoiding(
    cluster: Cluster, findings: Iterable[Finding], drain_below: float = DRAIN_BELOW
) -> Cluster:
    """The cluster with nodes that are not fit for new ranks taken out of service.

    Nodes that are down or flap are faulty, and so are nodes of a domain whose way out is down or
    flaps: no job over several domains could use them. Nodes and domains that have less than
    `drain_below` of their usual speed are drained. Nodes out of service already stay as they are;
    paths change no node.
    """
    states: dict[str, NodeState] = {}
    for finding in findings:
        if finding.health in (Health.DOWN, Health.FLAPPING):
            state = NodeState.FAULTY
        elif finding.factor < drain_below:
            state = NodeState.DRAINED
        else:
            continue
        for node in cluster.nodes:
            if _concerns(finding, node) and states.get(node.name) is not NodeState.FAULTY:
                states[node.name] = state
    return cluster.with_nodes(tuple(_in_state(node, states) for node in cluster.nodes))


def _in_state(node: Node, states: dict[str, NodeState]) -> Node:
    new = states.get(node.name)
    if new is None or node.state in (NodeState.DRAINED, NodeState.FAULTY):
        return node
    return node.model_copy(update={"state": new})


def _concerns(finding: Finding, node: Node) -> bool:
    if isinstance(finding.subject, Domain):
        return node.domains.get(finding.subject.tier) == finding.subject.name
    return finding.subject == node.name


def link_health(cluster: Cluster, findings: Iterable[Finding]) -> dict[Link, float]:
    """The health of the CTG's links that findings name, for `build_ctg`: 0 dead, 1 as built.

    A node's is that of the links between its NICs and their switches, a domain's that of the links
    out of its switches. A single path names no link: the tree does not tell which it took.
    """
    wanted = [each for each in findings if isinstance(each.subject, Domain | str)]
    found: dict[Link, float] = {}
    if not wanted:
        return found
    graph = build_ctg(cluster)
    nodes = {each.subject: _left(each) for each in wanted if isinstance(each.subject, str)}
    domains = {each.subject: _left(each) for each in wanted if isinstance(each.subject, Domain)}
    for one, other, data in graph.edges(data=True):
        if data["kind"] != "network":
            continue
        for lower, upper in ((one, other), (other, one)):
            ends = graph.nodes[lower], graph.nodes[upper]
            health = None
            if ends[0]["kind"] == "nic":
                health = nodes.get(ends[0]["node"])
            elif ends[0]["kind"] == "switch" and ends[0]["tier"] != NODE_TIER:
                above = ends[1].get("level", 0) > ends[0]["level"]
                domain = Domain(ends[0]["tier"], ends[0]["domain"])
                health = domains.get(domain) if above else None
            if health is not None:
                found[one, other] = min(health, found.get((one, other), 1.0))
    return found


def _left(finding: Finding) -> float:
    return 0.0 if finding.health is Health.DOWN else max(0.0, min(1.0, finding.factor))


def degraded_ctg(cluster: Cluster, findings: Iterable[Finding]) -> CTG:
    """The communication topology graph with the health that findings give its links."""
    return build_ctg(cluster, link_health(cluster, list(findings)))
