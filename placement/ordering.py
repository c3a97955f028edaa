"""One order for nodes and groups, so that the order of the input decides nothing."""

from __future__ import annotations

import re

from .cluster import Cluster, Node
from .pcg import PCG, Group

_NUMBER = re.compile(r"(\d+)")


def in_one_order(pcg: PCG, cluster: Cluster) -> tuple[PCG, Cluster]:
    """The same job and cluster; nodes by domains and names, groups by what they are.

    Numbers in names count as numbers, so that n10 follows n9.
    """
    inner = [tier.name for tier in reversed(cluster.tiers[:-1])]
    seen: dict[str, tuple[tuple[bool, int, str], ...]] = {}

    def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
        if name not in seen:
            parts = [part for part in _NUMBER.split(name) if part]
            seen[name] = tuple(
                (False, int(part), part) if part.isdecimal() else (True, 0, part) for part in parts
            )
        return seen[name]

    def place(node: Node) -> tuple[object, ...]:
        return (*(natural(node.domains[tier]) for tier in inner), natural(node.name))

    def content(group: Group) -> tuple[object, ...]:
        return (group.op.value, group.ranks, group.bytes, group.algorithm.value)

    nodes = tuple(sorted(cluster.nodes, key=place))
    groups = tuple(sorted(pcg.groups, key=content))
    return (
        pcg.model_copy(update={"groups": groups}),
        cluster.model_copy(update={"nodes": nodes}),
    )
