"""Annealing on counts: finds good spreads of classes over domains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.chance import BELOW, State, drawn, seeded
from ..loops.compiled import inner, lean
from .counts import Counts

MOVES_PER_WORK = 10_000_000
"""Moves counted as one unit of work."""
_COLD = 0.02
_COPIES_PER_WORK = 500_000_000
"""Entries of a spread read or copied that count as one unit of work."""
_CLASSES_PER_MOVE = 64
"""Classes a move may go through, about, in the time counted for it."""


def moves_for(problem: Counts, work: float) -> int:
    """Moves that take `work` units of work; those of many classes take longer."""
    return int(work * MOVES_PER_WORK / _move_cost(problem))


def work_of(problem: Counts, moves: int) -> float:
    """Work of a walk of `moves` moves, with reading and copying the spread."""
    copies = 4 * problem.classes * problem.domains
    return moves * _move_cost(problem) / MOVES_PER_WORK + copies / _COPIES_PER_WORK


def _move_cost(problem: Counts) -> float:
    return max(1.0, problem.classes / _CLASSES_PER_MOVE)


@dataclass(frozen=True)
class Walked:
    """Where a walk came by: the best spread it met and the one it ended at, with their costs."""

    best: Ints
    best_cost: float
    last: Ints
    last_cost: float


def walk(
    problem: Counts,
    cost: Floats,
    link: Floats,
    start: Ints,
    where: Ints,
    moves: int,
    seed: int,
    hot: float,
) -> Walked:
    """Walk `moves` moves from `start` among the domains `where`, cooling from `hot`.

    cost, link: the problem's, divided by its dearest single step, the unit of temperature.
    """
    last, best = start.copy(), start.copy()
    most = 4 * problem.classes
    best_cost, last_cost = _walk(
        last,
        best,
        cost,
        link,
        problem.room.copy(),
        problem.kind,
        problem.kind_room.copy(),
        where,
        np.empty((4, most + 8), dtype=np.int64),
        np.empty((3, most + 1024), dtype=np.int64),
        seeded(seed),
        moves,
        hot,
        _COLD,
    )
    return Walked(best, best_cost, last, last_cost)


@inner
def _shift(spread: Ints, cost: Floats, link: Floats, p: int, a: int, b: int, amount: int) -> float:
    """Move `amount` units of class p from domain a to b; returns the change of cost."""
    change = 0.0
    last = spread.shape[0] - 1
    for side in range(2):
        j = a if side == 0 else b
        before = spread[p, j]
        after = before - amount if side == 0 else before + amount
        change += cost[p, after] - cost[p, before]
        if p > 0:
            other = spread[p - 1, j]
            change -= link[p - 1] * (min(after, other) - min(before, other))
        if p < last:
            other = spread[p + 1, j]
            change -= link[p] * (min(after, other) - min(before, other))
        if link[last] > 0.0 and (p == 0 or p == last):
            other = spread[last - p, j]
            change -= link[last] * (min(after, other) - min(before, other))
        spread[p, j] = after
    return change


@inner
def _total(spread: Ints, cost: Floats, link: Floats) -> float:
    total = 0.0
    classes, domains = spread.shape
    for p in range(classes):
        for j in range(domains):
            total += cost[p, spread[p, j]]
            total -= link[p] * min(spread[p, j], spread[(p + 1) % classes, j])
    return total


@inner
def _amount(spread: Ints, p: int, a: int, b: int, free: int, state: State) -> int:
    """How many units of class p to move from a to b: amounts that tend to make shapes even."""
    here = int(spread[p, a])
    choice = drawn(state) % 8
    last = spread.shape[0] - 1
    if choice == 0:
        return 1
    if choice == 1:
        return min(here, free)
    if choice == 2:
        return 1 + drawn(state) % here
    neighbour = p + 1 if drawn(state) % 2 == 0 else p - 1
    if neighbour < 0 or neighbour > last:
        return here
    if choice < 5:
        amount = here - int(spread[neighbour, a])
    elif choice < 7:
        amount = int(spread[neighbour, b] - spread[p, b])
    else:
        amount = here
    return min(amount, here) if amount > 0 else here


@lean
def _walk(
    spread: Ints,
    best: Ints,
    cost: Floats,
    link: Floats,
    free: Ints,
    kind: Ints,
    kind_free: Ints,
    where: Ints,
    log: Ints,
    recent: Ints,
    state: State,
    moves: int,
    hot: float,
    cold: float,
) -> tuple[float, float]:
    """Walk with `spread`, leaving the best met in `best`; returns the costs of both.

    free, kind_free: the room, of which the rest is kept. log, recent: work space. Arrays are made
    by the caller, as code that makes them takes long to compile.
    """
    classes, domains = spread.shape
    places = len(where)
    kinds = kind_free.shape[1]
    for p in range(classes):
        for j in range(domains):
            free[j] -= spread[p, j]
            if kinds > 0 and kind[p] >= 0:
                kind_free[j, kind[p]] -= spread[p, j]
    now = _total(spread, cost, link)
    best_cost = now
    # What changed since `best` was copied, so that a better one is copied only where it differs.
    fresh_p, fresh_a, fresh_b = recent[0], recent[1], recent[2]
    fresh = 0
    log_p, log_a, log_b, log_n = log[0], log[1], log[2], log[3]
    temperature = hot
    cooling = (cold / hot) ** (1.0 / max(1, moves // 256))
    for move in range(moves):
        if move % 256 == 255:
            temperature *= cooling
        a = drawn(state) % places
        b = drawn(state) % (places - 1)
        if b >= a:
            b += 1
        a = where[a]
        b = where[b]
        p = drawn(state) % classes
        count = 0
        change = 0.0
        style = drawn(state) % 16
        legal = True
        if style < 10:
            # Some units of one class one way, and as many as need be of another class back.
            if spread[p, a] == 0:
                continue
            amount = _amount(spread, p, a, b, free[b], state)
            if amount <= 0:
                continue
            change += _shift(spread, cost, link, p, a, b, amount)
            log_p[0], log_a[0], log_b[0], log_n[0] = p, a, b, amount
            count = 1
            over = amount - free[b]
            tries = 0
            back = drawn(state) % 4 == 0
            while (over > 0 or back) and tries < 3 and count < 4:
                tries += 1
                q = drawn(state) % classes
                if q == p or spread[q, b] == 0:
                    continue
                held = spread[q, b]
                most = min(held, free[a] + amount)
                if over > 0:
                    n = min(over, held) if drawn(state) % 3 else most
                else:
                    n = min(held, most, amount)
                if n <= 0:
                    continue
                change += _shift(spread, cost, link, q, b, a, n)
                log_p[count], log_a[count], log_b[count], log_n[count] = q, b, a, n
                count += 1
                over -= n
                amount -= n
                back = False
            if over > 0:
                legal = False
        elif style < 13:
            # The same shift along a stretch of classes, and along another one back.
            length = 1 + drawn(state) % min(classes, 8)
            if style == 12:
                length = classes
                p = 0
            end = min(classes, p + length)
            n = 1 + drawn(state) % 4
            moved = 0
            for q in range(p, end):
                step = min(n, spread[q, a])
                if step > 0:
                    change += _shift(spread, cost, link, q, a, b, step)
                    log_p[count], log_a[count], log_b[count], log_n[count] = q, a, b, step
                    count += 1
                    moved += step
            over = moved - free[b]
            if over > 0:
                q = drawn(state) % classes
                for _ in range(classes):
                    if over <= 0:
                        break
                    if (q < p or q >= end) and spread[q, b] > 0:
                        step = min(over, spread[q, b])
                        if moved - step + (-free[a]) <= moved:
                            change += _shift(spread, cost, link, q, b, a, step)
                            log_p[count], log_a[count] = q, b
                            log_b[count], log_n[count] = a, step
                            count += 1
                            over -= step
                    q = q + 1 if q + 1 < classes else 0
                if over > 0:
                    legal = False
        else:
            # Two domains trade all they hold of a stretch of classes.
            length = classes if style == 15 else 1 + drawn(state) % classes
            end = min(classes, p + length)
            if style == 15:
                p = 0
            for q in range(p, end):
                mine, theirs = spread[q, a], spread[q, b]
                if mine > theirs:
                    n = mine - theirs
                    change += _shift(spread, cost, link, q, a, b, n)
                    log_p[count], log_a[count], log_b[count], log_n[count] = q, a, b, n
                    count += 1
                elif theirs > mine:
                    n = theirs - mine
                    change += _shift(spread, cost, link, q, b, a, n)
                    log_p[count], log_a[count], log_b[count], log_n[count] = q, b, a, n
                    count += 1
        if count == 0:
            continue
        for i in range(count):
            free[log_a[i]] += log_n[i]
            free[log_b[i]] -= log_n[i]
            if kinds > 0 and kind[log_p[i]] >= 0:
                kind_free[log_a[i], kind[log_p[i]]] += log_n[i]
                kind_free[log_b[i], kind[log_p[i]]] -= log_n[i]
        if free[a] < 0 or free[b] < 0:
            legal = False
        for k in range(kinds):
            if kind_free[a, k] < 0 or kind_free[b, k] < 0:
                legal = False
        if legal and change > 0.0:
            chance = (drawn(state) + 0.5) / BELOW
            legal = chance < np.exp(-change / temperature)
        if legal:
            now += change
            if fresh + count > len(fresh_p):
                fresh = len(fresh_p) + 1
            else:
                for i in range(count):
                    fresh_p[fresh], fresh_a[fresh], fresh_b[fresh] = log_p[i], log_a[i], log_b[i]
                    fresh += 1
            if now < best_cost - 1e-9:
                best_cost = now
                if fresh > len(fresh_p):
                    for q in range(classes):
                        for j in range(domains):
                            best[q, j] = spread[q, j]
                else:
                    for i in range(fresh):
                        best[fresh_p[i], fresh_a[i]] = spread[fresh_p[i], fresh_a[i]]
                        best[fresh_p[i], fresh_b[i]] = spread[fresh_p[i], fresh_b[i]]
                fresh = 0
        else:
            for i in range(count - 1, -1, -1):
                spread[log_p[i], log_b[i]] -= log_n[i]
                spread[log_p[i], log_a[i]] += log_n[i]
                free[log_a[i]] -= log_n[i]
                free[log_b[i]] += log_n[i]
                if kinds > 0 and kind[log_p[i]] >= 0:
                    kind_free[log_a[i], kind[log_p[i]]] -= log_n[i]
                    kind_free[log_b[i], kind[log_p[i]]] += log_n[i]
    return best_cost, now
