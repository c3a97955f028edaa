"""Searching spreads of atoms in which some blocks are split over domains."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from .anneal import moves_for, walk, work_of
from .counts import Counts
from .pairing import CELLS_PER_WORK, pair_cells, share_all
from .split_blocks import parts_of_blocks
from .split_counts import SplitCounts

_KICK_MOVES = 10_000
_KICK_HEATS = (0.05, 0.3, 1.0)
_SWEEPS = 20
_BALANCE = 0.5
"""Part of the even balance at which is searched."""
_MOST_PAIR_CELLS = 6_000_000
_ROUND_WORK = 2e-4
"""Work of one round besides its loops."""


def filled_up(spread: Ints, problem: Counts, size: int) -> Ints:
    """A spread of atoms from one of whole blocks; what that misses fills the room there is left."""
    atoms = spread * size
    free = problem.room - atoms.sum(axis=0)
    for p in range(problem.classes):
        missing = int(problem.height[p] - atoms[p].sum())
        while missing:
            enough = np.flatnonzero(free >= missing)
            j = int(enough[np.argmin(free[enough])]) if len(enough) else int(np.argmax(free))
            part = min(missing, int(free[j]))
            atoms[p, j] += part
            free[j] -= part
            missing -= part
    return atoms


def improved(split: SplitCounts, rooms: Ints, start: Ints, work: float, seed: int) -> Ints:
    """The cheapest spread found from a good `start`: domains share by pairs, between small kicks.

    Unlike `search`, this never leaves what it has for a fresh start, as most of it is near the best
    already and steps of single atoms are slow to build it up. Steps are made at prices that balance
    large parts and small ones; what counts in the end is what the blocks then cost.
    """
    problem = split.counts(_BALANCE * split.even_balance, rooms)
    plain = split.counts(0.0, rooms)
    step = float(max(np.abs(np.diff(problem.cost, axis=1)).max(), np.abs(problem.link).max()))
    if step == 0.0 or problem.domains < 2:
        return start
    cost, link = problem.cost / step, problem.link / step
    sharing = pair_cells(problem) <= _MOST_PAIR_CELLS
    chance = np.random.default_rng(seed)
    everywhere = np.arange(problem.domains)
    done = 0.0

    def bytes_of(spread: Ints) -> float:
        return plain.bytes_of(spread) + split.mended(spread, parts_of_blocks(spread, split.size)[1])

    def shared(spread: Ints, order: Ints, changed: Ints, sweeps: int) -> float:
        if not sharing:
            return 0.0
        most_cells = max(0, int((work - done) * CELLS_PER_WORK))
        marked = np.isin(everywhere, changed).astype(np.int64)
        _, cells = share_all(spread, cost, link, problem.room, order, marked, sweeps, most_cells)
        return cells / CELLS_PER_WORK

    now = start.copy()
    done += shared(now, chance.permutation(everywhere), everywhere, _SWEEPS)
    now_cost, best, best_cost = problem.bytes_of(now), start, bytes_of(start)
    moves = min(_KICK_MOVES, moves_for(problem, work))
    while True:
        found_cost = bytes_of(now)
        if found_cost < best_cost:
            best, best_cost = now, found_cost
        if done >= work:
            return best
        some = min(problem.domains, int(chance.integers(2, 6)))
        where = chance.choice(everywhere, some, False)
        heat = float(chance.choice(_KICK_HEATS))
        kicked = walk(
            problem, cost, link, now, where, moves, int(chance.integers(2**40)), heat
        ).last
        done += work_of(problem, moves) + _ROUND_WORK
        done += shared(kicked, chance.permutation(where), where, 3)
        kicked_cost = problem.bytes_of(kicked)
        if kicked_cost < now_cost - 1e-9 * step:
            done += shared(kicked, chance.permutation(everywhere), where, _SWEEPS)
            kicked_cost = problem.bytes_of(kicked)
        if kicked_cost <= now_cost:
            now, now_cost = kicked, kicked_cost
