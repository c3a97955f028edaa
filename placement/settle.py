"""Settling items on nodes at the least cost: exactly where they are few, else by local search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .index import ANY_KIND, Floats
from .insertion import AWAY, Board, less

_MOST_EXACT = 8
_MOST_STEPS, _MOST_WORK = 500, 60_000
"""Choices the exact search looks at before it gives up, and the same times nodes of the fabric."""
_MOST_SWAPPED = 96
_MOST_SWAPS_TRIED = 200
_MOST_SWEPT = 1000
_KICKS = 20


def settle(board: Board, items: list[int], seed: int) -> list[int]:
    """Find nodes for items, from where they are or AWAY; returns those that no node has room for.

    Everything else on the board stays.
    """
    left = set(insert_all(board, [item for item in items if board.at(item) == AWAY]))
    settled = [item for item in items if item not in left]
    improve(board, settled)
    if not least(board, settled):
        recreate(board, settled, np.random.default_rng(seed))
    return sorted(left)


def insert_all(board: Board, items: list[int]) -> list[int]:
    """Put items down one by one, each where it adds least; returns those that fit nowhere.

    Items that need a kind come first, then larger ones, then those next to what is placed.
    """
    left = []
    order = sorted(items, key=lambda i: (board.kind[i] == ANY_KIND, -board.size(i), i))
    for item in order:
        found = board.best(item)
        if found is None:
            left.append(item)
        else:
            board.put(item, found[0])
    return left


def improve(board: Board, items: list[int]) -> None:
    """Move and swap items while that lowers the cost."""
    for _ in range(max(2, _MOST_SWEPT // (1 + len(items)))):
        changed = sum(_moved(board, item) for item in items)
        if not changed and not _swapped(board, items):
            return


def _moved(board: Board, item: int) -> bool:
    home = board.at(item)
    board.take(item)
    before = board.costs(item, np.array([home]))[0]
    found = board.best(item)
    better = found is not None and less(found[1], before, board.slack)
    board.put(item, found[0] if found is not None and better else home)
    return better


def _swapped(board: Board, items: list[int]) -> bool:
    """Try swaps of items of one size in different places, and make those that help."""
    if len(items) > _MOST_SWAPPED:
        return False
    places = np.array([board.at(item) for item in items], dtype=np.int64)
    gains = np.zeros((len(items), len(items), board.fabric.levels + 1))
    for row, item in enumerate(items):
        board.take(item)
        costs = board.costs(item, places)
        board.put(item, int(places[row]))
        gains[row] = costs[row] - costs
    # What each would gain if the other stayed: right but for what the two say to each other.
    together = gains + gains.transpose(1, 0, 2)
    size = np.array([board.size(item) for item in items])
    one, other = np.nonzero(
        np.triu((size[:, None] == size) & (places[:, None] != places), 1)
        & (together.max(axis=2) > board.slack)
    )
    order = np.lexsort(-together[one, other].T[::-1])[:_MOST_SWAPS_TRIED]
    return sum(swap(board, items[one[k]], items[other[k]]) for k in order.tolist()) > 0


def swap(board: Board, one: int, other: int) -> bool:
    """Let two items of one size change places if that lowers the cost; whether it did."""
    first, second = board.at(one), board.at(other)
    if first == second:
        return False
    if not (_suits(board, one, second) and _suits(board, other, first)):
        return False
    board.take(one)
    board.take(other)
    before = board.costs(one, np.array([first]))[0]
    board.put(one, first)
    before = before + board.costs(other, np.array([second]))[0]
    board.take(one)
    after = board.costs(one, np.array([second]))[0]
    board.put(one, second)
    after = after + board.costs(other, np.array([first]))[0]
    if less(after, before, board.slack):
        board.put(other, first)
        return True
    board.take(one)
    board.put(one, first)
    board.put(other, second)
    return False


def _suits(board: Board, item: int, node: int) -> bool:
    return bool(board.kind[item] in (ANY_KIND, board.fabric.kind[node]))


@dataclass
class _Best:
    cost: Floats
    places: list[int]
    steps: int


def least(board: Board, items: list[int]) -> bool:
    """Find the best places of few items by trying all that may be better; whether it got through.

    Costs only grow as items are put down, so a partial choice that is no better than the best
    whole one is given up.
    """
    if len(items) > _MOST_EXACT:
        return False
    places = [board.at(item) for item in items]
    for item in items:
        board.take(item)
    zero = np.zeros(board.fabric.levels + 1)
    cost = zero
    for item, node in zip(items, places, strict=True):
        cost = cost + board.costs(item, np.array([node]))[0]
        board.put(item, node)
    for item in items:
        board.take(item)
    best = _Best(cost, places, 0)
    through = _try_all(board, items, [], zero, best)
    for item, node in zip(items, best.places, strict=True):
        board.put(item, node)
    return through


def _try_all(board: Board, items: list[int], chosen: list[int], cost: Floats, best: _Best) -> bool:
    if len(chosen) == len(items):
        best.cost, best.places = cost, list(chosen)
        return True
    item = items[len(chosen)]
    nodes = board.candidates(item)
    added = board.costs(item, nodes) + cost
    best.steps += 1
    if best.steps > min(_MOST_STEPS, max(20, _MOST_WORK // len(board.room))):
        return False
    for row in np.lexsort(added.T[::-1]).tolist():
        if not less(added[row], best.cost, board.slack):
            break  # nor is any later row, for they are in order
        node = int(nodes[row])
        board.put(item, node)
        through = _try_all(board, items, [*chosen, node], added[row], best)
        board.take(item)
        if not through:
            return False
    return True


def recreate(board: Board, items: list[int], chance: np.random.Generator) -> None:
    """Take up a few items and put them down again in another order, many times; keep the best."""
    if len(items) < 2:
        return
    best_cost, best = board.total(), [board.at(item) for item in items]
    for _ in range(_KICKS):
        count = min(len(items), int(chance.integers(2, 7)))
        taken = chance.choice(items, count, replace=False).tolist()
        before = [board.at(item) for item in taken]
        for item in taken:
            board.take(item)
        stuck = False
        for item in taken:
            found = board.best(item)
            if found is None:
                stuck = True
                break
            board.put(item, found[0])
        cost = board.total()
        if stuck or less(best_cost, cost, board.slack):
            for item in taken:
                if board.at(item) != AWAY:
                    board.take(item)
            for item, node in zip(taken, before, strict=True):
                board.put(item, node)
        elif less(cost, best_cost, board.slack):
            best_cost, best = cost, [board.at(item) for item in items]
    for item in items:
        board.take(item)
    for item, node in zip(items, best, strict=True):
        board.put(item, node)
