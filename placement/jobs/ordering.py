"""One order for nodes and groups, so that the order of the input decides nothing."""

from __future__ import annotations

import numpy as np

from ..cluster import Cluster, Node
from ..group_table import ALGORITHMS, OPS, GroupList, GroupTable
from ..names import natural
from ..pcg import PCG


def in_one_order(pcg: PCG, cluster: Cluster) -> tuple[PCG, Cluster]:
    """The same job and cluster; nodes by domains and names, groups by what they are.

    Numbers in names count as numbers, so that n10 follows n9.
    """
    inner = [tier.name for tier in reversed(cluster.tiers[:-1])]
    seen: dict[str, tuple[tuple[bool, int, str], ...]] = {}

    def once(name: str) -> tuple[tuple[bool, int, str], ...]:
        if name not in seen:
            seen[name] = natural(name)
        return seen[name]

    def place(node: Node) -> tuple[object, ...]:
        return (*(once(node.domains[tier]) for tier in inner), once(node.name))

    nodes = tuple(sorted(cluster.nodes, key=place))
    return (
        pcg.model_copy(update={"groups": GroupList(_sorted(pcg.table))}),
        cluster.model_copy(update={"nodes": nodes}),
    )


def _sorted(table: GroupTable) -> GroupTable:
    content = list(
        zip(
            (OPS[op].value for op in table.op.tolist()),
            table.ranks(),
            table.bytes.tolist(),
            (ALGORITHMS[algorithm].value for algorithm in table.algorithm.tolist()),
            strict=True,
        )
    )
    return table.taken(
        np.array(sorted(range(len(content)), key=content.__getitem__), dtype=np.int64)
    )
