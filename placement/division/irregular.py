"""Placing jobs in whose groups no grid of ranks was recognised, tier by tier from the spine in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..exact.cheapest_homes import cheapest_homes
from ..jobs.cuts import fewer
from ..jobs.index import ANY_KIND, Fabric, Floats, Ints
from ..jobs.units import UnitGraph
from ..loops.budget import Budget
from ..spread.counted_starts import counted_starts
from ..spread.room import Room
from ..spread.search import THREADS
from .arrange import filled, grown_order
from .local import Local
from .partition import best_partitions
from .polish import MOVES_PER_WORK, polished

_MOST_HOMES, _MOST_COMPARED = 16, 1024
"""Domains that each hold the whole job up to which all are tried, and units of such a job."""
_SEARCH_SHARE = 0.8
"""Part of the budget for the placement; the rest is left for the bound."""
_OUTERMOST_SHARE = 0.8
"""Part of the work for dividing the job among the outermost domains; the rest goes inwards."""
_INNER_SHARE = 0.7
"""Part of the work of a domain for dividing it; the rest is for the domains in it."""
_MOST_REHOMED = 128
"""Units up to which each part of a division is tried in every domain with room for it."""
_MOST_TRIED = 64
"""Pairs of a part and another domain that are tried, in all divisions together."""
_ENOUGH_OUTSIDE, _ENOUGH_INSIDE = 5e-3, 2e-3
"""Work a unit from which dividing a job, or a part of it inwards, gains little."""
_PACE, _PACE_LOST = 3.3, 9e-4
"""Work done on dividing a job for each that is charged, and how much less it is for each unit.

Dividing takes about half the time that its work stands for, and many units take time to read.
"""
_WALK_SHARE = 0.25
"""Part of the work inwards for a walk in which bytes at the outermost boundary may not rise."""
_WALK_HEAT = 0.2
_MOST_MOVES, _MOST_SETTLED = 4000, 2000
"""Moves of that walk a unit, and units up to which it is worth its time."""


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
    pace = max(1.0, _PACE - _PACE_LOST * graph.units)
    own = min((work - spent) * _OUTERMOST_SHARE * pace, _ENOUGH_OUTSIDE * graph.units)
    begun = [start[order] for start in counted]
    found, done = _divisions(
        graph, room, level, outermost, order, starts, own, seed, begun, THREADS
    )
    done = done / pace + spent
    budget.charge(done)
    work = max(0.0, work - done)
    inwards = work * (1 - _WALK_SHARE) / len(found)
    cheapest: Floats | None = None
    tries = _MOST_TRIED // len(found)
    for where in found:
        tried = _housed(fabric, graph, room, outermost, order, where, inwards, tries, seed, budget)
        if len(found) == 1:
            node[:] = tried
            break
        cost = bytes_by_level(fabric, graph, tried)
        if cheapest is None or fewer(cost, cheapest):
            cheapest, node[:] = cost, tried
    _settle(fabric, graph, room, work * _WALK_SHARE, seed, node, budget)


def _housed(
    fabric: Fabric,
    graph: UnitGraph,
    room: Room,
    outermost: Ints,
    units: Ints,
    where: Ints,
    work: float,
    tries: int,
    seed: int,
    budget: Budget,
) -> Ints:
    """A node for every unit: `where[i]` is an index into `outermost` for `units[i]`.

    Few units may go as they are parted to other domains, where that costs less inside: each part
    costs there what it costs, whatever the others do. tries: pairs of a part and such a domain that
    are looked at, the tightest.
    """
    level = fabric.levels - 1
    used = np.unique(where)
    parts = [units[where == i] for i in used.tolist()]
    may = np.zeros((len(parts), len(outermost)), dtype=bool)
    may[np.arange(len(parts)), used] = True
    if len(units) <= _MOST_REHOMED and level > 0:
        kinds = room.kind_room[level].shape[1]
        for p, part in enumerate(parts):
            kind = graph.kind[part]
            needed = np.bincount(kind[kind != ANY_KIND], minlength=kinds)
            enough = (room.kind_room[level][outermost] >= needed).all(axis=1)
            spaces = room.room[level][outermost]
            others = np.flatnonzero(enough & (spaces >= len(part)) & ~may[p])
            tightest = others[np.argsort(spaces[others], kind="stable")]
            may[p, tightest[: tries // len(parts)]] = True
    cost = np.full(may.shape, np.inf)
    size = np.array([len(part) for part in parts])
    share = np.minimum(work * size / len(units) / may.sum(axis=1), _ENOUGH_INSIDE * size)
    found = np.full((len(outermost), graph.units), -1, dtype=np.int64)
    for p, i in np.argwhere(may).tolist():
        part, home = parts[p], int(outermost[i])
        _divide(graph, room, level, home, part, float(share[p]), seed, found[i], budget)
        choice = may[p].sum() > 1
        cost[p, i] = _bytes_inside(fabric, graph, level - 1, part, found[i]) if choice else 0.0
    node = np.full(graph.units, -1, dtype=np.int64)
    for part, i in zip(parts, cheapest_homes(cost).tolist(), strict=True):
        node[part] = found[i][part]
    return node


def _bytes_inside(fabric: Fabric, graph: UnitGraph, level: int, part: Ints, node: Ints) -> float:
    """Bytes that cross a level's boundary among some units, up to a constant of theirs."""
    if level < 0:
        return 0.0
    used, where = np.unique(fabric.domain[level][node[part]], return_inverse=True)
    none = np.zeros((len(used), 0), dtype=np.int64)
    return Local.of(graph, part, np.zeros(len(used), dtype=np.int64), none).bytes_of(where)


def _settle(
    fabric: Fabric, graph: UnitGraph, room: Room, work: float, seed: int, node: Ints, budget: Budget
) -> None:
    """Lower what crosses the second boundary from outside, and maybe the first: changes `node`."""
    level = fabric.levels - 2
    if level < 1 or not 2 <= graph.units <= _MOST_SETTLED:
        return
    domains, where = np.unique(
        np.concatenate([fabric.domain[level][node], np.flatnonzero(room.room[level])]),
        return_inverse=True,
    )
    where = where[: graph.units]
    outer = np.empty(len(room.room[level]), dtype=np.int64)
    outer[fabric.domain[level]] = fabric.domain[level + 1]
    above = np.unique(outer[domains], return_inverse=True)[1]
    needs_kinds = bool((graph.kind != ANY_KIND).any())
    kind_room = room.kind_room[level][domains]
    kind_room = kind_room if needs_kinds else kind_room[:, :0]
    local = Local.of(graph, np.arange(graph.units), room.room[level][domains], kind_room)
    moves = min(_MOST_MOVES * graph.units, int(work * MOVES_PER_WORK))
    budget.charge(moves / MOVES_PER_WORK)
    found = polished(local, where, moves, seed, _WALK_HEAT, above)
    tried = node.copy()
    for i in np.unique(np.concatenate([where[found != where], found[found != where]])).tolist():
        part = np.flatnonzero(found == i)
        _divide(graph, room, level, int(domains[i]), part, 0.0, seed, tried, budget)
    if fewer(bytes_by_level(fabric, graph, tried), bytes_by_level(fabric, graph, node)):
        node[:] = tried


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
    own = work * _INNER_SHARE
    orders = [units, np.sort(units)]
    found, done = _divisions(graph, room, level, children, units, orders, own, seed)
    where = found[0]
    budget.charge(done)
    work -= done
    for i, child in enumerate(children.tolist()):
        part = units[where == i]
        share = max(0.0, work) * len(part) / len(units)
        _divide(graph, room, level - 1, child, part, share, seed, node, budget)


def _divisions(
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
) -> tuple[list[Ints], float]:
    """Index into `children` for each of `units`, in several ways that cost the same; the work done.

    They cost no more than filling the children with the units in any of the `orders`, or than any
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
        return [starts[0]], 0.0  # nodes of one unit each are all alike
    return best_partitions(local, starts, work, seed, threads)
