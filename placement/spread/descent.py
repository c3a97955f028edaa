"""From counts by outermost domain inwards: the leaf in which every block of a job ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.gather import Gathered
from ..jobs.index import Fabric, Floats, Ints
from .anneal import MOVES_PER_WORK
from .matching import match_chain
from .room import Room
from .search import search
from .split_blocks import hosted, parts_of_blocks
from .split_counts import SplitCounts
from .split_search import filled_up, improved
from .starts import starts_of
from .structure import Chains
from .structured import counts_in, part_of

_INNER_SHARE = 0.25
"""Part of the work that goes to the levels inside the outermost."""
_LEAST_WORK = 4000 / MOVES_PER_WORK
_MOST_SPLIT = 0.25
"""Part of the blocks of a domain that may be split over its children for counts to go inwards."""


@dataclass(frozen=True)
class Leaf:
    """A domain in which some blocks end as far as counts tell: a node, or a wider one.

    parts: for blocks that are split, how many atoms of each go into other domains of the level.
    """

    level: int
    domain: int
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Spread:
    """Whole blocks by class and domain, and for each class the parts of split ones by domain."""

    whole: Ints
    parts: list[Ints]


class Descent:
    """The leaves of a job, and for each class the leaf of each of its places.

    With blocks of several atoms a leaf is the smallest domain in which whole blocks still fit, or
    nearly all of them: the others are split over its children.
    """

    def __init__(
        self,
        fabric: Fabric,
        gathered: Gathered,
        chains: Chains,
        split: SplitCounts | None,
        room: Room,
    ) -> None:
        self._fabric, self._gathered, self._chains = fabric, gathered, chains
        self._split, self._room = split, room
        self.leaves: list[Leaf] = []
        self._number: dict[Leaf, int] = {}
        self._places: list[list[int]] = [[] for _ in range(len(chains.members))]

    def go(self, outer: Spread, work: float, seed: int) -> None:
        """Follow a spread over the outermost domains inwards."""
        outermost = self._room.inside[-1][0]
        level = self._fabric.levels - 1
        every = np.arange(len(self._chains.members))
        self._host(level, outermost, every, outer, self._chains.link)
        for i, domain in enumerate(outermost.tolist()):
            if outer.whole[:, i].any():
                self._inwards(level, domain, outer.whole[:, i], work, seed)

    def leaf_of_blocks(self) -> Ints:
        """The leaf of every block, linked ones side by side."""
        rows = np.empty((self._fabric.levels, len(self.leaves)), dtype=np.int64)
        for i, leaf in enumerate(self.leaves):
            for level in range(self._fabric.levels):
                # Labels below a leaf are its own, so that they never join two leaves.
                inside = level < leaf.level
                rows[level, i] = -1 - i if inside else self.domain_around(leaf, level)
        rows -= rows.min()
        places = [np.array(p, dtype=np.int64) for p in self._places]
        ordered = match_chain(places, [bool(w > 0) for w in self._chains.link.tolist()], rows)
        found = np.empty(self._gathered.blocks.units, dtype=np.int64)
        for members, where in zip(self._chains.members, ordered, strict=True):
            found[members] = where
        return found

    def domain_around(self, leaf: Leaf, level: int) -> int:
        """The domain of a level that holds a leaf."""
        node = self._first_node(leaf.level, leaf.domain)
        return int(self._fabric.domain[level][node])

    def _first_node(self, level: int, domain: int) -> int:
        return int(np.argmax(self._fabric.domain[level] == domain))

    def _settle(self, leaf: Leaf, p: int, count: int) -> None:
        if leaf not in self._number:
            self._number[leaf] = len(self.leaves)
            self.leaves.append(leaf)
        self._places[p].extend([self._number[leaf]] * count)

    def _host(self, level: int, domains: Ints, classes: Ints, spread: Spread, link: Floats) -> None:
        hosts = hosted(spread.parts, spread.whole, link)
        for p, blocks, found in zip(classes.tolist(), spread.parts, hosts, strict=True):
            for parts, host in zip(blocks, found.tolist(), strict=True):
                others = tuple(
                    (int(domains[j]), int(parts[j]))
                    for j in np.flatnonzero(parts).tolist()
                    if j != host
                )
                self._settle(Leaf(level, int(domains[host]), others), p, 1)

    def _inwards(self, level: int, domain: int, height: Ints, work: float, seed: int) -> None:
        spread = self._division(level, domain, height, work, seed) if level > 0 else None
        if spread is None:
            for p in np.flatnonzero(height).tolist():
                self._settle(Leaf(level, domain), p, int(height[p]))
            return
        children = self._room.inside[level][domain]
        present = np.flatnonzero(height)
        link = part_of(
            counts_in(self._chains, height, self._room, level - 1, children, 1), present
        ).link
        self._host(level - 1, children, present, spread, link)
        for i, child in enumerate(children.tolist()):
            if spread.whole[:, i].any():
                inside = np.zeros_like(height)
                inside[present] = spread.whole[:, i]
                self._inwards(level - 1, child, inside, work, seed)

    def _division(
        self, level: int, domain: int, height: Ints, work: float, seed: int
    ) -> Spread | None:
        """A cheap spread of the classes present over a domain's children, or None."""
        block, children = self._gathered.block, self._room.inside[level][domain]
        present = np.flatnonzero(height)
        whole = counts_in(self._chains, height, self._room, level - 1, children, block)
        problem = part_of(whole, present)
        short = int(problem.room[len(children) :].sum())
        if short > 0 and (self._split is None or short > _MOST_SPLIT * height.sum()):
            return None
        starts = [start for start in starts_of(problem) if problem.fits(start)]
        if not starts:
            return None
        share = work * _INNER_SHARE * int(height.sum()) / int(self._chains.height.sum())
        spread = starts[0]
        if level > 1 or int(problem.room.max()) > 1:
            spread = search(problem, starts, max(share, _LEAST_WORK), seed)
        if short == 0 or self._split is None:
            return Spread(spread, [np.zeros((0, len(children)), dtype=np.int64)] * len(present))
        split = self._split.part(present, height[present])
        rooms = self._room.room[level - 1][children]
        atoms = filled_up(spread[:, : len(children)], split.counts(0.0, rooms), block)
        return Spread(*parts_of_blocks(improved(split, rooms, atoms, share, seed), block))
