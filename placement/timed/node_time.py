"""What the traffic inside nodes costs by the links it uses: seconds a step, counted from the PCG.

Shares no code with the solver, so that it can judge it. The accounting is in docs/files.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster
from ..pcg import PCG, Algorithm, Group, Op

Floats = npt.NDArray[np.float64]

MOST_REORDERED = 16
"""Rings of at most so many devices of a node go the shortest way; larger ones by device index."""


def node_link_seconds(
    pcg: PCG, cluster: Cluster, devices: Sequence[tuple[str, int]]
) -> float | None:
    """Seconds a step on the links inside nodes, summed over all edges that lie in a node.

    An edge takes its bytes over the bandwidth of its pair of devices. `devices[r] = (node name,
    device index)` is where rank r is, and has been checked. None where no node that is used has
    described links.
    """
    kind_of = {node.name: node.links for node in cluster.nodes}
    if all(kind_of[name] is None for name in {name for name, _ in devices}):
        return None
    known = {name: _Ways(links.bytes_per_s) for name, links in cluster.links.items()}
    parts: list[float] = []
    for group in pcg.groups:
        if len(group.ranks) == 1:
            continue
        inside: defaultdict[str, list[int]] = defaultdict(list)
        for rank in group.ranks:
            name, index = devices[rank]
            inside[name].append(index)
        for name, held in inside.items():
            kind = kind_of[name]
            if kind is not None and len(held) > 1:
                closed = len(held) == len(group.ranks)
                parts.append(_group_seconds(group, known[kind], tuple(sorted(held)), closed))
    return math.fsum(parts)


def _group_seconds(group: Group, ways: _Ways, held: tuple[int, ...], closed: bool) -> float:
    n, size = len(group.ranks), group.bytes
    if group.op is Op.ALL_REDUCE and group.resolved_algorithm is Algorithm.TREE:
        return 2 * size * ways.tree(held)
    if group.op is Op.ALL_REDUCE:
        return 2 * (n - 1) / n * size * ways.ring(held, closed)
    if group.op in (Op.ALL_GATHER, Op.REDUCE_SCATTER):
        return (n - 1) / n * size * ways.ring(held, closed)
    if group.op is Op.ALL_TO_ALL:
        return size / n * ways.all_pairs(held)
    if group.op is Op.BROADCAST:
        return size * ways.tree(held)
    return size * ways.all_pairs(held) / 2


class _Ways:
    """Seconds a byte of ways through devices of one node."""

    def __init__(self, bytes_per_s: Sequence[Sequence[float]]) -> None:
        rates = np.array(bytes_per_s)
        self._slow: Floats = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
        self._rings: dict[tuple[tuple[int, ...], bool], float] = {}

    def all_pairs(self, held: tuple[int, ...]) -> float:
        """Every ordered pair once."""
        return float(self._slow[np.ix_(held, held)].sum())

    def tree(self, held: tuple[int, ...]) -> float:
        """The edges of the cheapest tree that joins them (Prim 1957)."""
        slow = self._slow[np.ix_(held, held)]
        reach = slow[0].copy()
        waiting = np.ones(len(held), dtype=bool)
        waiting[0] = False
        total = 0.0
        while waiting.any():
            nearest = int(np.argmin(np.where(waiting, reach, np.inf)))
            total += float(reach[nearest])
            waiting[nearest] = False
            reach = np.minimum(reach, slow[nearest])
        return total

    def ring(self, held: tuple[int, ...], closed: bool) -> float:
        """The shortest way through all of them, back to where it began if it is closed."""
        key = (held, closed)
        if key not in self._rings:
            self._rings[key] = self._shortest(held, closed)
        return self._rings[key]

    def _shortest(self, held: tuple[int, ...], closed: bool) -> float:
        slow = self._slow[np.ix_(held, held)]
        count = len(held)
        if count > MOST_REORDERED or np.ptp(slow[~np.eye(count, dtype=bool)]) == 0:
            by_index = [*range(count), 0] if closed else list(range(count))
            return float(sum(slow[a, b] for a, b in pairwise(by_index)))
        # Held and Karp 1962: ways[passed, j], the shortest that passes a set of devices and ends at
        # j. A closed way may start anywhere, so it starts at the first.
        sets = np.arange(1 << count)
        sizes = np.sum([sets >> bit & 1 for bit in range(count)], axis=0)
        ways = np.full((1 << count, count), np.inf)
        for j in range(1 if closed else count):
            ways[1 << j, j] = 0.0
        for size in range(2, count + 1):
            layer = sets[sizes == size]
            for j in range(count):
                passed = layer[(layer >> j & 1) == 1]
                ways[passed, j] = (ways[passed ^ (1 << j)] + slow[:, j]).min(axis=1)
        last = ways[-1]
        return float((last + slow[:, 0]).min() if closed else last.min())
