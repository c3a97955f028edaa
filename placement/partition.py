"""Dividing units among domains by levels of coarser problems, and improving by more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .coarsen import coarser
from .grow import grown
from .index import Ints
from .local import Local
from .polish import MOVES_PER_WORK, polished
from .refine import refined

ENTRIES_PER_WORK = 6_000_000
"""Entries of a problem regrouped that count as one unit of work."""
_FEW_UNITS = 60
_UNITS_PER_DOMAIN = 6
"""A problem is coarse enough with so many units, or so many a domain."""
_LINKED_MEMBERS = 256
_MOST_LINKS = 400_000
_POOL = 8
_FRESH_SHARE = 0.4
_PATIENCE = 150
_GROWTHS = 6
_HEAT = 0.3
_WALK_SHARE = 0.1
"""Part of the work that is left for a walk at the end."""


@dataclass
class Divided:
    """A division of the units, and what it costs up to a constant."""

    where: Ints
    cost: float


def partitioned(local: Local, starts: list[Ints], work: float, seed: int) -> tuple[Ints, float]:
    """The best division found with about so much work, and the work done.

    starts: divisions that fit; the result costs no more than any of them.

    Multilevel: units are joined to ever larger ones, the smallest problem is divided in several
    ways, and each division is refined on the way back. From a pool of divisions two are combined:
    units that they agree on may be joined, others not, so that the better one of them is kept at
    every level and refined there (Sanders, Schulz: Distributed Evolutionary Graph Partitioning,
    ALENEX 2012).
    """
    as_given = local
    local = local.pairs_as_links(_LINKED_MEMBERS, _MOST_LINKS)
    done = local.entries / ENTRIES_PER_WORK
    pool: list[Divided] = []
    for start in sorted(starts, key=local.bytes_of)[:2]:
        where, spent = refined(local, start)
        done += spent
        pool.append(Divided(where, local.bytes_of(where)))
    pool.sort(key=_cost)
    if len(local.room) < 2 or len(local.size) < 2:
        return pool[0].where, done
    chance = np.random.default_rng(seed)
    whole = np.zeros(len(local.size), dtype=np.int64)
    runs, stale, dearest = 0, 0, 2 * done
    while done + dearest < (1 - _WALK_SHARE) * work and stale < _PATIENCE:
        if done > _FRESH_SHARE * work and len(pool) > 1:
            one, other = (pool[i] for i in np.sort(chance.permutation(len(pool))[:2]))
            label = one.where * len(local.room) + other.where
            start = _exchanged(local, one.where, chance)
            where, spent = _multilevel(local, label, start, seed + runs, chance)
        else:
            some = _narrowed(local, runs, chance)
            where, spent = _multilevel(some, whole, None, seed + runs, chance)
            where, more = refined(local, where)
            spent += more
        runs += 1
        done += spent
        dearest = max(dearest, spent)
        stale += 1
        if local.fits(where):
            found = Divided(where, local.bytes_of(where))
            if found.cost < pool[0].cost - 1e-9 * abs(pool[0].cost):
                stale = 0
            _admit(pool, found)
    moves = int(max(0.0, work - done) * MOVES_PER_WORK) if stale < _PATIENCE else 0
    done += moves / MOVES_PER_WORK
    # A walk that exchanges units finds what moves one by one do not where domains are full.
    return polished(as_given, pool[0].where, moves, seed, _HEAT), done


def _narrowed(local: Local, number: int, chance: np.random.Generator) -> Local:
    """The problem with the fewest domains, one more than these, some, or all, turn by turn."""
    turn = number % 4
    if turn == 3:
        return local
    needed = int(local.size.sum())
    order = np.argsort(-local.room, kind="stable")
    if turn == 2:
        order = chance.permutation(order)
    enough = 1 + int(np.searchsorted(np.cumsum(local.room[order]), needed))
    kept = np.zeros(len(local.room), dtype=bool)
    kept[order[: enough + turn % 2]] = True
    kind_room = np.where(kept[:, None], local.kind_room, 0)
    for k in range(kind_room.shape[1]):
        if kind_room[:, k].sum() < local.size[local.kind == k].sum():
            return local
    return replace(local, room=np.where(kept, local.room, 0), kind_room=kind_room)


def _admit(pool: list[Divided], found: Divided) -> None:
    """Add a division to a pool unless it is there already or worse than all of a full one."""
    slack = 1e-9 * abs(found.cost)
    if any(abs(found.cost - other.cost) <= slack for other in pool):
        return
    pool.append(found)
    pool.sort(key=_cost)
    del pool[_POOL:]


def _exchanged(local: Local, where: Ints, chance: np.random.Generator) -> Ints:
    """The same division with the contents of some domains exchanged, which costs nothing itself.

    A set that is held small by its domain may then grow, and one that left room no longer does.
    """
    domains = len(local.room)
    to = np.arange(domains)
    for _ in range(int(chance.integers(0, 1 + domains // 2))):
        a, b = chance.integers(0, domains, 2).tolist()
        other = to.copy()
        other[to == a], other[to == b] = b, a
        if local.fits(other[where]):
            to = other
    return to[where]


def _cost(divided: Divided) -> float:
    return divided.cost


def _multilevel(
    local: Local, label: Ints, start: Ints | None, seed: int, chance: np.random.Generator
) -> tuple[Ints, float]:
    """A division by way of coarser problems; units of different labels are not joined."""
    done = 0.0
    levels: list[tuple[Local, Ints]] = []
    now = local
    enough = max(_FEW_UNITS, _UNITS_PER_DOMAIN * int((local.room > 0).sum()))
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
        key = (not local.fits(where), local.bytes_of(where), where)
        if best is None or key[:2] < best[:2]:
            best = key
    assert best is not None
    return best[2], done
