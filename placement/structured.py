"""Placing a job whose units form chains of classes: counts from the spine inwards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .anneal import MOVES_PER_WORK
from .counts import Counts
from .index import ANY_KIND, Fabric, Ints
from .matching import match_chain
from .room import Room
from .search import search
from .structure import Chains

_INNER_SHARE = 0.25
"""Part of the work that goes to the levels inside the outermost."""
_LEAST_WORK = 4000 / MOVES_PER_WORK


@dataclass(frozen=True)
class Leaf:
    """A domain in which some units end as far as counts tell: a node, or a wider one."""

    level: int
    domain: int


def outermost_counts(chains: Chains, room: Room, fabric: Fabric, block: int) -> Counts:
    """The problem of spreading the classes over the outermost domains.

    block: units of `room` in one unit of the chains. Blocks that cannot all be whole have one more
    domain, the last, which stands for what is left over everywhere.
    """
    whole = _counts(chains, chains.height, room, fabric.levels - 1, room.inside[-1][0], block)
    short = int(chains.height.sum() - whole.room.sum())
    if short <= 0:
        return whole
    kinds = np.zeros((1, whole.kind_room.shape[1]), dtype=np.int64)
    return replace(
        whole,
        room=np.append(whole.room, short),
        kind_room=np.concatenate([whole.kind_room, kinds]),
    )


def _counts(
    chains: Chains, height: Ints, room: Room, level: int, domains: Ints, block: int
) -> Counts:
    needs = bool((chains.kind != ANY_KIND).any())
    kinds = room.kind_room[level][domains] // block
    return Counts(
        height=height,
        cost=chains.cost,
        link=chains.link,
        room=room.room[level][domains] // block,
        kind=chains.kind,
        kind_room=kinds if needs else np.zeros((len(domains), 0), dtype=np.int64),
    )


def _part(problem: Counts, classes: Ints) -> Counts:
    """The problem of some of its classes; chains end where the next class is not among them."""
    joined = np.append(np.diff(classes) == 1, False)
    return replace(
        problem,
        height=problem.height[classes],
        cost=problem.cost[classes],
        link=np.where(joined, problem.link[classes], 0.0),
        kind=problem.kind[classes],
    )


def starts_of(problem: Counts) -> list[Ints]:
    """Simple spreads: class after class, and all classes side by side."""
    natural = np.arange(problem.domains)
    largest = np.argsort(-problem.room, kind="stable")
    found = [_class_after_class(problem, natural), _class_after_class(problem, largest)]
    found.append(_side_by_side(problem, largest))
    return found


def _class_after_class(problem: Counts, order: Ints) -> Ints:
    free, kind_free = problem.room.copy(), problem.kind_room.copy()
    spread = np.zeros((problem.classes, problem.domains), dtype=np.int64)
    _place_rest(problem, spread, free, kind_free, order)
    return spread


def _side_by_side(problem: Counts, order: Ints) -> Ints:
    free, kind_free = problem.room.copy(), problem.kind_room.copy()
    spread = np.zeros((problem.classes, problem.domains), dtype=np.int64)
    if not problem.kind_room.shape[1]:
        for j in order.tolist():
            rows = int(free[j]) // problem.classes
            left = problem.height - spread.sum(axis=1)
            spread[:, j] = np.minimum(rows, left)
            free[j] -= int(spread[:, j].sum())
    _place_rest(problem, spread, free, kind_free, order)
    return spread


def _place_rest(problem: Counts, spread: Ints, free: Ints, kind_free: Ints, order: Ints) -> None:
    """Place what is left of every class; those that need a kind come first."""
    kinds = kind_free.shape[1] > 0
    rest = (problem.height - spread.sum(axis=1)).tolist()
    for p in (
        np.argsort(problem.kind == ANY_KIND, kind="stable").tolist()
        if kinds
        else range(problem.classes)
    ):
        left = rest[p]
        wanted = int(problem.kind[p])
        for j in order.tolist():
            if left == 0:
                break
            most = int(free[j])
            if most == 0:
                continue
            if kinds and wanted != ANY_KIND:
                most = min(most, int(kind_free[j, wanted]))
                kind_free[j, wanted] -= min(most, left)
            amount = min(most, left)
            spread[p, j] += amount
            free[j] -= amount
            left -= amount


def descend(
    chains: Chains, room: Room, fabric: Fabric, block: int, outer: Ints, work: float, seed: int
) -> tuple[list[Leaf], list[Ints]]:
    """From counts by outermost domain to counts by leaf, level by level.

    Returns the leaves, and for each class the leaf index of each of its places. With blocks of
    several units a leaf is the smallest domain in which whole blocks still fit.
    """
    leaves: list[Leaf] = []
    places: list[list[int]] = [[] for _ in range(len(chains.members))]
    total = int(chains.height.sum())

    def settle(height: Ints, leaf: int) -> None:
        for p in np.flatnonzero(height).tolist():
            places[p].extend([leaf] * int(height[p]))

    def inwards(level: int, domain: int, height: Ints) -> None:
        children = room.inside[level][domain]
        if level == 0 or int((room.room[level - 1][children] // block).sum()) < height.sum():
            settle(height, len(leaves))
            leaves.append(Leaf(level, domain))
            return
        present = np.flatnonzero(height)
        problem = _part(_counts(chains, height, room, level - 1, children, block), present)
        starts = starts_of(problem)
        starts = [start for start in starts if problem.fits(start)]
        if not starts:
            settle(height, len(leaves))
            leaves.append(Leaf(level, domain))
            return
        spread = starts[0]
        if level > 1 or int(problem.room.max()) > 1:
            share = work * _INNER_SHARE * int(height.sum()) / total
            spread = search(problem, starts, max(share, _LEAST_WORK), seed)
        for i, child in enumerate(children.tolist()):
            if spread[:, i].any():
                inside = np.zeros_like(height)
                inside[present] = spread[:, i]
                inwards(level - 1, child, inside)

    for i, domain in enumerate(room.inside[-1][0].tolist()):
        if outer[:, i].any():
            inwards(fabric.levels - 1, domain, outer[:, i])
    return leaves, [np.array(p, dtype=np.int64) for p in places]


def leaf_of_units(
    chains: Chains, fabric: Fabric, leaves: list[Leaf], places: list[Ints], units: int
) -> Ints:
    """The leaf of every unit, linked ones side by side."""
    node_in = {}
    for level in range(fabric.levels):
        label = fabric.domain[level]
        first = np.full(int(label.max()) + 1, -1, dtype=np.int64)
        first[label[::-1]] = np.arange(len(label))[::-1]
        node_in[level] = first
    rows = np.empty((fabric.levels, len(leaves)), dtype=np.int64)
    for i, leaf in enumerate(leaves):
        node = node_in[leaf.level][leaf.domain]
        for level in range(fabric.levels):
            inside = level < leaf.level
            rows[level, i] = -1 - i if inside else fabric.domain[level][node]
    # Labels below a leaf are its own, so that they never join two leaves.
    rows -= rows.min()
    ordered = match_chain(places, [bool(w > 0) for w in chains.link.tolist()], rows)
    found = np.empty(units, dtype=np.int64)
    for members, where in zip(chains.members, ordered, strict=True):
        found[members] = where
    return found
