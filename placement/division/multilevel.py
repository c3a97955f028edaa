"""Dividing a problem by way of coarser ones."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from .coarsen import coarser
from .contract_local import crossing_bytes
from .grow import grown
from .local import Local
from .refine import refined

ENTRIES_PER_WORK = 40_000_000
"""Entries of a problem contracted that count as one unit of work."""
_FEW_UNITS = 60
_UNITS_PER_DOMAIN = 6
"""A problem is coarse enough with so many units, or so many a domain."""
_GROWTHS = 6


def multilevel(
    local: Local, label: Ints, start: Ints | None, seed: int, chance: np.random.Generator
) -> tuple[Ints, float]:
    """A division by way of coarser problems; units of different labels are not joined."""
    done = 0.0
    levels: list[tuple[Local, Ints]] = []
    now = local
    enough = enough_units(local)
    total = int(local.size.sum())
    most = max(1, min(int(1.5 * total / enough), int(local.room.max()) // 4))
    while len(now.size) > enough:
        done += now.entries / ENTRIES_PER_WORK
        found = coarser(now, label, most, seed + len(levels))
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
        where, spent = _first(now, chance)
    else:
        where, spent = refined(now, start)
    done += spent
    for finer, to in reversed(levels):
        where, spent = refined(finer, where[to])
        done += spent
    return where, done


def _first(local: Local, chance: np.random.Generator) -> tuple[Ints, float]:
    """The best of several divisions of a small problem, refined."""
    best: tuple[bool, float, Ints] | None = None
    done = 0.0
    for number in range(_GROWTHS):
        where, spent = grown(local, number, chance)
        done += spent
        where, spent = refined(local, where)
        done += spent
        key = (not local.fits(where), crossing_bytes(local, where), where)
        if best is None or key[:2] < best[:2]:
            best = key
    assert best is not None
    return best[2], done


def enough_units(local: Local) -> int:
    """Units that make a problem coarse enough to be divided at once."""
    return max(_FEW_UNITS, _UNITS_PER_DOMAIN * int((local.room > 0).sum()))
