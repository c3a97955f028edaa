"""The traffic of a job as a graph whose cut never costs more than the traffic does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import PAIRS, RING, Floats, Ints
from ..jobs.units import UnitGraph


@dataclass(frozen=True)
class CutGraph:
    """A graph on units: bytes of any division >= base + weight of the edges between its parts.

    laplacian: `[unit, unit]`, dense. base: bytes that every division within the room costs, in nets
    that are not in the graph.
    """

    laplacian: Floats
    base: float


def cut_graph(graph: UnitGraph, rooms: Ints) -> CutGraph:
    """The graph for domains with `rooms` units of room.

    Links and all-to-all nets are in it as they are. A ring or tree that some domain may hold is a
    clique of the largest equal weights at which no split of it weighs more than it costs; one that
    is larger than every domain counts as what the fewest domains that hold it cost.
    """
    laplacian = np.zeros((graph.units, graph.units))
    np.subtract.at(laplacian, (graph.link[0], graph.link[1]), graph.link_weight)
    np.subtract.at(laplacian, (graph.link[1], graph.link[0]), graph.link_weight)
    reach = np.cumsum(np.sort(rooms)[::-1])
    base = 0.0
    for net in range(graph.nets):
        who, weight = graph.members(net), float(graph.weight[net])
        if graph.form[net] == PAIRS:
            held = graph.ranks[graph.start[net] : graph.start[net + 1]].astype(np.float64)
            laplacian[np.ix_(who, who)] -= 2.0 * weight * np.outer(held, held)
            continue
        is_ring = bool(graph.form[net] == RING)
        if len(who) > reach[0]:
            parts = 1 + int(np.searchsorted(reach, len(who)))
            base += weight * (parts if is_ring else parts - 1)
        else:
            laplacian[np.ix_(who, who)] -= weight * clique_weight(len(who), is_ring)
    np.fill_diagonal(laplacian, 0.0)
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    return CutGraph(laplacian, base)


def clique_weight(members: int, ring: bool) -> float:
    """The largest weight of a clique's edges at which no split weighs more than a net of weight 1.

    k parts cut most edges when they are equal; of all k, two parts are the tightest: there are at
    most (1 - 1/k) n^2 / 2 edges for a cost of k or k - 1.
    """
    return (2.0 if ring else 1.0) / ((members // 2) * ((members + 1) // 2))
