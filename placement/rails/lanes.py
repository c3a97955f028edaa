"""Lanes: ranks of different nodes that speak to each other and therefore want one rail."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..jobs.index import RING, TREE, Demand, Fabric, Ints


def in_lanes(fabric: Fabric, demand: Demand, slots: Ints) -> Ints:
    """The same nodes for all ranks, with devices by lane: each lane on one rail where it can be.

    Groups join lanes heaviest first, as long as a lane has no two ranks of one node.
    """
    assert fabric.rail is not None
    home = fabric.slot_node[slots]
    lane_of, weight = _lanes(demand, home)
    lanes: defaultdict[int, list[int]] = defaultdict(list)
    for rank, lane in enumerate(lane_of):
        lanes[lane].append(rank)
    free: dict[int, dict[int, list[int]]] = {}
    for node in np.unique(home).tolist():
        first = int(np.searchsorted(fabric.slot_node, node))
        last = int(np.searchsorted(fabric.slot_node, node, side="right"))
        by_rail: dict[int, list[int]] = {}
        for slot in range(first, last):
            by_rail.setdefault(int(fabric.rail[slot]), []).append(slot)
        free[node] = by_rail
    chosen = np.full(demand.ranks, -1, dtype=np.int64)
    rails = sorted(set(fabric.rail.tolist()))
    waiting: list[int] = []
    for lane in sorted(lanes, key=lambda one: (-weight[one] * len(lanes[one]), lanes[one][0])):
        ranks = lanes[lane]
        homes = home[ranks].tolist()
        able = {rail: sum(bool(free[node].get(rail)) for node in homes) for rail in rails}
        rail = max(rails, key=lambda one: (able[one], -one))
        for rank, node in zip(ranks, homes, strict=True):
            if free[node].get(rail):
                chosen[rank] = free[node][rail].pop(0)
            else:
                waiting.append(rank)
    for rank in waiting:
        open_rails = free[int(home[rank])]
        rail = next(one for one in sorted(open_rails) if open_rails[one])
        chosen[rank] = open_rails[rail].pop(0)
    return chosen


def _lanes(demand: Demand, home: Ints) -> tuple[list[int], list[float]]:
    """The lane of each rank, and the bytes of the groups that made each lane."""
    parent = list(range(demand.ranks))
    nodes = [{node} for node in home.tolist()]
    weight = [0.0] * demand.ranks

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    pull = demand.weight * np.where(demand.form == RING, 1.0, 2.0)
    for group in np.argsort(-pull, kind="stable").tolist():
        if demand.form[group] == TREE:
            continue
        roots = sorted({root(rank) for rank in demand.members(group).tolist()})
        if len(roots) == 1:
            weight[roots[0]] += float(pull[group])
            continue
        together = sum(len(nodes[one]) for one in roots)
        largest = max(roots, key=lambda one: len(nodes[one]))
        every = nodes[largest].union(*(nodes[one] for one in roots if one != largest))
        if len(every) < together:
            continue
        for one in roots:
            if one != largest:
                parent[one] = largest
                weight[largest] += weight[one]
        nodes[largest] = every
        weight[largest] += float(pull[group])
    return [root(rank) for rank in range(demand.ranks)], weight
