"""Better places for items by annealing."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.chance import BELOW, State, drawn
from ..loops.compiled import inner, lean
from .reseat import exchange, less, undo
from .seats import AWAY, Seats, added, change_at, put, put_all, suits, take, take_all

_SAMPLE: Final = 100
"""Steps of a walk that tell what a step changes on average."""


@lean
def walk(
    s: Seats,
    level: int,
    forced: int,
    near_node: Ints,
    near_start: Ints,
    moves: int,
    hot: float,
    cold: float,
    state: State,
    slack: float,
    scratch: Floats,
    moved: Ints,
    best_at: Ints,
) -> None:
    """Anneal the cost across the boundary at `level`; what lies farther out never gets dearer.

    forced: how many of the movable items must move. hot, cold: first and last temperature, in parts
    of what a step changes on average. near_node, near_start: candidate nodes by their
    label at the level. best_at: becomes the best places found, by item. scratch, moved: scratch.
    """
    levels = len(s.label)
    total, best, step_change = scratch[0], scratch[1], scratch[2]
    change, cost = scratch[3], scratch[4]
    many = 0
    for item in s.movable:
        if _moved(s, item):
            moved[many] = item
            many += 1
    scale, seen, temperature, factor = 0.0, 0, 0.0, 1.0
    for step in range(moves):
        if step == _SAMPLE:
            scale = scale / max(1, seen)
            temperature = hot * scale
            factor = (cold / hot) ** (1.0 / max(1, moves - _SAMPLE))
        temperature *= factor
        coin = drawn(state) % 8
        if coin < 2 and many > 0:
            pick = drawn(state) % many
            item = moved[pick]
            if s.at[item] == s.home[item]:
                many -= 1
                moved[pick] = moved[many]
                continue
        elif coin < 6 and forced > 0:
            item = s.movable[drawn(state) % forced]
        else:
            item = s.movable[drawn(state) % len(s.movable)]
        here = s.at[item]
        if here < 0:
            continue
        there = _target(s, item, level, near_node, near_start, state)
        if there == here or (level > 0 and s.label[level, there] == s.label[level, here]):
            continue
        other = s.first[there]
        while other >= 0 and drawn(state) % 2 == 0:
            other = s.after[other]
        if other >= 0 and s.price[other] > 0 and len(s.movable) == forced:
            other = AWAY  # only a neighbour
        if other < 0 and s.room[there] < s.size[item]:
            continue
        back, behind = AWAY, AWAY
        short = _price_away(s, item) + (_price_away(s, other) if other >= 0 else 0) - s.purse[0]
        if short > 0:
            # One that has moved must go home first, and whoever is there takes its place.
            back = moved[drawn(state) % many] if many > 0 else AWAY
            if back < 0 or back in (item, other) or s.at[back] == s.home[back]:
                continue
            if s.price[back] < short:
                continue
            behind = s.first[s.home[back]]
            if behind in (item, other):
                continue
        if back < 0 and (other < 0 or s.size[item] == s.size[other]):
            rise = 0.0
            for outer in range(levels - 1, level - 1, -1):
                rise = change_at(s, outer, item, there, other)
                if outer > level and abs(rise) > slack:
                    break
            if step < _SAMPLE:
                scale += abs(rise)
                seen += rise != 0.0
            if rise > slack and (outer > level or not _bears(rise, temperature, state)):
                continue
        for column in range(levels + 1):
            step_change[column] = 0.0
        from_ = s.at[back] if back >= 0 else AWAY
        if back >= 0:
            if not _step(s, back, s.home[back], behind, change, cost):
                continue
            for column in range(levels + 1):
                step_change[column] = change[column]
        if not _step(s, item, there, other, change, cost):
            if back >= 0:
                _step_back(s, back, from_, behind)
            continue
        for column in range(levels + 1):
            step_change[column] += change[column]
        taken = True
        if back >= 0 or (other >= 0 and s.size[item] != s.size[other]):
            for column in range(levels - level):
                rise = step_change[column]
                if abs(rise) > slack or column == levels - 1 - level:
                    last = column == levels - 1 - level
                    taken = rise <= slack or (last and _bears(rise, temperature, state))
                    break
        if not taken:
            _step_back(s, item, here, other)
            if back >= 0:
                _step_back(s, back, from_, behind)
            continue
        for column in range(levels + 1):
            total[column] += step_change[column]
        for mover in (item, other, behind):
            if mover >= 0 and _moved(s, mover) and many < len(moved):
                moved[many] = mover
                many += 1
        if less(total, best, slack):
            for column in range(levels + 1):
                best[column] = total[column]
            for k in range(len(best_at)):
                best_at[k] = s.at[k]


@inner
def _moved(s: Seats, item: int) -> bool:
    return bool(s.price[item] > 0 and s.at[item] != s.home[item])


@inner
def _price_away(s: Seats, item: int) -> int:
    """What a step away from where it is takes out of the purse."""
    return int(s.price[item]) if s.at[item] == s.home[item] else 0


@inner
def _step(s: Seats, item: int, there: int, other: int, change: Floats, cost: Floats) -> bool:
    """Move an item to a node, or in exchange with one there; False where it may not go."""
    if other >= 0:
        return exchange(s, item, other, change, cost)
    here = s.at[item]
    take(s, item)
    if not suits(s, item, there):
        put(s, item, here)
        return False
    added(s, item, there, change)
    added(s, item, here, cost)
    for column in range(len(change)):
        change[column] -= cost[column]
    put(s, item, there)
    return True


@inner
def _step_back(s: Seats, item: int, here: int, other: int) -> None:
    if other >= 0:
        undo(s, item, other)
    else:
        take(s, item)
        put(s, item, here)


@inner
def _bears(rise: float, temperature: float, state: State) -> bool:
    """Whether a step that costs `rise` more is taken."""
    return bool(temperature > 0.0 and drawn(state) < BELOW * np.exp(-rise / temperature))


@inner
def _target(
    s: Seats, item: int, level: int, near_node: Ints, near_start: Ints, state: State
) -> int:
    """A node to try: in the domain of something the item talks to, its home, or any."""
    coin = drawn(state) % 8
    if coin == 0 and s.home[item] >= 0:
        return int(s.home[item])
    if coin < 5:
        links = s.link_start[item + 1] - s.link_start[item]
        nets = s.item_start[item + 1] - s.item_start[item]
        other = AWAY
        if links + nets > 0:
            pick = drawn(state) % (links + nets)
            if pick < links:
                other = s.link_item[s.link_start[item] + pick]
            else:
                net = s.item_net[s.item_start[item] + pick - links]
                size = s.net_start[net + 1] - s.net_start[net]
                other = s.net_item[s.net_start[net] + drawn(state) % size]
        if other >= 0 and s.at[other] >= 0:
            label = s.label[level, s.at[other]]
            count = near_start[label + 1] - near_start[label]
            if count > 0:
                return int(near_node[near_start[label] + drawn(state) % count])
    return int(s.candidate[drawn(state) % len(s.candidate)])


def anneal(
    s: Seats,
    level: int,
    forced: int,
    moves: int,
    hot: float,
    cold: float,
    state: State,
    slack: float,
) -> None:
    """`walk` at a level, and back to the best places it found."""
    labels = s.label[level][s.candidate]
    near = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[near], np.arange(int(s.label[level].max()) + 2))
    best_at = s.at.copy()
    scratch = np.zeros((5, s.levels + 1))
    moved = np.zeros(4 * len(s.movable) + 64, dtype=np.int64)
    nodes = s.candidate[near]
    walk(s, level, forced, nodes, starts, moves, hot, cold, state, slack, scratch, moved, best_at)
    changed = np.flatnonzero(s.at != best_at)
    take_all(s, changed)
    put_all(s, changed, best_at[changed])
