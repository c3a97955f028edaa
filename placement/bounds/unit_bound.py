"""A lower bound for jobs whose smallest sets hold together less than firmly: by single units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.index import PAIRS, RING, Demand, Fabric, Floats, Ints
from ..jobs.units import UnitGraph, unit_graph
from ..spread.counts import Counts
from ..spread.structure import Chains, find_chains
from .bound import SAFETY, bound_work, spread_bound

_LEAST_STEPS = 12
"""Steps of `spread_bound` from which it is worth beginning."""


def unit_bound(fabric: Fabric, demand: Demand, atom_of: Ints, cost: float, work: float) -> float:
    """Bytes across the outermost boundary that every placement of a job has; 0 where not known.

    atom_of: the smallest set of each rank. cost: bytes of a placement that is known. Groups inside
    such sets are left out of the graph; where that makes chains, ranks are spread one by one. What
    the groups inside cost is not lost: of sets of a ranks that are a whole class, x ranks in a
    domain leave at least one in part, with x mod a ranks there, unless a divides x.
    """
    graph = unit_graph(demand)
    if graph.units == int(atom_of.max()) + 1:
        return 0.0
    inside = _inside(graph, atom_of)
    within = atom_of[graph.link[0]] == atom_of[graph.link[1]]
    chains = find_chains(_without(graph, inside, within))
    if chains is None:
        return 0.0
    free = np.bincount(fabric.slot_domain[-1])
    rooms = free[free > 0]
    problem = Counts(
        height=chains.height,
        cost=chains.cost + _prices(graph, chains, inside, within),
        link=chains.link,
        room=rooms,
        kind=chains.kind,
        kind_room=np.zeros((len(rooms), 0), dtype=np.int64),
    )
    if bound_work(problem) * _LEAST_STEPS > work:
        return 0.0
    least = spread_bound(problem, cost - chains.constant, work)
    return least + chains.constant - SAFETY * (abs(chains.constant) + abs(least))


def _inside(graph: UnitGraph, atom_of: Ints) -> np.ndarray:
    """Of each net, whether all of it lies in one atom."""
    atom = atom_of[graph.member]
    first = atom[graph.start[:-1]]
    inside: np.ndarray = np.bincount(graph.net_of, weights=atom != first[graph.net_of]) == 0
    return inside


def _without(graph: UnitGraph, nets: np.ndarray, links: np.ndarray) -> UnitGraph:
    """The graph without some of its nets and links."""
    kept = ~nets[graph.net_of]
    sizes = np.diff(graph.start)[~nets]
    return replace(
        graph,
        form=graph.form[~nets],
        weight=graph.weight[~nets],
        start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
        member=graph.member[kept],
        ranks=graph.ranks[kept],
        link=graph.link[:, ~links],
        link_weight=graph.link_weight[~links],
    )


def _prices(graph: UnitGraph, chains: Chains, nets: np.ndarray, links: np.ndarray) -> Floats:
    """`[class, units]`: what sets inside atoms cost at least in a domain with so many units."""
    class_of = np.empty(graph.units, dtype=np.int64)
    for number, members in enumerate(chains.members):
        class_of[members] = number
    families: dict[tuple[int, int, int, float], list[Ints]] = {}
    for net in np.flatnonzero(nets).tolist():
        members = graph.members(net)
        key = (int(graph.form[net]), len(members), float(graph.weight[net]))
        families.setdefault((int(class_of[members[0]]), *key), []).append(members)
    for link in np.flatnonzero(links).tolist():
        members = graph.link[:, link]
        # Two apart cost it once, so each of their domains half.
        key = (RING, 2, float(graph.link_weight[link]) / 2)
        families.setdefault((int(class_of[members[0]]), *key), []).append(members)
    prices = np.zeros_like(chains.cost)
    units = np.arange(prices.shape[1])
    for (number, form, size, weight), sets in families.items():
        every = np.concatenate(sets)
        whole = len(every) == len(np.unique(every)) == len(chains.members[number])
        if not whole or (class_of[every] != number).any():
            continue
        rest = units % size
        if form == PAIRS:
            prices[number] += weight * rest * (size - rest)
        else:
            # A ring costs one weight a domain, a tree one less: at least half of one.
            prices[number] += weight * (1.0 if form == RING else 0.5) * (rest > 0)
    return prices
