"""Nodes for the atoms of a job of chains, once the leaf of every block is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..division.arrange import divide
from ..division.local import Local
from ..division.polish import polished
from ..jobs.gather import Gathered
from ..jobs.index import Fabric, Ints
from .descent import Descent
from .room import Room
from .split_blocks import send_parts
from .structure import Chains

_NOWHERE = -1
_HEAT = 0.1
"""Walks start from what counts found, which is to be mended and not undone."""


def preferred(fabric: Fabric, gathered: Gathered, chains: Chains, descent: Descent) -> Ints:
    """`[level, atom]`, the domain in which the leaves put each atom, or -1 below its leaf."""
    leaf_of_block = descent.leaf_of_blocks()
    leaf = leaf_of_block[gathered.block_of]
    where = np.full((fabric.levels, len(leaf)), _NOWHERE, dtype=np.int64)
    for i, found in enumerate(descent.leaves):
        for level in range(found.level, fabric.levels):
            where[level, leaf == i] = descent.domain_around(found, level)
    for level in range(fabric.levels):
        parts_of = {
            block: dict(descent.leaves[i].parts)
            for block, i in enumerate(leaf_of_block.tolist())
            if descent.leaves[i].level == level and descent.leaves[i].parts
        }
        send_parts(gathered.atoms, chains, gathered.block_of, parts_of, where[level])
    return where


@dataclass(frozen=True)
class Seating:
    """Gives atoms their nodes, level by level, and mends what counts could not tell.

    where: as `preferred` gives it; changed where a walk moves an atom. order: atoms, leaf by leaf
    and block by block. mend: whether the outermost level is to be mended.
    """

    fabric: Fabric
    gathered: Gathered
    room: Room
    where: Ints
    order: Ints
    mend: bool
    seed: int
    node: Ints

    def seat(self, moves: int) -> None:
        """Fill `node`, with walks of about so many moves a level."""
        self._seat(self.fabric.levels, 0, self.order, moves)

    def _seat(self, level: int, domain: int, units: Ints, moves: int) -> None:
        if level == 0:
            self.node[units] = domain
            return
        children = self.room.inside[level][domain]
        at = np.searchsorted(children, self.where[level - 1, units])
        at[self.where[level - 1, units] == _NOWHERE] = _NOWHERE
        if (at == _NOWHERE).all():
            graph, block = self.gathered.atoms, self.gathered.block
            divide(graph, self.room, level, domain, units, block, moves, self.seed, self.node)
            return
        outermost = level == self.fabric.levels
        if (at == _NOWHERE).any() or (outermost and self.mend):
            before = at
            at = self._mended(level, children, units, at, moves)
            moved = units[at != before]
            self.where[: level - 1, moved] = _NOWHERE
        for i, child in enumerate(children.tolist()):
            inside = units[at == i]
            if len(inside):
                share = moves * len(inside) // len(units)
                self._seat(level - 1, child, inside, share if outermost else share // 2)

    def _mended(self, level: int, children: Ints, units: Ints, at: Ints, moves: int) -> Ints:
        graph, spaces = self.gathered.atoms, self.room.room[level - 1][children]
        kinds = self.room.kind_room[level - 1][children]
        if not (graph.kind[units] >= 0).any():
            kinds = np.zeros((len(children), 0), dtype=np.int64)
        start = _filled_in(at, self.gathered.block_of[units], spaces)
        local = Local.of(graph, units, spaces, kinds)
        return polished(local, start, moves, self.seed, heat=_HEAT)


def _filled_in(at: Ints, block_of: Ints, spaces: Ints) -> Ints:
    """Domains for the units that have none, those of a block over as few domains as can be."""
    at = at.copy()
    free = spaces - np.bincount(at[at >= 0], minlength=len(spaces))
    lost = np.flatnonzero(at == _NOWHERE)
    for block in np.unique(block_of[lost]).tolist():
        units = lost[block_of[lost] == block]
        while len(units):
            enough = np.flatnonzero(free >= len(units))
            j = int(enough[np.argmin(free[enough])]) if len(enough) else int(np.argmax(free))
            part = min(len(units), int(free[j]))
            at[units[:part]] = j
            free[j] -= part
            units = units[part:]
    return at
