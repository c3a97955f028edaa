"""First divisions of a small problem: domains are filled one after another from a seed."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.chance import BELOW, State, drawn, shuffle
from ..loops.compiled import compiled
from .contract_local import crossing_bytes, fitting_bytes
from .local import Local
from .refine import TOUCHES_PER_WORK, refine


def best_grown(local: Local, growths: int, state: State) -> tuple[Ints, float]:
    """The best of several divisions of a small problem, refined, and the work done.

    It may not fit, where none of them does.
    """
    domains = np.flatnonzero(local.room > 0)
    largest_first = domains[np.argsort(-local.room[domains], kind="stable")]
    return _best_grown(local, largest_first, growths, state)


@compiled
def _grown(local: Local, order: Ints, target: Floats, style: int, state: State) -> tuple[Ints, int]:
    """A division that may not fit, domain by domain, and the entries touched.

    style: 1 takes the unit with fewest ties to the rest, 0 the one with most to the domain.
    """
    size, kind = local.size, local.kind
    unit_link_start, unit_link = local.unit_link_start, local.unit_link
    unit_link_weight = local.unit_link_weight
    unit_net_start, unit_net = local.unit_net_start, local.unit_net
    net_start, net_weight = local.net_start, local.net_weight
    units, kinds = len(size), local.kind_room.shape[1]
    where = np.full(units, -1, dtype=np.int64)
    shuffled: Ints = np.arange(units)
    shuffle(shuffled, state)
    # Ties of each unit to the domain that grows, and to units that have no domain yet.
    here, open_to = np.zeros(units), np.zeros(units)
    for u in range(units):
        for i in range(unit_link_start[u], unit_link_start[u + 1]):
            open_to[u] += unit_link_weight[i]
        for i in range(unit_net_start[u], unit_net_start[u + 1]):
            open_to[u] += net_weight[unit_net[i]]
    free, kind_free = local.room.copy(), local.kind_room.copy()
    touched, placed = len(unit_link) + len(unit_net), 0
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
                taken = local.room[d] - free[d] + size[best]
                if turn == 0 and taken > target[d] + 0.5 * size[best]:
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
                        if local.net_form[net] == 2:
                            ranks = local.unit_net_ranks[i]
                            said = 2.0 * net_weight[net] * ranks * local.net_ranks[j]
                        here[local.net_member[j]] += said
                        open_to[local.net_member[j]] -= said
    for u in shuffled:
        if where[u] < 0:
            # No room for it in one piece: refining finds a way.
            d = 0
            for j in range(1, len(free)):
                if free[j] > free[d]:
                    d = j
            where[u] = d
            free[d] -= size[u]
    return where, touched


@compiled
def _best_grown(
    local: Local, largest_first: Ints, growths: int, state: State
) -> tuple[Ints, float]:
    """As `best_grown`; the domains with room are given, the largest first.

    The ways differ in which domains are used (the fewest, all alike, some), in which order, and in
    whether a domain takes the unit with most ties to it or the one with fewest to the rest.
    """
    total, room = 0, 0
    for u in range(len(local.size)):
        total += local.size[u]
    for d in largest_first:
        room += local.room[d]
    best = np.zeros(0, dtype=np.int64)
    best_cost, best_fitting, done = np.inf, np.inf, 0.0
    target = np.zeros(len(local.room))
    for number in range(growths):
        order = largest_first.copy()
        if number % 3 > 0:
            shuffle(order, state)
        for d in range(len(target)):
            target[d] = local.room[d]
            if number % 3 == 1:
                target[d] *= total / room
            elif number % 3 == 2:
                least = min(1.0, total / room)
                target[d] *= least + (1.0 - least) * drawn(state) / BELOW
        where, touched = _grown(local, order, target, (number // 3) % 2, state)
        done += touched / TOUCHES_PER_WORK + refine(local, where)
        fitting = fitting_bytes(local, where)
        cost = crossing_bytes(local, where)
        if (
            len(best) == 0
            or fitting < best_fitting
            or (best_fitting == np.inf and fitting == np.inf and cost < best_cost)
        ):
            best, best_cost, best_fitting = where, cost, fitting
    return best, done
