"""First divisions of a small problem: domains are filled one after another from a seed."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import compiled
from .local import Local
from .refine import TOUCHES_PER_WORK


def grown(local: Local, number: int, chance: np.random.Generator) -> tuple[Ints, float]:
    """A division that may not fit, the `number`-th way of them, and the work done.

    The ways differ in which domains are used (the fewest, all alike, some), in which order, and in
    whether a domain takes the unit with most ties to it or the one with fewest to the rest.
    """
    domains = np.flatnonzero(local.room > 0)
    total = int(local.size.sum())
    if number % 3 == 0:
        order = domains[np.argsort(-local.room[domains], kind="stable")]
    else:
        order = chance.permutation(domains)
    target = local.room.astype(np.float64)
    if number % 3 == 1:
        target *= total / target.sum()
    elif number % 3 == 2:
        target *= chance.uniform(min(1.0, total / target.sum()), 1.0, len(target))
    where = np.full(len(local.size), -1, dtype=np.int64)
    touched = _grow(
        where,
        local.size,
        local.kind,
        local.room,
        local.kind_room,
        local.net_form,
        local.net_weight,
        local.net_start,
        local.net_member,
        local.net_ranks,
        local.unit_net_start,
        local.unit_net,
        local.unit_net_ranks,
        local.unit_link_start,
        local.unit_link,
        local.unit_link_weight,
        order,
        target,
        chance.permutation(len(local.size)),
        (number // 3) % 2,
    )
    return where, touched / TOUCHES_PER_WORK


@compiled
def _grow(
    where: Ints,
    size: Ints,
    kind: Ints,
    room: Ints,
    kind_room: Ints,
    net_form: Ints,
    net_weight: Floats,
    net_start: Ints,
    net_member: Ints,
    net_ranks: Ints,
    unit_net_start: Ints,
    unit_net: Ints,
    unit_net_ranks: Ints,
    unit_link_start: Ints,
    unit_link: Ints,
    unit_link_weight: Floats,
    order: Ints,
    target: Floats,
    shuffled: Ints,
    style: int,
) -> int:
    units, kinds = len(size), kind_room.shape[1]
    # Ties of each unit to the domain that grows, and to units that have no domain yet.
    here, open_to = np.zeros(units), np.zeros(units)
    for u in range(units):
        for i in range(unit_link_start[u], unit_link_start[u + 1]):
            open_to[u] += unit_link_weight[i]
        for i in range(unit_net_start[u], unit_net_start[u + 1]):
            open_to[u] += net_weight[unit_net[i]]
    free, kind_free = room.copy(), kind_room.copy()
    touched = len(unit_link) + len(unit_net)
    placed = 0
    for turn in range(2):  # the second time up to the room there is
        for d in order:
            for u in range(units):
                here[u] = 0.0
            while placed < units:
                best, best_value = -1, 0.0
                touched += units
                for u in shuffled:
                    if where[u] >= 0 or size[u] > free[d]:
                        continue
                    if kinds > 0 and kind[u] >= 0 and kind_free[d, kind[u]] < size[u]:
                        continue
                    value = here[u] - open_to[u] if style == 1 else here[u] / size[u]
                    if best < 0 or value > best_value:
                        best, best_value = u, value
                if best < 0:
                    break
                if turn == 0 and room[d] - free[d] + size[best] > target[d] + 0.5 * size[best]:
                    break
                where[best] = d
                placed += 1
                free[d] -= size[best]
                if kinds > 0 and kind[best] >= 0:
                    kind_free[d, kind[best]] -= size[best]
                for i in range(unit_link_start[best], unit_link_start[best + 1]):
                    v = unit_link[i]
                    here[v] += unit_link_weight[i]
                    open_to[v] -= unit_link_weight[i]
                for i in range(unit_net_start[best], unit_net_start[best + 1]):
                    net = unit_net[i]
                    members = net_start[net + 1] - net_start[net]
                    touched += members
                    for j in range(net_start[net], net_start[net + 1]):
                        said = net_weight[net] / (members - 1)
                        if net_form[net] == 2:
                            said = 2.0 * net_weight[net] * unit_net_ranks[i] * net_ranks[j]
                        here[net_member[j]] += said
                        open_to[net_member[j]] -= said
    for u in shuffled:
        if where[u] < 0:
            # No room for it in one piece: refining finds a way.
            d = 0
            for j in range(1, len(free)):
                if free[j] > free[d]:
                    d = j
            where[u] = d
            free[d] -= size[u]
    return touched
