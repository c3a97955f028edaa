"""Classes of units that nets join, with what each pays inside, and the links between classes."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..bounds.class_cost import Family, class_cost, share
from ..jobs.index import ANY_KIND, PAIRS, RING, Floats, Ints
from ..jobs.units import UnitGraph
from ..spread.counts import Counts

_EVEN = 1e-6
"""Relative difference up to which weights belong to one family."""
_Net = tuple[Ints, float, int, int]
"""Members, weight, form, ranks that each member holds."""


def counts_of_classes(graph: UnitGraph, class_of: Ints, rooms: Ints) -> tuple[Counts, float]:
    """A problem on counts whose spreads cost no more than the placements they are counts of.

    Every domain pays for the units that it holds of a class at least what `class_cost` says. Links
    that join two classes of one size evenly save at most one crossing a matched pair. All other
    traffic is left out. Returns the problem, and the bytes to add to what a spread costs.
    """
    classes = int(class_of.max()) + 1
    height = np.bincount(class_of, minlength=classes)
    inside = families_by_class(graph, class_of)
    known: dict[bytes, Floats] = {}
    cost = np.zeros((classes, int(height.max()) + 1))
    for c, units in enumerate(height.tolist()):
        key = family_key(units, inside[c])
        if key not in known:
            known[key] = class_cost(units, inside[c])
        cost[c, : units + 1] = known[key]
    order, link = chain_of_classes(graph, class_of)
    problem = Counts(
        height=height[order],
        cost=cost[order],
        link=link,
        room=rooms,
        kind=np.full(classes, ANY_KIND, dtype=np.int64),
        kind_room=np.zeros((len(rooms), 0), dtype=np.int64),
    )
    return problem, float((link * height[order]).sum())


def chain_of_classes(graph: UnitGraph, class_of: Ints) -> tuple[Ints, Floats]:
    """The classes in the order of their chains, and bytes saved for each pair that is matched.

    As in Counts: a pair of units of one class and the next, and of the last and the first.
    """
    height = np.bincount(class_of)
    return _path(_between(graph, class_of, height), len(height))


def class_order(graph: UnitGraph, class_of: Ints) -> Ints:
    """The number in `counts_of_classes` of each class."""
    return np.argsort(chain_of_classes(graph, class_of)[0])


def families_by_class(graph: UnitGraph, class_of: Ints) -> list[list[Family]]:
    """What nets and links inside each class divide it into."""
    position = _position(class_of)
    height = np.bincount(class_of).tolist()
    return [
        _families(nets, position, units)
        for nets, units in zip(_inside(graph, class_of), height, strict=True)
    ]


def family_key(units: int, families: list[Family]) -> bytes:
    """What tells classes apart whose units pay differently."""
    key = b"".join(f.set_of.tobytes() + f.paid.tobytes() for f in families)
    return key + units.to_bytes(8, "big")


def families_of_class(graph: UnitGraph, class_of: Ints, number: int = 0) -> list[Family]:
    """What nets and links inside one class divide it into."""
    return families_by_class(graph, class_of)[number]


def _position(class_of: Ints) -> Ints:
    """The place of each unit among those of its class."""
    order = np.argsort(class_of, kind="stable")
    ranked = class_of[order]
    position = np.empty(len(class_of), dtype=np.int64)
    position[order] = np.arange(len(order)) - np.searchsorted(ranked, ranked)
    return position


def _inside(graph: UnitGraph, class_of: Ints) -> list[list[_Net]]:
    """By class, the nets and links that stay in it; pairs whose members hold unequal parts not."""
    inside: list[list[_Net]] = [[] for _ in range(int(class_of.max()) + 1)]
    for net in range(graph.nets):
        members = graph.members(net)
        own = class_of[members]
        held = graph.ranks[graph.start[net] : graph.start[net + 1]]
        form = int(graph.form[net])
        if (own == own[0]).all() and (form != PAIRS or (held == held[0]).all()):
            inside[own[0]].append((members, float(graph.weight[net]), form, int(held[0])))
    for ends, weight in zip(graph.link.T, graph.link_weight.tolist(), strict=True):
        if class_of[ends[0]] == class_of[ends[1]]:
            # A link is a ring of two, each of whose ends costs half of it.
            inside[class_of[ends[0]]].append((ends, weight / 2, RING, 1))
    return inside


def _families(nets: list[_Net], position: Ints, units: int) -> list[Family]:
    """Sets of nets that hold every unit of the class once, those over the same sets summed.

    In a family all nets count with the weight of the lightest.
    """
    alike: defaultdict[tuple[int, int, int], list[_Net]] = defaultdict(list)
    for net in sorted(nets, key=lambda one: (-one[1], tuple(one[0].tolist()))):
        alike[len(net[0]), net[2], net[3]].append(net)
    summed: dict[bytes, Family] = {}
    for (size, form, held), some in sorted(alike.items()):
        for chosen in _covers(some, position, units):
            set_of = np.empty(units, dtype=np.int64)
            for k, net in enumerate(chosen):
                set_of[position[net[0]]] = k
            first = np.unique(set_of, return_index=True)[1]
            set_of = np.argsort(np.argsort(first))[set_of]
            paid = share(form, min(net[1] for net in chosen), held, size)
            key = set_of.tobytes()
            if key in summed:
                paid = paid + summed[key].paid
            summed[key] = Family(set_of, paid)
    return list(summed.values())


def _covers(nets: list[_Net], position: Ints, units: int) -> list[list[_Net]]:
    """Disjoint nets of about one weight that cover a class, as often as first fit finds them."""
    open_sets: list[tuple[set[int], float, list[_Net]]] = []
    for net in nets:
        members = set(position[net[0]].tolist())
        for covered, weight, chosen in open_sets:
            if covered.isdisjoint(members) and net[1] >= weight * (1 - _EVEN):
                covered |= members
                chosen.append(net)
                break
        else:
            open_sets.append((members, net[1], [net]))
    return [chosen for covered, _, chosen in open_sets if len(covered) == units]


def _between(graph: UnitGraph, class_of: Ints, height: Ints) -> dict[tuple[int, int], float]:
    """For pairs of classes of one size, bytes of the links that join them one to one."""
    joined: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for i, (one, other) in enumerate(class_of[graph.link].T.tolist()):
        if one != other:
            joined[min(one, other), max(one, other)].append(i)
    found = {}
    for (one, other), links in joined.items():
        ends = graph.link[:, links].ravel()
        degree = np.unique(ends, return_counts=True)[1]
        joins_all = height[one] == height[other] and len(degree) == 2 * height[one]
        if joins_all and (degree == degree[0]).all():
            # A regular bipartite graph is made of perfect matchings.
            found[one, other] = float(degree[0]) * float(graph.link_weight[links].min())
    return found


def _path(between: dict[tuple[int, int], float], classes: int) -> tuple[Ints, Floats]:
    """Classes in paths along the heaviest links, and bytes saved for each matched pair.

    A ring of all classes, three or more, is kept closed; all other links that close one are not
    counted.
    """
    next_to: list[list[int]] = [[] for _ in range(classes)]
    end_of = list(range(classes))
    for one, other in sorted(between, key=lambda pair: (-between[pair], pair)):
        if len(next_to[one]) == 2 or len(next_to[other]) == 2 or end_of[one] == other:
            continue
        next_to[one].append(other)
        next_to[other].append(one)
        first, last = end_of[one], end_of[other]
        end_of[first], end_of[last] = last, first
    order: list[int] = []
    link: list[float] = []
    seen: set[int] = set()
    for first in range(classes):
        if first in seen or len(next_to[first]) == 2:
            continue
        now, before = first, -1
        while True:
            seen.add(now)
            order.append(now)
            onward = [c for c in next_to[now] if c != before]
            if not onward:
                link.append(0.0)
                break
            link.append(between[min(now, onward[0]), max(now, onward[0])])
            before, now = now, onward[0]
    ends = min(order[0], order[-1]), max(order[0], order[-1])
    if classes > 2 and all(weight > 0 for weight in link[:-1]):
        link[-1] = between.get(ends, 0.0)
    return np.array(order, dtype=np.int64), np.array(link, dtype=np.float64)
