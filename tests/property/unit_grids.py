"""Classes of units in a grid, and what brute force says of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Floats, Ints
from railweave.placement.jobs.units import UnitGraph, unit_graph


def grid(chance: np.random.Generator, classes: int, shape: tuple[int, ...]) -> UnitGraph:
    """Classes of units in a grid, nets along some of its axes, links to the next class."""
    units = int(np.prod(shape))
    number = np.arange(units).reshape(shape)
    groups: list[tuple[int, list[int], float]] = []
    axes = [a for n in range(1, len(shape)) for a in combinations(range(len(shape)), n)]
    nets = [
        (axis, int(chance.choice([RING, TREE, PAIRS])), float(chance.choice([1.0, 2.0, 5.0])))
        for axis in axes
        if chance.random() < 0.6
    ]
    for c in range(classes):
        groups.append((RING, (number.ravel() + c * units).tolist(), 2.0))
        for axis, form, weight in nets:
            rest = [a for a in range(len(shape)) if a not in axis]
            rows = number.transpose(*rest, *axis).reshape(-1, np.prod([shape[a] for a in axis]))
            groups += [(form, (row + c * units).tolist(), weight) for row in rows]
        for u in range(units) if c else ():
            groups.append((PAIRS, [(c - 1) * units + u, c * units + u], 1.5))
    return graph_of(classes * units, [group for group in groups if len(group[1]) > 1])


def rings_in_a_grid(chance: np.random.Generator, rows: int, along: int, size: int) -> UnitGraph:
    """Rings of units in rows and columns, each unit linked to that of the rings beside its own."""
    ring = np.arange(rows * along * size).reshape(rows, along, size)
    across, onward = chance.choice([0.5, 1.0, 2.0], 2).tolist()
    groups: list[tuple[int, list[int], float]] = [
        (RING, members.tolist(), 2.0) for members in ring.reshape(-1, size) if size > 1
    ]
    for one, other, weight in [
        (ring[1:], ring[:-1], across),
        (ring[:, 1:], ring[:, :-1], onward),
    ]:
        ends = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
        groups += [(PAIRS, list(pair), weight) for pair in ends]
    return graph_of(ring.size, groups)


def graph_of(units: int, groups: list[tuple[int, list[int], float]]) -> UnitGraph:
    """The graph of groups, each a form, its members and its weight."""
    return unit_graph(
        Demand(
            ranks=units,
            form=np.array([form for form, _, _ in groups]),
            weight=np.array([weight for _, _, weight in groups]),
            start=np.concatenate([[0], np.cumsum([len(m) for _, m, _ in groups])]),
            member=np.concatenate([np.array(m) for _, m, _ in groups]),
            kind=np.full(units, ANY_KIND),
        )
    )


def paid_by(graph: UnitGraph, chosen: Ints) -> float:
    """What a domain with these units pays: its share of every net and link."""
    total = 0.0
    for net in range(graph.nets):
        members = graph.members(net)
        a, size = int(np.isin(members, chosen).sum()), len(members)
        weight = float(graph.weight[net])
        if graph.form[net] == PAIRS:
            total += weight * a * (size - a)
        elif graph.form[net] == RING:
            total += weight * (0 < a < size)
        else:
            total += weight * ((a > 0) - a / size)
    apart = np.isin(graph.link, chosen).sum(axis=0) == 1
    return total + float(graph.link_weight[apart].sum()) / 2


def every_placement(graph: UnitGraph, rooms: Ints) -> tuple[Ints, Floats]:
    """`[placement, unit]`: all ways to put units into domains with room, and their bytes."""
    ways = np.indices((len(rooms),) * graph.units).reshape(graph.units, -1).T
    inside = np.stack([(ways == d).sum(axis=1) for d in range(len(rooms))], axis=1)
    ways = ways[(inside <= rooms).all(axis=1)]
    cost: Floats = np.zeros(len(ways))
    for net in range(graph.nets):
        at = ways[:, graph.members(net)]
        held = np.stack([(at == d).sum(axis=1) for d in range(len(rooms))], axis=1)
        touched = (held > 0).sum(axis=1)
        if graph.form[net] == PAIRS:
            times = held.sum(axis=1) ** 2 - (held**2).sum(axis=1)
        elif graph.form[net] == RING:
            times = np.where(touched > 1, touched, 0)
        else:
            times = touched - 1
        cost += graph.weight[net] * times
    apart = ways[:, graph.link[0]] != ways[:, graph.link[1]]
    cost += apart @ graph.link_weight
    return ways, cost
