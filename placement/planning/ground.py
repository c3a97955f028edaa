"""What planning needs to know of a cluster: how many devices of which kind, and their domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..cluster import Cluster, NodeState


def free_devices(cluster: Cluster) -> Counter[str]:
    """Free devices by accelerator."""
    found: Counter[str] = Counter()
    for node in cluster.nodes:
        found[node.accelerator] += len(node.usable_devices)
    return +found


def of_kinds(cluster: Cluster, kinds: Iterable[str]) -> Cluster:
    """The cluster with nodes of other kinds taken out of service."""
    names = set(kinds)
    if all(node.accelerator in names for node in cluster.nodes):
        return cluster
    return cluster.with_nodes(
        tuple(
            node
            if node.accelerator in names
            else node.model_copy(update={"state": NodeState.DRAINED})
            for node in cluster.nodes
        )
    )


def island_size(cluster: Cluster) -> int:
    """Free devices of the scale-up domain that has most of them: a node, or a domain wider."""
    wide = [tier.name for tier in cluster.tiers if tier.scale_up]
    return max(_sizes(cluster, wide[-1] if wide else None).values(), default=1)


def domain_sizes(cluster: Cluster) -> list[int]:
    """The usual number of free devices of a node, and of a domain at every tier but the last."""
    tiers = [None, *(tier.name for tier in cluster.tiers[:-1])]
    sizes = [Counter(_sizes(cluster, tier).values()) for tier in tiers]
    return [max(count, key=lambda size: (count[size] * size, size)) for count in sizes if count]


def _sizes(cluster: Cluster, tier: str | None) -> Counter[str]:
    """Free devices by domain of a tier, by node for None."""
    found: Counter[str] = Counter()
    joins_all = tier == cluster.spine
    for node in cluster.nodes:
        name = "" if joins_all else node.name if tier is None else node.domains[tier]
        found[name] += len(node.usable_devices)
    return +found
