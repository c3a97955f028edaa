"""Whose memory holds the second copy of a node's shards: a node of another fault domain. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..placement.cluster import Cluster

Path = tuple[str, ...]


def neighbours(
    nodes: Sequence[str], cluster: Cluster, others: Sequence[str] = ()
) -> dict[str, str]:
    """A neighbour for each node of a job; none where there is no second node at all.

    others: nodes outside the job that can hold copies too. A fault domain is the nearest domain
    above the node (what shares a leaf switch mostly shares a rack and its power). The nodes of the
    job come first: in the order of their domains, each is given the one that lies as many places
    further as the largest domain has nodes, so that every node holds one copy and, where no domain
    has more than half of them, none lies in the domain of its original. The rest, as where a job
    lies in one domain, take a node of `others` in another one, near ones first and evenly.
    """
    path = _paths(cluster)
    ring = sorted(dict.fromkeys(nodes), key=lambda node: (path[node][::-1], node))
    largest = max(Counter(path[node][:1] for node in ring).values(), default=0)
    shift = largest if largest < len(ring) else 1
    found: dict[str, str] = {}
    load: Counter[str] = Counter()
    apart = []
    for index, node in enumerate(ring):
        partner = ring[(index + shift) % len(ring)]
        if partner != node:
            found[node] = partner
        if partner == node or path[partner][:1] == path[node][:1]:
            apart.append(node)
    free = [node for node in dict.fromkeys(others) if node in path and node not in ring]
    for node in apart:
        elsewhere = [other for other in free if path[other][:1] != path[node][:1]]
        # Without a node in another domain, one outside the job is only worth it for a single node.
        candidates = elsewhere or (free if node not in found else [])
        if candidates:
            chosen = min(
                candidates,
                key=lambda other, own=path[node]: (  # type: ignore[misc]
                    load[other],
                    _distance(own, path[other]),
                    other,
                ),
            )
            load[chosen] += 1
            found[node] = chosen
    return {node: found[node] for node in nodes if node in found}


def _paths(cluster: Cluster) -> dict[str, Path]:
    """The domains of each node above itself, nearest first; without any, each is its own."""
    tiers = [tier.name for tier in cluster.tiers[:-1]]
    found = {}
    for node in cluster.nodes:
        domains = [node.domains[tier] for tier in tiers if tier in node.domains]
        domains = [domain for domain in domains if domain != node.name]
        found[node.name] = tuple(domains) or (node.name,)
    return found


def _distance(one: Path, other: Path) -> int:
    """How many tiers lie below the first domain that two nodes share."""
    depth = min(len(one), len(other))
    shared = 0
    while shared < depth and one[len(one) - 1 - shared] == other[len(other) - 1 - shared]:
        shared += 1
    return depth - shared
