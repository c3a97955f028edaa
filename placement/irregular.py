"""Placing jobs in whose groups no grid of ranks was recognised, tier by tier from the spine in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .arrange import filled, grown_order
from .budget import Budget
from .counted_starts import counted_starts
from .cuts import fewer
from .index import ANY_KIND, Fabric, Floats, Ints
from .local import Local
from .partition import partitioned
from .room import Room
from .search import THREADS
from .units import UnitGraph

_MOST_HOMES, _MOST_COMPARED = 16, 1024
"""Domains that each hold the whole job up to which all are tried, and units of such a job."""
_SEARCH_SHARE = 0.8
"""Part of the budget for the placement; the rest is left for the bound."""
_OUTERMOST_SHARE = 0.7
"""Part of the work for dividing the job among the outermost domains; the rest goes inwards."""
_INNER_SHARE = 0.7
"""Part of the work of a domain for dividing it; the rest is for the domains in it."""


def place_irregular(
    fabric: Fabric, graph: UnitGraph, room: Room, budget: Budget, seed: int, node: Ints
) -> None:
    """Give every unit of a graph a node: fills `node`.

    A job that fits one domain is tried in each of the smallest kind that holds it, as what it costs
    inside depends on which.
    """
    outermost = room.inside[-1][0]
    order = grown_order(graph)
    level, homes = _homes(graph, room)
    if homes:
        work = budget.left * _SEARCH_SHARE / len(homes)
        best: Floats | None = None
        for home in homes:
            tried = np.full(graph.units, -1, dtype=np.int64)
            _divide(graph, room, level, home, order, work, seed, tried, budget)
            cost = bytes_by_level(fabric, graph, tried)
            if best is None or fewer(cost, best):
                best, node[:] = cost, tried
        return
    starts = [np.arange(graph.units), order]
    work = budget.left * _SEARCH_SHARE
    level = fabric.levels
    counted, spent = counted_starts(graph, room, level - 1, outermost, work, seed)
    own = (work - spent) * _OUTERMOST_SHARE
    begun = [start[order] for start in counted]
    where, done = _division(graph, room, level, outermost, order, starts, own, seed, begun, THREADS)
    done += spent
    budget.charge(done)
    work = max(0.0, work - done)
    for i, domain in enumerate(outermost.tolist()):
        units = order[where == i]
        share = work * len(units) / len(order)
        _divide(graph, room, fabric.levels - 1, domain, units, share, seed, node, budget)


def _homes(graph: UnitGraph, room: Room) -> tuple[int, list[int]]:
    """The innermost level at which domains hold the whole job, and some of them, tightest first."""
    kinds = room.kind_room[0].shape[1]
    needed = np.bincount(graph.kind[graph.kind != ANY_KIND], minlength=kinds)
    for level, spaces in enumerate(room.room):
        enough = (spaces >= graph.units) & (room.kind_room[level] >= needed).all(axis=1)
        holding = np.flatnonzero(enough)
        if len(holding):
            tightest = holding[np.argsort(spaces[holding], kind="stable")]
            few = _MOST_HOMES if graph.units <= _MOST_COMPARED else 1
            return level, tightest[:few].tolist()
    return len(room.room), []


def bytes_by_level(fabric: Fabric, graph: UnitGraph, node: Ints) -> Floats:
    """Bytes that cross each level's boundary, up to a constant a level."""
    none = np.zeros((0, 0), dtype=np.int64)
    found = np.zeros(fabric.levels)
    for level in range(fabric.levels):
        used, where = np.unique(fabric.domain[level][node], return_inverse=True)
        spaces = np.zeros(len(used), dtype=np.int64)
        found[level] = Local.of(graph, np.arange(graph.units), spaces, none).bytes_of(where)
    return found


def _divide(
    graph: UnitGraph,
    room: Room,
    level: int,
    domain: int,
    units: Ints,
    work: float,
    seed: int,
    node: Ints,
    budget: Budget,
) -> None:
    """Give each of `units`, which `domain` at `level` holds, a node below it: fills `node`."""
    if level == 0:
        node[units] = domain
    if level == 0 or not len(units):
        return
    children = room.inside[level][domain]
    where, done = _division(graph, room, level, children, units, [units], work * _INNER_SHARE, seed)
    budget.charge(done)
    work -= done
    for i, child in enumerate(children.tolist()):
        part = units[where == i]
        share = max(0.0, work) * len(part) / len(units)
        _divide(graph, room, level - 1, child, part, share, seed, node, budget)


def _division(
    graph: UnitGraph,
    room: Room,
    level: int,
    children: Ints,
    units: Ints,
    orders: list[Ints],
    work: float,
    seed: int,
    begun: Sequence[Ints] = (),
    threads: int = 1,
) -> tuple[Ints, float]:
    """Index into `children` for each of `units`, and the work done.

    It costs no more than filling the children with the units in any of the `orders`, or than any
    of those `begun`.
    """
    spaces, kinds = room.room[level - 1][children], room.kind_room[level - 1][children]
    needs_kinds = bool((graph.kind[units] != ANY_KIND).any())
    kind_room = kinds if needs_kinds else np.zeros((len(children), 0), dtype=np.int64)
    local = Local.of(graph, units, spaces, kind_room)
    place = np.empty(graph.units, dtype=np.int64)
    place[units] = np.arange(len(units))
    starts = list(begun)
    for order in orders:
        for fill in (np.arange(len(children)), np.argsort(-spaces, kind="stable")):
            start = np.empty(len(units), dtype=np.int64)
            start[place[order]] = filled(spaces, kind_room, graph.kind[order], 1, fill)
            starts.append(start)
    if level == 1 and spaces.max() <= 1:
        return starts[0], 0.0  # nodes of one unit each are all alike
    return partitioned(local, starts, work, seed, threads)
