"""Searching spreads: short walks from several starts, exact sharing by pairs, then kicks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .anneal import moves_for, walk, work_of
from .counts import Counts
from .index import Floats, Ints
from .pairing import CELLS_PER_WORK, pair_cells, share_all

THREADS = 2
_FIRST_MOVES = 200_000
_KICK_MOVES = 10_000
_KICK_HEATS = (0.3, 1.0, 3.0)
_SWEEPS = 20
_STALE_KICKS = 300
_MOST_PAIR_CELLS = 6_000_000
_ROUND_WORK = 2e-4
"""Work of one round besides its loops."""


@dataclass(frozen=True)
class _Scaled:
    """A problem with its costs divided by its dearest single step."""

    problem: Counts
    cost: Floats
    link: Floats


def _cells_for(work: float) -> int:
    return max(0, int(work * CELLS_PER_WORK))


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
) -> Ints:
    """The cheapest spread found, never dearer than any of the starts.

    work: units of work for each thread. enough: a cost at which to stop, such as a bound.
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
        return _improve(scaled, starts, work, seed * THREADS + thread, enough / step)

    if threads == 1:
        found = [run(0)]
    else:
        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(run, range(threads)))
    return min([best, *found], key=problem.bytes_of)


def _improve(
    scaled: _Scaled, starts: Sequence[Ints], work: float, seed: int, enough: float
) -> Ints:
    problem = scaled.problem
    chance = np.random.default_rng(seed)
    everywhere = np.arange(problem.domains)
    sharing = problem.kind_room.shape[1] == 0 and pair_cells(problem) <= _MOST_PAIR_CELLS
    best = now = starts[0]
    best_cost = now_cost = np.inf
    done, fresh, stale = 0.0, 0, 0
    while done < work and best_cost > enough:
        fresh_start = now_cost == np.inf or fresh < 4 or stale > _STALE_KICKS
        if fresh_start:
            moves = min(_FIRST_MOVES, max(2_000, moves_for(problem, work / 10)))
            start = starts[(fresh + seed) % len(starts)]
            where = everywhere
            heat = 1.5 if fresh % 2 == 0 else 0.6
        else:
            moves = min(_KICK_MOVES if sharing else 5 * _KICK_MOVES, moves_for(problem, work))
            start = now
            where = chance.choice(
                everywhere, min(problem.domains, int(chance.integers(2, 6))), False
            )
            heat = float(chance.choice(_KICK_HEATS))
        walked = walk(
            problem,
            scaled.cost,
            scaled.link,
            start,
            where,
            moves,
            int(chance.integers(2**40)),
            heat,
        )
        spread, cost = (
            (walked.best, walked.best_cost)
            if fresh_start
            else (
                walked.last,
                walked.last_cost,
            )
        )
        done += work_of(problem, moves) + _ROUND_WORK
        if sharing:
            gain, cells = share_all(
                spread,
                scaled.cost,
                scaled.link,
                problem.room,
                chance.permutation(where),
                np.ones(problem.domains, dtype=np.int64),
                _SWEEPS if fresh_start else 3,
                _cells_for(work - done),
            )
            cost += gain
            done += cells / CELLS_PER_WORK
        if fresh_start:
            fresh += 1
            if stale > _STALE_KICKS or cost < now_cost:
                now, now_cost = spread, cost
            stale = 0
        else:
            better = cost < now_cost - 1e-9
            stale = 0 if better else stale + 1
            if cost <= now_cost + 1e-9:
                now, now_cost = spread, cost
            if better and sharing:
                mark = np.zeros(problem.domains, dtype=np.int64)
                mark[where] = 1
                gain, cells = share_all(
                    now,
                    scaled.cost,
                    scaled.link,
                    problem.room,
                    chance.permutation(everywhere),
                    mark,
                    _SWEEPS,
                    _cells_for(work - done),
                )
                now_cost += gain
                done += cells / CELLS_PER_WORK
        if now_cost < best_cost:
            best, best_cost = now.copy(), now_cost
    return best
