"""Searching for divisions by combining those that were found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..jobs.index import Ints
from ..loops.chance import seeded
from .contract_local import crossing_bytes, fitting_bytes
from .local import Local
from .multilevel import ENTRIES_PER_WORK, enough_units, multilevel
from .pieces import heaviest_nets, moved_in_pieces
from .refine import refined
from .shares import Shares
from .some_domains import tied_domains, within_domains
from .unit_walk import walked

_POOL = 12
_FRESH, _FRESH_OF_FEW = 24, 8
"""New divisions with which a pool begins, and of few units, for which most are the same."""
_FRESH_SHARE = 0.08
"""Part of the work after which a full pool begins with fewer new divisions."""
_STALE, _STALE_AT_LEAST = 100, 20
"""Combinations without a better division after which a pool is given up for a new one, at most; for
few units so many and one for every other unit."""
_STALE_POOLS = 6
"""Pools without a better division after which the search ends, if not all work is used."""
_ELITES = 3
"""Divisions of each pool that go into the pool of the best, which comes after every third."""
_ALIKE = 6
"""Divisions of equal cost that are kept."""
_MOST_FLAT_UNITS = 2000
"""Units up to which starts are refined as they are."""
_SHUFFLED = (0.3, 0.5, 1.0)
"""Parts of the units that change places at random where divisions cannot be combined."""
_HEATS, _WALKS = (0.03, 0.06, 0.1, 0.2, 0.3), (30, 100, 300)
"""First temperatures of walks between, and their moves for each unit."""
_WALK_SHARE = 0.06
"""Part of the work that is left for a walk at the end."""


@dataclass
class Divided:
    """A division of the units, and what it costs up to a constant."""

    where: Ints
    cost: float


Way = Callable[[list[Divided]], None]
"""Finds a division by way of those of a pool, and admits it."""


@dataclass(frozen=True)
class Met:
    """The best divisions that a search has met, others of equal cost, and the work it did."""

    elites: list[Divided]
    alike: list[Ints]
    done: float
    dearest: float


class Evolving:
    """Pools of divisions of one problem, and the work done on them."""

    def __init__(self, local: Local, starts: list[Ints], seed: int) -> None:
        self._local, self._seed = local, seed
        self._chance = np.random.default_rng(seed)
        self._state = seeded(seed)
        self._runs = 0
        self._net = heaviest_nets(local)
        self._coarsens = len(local.size) > enough_units(local)
        self._ways = self._all_ways()
        self._shares = Shares(len(self._ways))
        self.done = local.entries / ENTRIES_PER_WORK
        self.exhausted = False
        self.elites: list[Divided] = []
        self.alike: list[Ints] = []
        self._least = np.inf
        for start in sorted(starts, key=local.bytes_of)[:_ELITES]:
            # Single moves get nowhere from a poor start where there are many units.
            flat = len(local.size) <= _MOST_FLAT_UNITS
            where, spent = refined(local, start) if flat else (start, 0.0)
            self.done += spent
            self._admit(self.elites, where)
        self._dearest = 2 * self.done

    @property
    def best(self) -> Divided:
        """The cheapest division met."""
        return self.elites[0]

    def evolve(self, work: float) -> None:
        """Make and combine divisions until about so much work is done, one at least."""
        if self._over(work) and len(self._local.size) > _MOST_FLAT_UNITS:
            self._fresh(self.elites)
        stale, pools = 0, 0
        while not self._over(work) and not self.exhausted:
            before = self.best.cost
            pool: list[Divided] = list(self.elites) if pools % 4 == 3 else []
            if not pool:
                self._fill(pool, work)
            self._combine(pool, work)
            for divided in pool[:_ELITES]:
                self._admit(self.elites, divided.where)
            pools += 1
            better = self.best.cost < before - 1e-9 * abs(before)
            stale = 0 if better else stale + 1
            self.exhausted = stale >= _STALE_POOLS

    def met(self) -> Met:
        """What this search can tell others."""
        return Met(list(self.elites), list(self.alike), self.done, self._dearest)

    def hear(self, others: list[Met]) -> None:
        """Learn what other searches have met; work done beside this one's counts once."""
        for other in others:
            self.done = max(self.done, other.done)
            self._dearest = max(self._dearest, other.dearest)
            for divided in other.elites:
                self._admit(self.elites, divided.where)
            for where in other.alike:
                self._note(where, crossing_bytes(self._local, where))

    def go_on_from(self, others: list[Met], work: float) -> None:
        """Combine the best of this search and of others until so much work is done."""
        self.hear(others)
        self._combine(self.elites, work)
        self.exhausted = False

    def _over(self, work: float) -> bool:
        return self.done + self._dearest > (1 - _WALK_SHARE) * work

    def _fill(self, pool: list[Divided], work: float) -> None:
        """Fill a pool with new divisions."""
        enough = self.done + _FRESH_SHARE * work
        for made in range(_FRESH if self._coarsens else _FRESH_OF_FEW):
            if self._over(work) or (made >= _POOL and self.done > enough):
                break
            self._fresh(pool)

    def _fresh(self, pool: list[Divided]) -> None:
        some = _narrowed(self._local, self._runs, self._chance)
        whole = np.zeros(len(self._local.size), dtype=np.int64)
        where, spent = self._multilevel(some, whole, None)
        where, more = refined(self._local, where)
        self._count(spent + more)
        self._admit(pool, where)
        if self._net is not None and self._local.fits(where):
            self._moved_in_pieces(pool, where, self._net)

    def _combine(self, pool: list[Divided], work: float) -> None:
        """Combine divisions of a pool and change them, in the ways that have gained most."""
        stale, most = 0, min(_STALE, _STALE_AT_LEAST + len(self._local.size) // 2)
        while pool and stale < most and not self._over(work):
            way = self._shares.next()
            before, total, done = pool[0].cost, _total(pool), self.done
            full = len(pool) == _POOL
            self._ways[way](pool)
            gained = max(0.0, total - _total(pool)) if full else 0.0
            self._shares.done(way, self.done - done, gained)
            stale = 0 if pool[0].cost < before else stale + 1

    def _all_ways(self) -> list[Way]:
        """Ways to find better divisions than those of a pool that suit the problem."""
        ways: list[Way] = [self._combined, self._again, self._walked]
        if not self._coarsens:
            # Few units are soon settled by any walk, so that only other starts help.
            ways = [self._shuffled]
        return ways if self._net is None else [*ways, self._in_pieces]

    def _walked(self, pool: list[Divided]) -> None:
        """Admit what a walk over single units, not too hot, makes of a division."""
        heat = float(self._chance.choice(_HEATS))
        moves = int(self._chance.choice(_WALKS)) * len(self._local.size)
        where, spent = walked(self._local, self._any(pool), moves, heat, self._state)
        where, more = refined(self._local, where)
        self._count(spent + more)
        self._admit(pool, where)

    def _in_pieces(self, pool: list[Divided]) -> None:
        """Admit what a walk in pieces makes of a division."""
        if self._net is not None:
            self._moved_in_pieces(pool, self._any(pool), self._net)

    def _moved_in_pieces(self, pool: list[Divided], where: Ints, net: Ints) -> None:
        self._runs += 1
        seed = self._seed + self._runs
        moved, spent = moved_in_pieces(self._local, where, net, seed, self._chance)
        found, more = self._multilevel(self._local, moved, moved)
        self._count(self._local.entries / ENTRIES_PER_WORK + spent + more)
        self._admit(pool, found)

    def _shuffled(self, pool: list[Divided]) -> None:
        """Admit what becomes of a division some of whose units changed places at random.

        From few units new divisions are nearly always the same, and combining them changes nothing.
        """
        local, chance = self._local, self._chance
        where = self._any(pool).copy()
        some = chance.random(len(where)) < chance.choice(_SHUFFLED)
        for kind in np.unique(local.kind):
            units = np.flatnonzero(some & (local.kind == kind))
            where[units] = where[chance.permutation(units)]
        where, spent = refined(local, where)
        self._count(spent)
        self._admit(pool, where)

    def _again(self, pool: list[Divided]) -> None:
        """Admit what becomes of a division when what some domains hold is divided anew."""
        local = self._local
        where = self._any(pool)
        domains = tied_domains(local, where, self._chance)
        part, units = within_domains(local, where, domains)
        before = np.searchsorted(domains, where[units])
        whole = np.zeros(len(units), dtype=np.int64)
        found, spent = self._multilevel(part, whole, None)
        self._count(local.entries / ENTRIES_PER_WORK + spent)
        if fitting_bytes(part, found) >= crossing_bytes(part, before):
            return
        where = where.copy()
        where[units] = domains[found]
        where, spent = refined(local, where)
        self._count(spent)
        self._admit(pool, where)

    def _combined(self, pool: list[Divided]) -> None:
        if len(pool) < 2:
            self._shuffled(pool)
            return
        one, other = (pool[i] for i in np.sort(self._chance.permutation(len(pool))[:2]))
        label = one.where * len(self._local.room) + other.where
        start = _exchanged(self._local, one.where, self._chance)
        where, spent = self._multilevel(self._local, label, start)
        self._count(spent)
        self._admit(pool, where)

    def _any(self, pool: list[Divided]) -> Ints:
        return pool[int(self._chance.integers(0, len(pool)))].where

    def _multilevel(self, local: Local, label: Ints, start: Ints | None) -> tuple[Ints, float]:
        return multilevel(local, label, start, self._state)

    def _count(self, spent: float) -> None:
        self.done += spent
        self._dearest = max(self._dearest, spent)

    def _admit(self, pool: list[Divided], where: Ints) -> None:
        """Add a division to a pool unless it is there already or worse than all of a full one."""
        cost = fitting_bytes(self._local, where)
        if np.isinf(cost):
            return
        found = Divided(where, cost)
        self._note(where, found.cost)
        slack = 1e-9 * abs(found.cost)
        if any(abs(found.cost - other.cost) <= slack for other in pool):
            return
        pool.append(found)
        pool.sort(key=_cost)
        del pool[_POOL:]

    def _note(self, where: Ints, cost: float) -> None:
        """Keep a division if it is as good as the best, and no other is the same but for names."""
        slack = 1e-9 * abs(cost)
        if not self.alike or cost < self._least - slack:
            self.alike, self._least = [], cost
        if cost <= self._least + slack and len(self.alike) < _ALIKE:
            form = _nameless(where)
            if not any(np.array_equal(form, _nameless(other)) for other in self.alike):
                self.alike.append(where)


def _nameless(where: Ints) -> Ints:
    """A division with its domains numbered in the order in which units name them."""
    _, first, name = np.unique(where, return_index=True, return_inverse=True)
    rank: Ints = np.argsort(np.argsort(first))
    return rank[name]


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
    return local._replace(room=np.where(kept, local.room, 0), kind_room=kind_room)


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


def _total(pool: list[Divided]) -> float:
    return sum(divided.cost for divided in pool)


def _cost(divided: Divided) -> float:
    return divided.cost
