"""Dividing units among domains by levels of coarser problems, and improving by more of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..jobs.index import Ints
from ..loops.chance import seeded
from .evolving import Evolving
from .local import Local
from .refine import refined
from .unit_walk import MOVES_PER_WORK, SAME, walked

_LINKED_MEMBERS = 256
_MOST_LINKS = 400_000
_HEAVIEST_LINKS = 100
"""Links of each unit that stand for all of them where there are many more, but at the end."""
_HEATS = (0.03, 0.06)
"""Heats of the walks at the end, thread by thread."""
_APART_SHARE = 0.8
"""Part of the work that threads do apart, before each goes on from the best of all."""
_LEAST_FOR_THREADS = 0.05

Item = TypeVar("Item")
Found = TypeVar("Found")


def partitioned(
    local: Local, starts: list[Ints], work: float, seed: int, threads: int = 1
) -> tuple[Ints, float]:
    """The best division found with about so much work in each thread, and the work done in one.

    As `best_partitions`, but one of them.
    """
    found, done = best_partitions(local, starts, work, seed, threads)
    return found[0], done


def best_partitions(
    local: Local, starts: list[Ints], work: float, seed: int, threads: int = 1
) -> tuple[list[Ints], float]:
    """Divisions of equal cost, the best found, and the work done in one thread of about `work`.

    starts: divisions that fit; the result costs no more than any of them. Divisions differ in more
    than the names of the domains.

    Multilevel: units are joined to ever larger ones, the smallest problem is divided in several
    ways, and each division is refined on the way back. From a pool of divisions two are combined:
    units that they agree on may be joined, others not, so that the better one of them is kept at
    every level and refined there (Sanders, Schulz: Distributed Evolutionary Graph Partitioning,
    ALENEX 2012). Between combinations divisions are walked on by units and by whole nets, and
    divided anew in some domains; what gains more gets more of the work. A pool in which nothing
    better is found is replaced by a new one; the best of several pools make a pool of their own.
    """
    linked = local.pairs_as_links(_LINKED_MEMBERS, _MOST_LINKS)
    light = linked.heaviest_links(_HEAVIEST_LINKS)
    threads = threads if work > _LEAST_FOR_THREADS else 1
    every = [Evolving(light, starts, seed * threads + t) for t in range(threads)]
    first = every[0]
    if len(local.room) < 2 or len(local.size) < 2:
        return [min([first.best.where, *starts], key=local.bytes_of)], first.done
    if threads == 1:
        first.evolve(work)
    else:
        _at_once(lambda one: one.evolve(_APART_SHARE * work), every)
        met = [one.met() for one in every]
        _at_once(lambda one: one.go_on_from(met, work), every)
        first.hear([one.met() for one in every[1:]])
    best, done = first.best.where, first.done
    if light is not linked:
        known = [divided.where for divided in first.elites]
        best, spent = refined(linked, min([*known, *starts], key=linked.bytes_of))
        done += spent
    moves = int(max(0.0, work - done) * MOVES_PER_WORK) if not first.exhausted else 0
    done += moves / MOVES_PER_WORK
    # A walk that exchanges units finds what moves one by one do not where domains are full.
    ends = _at_once(
        lambda heat: walked(linked, best, moves, heat, seeded(seed))[0], _HEATS[:threads]
    )
    end = min(ends, key=local.bytes_of)
    if light is not linked or _cheaper(local, end, best):
        return [end], done
    return first.alike, done


def _cheaper(local: Local, one: Ints, other: Ints) -> bool:
    cost = local.bytes_of(other)
    return local.bytes_of(one) < cost - SAME * abs(cost)


def _at_once(do: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    """What `do` makes of each item, in a thread for each; in this one where there is one."""
    if len(items) == 1:
        return [do(items[0])]
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(do, items))
