"""Making a division problem smaller: units with much to say to each other become one."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from ..loops.chance import State, shuffle
from ..loops.compiled import compiled
from .contract_local import contracted
from .local import Local

_LEAST_SHRINKING = 0.95
"""A step that leaves more than this part of the units is the last."""
_STEP_SHRINKING = 0.4
"""A step leaves at least this part of the units, so that there are states between."""


def coarser(local: Local, label: Ints, most: int, state: State) -> tuple[Local, Ints] | None:
    """The problem with clusters for units, and the cluster of each unit; None when it is as small.

    Only units of one label and kind are joined, to clusters of at most `most` room.
    """
    units = len(local.size)
    smaller, to = _coarser(local, label, most, int(_STEP_SHRINKING * units), state)
    return None if len(smaller.size) > _LEAST_SHRINKING * units else (smaller, to)


_LARGE_NET = 256
"""Members of a net beyond which it says too little about any two of them."""


@compiled
def _clusters(
    local: Local, label: Ints, most: int, least_clusters: int, state: State
) -> tuple[Ints, int]:
    """A cluster for each unit: that of the neighbour with most bytes to it for its room.

    Clusters are numbered from 0; also returns how many there are.
    """
    size, kind = local.size, local.kind
    unit_link_start, unit_link = local.unit_link_start, local.unit_link
    unit_link_weight = local.unit_link_weight
    unit_net_start, unit_net = local.unit_net_start, local.unit_net
    net_start, net_member, net_ranks = local.net_start, local.net_member, local.net_ranks
    net_weight, net_form = local.net_weight, local.net_form
    units = len(size)
    order = np.arange(units)
    shuffle(order, state)
    to = np.arange(units)
    weight = size.copy()
    alone = np.ones(units, dtype=np.int64)
    score = np.zeros(units)
    seen = np.zeros(units, dtype=np.int64)
    clusters = units
    for i in range(units):
        if clusters <= least_clusters:
            break
        u = order[i]
        if alone[u] == 0:
            continue
        found = 0
        for k in range(unit_link_start[u], unit_link_start[u + 1]):
            c = to[unit_link[k]]
            if score[c] == 0.0:
                seen[found] = c
                found += 1
            score[c] += unit_link_weight[k]
        for k in range(unit_net_start[u], unit_net_start[u + 1]):
            net = unit_net[k]
            members = net_start[net + 1] - net_start[net]
            if members > _LARGE_NET or net_weight[net] == 0.0:
                continue
            for m in range(net_start[net], net_start[net + 1]):
                v = net_member[m]
                if v == u:
                    continue
                said = net_weight[net] / (members - 1)
                if net_form[net] == 2:
                    said = 2.0 * net_weight[net] * local.unit_net_ranks[k] * net_ranks[m]
                c = to[v]
                if score[c] == 0.0:
                    seen[found] = c
                    found += 1
                score[c] += said
        best, best_score = -1, 0.0
        for k in range(found):
            c = seen[k]
            value = score[c] / weight[c]
            score[c] = 0.0
            if c == u or label[c] != label[u] or kind[c] != kind[u]:
                continue
            if weight[c] + size[u] <= most and value > best_score:
                best, best_score = c, value
        if best >= 0:
            to[u] = best
            weight[best] += size[u]
            alone[u] = 0
            alone[best] = 0
            clusters -= 1
    number = np.full(units, -1, dtype=np.int64)
    count = 0
    for u in range(units):
        if number[to[u]] < 0:
            number[to[u]] = count
            count += 1
        to[u] = number[to[u]]
    return to, count


@compiled
def _coarser(
    local: Local, label: Ints, most: int, least_clusters: int, state: State
) -> tuple[Local, Ints]:
    to, clusters = _clusters(local, label, most, least_clusters, state)
    return contracted(local, to, clusters), to
