"""From counts of classes to units: which of them go where, so that few bytes cross."""

from __future__ import annotations

import numpy as np

from ..division.local import Local
from ..division.polish import MOVES_PER_WORK, polished
from ..jobs.index import Ints
from ..jobs.units import UnitGraph

_MOVES = 1500
"""Moves a unit of the walks that follow."""
_HEATS = (0.1, 1.0)


def seating_work(graph: UnitGraph) -> float:
    """Work of `seated`."""
    return len(_HEATS) * _MOVES * graph.units / MOVES_PER_WORK


def seated(graph: UnitGraph, row: Ints, spread: Ints, rooms: Ints, before: Ints, seed: int) -> Ints:
    """The domain of each unit, near a spread `[class, domain]`, or `before` if that is as cheap.

    row: the class of each unit. Units of a class go to the domains one after another as they are
    numbered, which keeps neighbours together; walks of single units and exchanges follow.
    """
    where = np.empty(graph.units, dtype=np.int64)
    domains = np.argsort(-spread.sum(axis=0), kind="stable")
    for p, counts in enumerate(spread):
        where[np.flatnonzero(row == p)] = np.repeat(domains, counts[domains])
    local = Local.of(
        graph, np.arange(graph.units), rooms, np.zeros((len(rooms), 0), dtype=np.int64)
    )
    moves = _MOVES * graph.units
    tried = [before, where, *(polished(local, where, moves, seed, heat) for heat in _HEATS)]
    return min(tried, key=local.bytes_of)
