"""Uplinks of two layers at once, where the fabric is made of planes.

Uplink c of every first switch leads to switch c of its group (a pod), and uplink m of that to the
spine (c, m), which has one link down to switch c of every group. A connection between groups takes
uplinks c and m on its way up, and then has one way down. The first layer is kept at its least
possible maximum; for the second, the colours of each group are evened out before each plane is
coloured by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from .edge_colouring import Edge, ProperColouring, balanced_colours, split_vertices

Groups = Sequence[Edge | None]
"""By edge, its sending and receiving group, numbered apart; None for an edge inside a group."""

EFFORT = 400
"""Edges looked at in search of a better exchange, for each edge there is."""


def plane_colours(
    edges: Sequence[Edge],
    groups: Groups,
    uplinks: int,
    upper_uplinks: int,
    weights: Sequence[float] | None = None,
) -> tuple[list[int], list[int | None]]:
    """(uplink of the first layer, of the second or None) by edge.

    At every first switch at most ceil(degree / uplinks) edges have one uplink: the least possible.
    Second-layer links of a group's switch c have at most ceil(its edges / upper_uplinks).
    """
    colouring = ProperColouring(split_vertices(edges, uplinks, weights), uplinks)
    _even_out(colouring, groups, least_upper_load(groups, uplinks, upper_uplinks) * upper_uplinks)
    lower = colouring.colouring
    upper: list[int | None] = [None] * len(edges)
    planes: defaultdict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        if group is not None:
            planes[lower[index]].append(index)
    for members in planes.values():
        between = [group for index in members if (group := groups[index]) is not None]
        part = None if weights is None else [weights[index] for index in members]
        coloured = balanced_colours(between, upper_uplinks, part)
        for index, colour in zip(members, coloured, strict=True):
            upper[index] = colour
    return lower, upper


def least_upper_load(groups: Groups, uplinks: int, upper_uplinks: int) -> int:
    """No choice has a smaller maximum on the second layer: ceil(a group's edges / its links)."""
    degree = Counter(group for pair in groups if pair is not None for group in pair)
    return -(-max(degree.values(), default=0) // (uplinks * upper_uplinks))


def _even_out(colouring: ProperColouring, groups: Groups, most: int) -> None:
    """Exchange colours until no group has more than `most` edges of one colour, or none helps.

    Every exchange lowers the edges above `most`, or keeps them and lowers the sum of squares.
    """
    load: Counter[tuple[int, int]] = Counter()
    members: defaultdict[int, list[int]] = defaultdict(list)
    for index, pair in enumerate(groups):
        for group in pair or ():
            load[group, colouring.colouring[index]] += 1
            members[group].append(index)
    colours = sorted({colour for _, colour in load})
    left = EFFORT * len(groups)
    improved = True
    while improved and left > 0:
        improved = False
        for group, colour in sorted(key for key, count in load.items() if count > most):
            for index in members[group]:
                if load[group, colour] <= most or left <= 0:
                    break
                if colouring.colouring[index] != colour:
                    continue
                for other in sorted(colours, key=lambda c: load[group, c]):
                    if load[group, other] >= most:
                        break
                    chain = colouring.alternation(index, other)
                    left -= len(chain)
                    change = _change(chain, colouring.colouring, groups, colour, other)
                    if _gain(load, change, most) < (0, 0):
                        colouring.exchange(chain, colour, other)
                        for key, count in change.items():
                            load[key] += count
                        improved = True
                        break


def _change(
    chain: Sequence[int], colour_of: Sequence[int], groups: Groups, colour: int, other: int
) -> Counter[tuple[int, int]]:
    change: Counter[tuple[int, int]] = Counter()
    for index in chain:
        before = colour_of[index]
        after = other if before == colour else colour
        for group in groups[index] or ():
            change[group, before] -= 1
            change[group, after] += 1
    return change


def _gain(
    load: Counter[tuple[int, int]], change: Counter[tuple[int, int]], most: int
) -> tuple[int, int]:
    above = squares = 0
    for key, count in change.items():
        before = load[key]
        after = before + count
        above += max(0, after - most) - max(0, before - most)
        squares += after * after - before * before
    return above, squares
