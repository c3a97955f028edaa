"""How the ranks of a job are gathered: into atoms that fit a node, and blocks of several atoms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..bounds.lanes_apart import Lanes, find_lanes
from ..spread.structure import Chains, find_chains
from .index import ANY_KIND, PAIRS, Demand, Fabric, Ints
from .units import (
    LEAST_GRIP,
    UnitGraph,
    contract,
    gather_heaviest,
    gatherings,
    mixed_kinds,
    unit_graph,
)

_LEAST_BLOCK_GRIP = 0.4
_MOST_SHORT = 0.25
"""Part of the blocks that may have to be split for want of room for whole ones."""
_MOST_WAYS = 2
"""Ways to make blocks that are tried where none hold together."""
_MOST_TOLD = 40_000_000
"""Steps, about, in which it is found what parts of blocks cost, beyond which it takes too long."""
_MOST_IN_LANES = 64
"""Atoms up to which the lanes of their ranks are looked for."""


@dataclass(frozen=True)
class Gathered:
    """A job in units, coarsest last.

    atom_of: the atom of each rank; an atom has `atom` ranks and stays in a node.
    atoms: the graph of atoms.
    block_of: the block of each atom; a block has `block` atoms and stays in an outermost domain.
    blocks: the graph of blocks. chains: its chains, where it has any.
    atom_grip: how firmly the atoms hold together; at 1 or more, gathering them costs nothing at the
        spine. grip: the same of atoms and of all sets of them but the last, the blocks.
    bearable: factors for the weights of nets and links at which that is true of blocks; none where
        whole blocks do not fit.
    lanes: where few atoms hold together less than firmly, what splitting them can save.
    others: the same atoms in other blocks, which may serve better.
    """

    atom_of: Ints
    atom: int
    atoms: UnitGraph
    block_of: Ints
    block: int
    blocks: UnitGraph
    chains: Chains | None
    atom_grip: float
    grip: float
    bearable: list[tuple[float, float]]
    lanes: Lanes | None = None
    others: tuple[Gathered, ...] = ()

    def floor(self, whole: float) -> float:
        """What no placement costs less than, if none of whole atoms costs less than `whole`."""
        by_grip = whole * min(1.0, self.atom_grip)
        return by_grip if self.lanes is None else max(by_grip, self.lanes.floor(whole))


def gather(fabric: Fabric, demand: Demand) -> Gathered:
    """Gather the ranks of a job as far as it pays and the fabric has room for whole sets."""
    nodes = fabric.domain.shape[1]
    free = np.bincount(fabric.slot_node, minlength=nodes)
    graph = alone = unit_graph(demand)
    atom_of, atom, grip = np.arange(demand.ranks), 1, 1.0
    while True:
        found = gather_heaviest(graph, int(free.max(initial=1)) // atom)
        if found is None or found.grip < LEAST_GRIP or mixed_kinds(graph, found.unit_of):
            break
        size = atom * found.size
        if int((free // size).sum()) * size < demand.ranks:
            break
        if not _kinds_fit(fabric, free // size, graph, found.unit_of, found.size):
            break
        graph = contract(graph, found.unit_of)
        atom_of, atom, grip = found.unit_of[atom_of], size, min(grip, grip * found.grip)
    atoms, atom_grip = graph, grip
    top = fabric.domain[-1]
    room = np.bincount(top, weights=free // atom).astype(np.int64)
    lanes = None
    even = (room * atom == np.bincount(top, weights=free)).all() and (graph.kind == ANY_KIND).all()
    if grip < 1.0 and even and atoms.units <= _MOST_IN_LANES:
        lanes = find_lanes(alone, atom_of, room)
    block_of, block = np.arange(graph.units), 1
    bearable = [(1.0, 1.0)]
    chains, firm = find_chains(graph), None
    while chains is None:
        largest = int(room.max(initial=0)) // block
        found = gather_heaviest(graph, largest) if largest >= 2 else None
        if found is None or found.grip < _LEAST_BLOCK_GRIP or mixed_kinds(graph, found.unit_of):
            break
        size = block * found.size
        short = 1 - int((room // size).sum()) * size / atoms.units
        if short > _MOST_SHORT or (graph.kind >= 0).any():
            break
        graph = contract(graph, found.unit_of)
        # Of several gatherings only the last may lean on factors; the others count whole.
        grip *= min(1.0, *(min(pair) for pair in bearable)) if bearable != [(1.0, 1.0)] else 1.0
        block_of, block, bearable = found.unit_of[block_of], size, found.bearable()
        chains = find_chains(graph)
        loose = find_chains(graph, leave_nets=True) if chains is None and firm is None else None
        if loose is not None:
            firm = Gathered(
                atom_of,
                atom,
                atoms,
                block_of,
                block,
                graph,
                loose,
                atom_grip,
                grip,
                bearable,
                lanes,
            )
    if chains is None:
        return _loosely(atom_of, atom, atoms, atom_grip, lanes, firm)
    return Gathered(
        atom_of, atom, atoms, block_of, block, graph, chains, atom_grip, grip, bearable, lanes
    )


def _loosely(
    atom_of: Ints,
    atom: int,
    atoms: UnitGraph,
    grip: float,
    lanes: Lanes | None,
    firm: Gathered | None,
) -> Gathered:
    """Atoms in sets that make chains, even where such sets do not fit or hardly hold together.

    Of several, the sets by which most can be told of the traffic of their parts; the next as well,
    as it depends on rooms and weights which serve better. firm: sets that hold together.
    """
    found: list[tuple[float, int, Gathered]] = []
    if firm is not None and firm.chains is not None:
        found.append((_untold_bytes(atoms, firm.block_of, firm.chains), firm.block, firm))
    for block_of in _chained_sets(atoms) if (atoms.kind == ANY_KIND).all() else ():
        graph = contract(atoms, block_of)
        chains = find_chains(graph, leave_nets=True)
        block = atoms.units // graph.units
        if chains is None or block in [size for _, size, _ in found]:
            continue
        gathered = Gathered(
            atom_of, atom, atoms, block_of, block, graph, chains, grip, grip, [], lanes
        )
        found.append((_untold_bytes(atoms, block_of, chains), block, gathered))
    if not found:
        own = np.arange(atoms.units)
        return Gathered(atom_of, atom, atoms, own, 1, atoms, None, grip, grip, [], lanes)
    first, *others = [each for _, _, each in sorted(found, key=lambda one: one[:2])]
    return replace(first, others=tuple(others[: _MOST_WAYS - 1]))


def _chained_sets(atoms: UnitGraph) -> Iterator[Ints]:
    """The set of each atom, in several ways: the firmest sets of the firmest, and those of nets."""
    for in_nets in (False, True):
        graph, block_of = atoms, np.arange(atoms.units)
        found = gather_heaviest(atoms, atoms.units // 2, in_nets)
        while found is not None:
            graph, block_of = contract(graph, found.unit_of), found.unit_of[block_of]
            if find_chains(graph) is not None:
                yield block_of
                break
            found = gather_heaviest(graph, graph.units // 2)
    for each in gatherings(atoms, atoms.units // 2):
        if atoms.units * each.size**3 <= _MOST_TOLD:
            yield each.unit_of


def _untold_bytes(atoms: UnitGraph, block_of: Ints, chains: Chains) -> float:
    """Bytes of nets that say nothing of parts of blocks: see `SplitCounts`.

    Told are those of all atoms of a block, and those that have as many in every block of a class.
    """
    size = np.bincount(block_of)
    class_of = np.empty(len(size), dtype=np.int64)
    for number, members in enumerate(chains.members):
        class_of[members] = number
    untold = 0.0
    for net in range(atoms.nets):
        members = atoms.members(net)
        blocks, count = np.unique(block_of[members], return_counts=True)
        if len(blocks) == 1:
            told = count[0] == size[blocks[0]]
        else:
            every = len(blocks) == len(chains.members[class_of[blocks[0]]])
            told = every and bool((count == count[0]).all())
            told = told and bool((class_of[blocks] == class_of[blocks[0]]).all())
        if not told:
            held = len(members) - 1 if atoms.form[net] == PAIRS else 1
            untold += float(atoms.weight[net]) * len(members) * held
    return untold


def _kinds_fit(fabric: Fabric, rooms: Ints, graph: UnitGraph, unit_of: Ints, size: int) -> bool:
    """Whether each kind has room for the whole sets that need it."""
    needed = np.bincount(graph.kind[graph.kind >= 0], minlength=len(fabric.kinds)) // size
    have = np.bincount(fabric.kind, weights=rooms, minlength=len(fabric.kinds))
    return bool((needed <= have).all())
