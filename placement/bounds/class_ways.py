"""Ways to class the units of a job: which of the links between its smallest classes lie inside."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np

from ..jobs.index import Ints
from ..jobs.units import UnitGraph
from ..spread.structure import ways_to_class

_MOST_JOINED = 3
"""Weights of links that join classes, heaviest first, and directions that do."""
_APART = 1.3
"""Ratio of weights from which they are different."""
_MOST_PAIRS = 1_000
"""Pairs of linked classes up to which directions are looked for."""

Pair = tuple[int, int]


def class_ways(graph: UnitGraph) -> list[Ints]:
    """By way, the class of each unit: those that nets join, and those that some links join too.

    Links of about one weight, or those of one or more directions of the grid that classes make. Of
    links between classes only those of a chain count; the others do where their ends are in one.
    """
    ways = ways_to_class(graph)
    first = ways[0]
    across = first[graph.link[0]] != first[graph.link[1]]
    weights = np.unique(graph.link_weight[across])[::-1]
    ends = np.flatnonzero(weights[:-1] > weights[1:] * _APART)
    joining = []
    for few in np.split(weights, ends + 1)[:_MOST_JOINED] if len(weights) else ():
        alike = across & (graph.link_weight >= few[-1]) & (graph.link_weight <= few[0])
        joining.append(first[graph.link[:, alike]])
    joining.extend(_along_directions(first, first[graph.link[:, across]]))
    for links in joining:
        class_of = _joined(first, links)
        if class_of.any() and not any((class_of == way).all() for way in ways):
            ways.append(class_of)
    return ways


def _along_directions(class_of: Ints, links: Ints) -> list[Ints]:
    """Pairs of classes `[end, pair]` in each direction that links every class, and in several."""
    pairs = np.unique(np.sort(links, axis=0), axis=1)
    if pairs.shape[1] > _MOST_PAIRS:
        return []
    classes = int(class_of.max()) + 1
    covering = [some for some in directions(pairs) if len(np.unique(some)) == classes][
        :_MOST_JOINED
    ]
    several = chain.from_iterable(
        combinations(covering, count) for count in range(1, len(covering) + 1)
    )
    return [np.concatenate(some, axis=1) for some in several]


def directions(pairs: Ints) -> list[Ints]:
    """Linked pairs `[end, pair]` by direction: pairs that face each other in a ring of four share.

    In a grid these are its rows and columns, each step of a row by itself (Djokovic, J. Comb.
    Theory B 14, 1973).
    """
    edges: list[Pair] = [(a, b) for a, b in pairs.T.tolist()]
    next_to: dict[int, set[int]] = {}
    for a, b in edges:
        next_to.setdefault(a, set()).add(b)
        next_to.setdefault(b, set()).add(a)
    leader = {edge: edge for edge in edges}

    def root(edge: Pair) -> Pair:
        while leader[edge] != edge:
            leader[edge] = leader[leader[edge]]
            edge = leader[edge]
        return edge

    for a, b in edges:
        for beside in next_to[a] - {b}:
            for facing in (next_to[b] & next_to[beside]) - {a}:
                other = (min(beside, facing), max(beside, facing))
                leader[root(other)] = root((a, b))
    found: dict[Pair, list[Pair]] = {}
    for edge in edges:
        found.setdefault(root(edge), []).append(edge)
    return [np.array(some).T for some in found.values()]


def _joined(class_of: Ints, links: Ints) -> Ints:
    """Classes that links join as one, numbered by first appearance."""
    leader = np.arange(int(class_of.max()) + 1)
    for one, other in np.unique(links, axis=1).T.tolist():
        leader[leader == leader[other]] = leader[one]
    _, first, number = np.unique(leader[class_of], return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]
