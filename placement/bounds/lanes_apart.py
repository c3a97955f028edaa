"""What splitting atoms can save at most, where every rank of an atom has a network of its own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ..jobs.index import PAIRS, RING, TREE, Floats, Ints
from ..jobs.units import UnitGraph

_EVEN = 1e-9
"""Relative difference up to which weights are the same."""

_Net = tuple[int, tuple[int, ...]]
"""A form, and the atoms that a net or link joins."""


@dataclass(frozen=True)
class Lanes:
    """Ranks of atoms in lanes: no group but those of one atom joins ranks of two lanes.

    splitting: bytes that splitting an atom costs at least. moving: `[k - 1]`, the most that moving
    one whole atom can cost while domains hold up to k atoms more than they have room for.
    """

    splitting: float
    moving: Floats

    def floor(self, whole: float) -> float:
        """What no placement costs less than, if none of whole atoms costs less than `whole`.

        All lanes are alike. Take the cheapest, and give all lanes its placement. If k atoms in all
        are then beyond the room of their domains, move them: that makes a placement of whole atoms.
        A domain that v of them are too many for holds fewer atoms than it has room for in another
        lane. So v + 1 of its atoms at least are elsewhere in that lane and are split, and over all
        domains more than k are.
        """
        more = np.arange(1, len(self.moving) + 1)
        split = (more + 1) * self.splitting
        least: Floats = np.maximum(split, whole + split - more * self.moving)
        return float(min(whole, least.min(initial=whole)))


def find_lanes(graph: UnitGraph, atom_of: Ints, rooms: Ints) -> Lanes | None:
    """The lanes of a graph of ranks, where all of its groups lie in them.

    rooms: whole atoms that each outermost domain holds, which leave none of its free devices over.
    """
    atoms = int(atom_of.max()) + 1
    size = graph.units // atoms
    splitting = np.zeros(atoms)
    across: list[tuple[int, Ints, float]] = []
    for net in range(graph.nets):
        members = graph.members(net)
        weight, form = float(graph.weight[net]), int(graph.form[net])
        if form == PAIRS and (graph.ranks[graph.start[net] : graph.start[net + 1]] != 1).any():
            return None
        inside = atom_of[members]
        if (inside != inside[0]).any():
            across.append((form, members, weight))
        elif len(members) == size:
            least = {RING: 2.0, TREE: 1.0, PAIRS: 2.0 * (size - 1)}[form]
            splitting[inside[0]] += least * weight
    for ends, weight in zip(graph.link.T, graph.link_weight.tolist(), strict=True):
        if atom_of[ends[0]] != atom_of[ends[1]]:
            across.append((PAIRS, ends, weight / 2))
        elif size == 2:
            splitting[atom_of[ends[0]]] += weight
    lane = _lanes(graph.units, atom_of, size, [members for _, members, _ in across])
    if lane is None:
        return None
    alike: list[defaultdict[_Net, float]] = [defaultdict(float) for _ in range(size)]
    for form, members, weight in across:
        joined = (form, tuple(sorted(atom_of[members].tolist())))
        alike[int(lane[members[0]])][joined] += weight
    for other in alike[1:]:
        if other.keys() != alike[0].keys():
            return None
        if any(abs(other[net] - weight) > _EVEN * weight for net, weight in alike[0].items()):
            return None
    moving = np.array([_moving(alike[0], atoms, int(rooms.max()) + k) for k in range(1, atoms + 1)])
    return Lanes(float(splitting.min()), moving * size * (1 + _EVEN))


def _lanes(ranks: int, atom_of: Ints, size: int, across: list[Ints]) -> Ints | None:
    """The lane of each rank: ranks that groups join, one of every atom; None where they differ."""
    parent = list(range(ranks))

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    for members in across:
        first, *others = members.tolist()
        for other in others:
            parent[root(other)] = root(first)
    lanes, lane = np.unique([root(rank) for rank in range(ranks)], return_inverse=True)
    if len(lanes) != size:
        return None
    filled = np.unique(lane * (int(atom_of.max()) + 1) + atom_of)
    return lane.astype(np.int64) if len(filled) == ranks else None


def _moving(nets: dict[_Net, float], atoms: int, most: int) -> float:
    """The most that moving any atom can cost one lane while no domain holds more than `most`."""
    cost = np.zeros(atoms)
    for (form, joined), weight in nets.items():
        if form == PAIRS:
            each = 2.0 * (len(joined) - 1)
        else:
            # A ring that is in several domains already has one edge more at most.
            each = 2.0 if form == RING and len(joined) <= most else 1.0
        cost[list(joined)] += each * weight
    return float(cost.max())
