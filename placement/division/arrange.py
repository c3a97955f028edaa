"""Dividing units among domains level by level, for any traffic among them."""

from __future__ import annotations

import heapq

import numpy as np

from ..jobs.index import ANY_KIND, Ints
from ..jobs.units import UnitGraph
from ..spread.room import Room
from .local import Local
from .polish import polished

_MOVES_PER_UNIT = 6000
"""Moves after which longer walks gain little, a unit; the budget may allow fewer."""


def divide(
    graph: UnitGraph,
    room: Room,
    level: int,
    domain: int,
    units: Ints,
    chunk: int,
    most_moves: int,
    seed: int,
    node: Ints,
) -> None:
    """Give each of `units`, which `domain` at `level` holds, a node below it: fills `node`.

    The order of `units` matters to the starting point: neighbours should be near each other, and
    every `chunk` of them together. `level` may be one past the last, for the whole fabric.
    """
    if level == 0:
        node[units] = domain
        return
    children = room.inside[level][domain]
    where = best_division(graph, room, level, children, units, chunk, most_moves, seed)
    moves_left = most_moves // 2
    for i, child in enumerate(children.tolist()):
        part = units[where == i]
        if len(part):
            share = moves_left * len(part) // len(units)
            divide(graph, room, level - 1, child, part, chunk, share, seed, node)


def best_division(
    graph: UnitGraph,
    room: Room,
    level: int,
    children: Ints,
    units: Ints,
    chunk: int,
    most_moves: int,
    seed: int,
) -> Ints:
    """Index into `children` for each of `units`."""
    spaces, kinds = room.room[level - 1][children], room.kind_room[level - 1][children]
    needs_kinds = bool((graph.kind[units] != ANY_KIND).any())
    kind_room = kinds if needs_kinds else np.zeros((len(children), 0), dtype=np.int64)
    local = Local.of(graph, units, spaces, kind_room)
    starts = [
        filled(spaces, kind_room, local.kind, chunk, order)
        for order in (np.arange(len(children)), np.argsort(-spaces, kind="stable"))
    ]
    start = min(starts, key=local.bytes_of)
    if level == 1 and spaces.max() <= 1:
        return start
    return polished(local, start, min(most_moves, _MOVES_PER_UNIT * len(units)), seed)


def filled(spaces: Ints, kind_room: Ints, kind: Ints, chunk: int, order: Ints) -> Ints:
    """Units in order into domains in `order`, whole chunks first where a domain still has room."""
    if kind_room.shape[1]:
        return _filled_by_kind(spaces, kind_room, kind, order)
    free = spaces.copy()
    where = np.full(len(kind), -1, dtype=np.int64)
    if chunk > 1:
        at = 0
        for first in range(0, len(kind) - chunk + 1, chunk):
            while at < len(order) and free[order[at]] < chunk:
                at += 1
            if at == len(order):
                break
            where[first : first + chunk] = order[at]
            free[order[at]] -= chunk
    rest = np.flatnonzero(where < 0)
    where[rest] = np.repeat(order, free[order])[: len(rest)]
    return where


def _filled_by_kind(spaces: Ints, kind_room: Ints, kind: Ints, order: Ints) -> Ints:
    free, kind_free = spaces.copy(), kind_room.copy()
    where = np.full(len(kind), -1, dtype=np.int64)
    for unit in np.argsort(kind == ANY_KIND, kind="stable").tolist():
        wanted = int(kind[unit])
        for j in order.tolist():
            if free[j] > 0 and (wanted == ANY_KIND or kind_free[j, wanted] > 0):
                where[unit] = j
                free[j] -= 1
                if wanted != ANY_KIND:
                    kind_free[j, wanted] -= 1
                break
    return where


def grown_order(graph: UnitGraph) -> Ints:
    """Units in an order that keeps neighbours close: always the one most tied to those before."""
    tie = np.zeros(graph.units)
    by_unit: list[list[tuple[int, float]]] = [[] for _ in range(graph.units)]
    for (u, v), weight in zip(graph.link.T.tolist(), graph.link_weight.tolist(), strict=True):
        by_unit[u].append((v, weight))
        by_unit[v].append((u, weight))
    nets_of: list[list[int]] = [[] for _ in range(graph.units)]
    for net, unit in zip(graph.net_of.tolist(), graph.member.tolist(), strict=True):
        nets_of[unit].append(net)
    seen_net = np.zeros(graph.nets, dtype=bool)
    placed = np.zeros(graph.units, dtype=bool)
    order: list[int] = []
    heap: list[tuple[float, int]] = []
    for first in range(graph.units):
        if placed[first]:
            continue
        heapq.heappush(heap, (0.0, first))
        while heap:
            _, unit = heapq.heappop(heap)
            if placed[unit]:
                continue
            placed[unit] = True
            order.append(unit)
            grown = list(by_unit[unit])
            for net in nets_of[unit]:
                if not seen_net[net]:
                    seen_net[net] = True
                    weight = float(graph.weight[net])
                    grown.extend((other, weight) for other in graph.members(net).tolist())
            for other, weight in grown:
                if not placed[other]:
                    tie[other] += weight
                    heapq.heappush(heap, (-tie[other], other))
    return np.array(order, dtype=np.int64)
