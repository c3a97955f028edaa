"""Chains that hold much of the traffic of a graph but not all, for a start on irregular jobs."""

from __future__ import annotations

import numpy as np

from ..jobs.index import ANY_KIND, PAIRS, RING, TREE, Floats, Ints
from ..jobs.units import UnitGraph
from .structure import Chains

_LEAST_TAKEN = 0.4
"""Part of the traffic that classes and chains must account for."""
_LEAST_JOINED = 0.5
"""Part of the smaller class that must have partners in the next one of a chain."""
_MOST_CLASSES = 128


def loose_chains(graph: UnitGraph) -> Chains | None:
    """Classes that nets make of the units, and chains of classes along the heaviest links.

    What does not go with them is left out, with `left_out_bytes` of links; classes next to each
    other may differ in size. `constant` has no meaning. None where too much is left out.
    """
    if not graph.nets or (graph.kind != ANY_KIND).any():
        return None
    size = np.diff(graph.start)
    pull = np.where(graph.form == PAIRS, graph.weight * size, graph.weight)
    class_of = np.full(graph.units, -1, dtype=np.int64)
    nets_of: dict[int, list[int]] = {}
    classes = 0
    for net in np.lexsort((-size, -pull)).tolist():
        own = class_of[graph.members(net)]
        if (own < 0).all():
            class_of[graph.members(net)] = classes
            nets_of[classes] = [net]
            classes += 1
        elif own[0] >= 0 and (own == own[0]).all() and size[net] == (class_of == own[0]).sum():
            nets_of[int(own[0])].append(net)
    if (class_of < 0).any() or not 2 <= classes <= _MOST_CLASSES:
        return None
    taken = [net for nets in nets_of.values() for net in nets]
    joint = np.zeros((classes, classes))
    one, other = class_of[graph.link]
    np.add.at(joint, (np.minimum(one, other), np.maximum(one, other)), graph.link_weight)
    np.fill_diagonal(joint, 0.0)
    height = np.bincount(class_of, minlength=classes)
    order, link = _paths(joint, _joined(graph, class_of, height), height)
    linked = float((np.minimum(height[order][:-1], height[order][1:]) * link[:-1]).sum())
    every = float(_whole(graph, np.arange(graph.nets)).sum() + graph.link_weight.sum())
    if float(_whole(graph, np.array(taken)).sum()) + linked < _LEAST_TAKEN * every:
        return None
    cost = np.zeros((classes, int(height.max()) + 1))
    for p, own_class in enumerate(order.tolist()):
        for net in nets_of[own_class]:
            cost[p] += _cost(graph, net, np.arange(cost.shape[1]), int(height[own_class]))
    return Chains(
        members=[np.flatnonzero(class_of == c) for c in order.tolist()],
        cost=cost,
        link=link,
        net_constant=0.0,
        link_constant=0.0,
        left_out_bytes=float(graph.link_weight.sum()) - linked,
        kind=np.full(classes, ANY_KIND, dtype=np.int64),
        paired=np.zeros_like(cost),
    )


def _whole(graph: UnitGraph, nets: Ints) -> Floats:
    """Bytes of nets when every unit is apart."""
    size = np.diff(graph.start)[nets].astype(np.float64)
    held = np.array([graph.ranks[graph.start[n]] for n in nets.tolist()], dtype=np.float64)
    edges = np.where(graph.form[nets] == PAIRS, size * (size - 1) * held**2, size)
    return np.asarray(graph.weight[nets] * edges)


def _cost(graph: UnitGraph, net: int, y: Ints, members: int) -> Floats:
    weight, form = float(graph.weight[net]), int(graph.form[net])
    held = float(graph.ranks[graph.start[net]])
    edges: Floats = -(held**2) * y.astype(np.float64) ** 2
    if form == RING:
        edges = ((y > 0) & (y < members)).astype(np.float64)
    elif form == TREE:
        edges = (y > 0).astype(np.float64)
    return weight * edges


def _joined(graph: UnitGraph, class_of: Ints, height: Ints) -> Floats:
    """`[class, class]`, the smaller number first: part of the smaller class that has links to it.

    Of the two sides the one with the larger part counts.
    """
    classes = len(height)
    one, other = class_of[graph.link]
    apart = one != other
    pair = (np.minimum(one, other) * classes + np.maximum(one, other))[apart]
    linked = np.zeros(classes * classes)
    for side in (one < other, one > other):
        ends = np.where(side, graph.link[0], graph.link[1])[apart]
        keys = np.unique(pair * graph.units + ends) // graph.units
        linked = np.maximum(linked, np.bincount(keys, minlength=classes * classes))
    return linked.reshape(classes, classes) / np.minimum.outer(height, height)


def _paths(joint: Floats, joined: Floats, height: Ints) -> tuple[Ints, Floats]:
    """Classes in paths along the heaviest joints, and bytes saved for each pair of units."""
    classes = len(height)
    next_to: list[list[int]] = [[] for _ in range(classes)]
    end_of = list(range(classes))  # of each path end, the other end
    for code in np.argsort(-joint, axis=None, kind="stable").tolist():
        a, b = divmod(code, classes)
        if joint[a, b] <= 0.0:
            break
        ends = len(next_to[a]) < 2 and len(next_to[b]) < 2 and end_of[a] != b
        if not ends or joined[a, b] < _LEAST_JOINED:
            continue
        next_to[a].append(b)
        next_to[b].append(a)
        first, last = end_of[a], end_of[b]
        end_of[first], end_of[last] = last, first
    order: list[int] = []
    link: list[float] = []
    seen: set[int] = set()
    for first in range(classes):
        now = first
        while now not in seen and (now != first or len(next_to[first]) < 2):
            seen.add(now)
            order.append(now)
            onward = [c for c in next_to[now] if c not in seen]
            if not onward:
                link.append(0.0)
                break
            following = onward[0]
            both = float(joint[min(now, following), max(now, following)])
            link.append(both / float(min(height[now], height[following])))
            now = following
    return np.array(order, dtype=np.int64), np.array(link)
