"""Finding places for items: one after another, by trying all, by descent, and by annealing."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.chance import BELOW, State, drawn
from ..loops.compiled import inner, lean
from ..loops.sorting import sort_by
from .seats import AWAY, Seats, added, change_at, put, put_all, suits, take, take_all

MOST_EXACT: Final = 8
"""Items up to which all ways are tried."""
_STEPS: Final = 500
"""Choices the exact search looks at before it gives up."""
_SAMPLE: Final = 100


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


def least(s: Seats, items: Ints, slack: float) -> bool:
    """Find the best places of few items by trying all that may be better; whether it got through.

    Costs only grow as items are put down, so a partial choice that is no better than the best
    whole one is given up.
    """
    count, columns, most = len(items), s.levels + 1, len(s.candidate)
    return _least(
        s,
        items,
        slack,
        s.at[items],
        np.zeros((count + 2, columns)),
        np.zeros((count, most, columns)),
        np.zeros(most),
        np.zeros((count, most), dtype=np.int64),
        np.zeros((count, most), dtype=np.int64),
        np.zeros((2, most), dtype=np.int64),
        np.zeros((2, count), dtype=np.int64),
        np.ones(count, dtype=np.int64),
    )


@lean
def _least(
    s: Seats,
    items: Ints,
    slack: float,
    places: Ints,
    cost: Floats,
    prices: Floats,
    keys: Floats,
    options: Ints,
    rows: Ints,
    scratch: Ints,
    counts: Ints,
    fresh: Ints,
) -> bool:
    """See `least`. places: where the items are.

    cost: what the items before each depth add, in the last row the best whole choice. options,
    prices: nodes for the item at a depth, and what all items cost then. rows: those by their price.
    """
    count, columns = len(items), cost.shape[1]
    best = cost[count + 1]
    length, next_ = counts[0], counts[1]
    for item in items:
        take(s, item)
    for k in range(count):
        added(s, items[k], places[k], cost[0])
        for column in range(columns):
            best[column] += cost[0, column]
        put(s, items[k], places[k])
    for item in items:
        take(s, item)
    for column in range(columns):
        cost[0, column] = 0.0
    depth, steps, through = 0, 0, True
    while depth >= 0:
        item = items[depth]
        if fresh[depth] == 1:
            fresh[depth] = 0
            steps += 1
            if steps > _STEPS:
                through = False
                break
            length[depth], next_[depth] = 0, 0
            looked = -1
            for node in s.candidate:
                if (s.used[node] == 0 and s.alike[node] == looked) or not suits(s, item, node):
                    continue
                if s.used[node] == 0:
                    looked = s.alike[node]
                k = length[depth]
                options[depth, k] = node
                added(s, item, node, prices[depth, k])
                for column in range(columns):
                    prices[depth, k, column] += cost[depth, column]
                keys[k] = prices[depth, k, 0]
                length[depth] += 1
            sort_by(keys, length[depth], scratch[0], scratch[1])
            for k in range(length[depth]):
                rows[depth, k] = scratch[0, k]
        else:
            take(s, item)
        if next_[depth] == length[depth]:
            fresh[depth] = 1
            depth -= 1
            continue
        k = rows[depth, next_[depth]]
        next_[depth] += 1
        node = options[depth, k]
        put(s, item, node)  # so that coming back to this depth always takes it up
        if not less(prices[depth, k], best, slack):
            continue
        if depth == count - 1:
            for column in range(columns):
                best[column] = prices[depth, k, column]
            for m in range(count):
                places[m] = s.at[items[m]]
            continue
        for column in range(columns):
            cost[depth + 1, column] = prices[depth, k, column]
        depth += 1
    for item in items:
        if s.at[item] >= 0:
            take(s, item)
    for m in range(count):
        put(s, items[m], places[m])
    return through


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
