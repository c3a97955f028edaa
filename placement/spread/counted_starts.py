"""Starts for dividing jobs that are no grid: from the counts of the chains that they nearly are."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from ..jobs.units import UnitGraph
from .loose_chains import loose_chains
from .room import Room
from .search import search
from .starts import starts_of
from .structure import Chains
from .structured import counts_in

_SPREADS = 2
"""Searches of counts with seeds of their own, each of which gives a start."""
_WORK = 0.03
"""Part of the work for each of them."""


def counted_starts(
    graph: UnitGraph, room: Room, level: int, domains: Ints, work: float, seed: int
) -> tuple[list[Ints], float]:
    """Indices into `domains` for every unit, some good divisions, and the work done.

    None where the units make no chains.
    """
    chains = loose_chains(graph)
    if chains is None:
        return [], 0.0
    problem = counts_in(chains, chains.height, room, level, domains, 1)
    simple = [start for start in starts_of(problem) if problem.fits(start)]
    found = [
        search(problem, simple, work * _WORK, seed * _SPREADS + number)
        for number in range(_SPREADS)
    ]
    return [_seated(graph, chains, spread) for spread in found], _SPREADS * _WORK * work


def _seated(graph: UnitGraph, chains: Chains, spread: Ints) -> Ints:
    """The domain of each unit when the domains hold as many of each class as `spread` says.

    Class by class, the units with most bytes to those already in a domain go there first.
    """
    classes, domains = spread.shape
    where = np.full(graph.units, -1, dtype=np.int64)
    ends = np.concatenate([graph.link, graph.link[::-1]], axis=1)
    weight = np.tile(graph.link_weight, 2)
    place = np.full(graph.units, -1, dtype=np.int64)
    for p in range(classes):
        members = chains.members[p]
        place[members] = np.arange(len(members))
        known = (place[ends[0]] >= 0) & (where[ends[1]] >= 0)
        tie = np.zeros((len(members), domains))
        np.add.at(tie, (place[ends[0][known]], where[ends[1][known]]), weight[known])
        place[members] = -1
        left = spread[p].copy()
        for code in np.argsort(-tie, axis=None, kind="stable").tolist():
            unit, domain = divmod(code, domains)
            if left[domain] > 0 and where[members[unit]] < 0:
                where[members[unit]] = domain
                left[domain] -= 1
    return where
