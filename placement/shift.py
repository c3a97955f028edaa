"""Moving a few ranks beside those that must move, where that lowers the traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .index import Demand, Fabric, Floats, Ints
from .insertion import Board, less
from .settle import settle, swap

_MOST_TRIED = 60
"""Exchanges that are counted whole in each round."""
_ROUNDS = 3
_MOST_SINGLE = 128
"""Jobs up to so many ranks also move single ranks, not only all of a node."""


def shift(
    fabric: Fabric,
    demand: Demand,
    node: Ints,
    room: Ints,
    home_kind: Ints,
    forced: list[int],
    most: int,
    seed: int,
) -> Ints:
    """The node of each rank after at most `most` of those that are not forced have moved too.

    node: where the ranks are after the forced ones have moved; room: free devices then, by node.
    A step moves all ranks of a node (in small jobs also a single one) to free devices, or in
    exchange with forced ranks, which then settle anew. Those that gain most come first.
    """
    must = np.zeros(demand.ranks, dtype=bool)
    must[forced] = True
    start = node
    for single in (False, True):
        if single and demand.ranks > _MOST_SINGLE:
            break
        if single:
            items = [np.array([rank]) for rank in range(demand.ranks)]
        else:
            order = np.argsort(node * 2 + must, kind="stable")
            cuts = np.flatnonzero(np.diff((node * 2 + must)[order])) + 1
            items = np.split(order, cuts)
        board = Board.of(fabric, demand, node, room, [], home_kind).split(items, home_kind)
        moving = _Moving(board, start, must, most, seed)
        for _ in range(_ROUNDS):
            if not moving.round():
                break
        node, room = board.node, board.room
    return node


@dataclass
class _Moving:
    board: Board
    start: Ints
    must: np.ndarray[tuple[int], np.dtype[np.bool_]]
    most: int
    seed: int

    def round(self) -> bool:
        """Try all steps, best first; whether any was taken."""
        board = self.board
        free = [i for i in range(board.items) if self.must[board.ranks(i)[0]]]
        others = [i for i in range(board.items) if not self.must[board.ranks(i)[0]]]
        moves, exchanges = self._promising(free, others)
        taken = False
        for item in moves:
            taken |= self._move(item)
        for item, other in exchanges:
            taken |= self._exchange(item, other)
        if taken:
            settle(board, free, self.seed)
        return taken

    def _spent(self) -> int:
        moved = (self.board.node != self.start) & ~self.must
        return int(moved.sum())

    def _promising(
        self, free: list[int], others: list[int]
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Items that gain by moving alone, and pairs that may gain by an exchange, best first."""
        board = self.board
        moves: list[tuple[Floats, int]] = []
        homes = np.array([board.at(item) for item in free], dtype=np.int64)
        towards: list[Floats] = []
        for item in others:
            home = board.at(item)
            board.take(item)
            nodes = board.candidates(item)
            costs = board.costs(item, np.concatenate([[home], nodes, homes]).astype(np.int64))
            board.put(item, home)
            gains = costs[0] - costs
            towards.append(gains[1 + len(nodes) :])
            alone = gains[1 : 1 + len(nodes)]
            if len(alone):
                best = alone[np.lexsort(-alone.T[::-1])[0]]
                if less(-best, np.zeros_like(best), board.slack):
                    moves.append((best, item))
        pairs: list[tuple[Floats, int, int]] = []
        places = np.array([board.at(item) for item in others], dtype=np.int64)
        for column, item in enumerate(free if others else []):
            home = board.at(item)
            board.take(item)
            costs = board.costs(item, np.concatenate([[home], places]).astype(np.int64))
            board.put(item, home)
            gains = costs[0] - costs[1:]
            for row, other in enumerate(others):
                if board.size(item) == board.size(other):
                    pairs.append((gains[row] + towards[row][column], item, other))
        moves.sort(key=lambda entry: tuple(-entry[0]))
        pairs.sort(key=lambda entry: tuple(-entry[0]))
        return [m[1] for m in moves], [(p[1], p[2]) for p in pairs[:_MOST_TRIED]]

    def _move(self, item: int) -> bool:
        board = self.board
        home = board.at(item)
        board.take(item)
        before = board.costs(item, np.array([home]))[0]
        found = board.best(item)
        if found is not None and less(found[1], before, board.slack):
            board.put(item, found[0])
            if self._spent() <= self.most:
                return True
            board.take(item)
        board.put(item, home)
        return False

    def _exchange(self, item: int, other: int) -> bool:
        board = self.board
        if not swap(board, item, other):
            return False
        if self._spent() <= self.most:
            return True
        first, second = board.at(item), board.at(other)
        board.take(item)
        board.take(other)
        board.put(item, second)
        board.put(other, first)
        return False
