"""Placing jobs whose units form chains: spread by counts, split what must be, then go inwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .arrange import divide
from .budget import Budget
from .chain_bound import chain_bound
from .gather import Gathered
from .index import Fabric, Ints
from .local import Local
from .polish import MOVES_PER_WORK, polished
from .room import Room
from .search import THREADS, search
from .split_blocks import hosted, parts_of_blocks, send_parts
from .split_counts import split_counts
from .split_search import filled_up, improved
from .structure import Chains
from .structured import Leaf, descend, leaf_of_units, outermost_counts, starts_of

_FIRST_SHARE = 0.3
_SECOND_SHARE = 0.5


@dataclass(frozen=True)
class _Spread:
    """Whole blocks by class and outermost domain, and for each class the parts of split ones."""

    whole: Ints
    parts: list[Ints]

    @property
    def splits(self) -> bool:
        """Whether any block is split."""
        return any(len(blocks) for blocks in self.parts)


def place_chains(
    fabric: Fabric,
    gathered: Gathered,
    chains: Chains,
    room: Room,
    budget: Budget,
    seed: int,
    node: Ints,
) -> float:
    """Give every atom a node: fills `node`. Returns a bound on the bytes across the outermost."""
    outermost = room.inside[-1][0]
    spread, least = _spread(fabric, gathered, chains, room, budget.left, seed)
    leaves, places = descend(chains, room, fabric, gathered.block, spread.whole, budget.left, seed)
    parts_in = _host_parts(fabric, chains, outermost, spread, leaves, places)
    leaf_of_block = leaf_of_units(chains, fabric, leaves, places, gathered.blocks.units)
    leaf = leaf_of_block[gathered.block_of]
    order = np.argsort(leaf, kind="stable")
    order = order[np.lexsort((gathered.block_of[order], leaf[order]))]
    moves = int(budget.left * 0.3 * MOVES_PER_WORK)
    if chains.left_out_bytes > 0 or spread.splits:
        top = np.empty(gathered.atoms.units, dtype=np.int64)
        for i, found in enumerate(leaves):
            inside = fabric.domain[-1][fabric.domain[found.level] == found.domain][0]
            top[leaf == i] = np.searchsorted(outermost, inside)
        parts_of = {
            block: parts_in[i] for block, i in enumerate(leaf_of_block.tolist()) if i in parts_in
        }
        send_parts(gathered.atoms, chains, gathered.block_of, parts_of, top)
        order = order[np.argsort(top[order], kind="stable")]
        _polish_outermost(gathered, room, fabric, outermost, top, order, moves, seed, node)
        return least
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


def _spread(
    fabric: Fabric, gathered: Gathered, chains: Chains, room: Room, work: float, seed: int
) -> tuple[_Spread, float]:
    """The cheapest spread found over the outermost domains, and a bound for all of them."""
    outermost = room.inside[-1][0]
    problem = outermost_counts(chains, room, fabric, gathered.block)
    split = split_counts(gathered, chains)
    starts = [start for start in starts_of(problem) if problem.fits(start)]
    nothing = -chains.constant + 1e-9 * abs(chains.constant)
    blocks = search(problem, starts, work * _FIRST_SHARE, seed, nothing)
    work *= _SECOND_SHARE

    def bound(cost: float) -> float:
        return chain_bound(fabric, gathered, chains, problem, split, cost, work)

    # One thread looks for a better bound, the other goes on looking for a better spread.
    with ThreadPoolExecutor(THREADS) as pool:
        if split is not None and problem.domains > len(outermost):
            rooms = room.room[-1][outermost]
            plain = split.counts(0.0, rooms)
            atoms = filled_up(blocks[:, : len(outermost)], plain, gathered.block)
            least = pool.submit(bound, plain.bytes_of(atoms) + split.constant)
            atoms = improved(split, rooms, atoms, work, seed + 1)
            return _Spread(*parts_of_blocks(atoms, gathered.block)), least.result()
        cost = problem.bytes_of(blocks)
        if cost <= nothing:
            return _Spread(blocks, []), 0.0
        least = pool.submit(bound, cost + chains.constant)
        blocks = search(problem, [blocks, *starts], work, seed + 1, nothing, threads=1)
        return _Spread(blocks, []), least.result()


def _host_parts(
    fabric: Fabric,
    chains: Chains,
    outermost: Ints,
    spread: _Spread,
    leaves: list[Leaf],
    places: list[Ints],
) -> dict[int, Ints]:
    """Add a leaf for each way in which blocks are split, and put those blocks into it.

    Returns the parts of the blocks of such leaves, by leaf.
    """
    hosts = hosted(spread.parts, spread.whole, chains.link)
    number: dict[tuple[int, bytes], int] = {}
    parts_in: dict[int, Ints] = {}
    for p, (blocks, found) in enumerate(zip(spread.parts, hosts, strict=True)):
        for parts, host in zip(blocks, found.tolist(), strict=True):
            key = (host, parts.tobytes())
            if key not in number:
                number[key] = len(leaves)
                parts_in[number[key]] = parts
                leaves.append(Leaf(fabric.levels - 1, int(outermost[host])))
            places[p] = np.append(places[p], number[key])
    return parts_in


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
