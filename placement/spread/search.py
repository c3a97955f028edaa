"""Searching spreads: short walks from several starts, exact sharing by pairs, then kicks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from ..jobs.index import Floats, Ints
from .anneal import Walked, moves_for, walk, work_of
from .class_pairs import ROW_CELLS_PER_WORK, share_classes
from .coarse_counts import coarsened, coarsest, refined
from .counts import Counts
from .pairing import CELLS_PER_WORK, pair_cells, share_all
from .starts import starts_of

THREADS = 2
_FIRST_MOVES = 200_000
_FIRST_HEATS = (1.5, 0.6)
_FRESH_STARTS = 6
"""Fresh starts of which the best is gone on with."""
_KICK_MOVES = (3_000, 10_000)
_KICK_HEATS = (0.1, 0.5)
_KICK_WIDTHS = (3, 4, 6, 8, 10, 12)
"""Domains that a kick moves units among."""
_KICKS_NEARBY = 0.7
"""Part of the kicks among domains that hold the same classes as one of them."""
_FAR_SHARE = 0.01
"""What a domain counts that shares no class with the first, to one for each class shared."""
_WORSE = 0.1
"""Temperature at which kicks that lose are kept, at first, in dearest single steps."""
_SWEEPS = 20
_STALE_KICKS_A_DOMAIN = 12
"""Kicks without a better spread, for each domain, after which a search starts afresh."""
_MOST_PAIR_CELLS = 6_000_000
_SHARING_PART = 0.25
"""Part of the work left that sharing by pairs may take at once."""
_MOST_CLASSES = 64
"""Classes, drawn anew each time, that share by pairs at once."""
_COARSE_SHARE = 0.3
_SLACK = 1e-9
"""Costs that differ by less, in dearest single steps, are equal."""
_ROUND_WORK = 1e-4
"""Work of one kick besides its loops."""


@dataclass(frozen=True)
class _Scaled:
    """A problem with its costs divided by its dearest single step."""

    problem: Counts
    cost: Floats
    link: Floats


def seed_of(chance: np.random.Generator) -> int:
    """A seed for a compiled loop."""
    return int(chance.integers(2**40))


def search(
    problem: Counts,
    starts: Sequence[Ints],
    work: float,
    seed: int,
    enough: float = -np.inf,
    threads: int = THREADS,
    begun: bool = False,
) -> Ints:
    """The cheapest spread found, never dearer than any of the starts.

    work: units of work for each thread. enough: a cost at which to stop, such as a bound.
    begun: the first start is what a search found, from which one thread goes on.
    """
    best = min(starts, key=problem.bytes_of)
    step = float(
        max(
            np.abs(np.diff(problem.cost, axis=1)).max(initial=0.0),
            np.abs(problem.link).max(initial=0.0),
        )
    )
    if step == 0.0 or problem.domains < 2 or problem.bytes_of(best) <= enough:
        return best
    scaled = _Scaled(problem, problem.cost / step, problem.link / step)

    def run(thread: int) -> Ints:
        searching = _Searching(scaled, work, seed * THREADS + thread, enough / step)
        if begun and thread == 0:
            return searching.gone_on_from(starts[0], starts)
        return searching.best_of(starts)

    if threads == 1:
        found = [run(0)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(run, range(threads)))
    return min([best, *found], key=problem.bytes_of)


class _Searching:
    """One thread's search: what it knows of the problem, and the work it has left."""

    def __init__(self, scaled: _Scaled, work: float, seed: int, enough: float) -> None:
        self._scaled = scaled
        self._problem = scaled.problem
        self._work, self._done = work, 0.0
        self._seed, self._enough = seed, enough
        self._chance = np.random.default_rng(seed)
        self._domains = np.arange(self._problem.domains)
        self._sharing = self._problem.kind_room.shape[1] == 0
        self._stale_kicks = _STALE_KICKS_A_DOMAIN * self._problem.domains

    def gone_on_from(self, found: Ints, starts: Sequence[Ints]) -> Ints:
        """The cheapest spread met in kicks from a good one, and then from the starts."""
        scaled = self._scaled
        cost = replace(scaled.problem, cost=scaled.cost, link=scaled.link).bytes_of(found)
        found, _ = self._kicked(found, cost)
        return min([found, self.best_of(starts)], key=self._problem.bytes_of)

    def best_of(self, starts: Sequence[Ints]) -> Ints:
        """The cheapest spread found from the starts."""
        if self._done >= self._work:
            return starts[0]
        starts = [*self._coarse_starts(starts), *starts]
        best, best_cost = starts[0], np.inf
        fresh = 0
        while self._done < self._work and best_cost > self._enough:
            now, cost = self._fresh(starts, fresh)
            fresh += 1
            while fresh < _FRESH_STARTS and self._done < self._work:
                other, other_cost = self._fresh(starts, fresh)
                fresh += 1
                if other_cost < cost:
                    now, cost = other, other_cost
            now, cost = self._kicked(now, cost)
            if cost < best_cost:
                best, best_cost = now, cost
        return best

    def _coarse_starts(self, starts: Sequence[Ints]) -> list[Ints]:
        step = coarsest(self._problem)
        if step == 1:
            return []
        coarse = coarsened(self._problem, step)
        work = self._work * _COARSE_SHARE
        self._done += work
        simple = [start for start in starts_of(coarse) if coarse.fits(start)]
        found = search(coarse, simple, work, self._seed, threads=1)
        return [refined(self._problem, found, step)]

    def _fresh(self, starts: Sequence[Ints], number: int) -> tuple[Ints, float]:
        """A start after a long walk among all domains and sharing by all pairs."""
        moves = max(2_000, moves_for(self._problem, (self._work - self._done) / 10))
        start = starts[(number + self._seed) % len(starts)]
        heat = _FIRST_HEATS[number % len(_FIRST_HEATS)]
        walked = self._walked(start, self._domains, min(_FIRST_MOVES, moves), heat)
        spread, cost = walked.best, walked.best_cost
        cost += self._share_classes(spread, _SWEEPS)
        cost += self._share_domains(spread, self._domains, self._domains, _SWEEPS)
        return spread, cost + self._share_classes(spread, _SWEEPS)

    def _kicked(self, now: Ints, cost: float) -> tuple[Ints, float]:
        """The best spread met in kicks from `now`, each followed by sharing.

        Kicks that lose a little are kept, less and less as the work is done.
        """
        best, best_cost, stale = now, cost, 0
        chance = self._chance
        while self._done < self._work and best_cost > self._enough and stale < self._stale_kicks:
            where = self._kicked_domains(now)
            moves = min(int(chance.choice(_KICK_MOVES)), moves_for(self._problem, self._work))
            walked = self._walked(now, where, moves, float(chance.choice(_KICK_HEATS)))
            self._done += _ROUND_WORK
            spread, found = walked.last, walked.last_cost
            found += self._share_classes(spread, 1)
            if found < cost - _SLACK:
                found += self._share_domains(spread, self._domains, where, _SWEEPS)
                found += self._share_classes(spread, _SWEEPS)
            warmth = _WORSE * max(1e-9, 1 - self._done / self._work)
            if found <= cost + _SLACK or chance.random() < np.exp((cost - found) / warmth):
                now, cost = spread, found
            stale += 1
            if cost < best_cost - _SLACK:
                best, best_cost, stale = now.copy(), cost, 0
        return best, best_cost

    def _kicked_domains(self, now: Ints) -> Ints:
        """Some domains, mostly such as hold the same classes as one of them, or the next."""
        chance = self._chance
        width = min(len(self._domains), int(chance.choice(_KICK_WIDTHS)))
        if chance.random() >= _KICKS_NEARBY:
            return chance.choice(self._domains, width, False)
        near = now > 0
        near[1:] |= now[:-1] > 0
        near[:-1] |= now[1:] > 0
        first = int(chance.choice(self._domains))
        shared = (near[:, [first]] & near).sum(axis=0)
        drawn = (shared + _FAR_SHARE) * chance.random(len(shared))
        drawn[first] = np.inf
        return np.argsort(-drawn, kind="stable")[:width]

    def _walked(self, start: Ints, where: Ints, moves: int, heat: float) -> Walked:
        self._done += work_of(self._problem, moves)
        scaled = self._scaled
        seed = seed_of(self._chance)
        return walk(self._problem, scaled.cost, scaled.link, start, where, moves, seed, heat)

    def _allowed(self, cells_per_work: int) -> int:
        return int(max(0.0, self._work - self._done) * _SHARING_PART * cells_per_work)

    def _share_classes(self, spread: Ints, sweeps: int) -> float:
        """Let classes (some, where they are many) share by pairs; returns the change of cost."""
        if not self._sharing:
            return 0.0
        classes = self._problem.classes + 1
        gain, cells = share_classes(
            spread,
            self._scaled.cost,
            self._scaled.link,
            self._problem.room,
            self._chance.permutation(classes)[:_MOST_CLASSES],
            np.ones(classes, dtype=np.int64),
            sweeps,
            self._allowed(ROW_CELLS_PER_WORK),
        )
        self._done += cells / ROW_CELLS_PER_WORK
        return gain

    def _share_domains(self, spread: Ints, order: Ints, changed: Ints, sweeps: int) -> float:
        """Let domains share by pairs, one of each in `changed`; returns the change of cost."""
        if not self._sharing or pair_cells(self._problem) > _MOST_PAIR_CELLS:
            return 0.0
        mark = np.zeros(len(self._domains), dtype=np.int64)
        mark[changed] = 1
        gain, cells = share_all(
            spread,
            self._scaled.cost,
            self._scaled.link,
            self._problem.room,
            self._chance.permutation(order),
            mark,
            sweeps,
            self._allowed(CELLS_PER_WORK),
        )
        self._done += cells / CELLS_PER_WORK
        return gain
