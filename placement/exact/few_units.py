"""Jobs of few units over the outermost domains: the best spread, proved best where that can be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..bounds.bound import SAFETY
from ..jobs.gather import Gathered
from ..jobs.index import Fabric, Ints
from ..loops.budget import Budget
from ..spread.counts import Counts
from ..spread.descent import Spread
from ..spread.room import Room
from ..spread.search import search
from ..spread.split_blocks import parts_of_blocks
from ..spread.split_counts import SplitCounts
from ..spread.split_search import filled_up, improved
from ..spread.structure import Chains
from .exact_counts import MOST_UNITS, best_spread

_SEARCH_SHARE = 0.04
_EXACT_SHARE, _PARTED_SHARE = 0.3, 0.15
"""Parts of the work for the bound; the smaller where one by parts of sets is to follow."""
MOST_PARTED_RANKS = 512
"""Ranks up to which it is, and up to which a job is placed in further ways: see `large_jobs`."""
_IMPROVE_SHARE = 0.1
_SPLIT_SHARE = 0.1
"""Part of the work for improving a spread of atoms, before the bound and again after it."""
_BALANCES = (0.0, 0.5, 1.0)
"""Parts of the even balance to try; see `chain_bound`."""
_ROUNDING = 1e-11
"""Relative allowance for rounding where sums are exact."""


def spread_of_few(
    fabric: Fabric,
    gathered: Gathered,
    chains: Chains,
    split: SplitCounts | None,
    room: Room,
    problem: Counts,
    starts: list[Ints],
    budget: Budget,
    seed: int,
) -> tuple[Spread, float] | None:
    """The cheapest spread over the outermost domains, and a bound on the bytes between them.

    problem: the job in whole blocks; split: in atoms, where the blocks are more than atoms. None
    where there are too many atoms, or some need a kind.
    """
    few = gathered.atoms.units <= MOST_UNITS and problem.kind_room.shape[1] == 0
    if not few or problem.domains < 2:
        return None
    outermost = room.inside[-1][0]
    free = np.bincount(fabric.slot_domain[-1], minlength=int(fabric.domain[-1].max()) + 1)
    atoms_free = free[outermost] // gathered.atom
    work = budget.time_limit_s
    parted = len(gathered.atom_of) <= MOST_PARTED_RANKS
    exact = work * (_PARTED_SHARE if parted else _EXACT_SHARE)
    cost, proved, best = np.inf, False, None
    whole = problem.domains == len(outermost)
    blocks = search(problem, starts, work * _SEARCH_SHARE, seed)
    budget.charge(work * _SEARCH_SHARE)
    if whole:
        best = best_spread(problem, blocks, exact)
        if best is not None:
            blocks = best.spread
            budget.charge(best.work)
            proved = best.bound >= problem.bytes_of(blocks) - SAFETY * abs(best.bound)
        if not proved:
            share = work * _IMPROVE_SHARE
            blocks = search(problem, [blocks, *starts], share, seed + 1, begun=True)
            budget.charge(share)
        cost = problem.bytes_of(blocks) + chains.constant
    none = [np.zeros((0, len(outermost)), dtype=np.int64)] * problem.classes
    spread = Spread(blocks, none)
    least = 0.0
    if gathered.bearable:
        rooms = atoms_free // gathered.block
        even = gathered.bearable == [(1.0, 1.0)]
        if best is not None and even and (rooms == problem.room).all():
            # The same problem, of which the same work would tell the same.
            least = _of_blocks(gathered, cost if proved else _safe(best.bound, chains.constant))
        else:
            least = _by_blocks(gathered, chains, problem, blocks, rooms, exact, budget)
    if split is None or cost <= least * (1 + SAFETY):
        return spread, least
    rooms = room.room[-1][outermost]
    plain = split.counts(0.0, rooms)

    def bytes_of(atoms: Ints) -> float:
        parts = parts_of_blocks(atoms, split.size)[1]
        return plain.bytes_of(atoms) + split.constant + split.mended(atoms, parts)

    found = filled_up(blocks[:, : len(outermost)], plain, gathered.block)
    found = improved(split, rooms, found, work * _SPLIT_SHARE, seed + 1)
    budget.charge(work * _SPLIT_SHARE)
    enough = min(cost, bytes_of(found))
    bound, cheap = _by_atoms(gathered, split, found, atoms_free, exact, enough, budget)
    least = max(least, bound)
    if (cheap.sum(axis=0) <= rooms).all():
        found = min(found, cheap, key=bytes_of)
    if bytes_of(found) > least * (1 + SAFETY):
        found = improved(split, rooms, found, work * _SPLIT_SHARE, seed + 2)
        budget.charge(work * _SPLIT_SHARE)
    if bytes_of(found) < cost * (1 - SAFETY):
        spread = Spread(*parts_of_blocks(found, split.size))
    return spread, least


def _by_blocks(
    gathered: Gathered,
    chains: Chains,
    problem: Counts,
    found: Ints,
    rooms: Ints,
    work: float,
    budget: Budget,
) -> float:
    """The bound of whole blocks, where they fit into the rooms that even split atoms leave."""
    if problem.domains != len(rooms) or not problem.fits(found):
        return 0.0
    loosest = replace(problem, room=rooms)
    least = 0.0
    for nets, links in gathered.bearable:
        lighter, constant = chains.weighed(loosest, nets, links)
        best = best_spread(lighter, found, work / len(gathered.bearable))
        if best is not None:
            budget.charge(best.work)
            least = max(least, _safe(best.bound, constant))
    return _of_blocks(gathered, least)


def _of_blocks(gathered: Gathered, least: float) -> float:
    """What no placement costs less than, if none of whole blocks costs less than `least`."""
    return gathered.floor(least * min(1.0, gathered.grip / min(1.0, gathered.atom_grip)))


def _by_atoms(
    gathered: Gathered,
    split: SplitCounts,
    found: Ints,
    rooms: Ints,
    work: float,
    known: float,
    budget: Budget,
) -> tuple[float, Ints]:
    """The bound of single atoms, in which blocks may be split in any way; and a spread of them.

    known: bytes of some placement.
    """
    least, cheap = 0.0, found
    enough = known - split.constant if gathered.atom_grip >= 1.0 else np.inf
    for part in _BALANCES:
        problem = split.counts(part * split.even_balance, rooms)
        if least >= known:
            break
        best = best_spread(problem, found, work / len(_BALANCES), enough)
        if best is None:
            continue
        budget.charge(best.work)
        if part == 0.0:
            cheap = best.spread
        least = max(least, _safe(best.bound, split.constant))
    return gathered.floor(least), cheap


def _safe(bound: float, constant: float) -> float:
    return bound + constant - _ROUNDING * (abs(bound) + abs(constant))
