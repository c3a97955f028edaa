"""Placing jobs in whose groups no grid of ranks was recognised."""

from __future__ import annotations

import numpy as np

from .arrange import best_division, divide, grown_order
from .budget import Budget
from .index import Fabric, Ints
from .local import Local
from .polish import MOVES_PER_WORK
from .room import Room
from .units import UnitGraph


def place_irregular(
    fabric: Fabric, graph: UnitGraph, room: Room, budget: Budget, seed: int, node: Ints
) -> None:
    """Give every unit of a graph a node: fills `node`."""
    moves = int(budget.left * 0.5 * MOVES_PER_WORK)
    outermost = room.inside[-1][0]
    level = fabric.levels
    everything = np.arange(graph.units)
    kinds = room.kind_room[-1][outermost]
    if not (graph.kind >= 0).any():
        kinds = np.zeros((len(outermost), 0), dtype=np.int64)
    best: tuple[float, Ints, Ints] | None = None
    for order in (everything, grown_order(graph)):
        where = best_division(graph, room, level, outermost, order, 1, moves // 2, seed)
        cost = Local.of(graph, order, room.room[-1][outermost], kinds).bytes_of(where)
        if best is None or cost < best[0]:
            best = (cost, order, where)
    assert best is not None
    _, order, where = best
    for i, domain in enumerate(outermost.tolist()):
        units = order[where == i]
        if len(units):
            share = moves * len(units) // len(order)
            divide(graph, room, level - 1, domain, units, 1, share, seed, node)
