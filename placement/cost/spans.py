"""Where the groups of a split lie on a cluster: which islands and tiers each kind of group joins.

An island is a scale-up domain: a node, or a domain wider than it whose devices NVLink joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster, Node
from ..errors import InvalidInput, Problem
from ..explained import shown

Ints = npt.NDArray[np.int64]


class Span(NamedTuple):
    """Where the ranks of a group lie.

    ranks: of the group. islands: islands that it touches. per_island: its ranks in the island that
    has fewest of them. tier: farthest network tier where two of its ranks meet, counted from 0; -1
    within one island. per_domain: for each network tier up to that one, its ranks in the domain
    just below (an island for the first) that has fewest of them.
    """

    ranks: int
    islands: int
    per_island: int
    tier: int
    per_domain: tuple[int, ...]


ALONE = Span(1, 1, 1, -1, ())
"""A group of one rank."""


@dataclass(frozen=True)
class Ground:
    """The devices of a job in rank order.

    levels: by network tier, nearest first, the domain just below it of each rank; its island for
        the first. kinds: of each rank, the place of its accelerator in `accelerators`.
    """

    levels: Ints
    kinds: Ints
    accelerators: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many ranks there is room for."""
        return len(self.kinds)

    def kinds_of(self, ranks: Ints) -> tuple[str, ...]:
        """The kinds of accelerators among these ranks."""
        return tuple(self.accelerators[kind] for kind in np.unique(self.kinds[ranks]).tolist())

    def span_of(self, groups: Ints) -> Span:
        """The span of the worst of `groups` (rows of ranks), number by number."""
        count, ranks = groups.shape
        if ranks == 1:
            return ALONE
        least: list[int] = []
        islands, tier = 1, -1
        for level, row in enumerate(self.levels):
            width = int(row.max()) + 1
            keys = (row[groups] + width * np.arange(count)[:, None]).ravel()
            present, inside = np.unique(keys, return_counts=True)
            most = int(np.bincount(present // width).max())
            least.append(int(inside.min()))
            if level == 0:
                islands = most
            if most > 1:
                tier = level
        return Span(ranks, islands, least[0], tier, tuple(least[: tier + 1]))


def packed(cluster: Cluster) -> Ground:
    """The cluster's usable devices, domain after domain and node after node, as in the file."""
    inner = [tier.name for tier in cluster.tiers[:-1]]
    first: dict[tuple[str, ...], int] = {}

    def key(index: int) -> tuple[int, ...]:
        domains = cluster.nodes[index].domains
        path = tuple(domains[tier] for tier in reversed(inner))
        ways = [path[:depth] for depth in range(1, len(path) + 1)]
        return (*(first.setdefault(way, index) for way in ways), index)

    places = [key(index) for index in range(len(cluster.nodes))]
    nodes = [cluster.nodes[place[-1]] for place in sorted(places)]
    return _ground(cluster, nodes, [len(node.usable_devices) for node in nodes])


def ground_of(cluster: Cluster, devices: Sequence[tuple[str, int]]) -> Ground:
    """The devices that ranks 0, 1, ... have. Raises InvalidInput for those that do not exist, and
    for one that several ranks have."""
    known = {node.name: node for node in cluster.nodes}
    problems = _not_devices(devices)
    if problems:
        raise InvalidInput("devices", problems)
    first: dict[tuple[str, int], int] = {}
    for rank, (name, index) in enumerate(devices):
        node = known.get(name)
        if first.setdefault((name, index), rank) != rank:
            found = f"device {index} of {name}, which rank {first[name, index]} has"
            problems.append(Problem(f"devices[{rank}]", found, "give each rank its own"))
            continue
        if node is None:
            found, fix = f"no node {name!r}", f"name a node of {cluster.name!r}"
            problems.append(Problem(f"devices[{rank}]", found, fix))
        elif not 0 <= index < node.devices:
            found, fix = f"device {index} of {name}", f"it has {node.devices}, from 0"
            problems.append(Problem(f"devices[{rank}]", found, fix))
    if problems:
        raise InvalidInput("devices", problems)
    return _ground(cluster, [known[name] for name, _ in devices], [1] * len(devices))


def _not_devices(devices: object) -> list[Problem]:
    """What is not a pair of a node's name and a device's number."""
    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes):
        return [Problem("", f"found {shown(devices)}", "give a list of (node, device)")]
    return [
        Problem(f"devices[{rank}]", f"found {shown(one)}", "give (node name, device number)")
        for rank, one in enumerate(devices)
        if not isinstance(one, tuple | list)
        or len(one) != 2
        or not isinstance(one[0], str)
        or not isinstance(one[1], int)
        or isinstance(one[1], bool)
    ]


def _ground(cluster: Cluster, nodes: Sequence[Node], counts: Sequence[int]) -> Ground:
    scale_up = sum(tier.scale_up for tier in cluster.tiers)
    below = [None, *(tier.name for tier in cluster.tiers[:-1])][scale_up:]
    if scale_up == len(cluster.tiers):
        below = []
    levels = []
    for tier in below:
        names = [node.name if tier is None else node.domains[tier] for node in nodes]
        levels.append(_numbers(names))
    if not levels:
        levels.append([0] * len(nodes))
    kinds = [node.accelerator for node in nodes]
    return Ground(
        levels=np.repeat(np.array(levels, dtype=np.int64), counts, axis=1),
        kinds=np.repeat(np.array(_numbers(kinds), dtype=np.int64), counts),
        accelerators=tuple(dict.fromkeys(kinds)),
    )


def _numbers(names: Sequence[str]) -> list[int]:
    seen: dict[str, int] = {}
    return [seen.setdefault(name, len(seen)) for name in names]
