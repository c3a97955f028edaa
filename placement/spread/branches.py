"""The domains of a fabric as a tree that keeps only what one job can tell apart."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..jobs.index import Fabric, Ints

Signature = tuple[object, ...]


@dataclass
class Branch:
    """One domain with free devices.

    capacity: free devices by accelerator kind, each cut to what the job can use.
    twin: number of its group of siblings that no cost can tell apart.
    """

    level: int
    number: int
    capacity: Ints
    signature: Signature
    children: list[Branch] = field(default_factory=list)
    twin: int = 0


def branches_of(fabric: Fabric, ranks: int) -> list[Branch]:
    """The outermost domains that have free devices, each with the domains inside it.

    Domains with the same signature hold the same free devices in the same arrangement as far as
    a job of `ranks` ranks can use them.
    """
    kinds = len(fabric.kinds)
    free = np.zeros((fabric.domain.shape[1], kinds), dtype=np.int64)
    np.add.at(free, (fabric.slot_node, fabric.slot_kind), 1)
    inside: dict[int, list[Branch]] = {}
    for node in sorted(set(fabric.slot_node.tolist())):
        capacity = np.minimum(free[node], ranks)
        leaf = Branch(0, node, capacity, tuple(capacity.tolist()))
        parent = int(fabric.domain[1][node]) if fabric.levels > 1 else 0
        inside.setdefault(parent, []).append(leaf)
    for level in range(1, fabric.levels):
        above: dict[int, list[Branch]] = {}
        representative = {
            int(domain): node for node, domain in enumerate(fabric.domain[level].tolist())
        }
        for number, children in inside.items():
            _sort_and_mark(children)
            signature = tuple(child.signature for child in _enough(children, ranks))
            capacity = np.minimum(np.sum([c.capacity for c in children], axis=0), ranks)
            domain = Branch(level, number, capacity, signature, children)
            outer = level + 1
            parent = 0
            if outer < fabric.levels:
                parent = int(fabric.domain[outer][representative[number]])
            above.setdefault(parent, []).append(domain)
        inside = above
    roots = inside.get(0, [])
    _sort_and_mark(roots)
    return roots


def _sort_and_mark(siblings: list[Branch]) -> None:
    siblings.sort(key=lambda d: (d.signature, d.number))
    twin = -1
    previous: Signature | None = None
    for domain in siblings:
        if domain.signature != previous:
            twin, previous = twin + 1, domain.signature
        domain.twin = twin


def at_level(roots: list[Branch], level: int) -> list[Branch]:
    """All domains of one level, parents' order."""
    found = roots
    while found and found[0].level > level:
        found = [child for domain in found for child in domain.children]
    return found


def trimmed(roots: list[Branch], ranks: int) -> list[Branch]:
    """The tree with at most as many twins side by side as the job has ranks."""
    return [
        replace(domain, children=trimmed(domain.children, ranks))
        for domain in _enough(roots, ranks)
    ]


def _enough(siblings: list[Branch], ranks: int) -> list[Branch]:
    kept: list[Branch] = []
    count: dict[int, int] = {}
    for domain in siblings:
        count[domain.twin] = count.get(domain.twin, 0) + 1
        if count[domain.twin] <= ranks:
            kept.append(domain)
    return kept


def canonical(
    source: list[Branch], target: list[Branch], node_of: Ints, fabric: Fabric
) -> dict[int, int]:
    """Where each loaded node goes when twins are sorted by load, most first.

    The costs of a placement do not change when its ranks move along this map.
    """
    load = [np.bincount(row[node_of], minlength=int(row.max()) + 1) for row in fabric.domain]
    moved: dict[int, int] = {}
    _match(source, target, load, moved)
    return moved


def _match(
    source: list[Branch], target: list[Branch], load: list[Ints], moved: dict[int, int]
) -> None:
    places: dict[int, list[Branch]] = {}
    for domain in target:
        places.setdefault(domain.twin, []).append(domain)
    loaded = [d for d in source if load[d.level][d.number]]
    loaded.sort(key=lambda d: (-int(load[d.level][d.number]), d.number))
    for domain in loaded:
        goal = places[domain.twin].pop(0)
        if domain.level == 0:
            moved[domain.number] = goal.number
        else:
            _match(domain.children, goal.children, load, moved)
