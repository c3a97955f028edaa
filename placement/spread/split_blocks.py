"""From counts of atoms to blocks: which are split, over which domains, and by which atoms."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..jobs.units import UnitGraph
from .structure import Chains


def parts_of_blocks(spread: Ints, size: int) -> tuple[Ints, list[Ints]]:
    """Whole blocks, and the parts of the others, that make up a spread of atoms.

    Returns `[class, domain]` whole blocks, and for each class `[block, domain]` how many atoms of
    each split block go into each domain. A domain's atoms that make no whole block stay together in
    one split block where the parts of a class can be combined so.
    """
    whole = spread // size
    left = spread - whole * size
    return whole, [_combined(row, size) for row in left]


def _combined(left: Ints, size: int) -> Ints:
    """Parts `left[j]` put together to blocks of `size` atoms, as few as possible to a block."""
    left = left.copy()
    blocks: list[Ints] = []
    while left.any():
        block = np.zeros_like(left)
        j = int(np.argmax(left))
        block[j] = left[j]
        left[j] = 0
        for k in _adding_up(left, size - int(block[j])):
            block[k] += left[k]
            left[k] = 0
        missing = size - int(block.sum())
        while missing:
            k = int(np.argmax(left))
            part = min(missing, int(left[k]))
            block[k] += part
            left[k] -= part
            missing -= part
        blocks.append(block)
    return np.array(blocks, dtype=np.int64).reshape(-1, len(left))


def _adding_up(parts: Ints, wanted: int) -> list[int]:
    """The fewest of the parts that add up to `wanted`; none where no choice of them does."""
    best: list[list[int] | None] = [[]] + [None] * wanted
    for k in np.flatnonzero(parts).tolist():
        part = int(parts[k])
        for total in range(wanted, part - 1, -1):
            shorter, now = best[total - part], best[total]
            if shorter is not None and (now is None or len(shorter) + 1 < len(now)):
                best[total] = [*shorter, k]
    return best[wanted] or []


def hosted(parts: list[Ints], whole: Ints, link: Floats) -> list[Ints]:
    """For each class the domain that each of its split blocks counts for: one of its largest parts.

    Where several are as large, the one in which the classes linked to it have more blocks.
    """
    held = whole.copy()
    hosts: list[Ints] = []
    for p, blocks in enumerate(parts):
        found = np.zeros(len(blocks), dtype=np.int64)
        for i, block in enumerate(blocks):
            surplus = np.zeros(len(block))
            if p > 0 and link[p - 1] > 0:
                surplus += np.minimum(1, np.maximum(0, held[p - 1] - held[p]))
            if p + 1 < len(parts) and link[p] > 0:
                surplus += np.minimum(1, np.maximum(0, held[p + 1] - held[p]))
            largest = np.flatnonzero(block == block.max())
            found[i] = largest[np.argmax(surplus[largest])]
            held[p, found[i]] += 1
        hosts.append(found)
    return hosts


def send_parts(
    graph: UnitGraph,
    chains: Chains,
    block_of: Ints,
    parts_of: dict[int, dict[int, int]],
    where: Ints,
) -> None:
    """Send atoms of split blocks from the domain that hosts them to others: changes `where`.

    parts_of: by block, how many of its atoms go into each other domain. where: the domain of each
    atom. Those are sent that have most links where they go, and least where they are.
    """
    if not parts_of:
        return
    atoms_of = _atoms_by_block(block_of)
    far, weight, start = _neighbours(graph)
    for members in chains.members:
        for block in members.tolist():
            if block not in parts_of:
                continue
            atoms = atoms_of[block]
            host = int(where[atoms[0]])
            staying = atoms.tolist()
            for k, count in sorted(parts_of[block].items(), key=lambda part: (-part[1], part[0])):
                gains = []
                for atom in staying:
                    span = slice(start[atom], start[atom + 1])
                    at, saved = where[far[span]], weight[span]
                    gains.append(float(saved[at == k].sum() - saved[at == host].sum()))
                order = np.argsort(-np.array(gains), kind="stable")[:count]
                for atom in [staying[i] for i in order.tolist()]:
                    where[atom] = k
                    staying.remove(atom)


def _atoms_by_block(block_of: Ints) -> list[Ints]:
    order = np.argsort(block_of, kind="stable")
    return np.split(order, np.cumsum(np.bincount(block_of))[:-1])


def _neighbours(graph: UnitGraph) -> tuple[Ints, Floats, Ints]:
    """The far end and the weight of each unit's links, unit after unit, and where each begins."""
    ends = graph.link.ravel()
    far = graph.link[::-1].ravel()
    weight = np.tile(graph.link_weight, 2)
    order = np.argsort(ends, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=graph.units))])
    return far[order], weight[order], start.astype(np.int64)
