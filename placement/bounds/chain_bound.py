"""What no placement of a job of chains can do with less of, split as it may."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.gather import Gathered
from ..jobs.index import Fabric, Ints
from ..spread.counts import Counts
from ..spread.split_counts import SplitCounts
from ..spread.structure import Chains
from .bound import SAFETY, bound_work, spread_bound
from .shape_bound import shape_bound

_SHAPE_STEPS = 120
"""Steps of `spread_bound` whose work the bound by shapes may take."""
_TRIAL_STEPS = 16
_BALANCES = (0.0, 0.5, 1.0)
"""Parts of the even balance to try: how large parts of blocks are priced against small ones."""


def chain_bound(
    fabric: Fabric,
    gathered: Gathered,
    chains: Chains,
    problem: Counts,
    split: SplitCounts | None,
    cost: float,
    work: float,
) -> float:
    """Bytes across the outermost boundary that every placement of the job has.

    problem: the job in whole blocks; split: in atoms, where the blocks are more than atoms.
    cost: bytes of a spread that is known, for which prices are looked for.
    """
    free = np.bincount(fabric.slot_domain[-1], minlength=int(fabric.domain[-1].max()) + 1)
    atoms = free // gathered.atom
    least = 0.0
    if gathered.bearable:
        share = work if split is None else work / 2
        least = _by_blocks(gathered, chains, problem, atoms // gathered.block, cost, share)
    if split is not None:
        work = work / 2 if gathered.bearable else work
        least = max(least, bound_by_atoms(gathered, split, atoms[atoms > 0], cost, work))
    return least


def _by_blocks(
    gathered: Gathered, chains: Chains, problem: Counts, rooms: Ints, cost: float, work: float
) -> float:
    """The bound of whole blocks, where they fit into the rooms that even split atoms leave."""
    if rooms.sum() < problem.height.sum():
        return 0.0
    none = np.zeros((int((rooms > 0).sum()), 0), dtype=np.int64)
    loosest = replace(problem, room=rooms[rooms > 0], kind_room=none)
    best = 0.0
    shapes = min(work, _SHAPE_STEPS * bound_work(loosest))
    for nets, links in gathered.bearable:
        lighter, constant = chains.weighed(loosest, nets, links)
        target = cost * max(nets, links) - constant
        least = spread_bound(lighter, target, work / len(gathered.bearable))
        best = max(best, least + constant - SAFETY * (abs(constant) + abs(least)))
        best = max(best, shape_bound(lighter, constant, target + constant, shapes))
    return best * min(1.0, gathered.grip)


def bound_by_atoms(
    gathered: Gathered, split: SplitCounts, rooms: Ints, cost: float, work: float
) -> float:
    """The bound of single atoms, in which blocks may be split in any way."""
    target = cost - split.constant
    best, best_problem = -np.inf, split.counts(0.0, rooms)
    trial = _TRIAL_STEPS * bound_work(best_problem)
    for part in _BALANCES:
        problem = split.counts(part * split.even_balance, rooms)
        least = spread_bound(problem, target, min(trial, work / (2 * len(_BALANCES))))
        if least > best:
            best, best_problem = least, problem
    best = max(best, spread_bound(best_problem, target, work / 2))
    best += split.constant - SAFETY * (abs(split.constant) + abs(best))
    return best * min(1.0, gathered.atom_grip)
