"""Finding the grid in a graph of units: classes of interchangeable units, joined in chains."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from ..jobs.index import PAIRS, RING, Floats, Ints
from ..jobs.units import UnitGraph
from .counts import Counts

_MOST_LEFT_OUT = 0.25
"""Where every class is one unit: bytes that chains may leave out, to those they take."""


@dataclass(frozen=True)
class Chains:
    """Classes of units whose cost depends only on how many of them are in each domain.

    members: the units of each class, in chain order. Where class p + 1 continues the chain of
        class p, unit i of the one is linked to unit i of the other.
    cost, link: as in Counts. paired: the part of cost that links inside classes of two make.
    net_constant, link_constant: bytes to add to what Counts says.
    left_out_bytes: links that no chain could take, and nets of a part of a class; they cost
        something or nothing. Links that close a chain are among them, for counts tell the least
        that they cost, not always all.
    """

    members: list[Ints]
    cost: Floats
    link: Floats
    net_constant: float
    link_constant: float
    left_out_bytes: float
    kind: Ints
    paired: Floats

    def weighed(self, problem: Counts, nets: float, links: float) -> tuple[Counts, float]:
        """A problem on these chains with nets and links lighter by factors, and its constant."""
        lighter = replace(
            problem,
            cost=problem.cost * nets + self.paired * (links - nets),
            link=problem.link * links,
        )
        return lighter, self.net_constant * nets + self.link_constant * links

    @property
    def constant(self) -> float:
        """Bytes to add to what Counts says."""
        return self.net_constant + self.link_constant

    @property
    def around(self) -> float:
        """Weight of the links from the last class back to the first; 0 where these are none."""
        return float(self.link[-1])

    @property
    def height(self) -> Ints:
        """Units of each class."""
        return np.array([len(m) for m in self.members], dtype=np.int64)


def find_chains(graph: UnitGraph, leave_nets: bool = False) -> Chains | None:
    """The chains of a graph that leave out the fewest bytes, or None where there are none.

    leave_nets: nets of a part of a class may be left out, too.
    """
    best: Chains | None = None
    for class_of in ways_to_class(graph):
        chains = _chains(graph, class_of, leave_nets)
        if chains is not None and (best is None or chains.left_out_bytes < best.left_out_bytes):
            best = chains
            if best.left_out_bytes == 0:
                break
    return best


def ways_to_class(graph: UnitGraph) -> list[Ints]:
    """Candidates for the class of each unit: joined by nets, or by links of one weight too."""
    parent = list(range(graph.units))
    for net in range(graph.nets):
        members = graph.members(net).tolist()
        first = _root(parent, members[0])
        for u in members[1:]:
            parent[_root(parent, u)] = first
    roots = [_root(parent, u) for u in range(graph.units)]
    ways = [_dense(roots)]
    if graph.nets == 0:
        weights = np.unique(graph.link_weight)[::-1]
        for weight in weights[:8].tolist():
            labels = _pairs_about(graph, weight)
            if labels is not None and not any((labels == way).all() for way in ways):
                ways.append(labels)
    return ways


def _pairs_about(graph: UnitGraph, weight: float) -> Ints | None:
    """All units in pairs along links of about one weight: the replicas of unequal stages."""
    far = np.abs(np.log(np.maximum(graph.link_weight, 1e-300) / max(weight, 1e-300)))
    labels = np.full(graph.units, -1, dtype=np.int64)
    pairs = 0
    for i in np.argsort(far, kind="stable").tolist():
        one, other = graph.link[:, i].tolist()
        if labels[one] < 0 and labels[other] < 0:
            labels[one] = labels[other] = pairs
            pairs += 1
    return labels if 2 * pairs == graph.units else None


def _root(parent: list[int], item: int) -> int:
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


def _dense(labels: list[int]) -> Ints:
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], dtype=np.int64)


def _chains(graph: UnitGraph, class_of: Ints, leave_nets: bool) -> Chains | None:
    classes = int(class_of.max()) + 1
    size = np.bincount(class_of, minlength=classes)
    most = int(size.max())
    cost = np.zeros((classes, most + 1))
    constant, nets_left_out = 0.0, 0.0
    y = np.arange(most + 1, dtype=np.float64)
    for net in range(graph.nets):
        joined = graph.members(net)
        own = int(class_of[joined[0]])
        weight = float(graph.weight[net])
        if len(joined) != size[own]:
            if not leave_nets:
                return None
            nets_left_out += weight * len(joined)
            continue
        held = graph.ranks[graph.start[net] : graph.start[net + 1]]
        if graph.form[net] == PAIRS:
            if (held != held[0]).any():
                return None
            square = weight * float(held[0]) ** 2
            cost[own] -= square * y**2
            constant += square * float(size[own]) ** 2
        elif graph.form[net] == RING:
            cost[own] += weight * ((y > 0) & (y < size[own]))
        else:
            cost[own] += weight * (y > 0)
            constant -= weight
    if most == 1 and _left_out_surely(graph):
        return None
    nets = cost.copy()
    joints = _joints(graph, class_of, size, cost)
    if joints is None:
        return None
    kinds = np.full(classes, -1, dtype=np.int64)
    kinds[class_of] = graph.kind
    if (kinds[class_of] != graph.kind).any():
        return None
    between = joints
    members, link, left_out = _in_order(graph, class_of, between)
    left_out += nets_left_out
    order = [int(class_of[m[0]]) for m in members]
    linked = float(sum(w * len(m) for w, m in zip(link, members, strict=True)))
    if most == 1 and left_out > _MOST_LEFT_OUT * linked:
        # Counts of classes of one say nothing but the chains, and those miss too many of the bytes.
        return None
    link[-1] = _closing(order, between, link)
    linked += float(link[-1]) * len(members[-1])
    paired = (cost - nets)[order]
    return Chains(members, cost[order], link, constant, linked, left_out, kinds[order], paired)


def _closing(
    order: list[int],
    between: dict[tuple[int, int], tuple[float, dict[int, int]]],
    link: Floats,
) -> float:
    """Weight of the links from the last class back to the first, if all are in one chain."""
    ends = min(order[0], order[-1]), max(order[0], order[-1])
    if len(order) < 3 or ends not in between or (link[:-1] == 0).any():
        return 0.0
    return between[ends][0]


def _left_out_surely(graph: UnitGraph) -> bool:
    """Whether chains of single units leave out too much whichever links they take.

    They take fewer links than there are units, at best the heaviest.
    """
    weights = np.sort(graph.link_weight)[::-1]
    rest = float(weights[max(0, graph.units - 1) :].sum())
    return rest > _MOST_LEFT_OUT * float(weights.sum()) * (1 + 1e-9)


def _joints(
    graph: UnitGraph, class_of: Ints, size: Ints, cost: Floats
) -> dict[tuple[int, int], tuple[float, dict[int, int]]] | None:
    """Links between classes: for each pair of classes the weight, and the partner of each unit.

    Links inside a class of two are put into `cost`. None when some pair is joined unevenly.
    """
    entries: dict[tuple[int, int], list[tuple[int, int, float]]] = defaultdict(list)
    for (u, v), weight in zip(graph.link.T.tolist(), graph.link_weight.tolist(), strict=True):
        a, b = int(class_of[u]), int(class_of[v])
        if a == b:
            if size[a] != 2:
                return None
            cost[a, 1] += weight / 2
            continue
        if a > b:
            a, b, u, v = b, a, v, u
        entries[a, b].append((u, v, weight))
    between: dict[tuple[int, int], tuple[float, dict[int, int]]] = {}
    for (a, b), found in entries.items():
        partner = {u: v for u, v, _ in found}
        weights = {w for _, _, w in found}
        even = max(weights) - min(weights) <= 1e-9 * max(weights)
        whole = len(found) == size[a] == size[b] == len(partner) == len(set(partner.values()))
        if not (even and whole):
            return None
        between[a, b] = (min(weights), partner)
    return between


def _in_order(
    graph: UnitGraph,
    class_of: Ints,
    between: dict[tuple[int, int], tuple[float, dict[int, int]]],
) -> tuple[list[Ints], Floats, float]:
    """Classes in chains along the heaviest joints; the weights of what is left out."""
    classes = int(class_of.max()) + 1
    by_class = np.argsort(class_of, kind="stable")
    units = np.split(by_class, np.cumsum(np.bincount(class_of, minlength=classes))[:-1])
    degree = [0] * classes
    parent = list(range(classes))
    next_to: dict[int, list[int]] = {c: [] for c in range(classes)}
    left_out = 0.0
    for (a, b), (weight, partner) in sorted(between.items(), key=lambda e: (-e[1][0], e[0])):
        if degree[a] == 2 or degree[b] == 2 or _root(parent, a) == _root(parent, b):
            left_out += weight * len(partner)
            continue
        degree[a] += 1
        degree[b] += 1
        next_to[a].append(b)
        next_to[b].append(a)
        parent[_root(parent, a)] = _root(parent, b)
    members: list[Ints] = []
    link: list[float] = []
    seen: set[int] = set()
    for first in range(classes):
        if first in seen or degree[first] == 2:
            continue
        current, row = first, units[first]
        while True:
            seen.add(current)
            members.append(row)
            onward = [c for c in next_to[current] if c not in seen]
            if not onward:
                link.append(0.0)
                break
            following = onward[0]
            if (current, following) in between:
                weight, partner = between[current, following]
            else:
                weight, backward = between[following, current]
                partner = {v: u for u, v in backward.items()}
            link.append(weight)
            row = np.array([partner[u] for u in row.tolist()], dtype=np.int64)
            current = following
    return members, np.array(link, dtype=np.float64), left_out
