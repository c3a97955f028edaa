"""Colouring the edges of a bipartite multigraph so that no vertex sees one colour too often.

An edge is a flow from a left vertex (the sender's switch) to a right vertex (the receiver's), a
colour is an uplink. A colour's load at a vertex is the number of its edges there; the least
possible maximum of a vertex of degree d under L colours is ceil(d / L), and by Koenig's theorem all
vertices reach theirs at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from ortools.sat.python import cp_model

Edge = tuple[int, int]
_NONE: Final = -1


def least_max_load(edges: Sequence[Edge], colours: int) -> int:
    """Least possible maximum load: ceil(largest degree / colours), 0 without edges."""
    degree: Counter[tuple[int, int]] = Counter()
    for left, right in edges:
        degree[0, left] += 1
        degree[1, right] += 1
    return -(-max(degree.values(), default=0) // colours)


def max_load(edges: Sequence[Edge], colouring: Sequence[int]) -> int:
    """Most edges of one colour at one vertex, 0 without edges."""
    loads: Counter[tuple[int, int, int]] = Counter()
    for (left, right), colour in zip(edges, colouring, strict=True):
        loads[0, left, colour] += 1
        loads[1, right, colour] += 1
    return max(loads.values(), default=0)


def max_weight_load(
    edges: Sequence[Edge], colouring: Sequence[int], weights: Sequence[float]
) -> float:
    """Largest sum of weights of one colour at one vertex, 0 without edges."""
    loads: defaultdict[tuple[int, int, int], float] = defaultdict(float)
    for (left, right), colour, weight in zip(edges, colouring, weights, strict=True):
        loads[0, left, colour] += weight
        loads[1, right, colour] += weight
    return max(loads.values(), default=0.0)


def balanced_colours(
    edges: Sequence[Edge], colours: int, weights: Sequence[float] | None = None
) -> list[int]:
    """A colour per edge with at most ceil(degree / colours) of each colour at every vertex.

    Each vertex is split into copies of at most `colours` edges, heaviest first, and the graph of
    the copies is coloured properly (Koenig 1916). Only counts are minimised; since the heaviest
    edges of a vertex share a copy they never share a colour there.
    """
    return ProperColouring(split_vertices(edges, colours, weights), colours).colouring


def proper_colours(edges: Sequence[Edge], colours: int) -> list[int]:
    """A colour per edge, no two edges of one colour at a vertex.

    Left and right vertices carry different numbers. Raises ValueError when a vertex has more than
    `colours` edges.
    """
    return ProperColouring(edges, colours).colouring


def split_vertices(
    edges: Sequence[Edge], colours: int, weights: Sequence[float] | None = None
) -> list[Edge]:
    """The edges between copies of their vertices, each of at most `colours` edges, heaviest first.

    Left and right copies carry different numbers.
    """
    order: Sequence[int] = range(len(edges))
    if weights is not None:
        order = sorted(order, key=lambda index: -weights[index])
    seen: Counter[tuple[int, int]] = Counter()
    number: dict[tuple[int, int, int], int] = {}
    split: list[Edge] = [(0, 0)] * len(edges)
    for index in order:
        ends = []
        for side, vertex in enumerate(edges[index]):
            copy = (side, vertex, seen[side, vertex] // colours)
            seen[side, vertex] += 1
            ends.append(number.setdefault(copy, len(number)))
        split[index] = (ends[0], ends[1])
    return split


class ProperColouring:
    """A colour per edge, no two edges of one colour at a vertex, made and changed by alternations.

    An alternation is a path or cycle of edges of two colours that no other edge of these colours
    touches; exchanging the two along it keeps the colouring proper.

    colouring: colour by edge; change it by `exchange` alone.
    """

    def __init__(self, edges: Sequence[Edge], colours: int) -> None:
        self._edges = edges
        vertices = 1 + max((max(edge) for edge in edges), default=-1)
        self._free = [(1 << colours) - 1] * vertices
        self._at = [[_NONE] * colours for _ in range(vertices)]
        self.colouring = [_NONE] * len(edges)
        for index, (left, right) in enumerate(edges):
            if not self._free[left] or not self._free[right]:
                full = right if self._free[left] else left
                raise ValueError(f"vertex {full} has more than {colours} edges; split it first")
            both = self._free[left] & self._free[right]
            colour = _lowest(both or self._free[left])
            if not both:
                # The path cannot reach `left`: it would arrive there by `colour`, free there.
                other = _lowest(self._free[right])
                self.exchange(self._path(right, colour, other), colour, other)
            self._set(index, colour)

    def alternation(self, index: int, other: int) -> list[int]:
        """The edges that must change with this one when it takes the colour `other`."""
        left, right = self._edges[index]
        colour = self.colouring[index]
        forth = self._path(right, other, colour)
        if forth and forth[-1] == index:
            return forth  # a cycle
        return [index, *forth, *self._path(left, other, colour)]

    def exchange(self, alternation: Sequence[int], colour: int, other: int) -> None:
        """Let the edges of an alternation of these two colours trade them."""
        for index in alternation:
            for vertex in self._edges[index]:
                self._at[vertex][self.colouring[index]] = _NONE
                self._free[vertex] |= 1 << self.colouring[index]
        for index in alternation:
            self._set(index, other if self.colouring[index] == colour else colour)

    def _set(self, index: int, colour: int) -> None:
        self.colouring[index] = colour
        for vertex in self._edges[index]:
            self._at[vertex][colour] = index
            self._free[vertex] &= ~(1 << colour)

    def _path(self, vertex: int, colour: int, other: int) -> list[int]:
        """Edges from a vertex on, the first of `colour`, then in turn; ends where it closes."""
        path: list[int] = []
        wanted = colour
        while (index := self._at[vertex][wanted]) != _NONE and (not path or index != path[0]):
            path.append(index)
            left, right = self._edges[index]
            vertex = right if vertex == left else left
            wanted = other if wanted == colour else colour
        return path


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def greedy_colours(edges: Sequence[Edge], colours: int) -> list[int]:
    """One edge after another takes the colour that is least used at its fuller end, as written.

    The usual static rule; its maximum can be above the least possible.
    """
    load: defaultdict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * colours)
    colouring = []
    for left, right in edges:
        up, down = load[0, left], load[1, right]
        colour = min(range(colours), key=lambda c: (max(up[c], down[c]), up[c] + down[c]))
        up[colour] += 1
        down[colour] += 1
        colouring.append(colour)
    return colouring


def cp_sat_colours(
    edges: Sequence[Edge], colours: int, *, deterministic_time: float = 10.0, seed: int = 0
) -> list[int]:
    """A colouring of least maximum load by CP-SAT, over counts of edges between two vertices.

    The greedy colouring is the hint and the answer when the budget ends before a better one is
    found; the same budget and seed give the same colouring.
    """
    model = cp_model.CpModel()
    together: defaultdict[Edge, list[int]] = defaultdict(list)
    for index, edge in enumerate(edges):
        together[edge].append(index)
    greedy = greedy_colours(edges, colours)
    hints = Counter(zip(edges, greedy, strict=True))
    counts: dict[tuple[Edge, int], cp_model.IntVar] = {}
    at_vertex: defaultdict[tuple[int, int, int], list[cp_model.IntVar]] = defaultdict(list)
    for edge, members in together.items():
        for colour in range(colours):
            count = model.new_int_var(0, len(members), f"n{edge}{colour}")
            counts[edge, colour] = count
            model.add_hint(count, hints[edge, colour])
            at_vertex[0, edge[0], colour].append(count)
            at_vertex[1, edge[1], colour].append(count)
        model.add(sum(counts[edge, colour] for colour in range(colours)) == len(members))
    worst = model.new_int_var(least_max_load(edges, colours), max(1, len(edges)), "worst")
    model.add_hint(worst, max_load(edges, greedy))
    for loads in at_vertex.values():
        model.add(sum(loads) <= worst)
    model.minimize(worst)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = deterministic_time
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return greedy
    colouring = [_NONE] * len(edges)
    for edge, members in together.items():
        spread = [c for c in range(colours) for _ in range(solver.value(counts[edge, c]))]
        for index, colour in zip(members, spread, strict=True):
            colouring[index] = colour
    return colouring
