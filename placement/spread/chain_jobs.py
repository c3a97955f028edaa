"""Placing jobs whose units form chains: spread by counts, split what must be, then go inwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..bounds.chain_bound import chain_bound
from ..division.polish import MOVES_PER_WORK
from ..exact.few_units import spread_of_few
from ..jobs.gather import Gathered
from ..jobs.index import Fabric, Ints
from ..loops.budget import FULL_RANKS, Budget
from .counts import Counts
from .descent import Descent, Spread
from .matching import match_chain
from .room import Room
from .search import THREADS, search
from .seating import Seating, preferred
from .split_blocks import parts_of_blocks
from .split_counts import SplitCounts, split_counts
from .split_search import filled_up, improved
from .starts import starts_of
from .structure import Chains
from .structured import counts_in

_OTHER_SHARE = 0.2
"""Part of the work that reading, seating and scoring a job of `FULL_RANKS` ranks stand for."""
_FIRST_SHARE = 0.3
_SECOND_SHARE = 0.8
_SEATING_SHARE = 0.3
_ENOUGH_INSIDE = 4e-3
"""Work an atom from which searching the inner tiers gains little."""
_OPENED_SHARE = 0.8
"""Part of the work on a closed chain in which its last links are shared out over all."""


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
    split = split_counts(gathered, chains)
    other = _OTHER_SHARE * min(1.0, len(gathered.atom_of) / FULL_RANKS)
    work = budget.left * (1 - other)
    spread, least = _spread(fabric, gathered, chains, split, room, budget, work, seed)
    descent = Descent(fabric, gathered, chains, split, room)
    descent.go(spread, min(budget.left, _ENOUGH_INSIDE * gathered.atoms.units), seed)
    where = preferred(fabric, gathered, chains, descent)
    order = np.lexsort((gathered.block_of, *where))
    splits = any(len(blocks) for blocks in spread.parts)
    mend = splits or chains.left_out_bytes > 0
    seating = Seating(fabric, gathered, room, where, order, mend, seed, node)
    seating.seat(int(budget.left * _SEATING_SHARE * MOVES_PER_WORK))
    return least


def _spread(
    fabric: Fabric,
    gathered: Gathered,
    chains: Chains,
    split: SplitCounts | None,
    room: Room,
    budget: Budget,
    work: float,
    seed: int,
) -> tuple[Spread, float]:
    """The cheapest spread found over the outermost domains, and a bound for all of them."""
    outermost = room.inside[-1][0]
    level = fabric.levels - 1
    problem = counts_in(chains, chains.height, room, level, outermost, gathered.block)
    starts = [start for start in starts_of(problem) if problem.fits(start)]
    nothing = -chains.constant + 1e-9 * abs(chains.constant)
    own = Budget(work)
    few = spread_of_few(fabric, gathered, chains, split, room, problem, starts, own, seed)
    if few is not None:
        budget.charge(work - own.left)
        return few
    opened, _ = problem.opened()
    blocks = search(opened, starts, work * _FIRST_SHARE, seed, nothing)
    work *= _SECOND_SHARE
    none = [np.zeros((0, len(outermost)), dtype=np.int64)] * problem.classes

    def bound(cost: float) -> float:
        return chain_bound(fabric, gathered, chains, problem, split, cost, work)

    # A better bound is looked for beside a better spread.
    with ThreadPoolExecutor(THREADS) as pool:
        if split is not None and problem.domains > len(outermost):
            rooms = room.room[-1][outermost]
            plain = split.counts(0.0, rooms)
            atoms = filled_up(blocks[:, : len(outermost)], plain, gathered.block)
            least = pool.submit(bound, plain.bytes_of(atoms) + split.constant)
            atoms = improved(split, rooms, atoms, work, seed + 1)
            return Spread(*parts_of_blocks(atoms, gathered.block)), least.result()
        cost = problem.bytes_of(blocks)
        if cost <= nothing:
            return Spread(blocks, none), 0.0
        least = pool.submit(bound, cost + chains.constant)
        if opened is problem:
            blocks = search(problem, [blocks, *starts], work, seed + 1, nothing, begun=True)
        else:
            blocks = _closed(problem, opened, [blocks, *starts], work, seed + 1)
        return Spread(blocks, none), least.result()


def _closed(problem: Counts, opened: Counts, starts: list[Ints], work: float, seed: int) -> Ints:
    """The cheapest spread found of a closed chain, as its units can in fact be matched.

    Counts tell the least that the links which close a chain can cost, and a search that counts on
    it finds spreads that go round. One that shares them out over the chain does not.
    """
    even = search(opened, starts, work * _OPENED_SHARE, seed, begun=True)
    bold = search(problem, [even, *starts], work * (1 - _OPENED_SHARE), seed + 1, begun=True)
    return min([*starts, even, bold], key=lambda spread: _matched_bytes(problem, spread))


def _matched_bytes(problem: Counts, spread: Ints) -> float:
    """Bytes of a spread of a closed chain once its units are matched."""
    domains = np.arange(problem.domains)
    places = [np.repeat(domains, row) for row in spread]
    linked = (problem.link > 0).tolist()
    ordered = match_chain(places, linked, domains[None, :])
    least = int(np.minimum(spread[-1], spread[0]).sum())
    together = int((ordered[-1] == ordered[0]).sum())
    return problem.bytes_of(spread) + float(problem.link[-1]) * (least - together)
