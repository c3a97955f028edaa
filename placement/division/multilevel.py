"""Dividing a problem by way of coarser ones."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from ..loops.chance import State
from .coarsen import coarser
from .grow import best_grown
from .local import Local
from .refine import refined

ENTRIES_PER_WORK = 40_000_000
"""Entries of a problem contracted that count as one unit of work."""
_FEW_UNITS = 60
_UNITS_PER_DOMAIN = 6
"""A problem is coarse enough with so many units, or so many a domain."""
_GROWTHS = 6


def multilevel(local: Local, label: Ints, start: Ints | None, state: State) -> tuple[Ints, float]:
    """A division by way of coarser problems; units of different labels are not joined."""
    done = 0.0
    levels: list[tuple[Local, Ints]] = []
    now = local
    enough = enough_units(local)
    total = int(local.size.sum())
    most = max(1, min(int(1.5 * total / enough), int(local.room.max()) // 4))
    while len(now.size) > enough:
        done += now.entries / ENTRIES_PER_WORK
        found = coarser(now, label, most, state)
        if found is None:
            break
        smaller, to = found
        levels.append((now, to))
        first = np.zeros(len(smaller.size), dtype=np.int64)
        first[to] = label
        label = first
        if start is not None:
            at = np.zeros(len(smaller.size), dtype=np.int64)
            at[to] = start
            start = at
        now = smaller
    if start is None:
        where, spent = best_grown(now, _GROWTHS, state)
    else:
        where, spent = refined(now, start)
    done += spent
    for finer, to in reversed(levels):
        where, spent = refined(finer, where[to])
        done += spent
    return where, done


def enough_units(local: Local) -> int:
    """Units that make a problem coarse enough to be divided at once."""
    return max(_FEW_UNITS, _UNITS_PER_DOMAIN * int((local.room > 0).sum()))
