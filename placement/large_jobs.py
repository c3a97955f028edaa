"""Placing jobs too large for the exact model: gather, spread, bound, then go inwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from .arrange import divide
from .bound import SAFETY, bound_work, spread_bound
from .budget import Budget
from .counts import Counts
from .exact_units import MOST_UNITS, outermost_exactly
from .gather import Gathered, gather
from .index import Demand, Fabric, Ints
from .irregular import place_irregular
from .local import Local
from .polish import MOVES_PER_WORK, polished
from .room import Room
from .search import THREADS, search
from .shape_bound import shape_bound
from .structure import Chains
from .structured import NOWHERE, descend, leaf_of_units, outermost_counts, starts_of

_FIRST_SHARE = 0.3
_SECOND_SHARE = 0.5
_PATIENT_BOUND_STEPS = 120


def found_by_search(
    fabric: Fabric, demand: Demand, budget: Budget, seed: int
) -> tuple[Ints, float, str]:
    """Slots, a proven lower bound on the bytes across the outermost boundary, and how found."""
    gathered = gather(fabric, demand)
    room = Room.of(fabric, gathered.atom)
    node = np.full(gathered.atoms.units, -1, dtype=np.int64)
    bound = 0.0
    if gathered.chains is not None:
        bound = _place_chains(fabric, gathered, gathered.chains, room, budget, seed, node)
        method = "counts"
    else:
        place_irregular(fabric, gathered.atoms, room, budget, seed, node)
        method = "annealing"
    bound = max(bound, _proved_by_units(fabric, gathered, room, budget, bound, seed, node))
    return _slots(fabric, gathered, node), bound, method


def _proved_by_units(
    fabric: Fabric,
    gathered: Gathered,
    room: Room,
    budget: Budget,
    bound: float,
    seed: int,
    node: Ints,
) -> float:
    """A bound from the exact model on atoms, where they are few; improves `node` if it can."""
    graph = gathered.atoms
    if graph.units > MOST_UNITS:
        return 0.0
    top = fabric.domain[-1][node]
    local = Local.of(graph, np.arange(graph.units), room.room[-1], room.kind_room[-1][:, :0])
    # Up to a constant; what all units in one domain would cost is that constant.
    together = local.bytes_of(np.zeros(graph.units, dtype=np.int64))
    cost = local.bytes_of(top) - together
    free = np.bincount(fabric.slot_domain[-1], minlength=len(room.room[-1])) // gathered.atom
    if cost <= bound * (1 + SAFETY) or (free != room.room[-1]).any():
        return 0.0
    found = outermost_exactly(fabric, graph, free, top, budget)
    if found is None:
        return 0.0
    if local.bytes_of(found.domain) - together < cost * (1 - SAFETY):
        for domain in np.unique(found.domain).tolist():
            units = np.flatnonzero(found.domain == domain)
            moves = 100 * len(units)
            divide(graph, room, fabric.levels - 1, domain, units, 1, moves, seed, node)
    return found.bound_bytes * min(1.0, gathered.grip)


def _place_chains(
    fabric: Fabric,
    gathered: Gathered,
    chains: Chains,
    room: Room,
    budget: Budget,
    seed: int,
    node: Ints,
) -> float:
    problem = outermost_counts(chains, room, fabric, gathered.block)
    starts = [start for start in starts_of(problem) if problem.fits(start)]
    loosest = _loosest(fabric, gathered, problem)
    nothing = -chains.constant + 1e-9 * abs(chains.constant)
    work = budget.left
    spread = search(problem, starts, work * _FIRST_SHARE, seed, nothing)
    cost = problem.bytes_of(spread)
    least = 0.0
    if cost > nothing:
        # One thread looks for a better bound, the other goes on looking for a better spread.
        with ThreadPoolExecutor(THREADS) as pool:
            bound = pool.submit(_bound, loosest, gathered, chains, cost, work * _SECOND_SHARE)
            spread = search(
                problem, [spread, *starts], work * _SECOND_SHARE, seed + 1, nothing, threads=1
            )
            least = bound.result()
    outermost = room.inside[-1][0]
    leaves, places = descend(chains, room, fabric, gathered.block, spread, budget.left, seed)
    leaf = leaf_of_units(chains, fabric, leaves, places, gathered.blocks.units)[gathered.block_of]
    order = np.argsort(leaf, kind="stable")
    order = order[np.lexsort((gathered.block_of[order], leaf[order]))]
    moves = int(budget.left * 0.3 * MOVES_PER_WORK)
    if chains.left_out_bytes > 0 or leaves[-1].domain == NOWHERE:
        top = np.full(gathered.atoms.units, NOWHERE, dtype=np.int64)
        for i, found in enumerate(leaves):
            if found.domain != NOWHERE:
                inside = fabric.domain[-1][fabric.domain[found.level] == found.domain][0]
                top[leaf == i] = np.searchsorted(outermost, inside)
        _fill_left_over(top, order, gathered.block, room.room[-1][outermost])
        order = order[np.argsort(top[order], kind="stable")]
        _polish_outermost(gathered, room, fabric, outermost, top, order, moves, seed, node)
    else:
        for i, found in enumerate(leaves):
            units = order[leaf[order] == i]
            share = moves * len(units) // len(order)
            divide(
                gathered.atoms,
                room,
                found.level,
                found.domain,
                units,
                gathered.block,
                share,
                seed,
                node,
            )
    return least


def _fill_left_over(top: Ints, order: Ints, block: int, spaces: Ints) -> None:
    """Split the blocks that are nowhere over what room is left, each over as few as can be."""
    free = spaces - np.bincount(top[top >= 0], minlength=len(spaces))
    lost = order[top[order] == NOWHERE]
    for first in range(0, len(lost), block):
        atoms = lost[first : first + block]
        while len(atoms):
            enough = np.flatnonzero(free >= len(atoms))
            j = int(enough[np.argmin(free[enough])]) if len(enough) else int(np.argmax(free))
            part = min(len(atoms), int(free[j]))
            top[atoms[:part]] = j
            free[j] -= part
            atoms = atoms[part:]


def _bound(
    loosest: Counts | None, gathered: Gathered, chains: Chains, cost: float, work: float
) -> float:
    """Bytes that no placement can do with less of, whatever sets of ranks it splits."""
    if loosest is None:
        return 0.0
    best = 0.0
    work = min(work, _PATIENT_BOUND_STEPS * bound_work(loosest))
    for nets, links in gathered.bearable:
        scaled = replace(loosest, cost=loosest.cost * nets, link=loosest.link * links)
        constant = chains.net_constant * nets + chains.link_constant * links
        total = cost + chains.constant
        target = total * max(nets, links) - constant
        least = spread_bound(scaled, target, work / len(gathered.bearable))
        best = max(best, least + constant - SAFETY * (abs(constant) + abs(least)))
        best = max(best, shape_bound(scaled, constant, target + constant, work))
    return best * min(1.0, gathered.grip)


def _loosest(fabric: Fabric, gathered: Gathered, problem: Counts) -> Counts | None:
    """The problem with the room that even a placement which splits units over nodes has."""
    free = np.bincount(fabric.slot_domain[-1], minlength=int(fabric.domain[-1].max()) + 1)
    rooms = free // gathered.atom // gathered.block
    if rooms.sum() < problem.height.sum():
        # Split blocks put back whole need a place; allow them one wherever a part of one fits.
        rooms = -(-(free // gathered.atom) // gathered.block)
    rooms = rooms[rooms > 0]
    if rooms.sum() < problem.height.sum():
        return None
    return Counts(
        problem.height,
        problem.cost,
        problem.link,
        rooms,
        problem.kind,
        np.zeros((len(rooms), 0), dtype=np.int64),
    )


def _polish_outermost(
    gathered: Gathered,
    room: Room,
    fabric: Fabric,
    outermost: Ints,
    top: Ints,
    order: Ints,
    moves: int,
    seed: int,
    node: Ints,
) -> None:
    level = fabric.levels - 1
    graph = gathered.atoms
    spaces, kinds = room.room[level][outermost], room.kind_room[level][outermost]
    if not (graph.kind >= 0).any():
        kinds = np.zeros((len(outermost), 0), dtype=np.int64)
    local = Local.of(graph, np.arange(graph.units), spaces, kinds)
    top = polished(local, top, moves, seed, heat=0.1)
    for i, domain in enumerate(outermost.tolist()):
        units = order[top[order] == i]
        if len(units):
            share = moves * len(units) // len(order)
            divide(graph, room, level, domain, units, gathered.block, share, seed, node)


def _slots(fabric: Fabric, gathered: Gathered, node: Ints) -> Ints:
    """Devices for all ranks: each atom takes the next free ones of its node, ranks in order."""
    ranks = len(gathered.atom_of)
    order = np.lexsort((np.arange(ranks), gathered.atom_of, node[gathered.atom_of]))
    home = node[gathered.atom_of[order]]
    first = np.searchsorted(fabric.slot_node, home)
    within = np.arange(ranks) - np.searchsorted(home, home)
    slots = np.empty(ranks, dtype=np.int64)
    slots[order] = first + within
    return slots
