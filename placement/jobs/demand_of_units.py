"""Units of a graph for ranks: groups that cost the same wherever the units are."""

from __future__ import annotations

import numpy as np

from .index import PAIRS, Demand
from .units import UnitGraph


def demand_of_units(graph: UnitGraph) -> Demand | None:
    """A job whose ranks are the units; None when a pair net holds unequal parts of them."""
    weight = graph.weight.copy()
    for net in np.flatnonzero(graph.form == PAIRS).tolist():
        held = graph.ranks[graph.start[net] : graph.start[net + 1]]
        if (held != held[0]).any():
            return None
        weight[net] *= float(held[0]) ** 2
    links = graph.link.shape[1]
    ends = graph.start[-1] + 2 * np.arange(1, links + 1)
    return Demand(
        ranks=graph.units,
        form=np.concatenate([graph.form, np.full(links, PAIRS, dtype=np.int64)]),
        weight=np.concatenate([weight, graph.link_weight / 2]),
        start=np.concatenate([graph.start, ends]),
        member=np.concatenate([graph.member, graph.link.T.ravel()]),
        kind=graph.kind,
    )
