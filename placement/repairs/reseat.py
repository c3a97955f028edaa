"""Finding places for items one after another, and by descent."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import inner, lean
from .seats import AWAY, Seats, added, change_at, put, suits, take


@inner
def less(left: Floats, right: Floats, slack: float) -> bool:
    """Whether a cost is less than another lexicographically, by more than rounding."""
    for column in range(len(left)):
        if abs(left[column] - right[column]) > slack:
            return bool(left[column] < right[column])
    return False


@inner
def best_seat(s: Seats, item: int, slack: float, cost: Floats, here: Floats) -> int:
    """The node that adds least for an item that is away, and what it adds; AWAY if none suits.

    Of nodes that cost the same, the one with the least room. `here` is scratch.
    """
    found, looked = AWAY, -1
    for node in s.candidate:
        if s.used[node] == 0 and s.alike[node] == looked:
            continue
        if not suits(s, item, node):
            continue
        added(s, item, node, here)
        if s.used[node] == 0:
            looked = s.alike[node]
        tight = found >= 0 and s.room[node] < s.room[found]
        if found < 0 or less(here, cost, slack) or (tight and not less(cost, here, slack)):
            found = node
            for column in range(len(cost)):
                cost[column] = here[column]
    return found


def seat_each(s: Seats, items: Ints, slack: float) -> None:
    """Put items down one by one, each where it adds least; those that fit nowhere stay away."""
    _seat_each(s, items, slack, np.zeros(s.levels + 1), np.zeros(s.levels + 1))


@lean
def _seat_each(s: Seats, items: Ints, slack: float, cost: Floats, scratch: Floats) -> None:
    for item in items:
        if s.at[item] == AWAY:
            node = best_seat(s, item, slack, cost, scratch)
            if node >= 0:
                put(s, item, node)


def descend(s: Seats, items: Ints, slack: float, rounds: int, most_swapped: int) -> None:
    """Move items, and let two change places, while that lowers the cost."""
    _descend(s, items, slack, rounds, most_swapped, np.zeros((4, s.levels + 1)))


@lean
def _descend(
    s: Seats, items: Ints, slack: float, rounds: int, most_swapped: int, costs: Floats
) -> None:
    before, after, zero, scratch = costs[0], costs[1], costs[2], costs[3]
    for _ in range(rounds):
        changed = False
        for item in items:
            here = s.at[item]
            if here < 0:
                continue
            take(s, item)
            added(s, item, here, before)
            there = best_seat(s, item, slack, after, scratch)
            if there >= 0 and less(after, before, slack):
                changed = True
                put(s, item, there)
            else:
                put(s, item, here)
        if len(items) <= most_swapped:
            for k in range(len(items)):
                for m in range(k + 1, len(items)):
                    one, other = items[k], items[m]
                    if s.at[one] < 0 or s.at[other] < 0 or s.at[one] == s.at[other]:
                        continue
                    if s.size[one] == s.size[other] and not _promises(s, one, other, slack):
                        continue
                    if exchange(s, one, other, before, scratch):
                        if less(before, zero, slack):
                            changed = True
                        else:
                            undo(s, one, other)
        if not changed:
            return


@inner
def _promises(s: Seats, one: int, other: int, slack: float) -> bool:
    """Whether it may help that two items of one size change places."""
    if s.home_kind[one] != s.home_kind[other]:
        return True
    for level in range(len(s.label) - 1, -1, -1):
        change = change_at(s, level, one, s.at[other], other)
        if abs(change) > slack:
            return change < 0.0
    return False


@inner
def exchange(s: Seats, one: int, other: int, change: Floats, cost: Floats) -> bool:
    """Let two items change places, whatever it costs (`change`); False where they may not.

    `cost` is scratch.
    """
    first, second = s.at[one], s.at[other]
    columns = len(change)
    take(s, one)
    take(s, other)
    if suits(s, one, second):
        added(s, one, second, change)
        added(s, one, first, cost)
        for column in range(columns):
            change[column] -= cost[column]
        put(s, one, second)
        if suits(s, other, first):
            added(s, other, first, cost)
            for column in range(columns):
                change[column] += cost[column]
            take(s, one)
            put(s, one, first)
            added(s, other, second, cost)
            for column in range(columns):
                change[column] -= cost[column]
            take(s, one)
            put(s, one, second)
            put(s, other, first)
            return True
        take(s, one)
    put(s, one, first)
    put(s, other, second)
    return False


@inner
def undo(s: Seats, one: int, other: int) -> None:
    """Let two items change places back."""
    first, second = s.at[one], s.at[other]
    take(s, one)
    take(s, other)
    put(s, one, second)
    put(s, other, first)
