"""Improving a division of units among domains by moves, each of which may first make it worse."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import compiled, inner
from ..loops.heaps import Heaps, rise, sink, take_first
from .local import Local

TOUCHES_PER_WORK = 200_000_000
"""Entries of nets and links looked at that count as one unit of work."""
_PASSES = 8
_CALL_WORK = 1e-4
"""Work of a call besides."""
_LARGE_NET = 512
"""Members of an all-to-all beyond which its part of their ties is counted only when asked for."""


def refined(local: Local, where: Ints) -> tuple[Ints, float]:
    """`where` after passes of moves, and the work done.

    A pass moves every unit at most once, always the one whose move saves most (or costs least),
    and takes back what came after the best state met that fits. Between states that fit, domains
    may be too full by a little, so that units can change places where there is no room to spare.
    A division that does not fit becomes one that does, where the moves get that far.
    Source: Fiduccia, Mattheyses (DAC 1982), for k parts.
    """
    found = where.copy()
    return found, refine(local, found)


class _State(NamedTuple):
    """A division as it is in a pass.

    held, members: `[net, domain]` ranks and units there. large: whether a net is one whose ties are
    counted only when asked for.
    """

    where: Ints
    held: Ints
    members: Ints
    large: Ints
    load: Ints
    kind_load: Ints


class _Fresh(NamedTuple):
    """Units whose ties a move has changed: the move that did last, and those of this one."""

    seen: Ints
    unit: Ints


@inner
def _own_ties(u: int, local: Local, now: _State, tie: Floats) -> None:
    """Fill `tie[d]` with the bytes that unit u saves by being in domain d, up to a constant."""
    where, held, count = now.where, now.held, now.members
    a = where[u]
    for i in range(local.unit_link_start[u], local.unit_link_start[u + 1]):
        tie[where[local.unit_link[i]]] += local.unit_link_weight[i]
    for i in range(local.unit_net_start[u], local.unit_net_start[u + 1]):
        net, ranks = local.unit_net[i], local.unit_net_ranks[i]
        weight = local.net_weight[net]
        if local.net_form[net] == 2:
            if now.large[net] == 0:
                for d in range(len(tie)):
                    tie[d] += 2.0 * weight * ranks * (held[net, d] - (ranks if d == a else 0))
            continue
        parts, last = 0, -1
        for d in range(len(tie)):
            if count[net, d] > (1 if d == a else 0):
                parts += 1
                last = d
                tie[d] += weight
        if parts == 1 and local.net_form[net] == 0 and local.net_open[net] == 0:
            # Leaving the only domain of a closed ring opens two edges.
            tie[last] += weight


@inner
def _add_large(u: int, local: Local, now: _State, tie: Floats) -> None:
    """Add to the ties of unit u those to large all-to-all nets."""
    for i in range(local.unit_net_start[u], local.unit_net_start[u + 1]):
        net, ranks = local.unit_net[i], local.unit_net_ranks[i]
        if now.large[net] == 1:
            for d in range(len(tie)):
                others = now.held[net, d] - (ranks if d == now.where[u] else 0)
                tie[d] += 2.0 * local.net_weight[net] * ranks * others


@inner
def _close(
    net: int,
    u: int,
    sign: float,
    local: Local,
    now: _State,
    at: Ints,
    tie: Floats,
    fresh: _Fresh,
    found: int,
    stamp: int,
) -> int:
    """Add (or take back) what a closed ring ties its members by who alone keep it open.

    A member whose fellows are all in one domain saves two edges by being there, not one. Lists
    those concerned in `fresh`, which has `found` already; returns how many it then holds.
    """
    count = now.members
    one, other = -1, -1
    for d in range(count.shape[1]):
        if count[net, d] > 0:
            if one < 0:
                one = d
            else:
                other = d
    for j in range(local.net_start[net], local.net_start[net + 1]):
        v = local.net_member[j]
        if v == u or at[v] < 0:
            continue
        c = now.where[v]
        home = one
        if other >= 0:
            if count[net, c] != 1:
                continue
            home = other if c == one else one
        elif count[net, c] == 1:
            continue
        tie[v, home] += sign * local.net_weight[net]
        if fresh.seen[v] != stamp:
            fresh.seen[v] = stamp
            fresh.unit[found] = v
            found += 1
    return found


@inner
def _target(u: int, local: Local, now: _State, tie: Floats, spare: Ints) -> int:
    """The best domain for u to move to, the emptiest of equally good ones; -1 without room."""
    size, kind, room, load = local.size[u], local.kind[u], local.room, now.load
    kinds = local.kind_room.shape[1]
    best = -1
    for b in range(len(tie)):
        if b == now.where[u] or room[b] == 0 or load[b] + size > room[b] + spare[b]:
            continue
        if kind >= 0 and kinds > 0 and now.kind_load[b, kind] + size > local.kind_room[b, kind]:
            continue
        if (
            best < 0
            or tie[b] > tie[best]
            or (tie[b] == tie[best] and room[b] - load[b] > room[best] - load[best])
        ):
            best = b
    return best


@compiled
def _pass(local: Local, where: Ints) -> tuple[float, int]:
    """One pass over all units; returns the bytes saved (inf when it fits anew) and the touches."""
    size, kind, room = local.size, local.kind, local.room
    net_form, net_weight, net_open = local.net_form, local.net_weight, local.net_open
    net_start, net_member, net_ranks = local.net_start, local.net_member, local.net_ranks
    unit_net_start, unit_net = local.unit_net_start, local.unit_net
    unit_net_ranks = local.unit_net_ranks
    unit_link_start, unit_link = local.unit_link_start, local.unit_link
    unit_link_weight = local.unit_link_weight
    units, domains, nets = len(where), len(room), len(net_form)
    kinds, patience = local.kind_room.shape[1], 50 + units // 10
    held = np.zeros((nets, domains), dtype=np.int64)
    count = np.zeros((nets, domains), dtype=np.int64)
    parts = np.zeros(nets, dtype=np.int64)
    large = np.zeros(nets, dtype=np.int64)
    to_large = np.zeros(units, dtype=np.int64)
    for net in range(nets):
        if net_form[net] == 2 and net_start[net + 1] - net_start[net] > _LARGE_NET:
            large[net] = 1
    load = np.zeros(domains, dtype=np.int64)
    kind_load = np.zeros((domains, max(1, kinds)), dtype=np.int64)
    largest = 1
    for u in range(units):
        largest = max(largest, size[u])
        load[where[u]] += size[u]
        if kinds > 0 and kind[u] >= 0:
            kind_load[where[u], kind[u]] += size[u]
        for i in range(unit_net_start[u], unit_net_start[u + 1]):
            net = unit_net[i]
            held[net, where[u]] += unit_net_ranks[i]
            parts[net] += count[net, where[u]] == 0
            count[net, where[u]] += 1
            to_large[u] = max(to_large[u], large[net])
    now = _State(where, held, count, large, load, kind_load)
    none = np.zeros(domains, dtype=np.int64)
    spare = np.zeros(domains, dtype=np.int64)
    excess = 0
    for d in range(domains):
        spare[d] = max(largest, room[d] // 50)
        excess += max(0, load[d] - room[d])
    start_excess = excess
    first = np.zeros(domains + 1, dtype=np.int64)
    for u in range(units):
        first[where[u] + 1] += 1
    for d in range(domains):
        first[d + 1] += first[d]
    waiting = np.zeros(domains, dtype=np.int64)
    heap = np.zeros(units, dtype=np.int64)
    at = np.full(units, -1, dtype=np.int64)
    key = np.zeros(units)
    heaps = Heaps(heap, key, at)
    tie = np.zeros((units, domains))
    row = np.zeros(domains)
    touched = units * (10 + domains) + len(unit_link) + len(unit_net) * domains
    for u in range(units):
        a = where[u]
        _own_ties(u, local, now, tie[u])
        for d in range(domains):
            row[d] = tie[u, d]
        if to_large[u] == 1:
            _add_large(u, local, now, row)
        b = _target(u, local, now, row, spare)
        key[u] = row[b] - row[a] if b >= 0 else 0.0  # without room, looked at in its turn
        heap[first[a] + waiting[a]] = u
        at[u] = waiting[a]
        waiting[a] += 1
        rise(heaps, first[a], at[u])
    moved = np.zeros(units, dtype=np.int64)
    came_from = np.zeros(units, dtype=np.int64)
    fresh = _Fresh(np.zeros(units, dtype=np.int64), np.zeros(units, dtype=np.int64))
    steps, kept, waited = 0, 0, 0
    saved, best_saved, best_excess = 0.0, 0.0, excess
    while waited <= patience:
        # Empty what is too full first; else the best move of all.
        a = -1
        for d in range(domains):
            if waiting[d] == 0 or (excess > 0 and load[d] <= room[d]):
                continue
            if a < 0 or key[heap[first[d]]] > key[heap[first[a]]]:
                a = d
        if a < 0:
            break
        u = heap[first[a]]
        touched += 20 + 2 * domains
        for d in range(domains):
            row[d] = tie[u, d]
        if to_large[u] == 1:
            _add_large(u, local, now, row)
        allowed = none if excess > 0 else spare
        b = _target(u, local, now, row, allowed)
        gain = row[b] - row[a] if b >= 0 else 0.0
        if b >= 0 and gain < key[u] - 1e-9 * (abs(gain) + abs(key[u])):
            key[u] = gain
            sink(heaps, first[a], waiting[a], 0)
            continue
        # Take it off its heap: it moves now or, when there is no room anywhere, not in this pass.
        take_first(heaps, first[a], waiting[a])
        waiting[a] -= 1
        waited += 1
        if b < 0:
            continue
        excess -= max(0, load[a] - room[a]) + max(0, load[b] - room[b])
        load[a] -= size[u]
        load[b] += size[u]
        excess += max(0, load[a] - room[a]) + max(0, load[b] - room[b])
        if kinds > 0 and kind[u] >= 0:
            kind_load[a, kind[u]] -= size[u]
            kind_load[b, kind[u]] += size[u]
        saved += gain
        moved[steps], came_from[steps] = u, a
        steps += 1
        if excess < best_excess or (
            excess == best_excess and saved > best_saved + 1e-9 * (1.0 + abs(best_saved))
        ):
            kept, waited = steps, 0
            best_saved, best_excess = saved, excess
        # Keep the ties of the others, and look again at those whose ties have changed.
        found = 0
        for i in range(unit_link_start[u], unit_link_start[u + 1]):
            v = unit_link[i]
            touched += 1
            if at[v] >= 0:
                tie[v, a] -= unit_link_weight[i]
                tie[v, b] += unit_link_weight[i]
                fresh.seen[v] = steps
                fresh.unit[found] = v
                found += 1
        for i in range(unit_net_start[u], unit_net_start[u + 1]):
            net, ranks = unit_net[i], unit_net_ranks[i]
            weight = net_weight[net]
            held[net, a] -= ranks
            held[net, b] += ranks
            was_a, was_b = count[net, a], count[net, b]
            closed = net_form[net] == 0 and net_open[net] == 0
            if closed and parts[net] <= 2:
                touched += domains + net_start[net + 1] - net_start[net]
                found = _close(net, u, -1.0, local, now, at, tie, fresh, found, steps)
            count[net, a] -= 1
            count[net, b] += 1
            parts[net] += (1 if was_b == 0 else 0) - (1 if was_a == 1 else 0)
            pairs = net_form[net] == 2
            if (pairs and large[net] == 0) or (not pairs and (was_a <= 2 or was_b <= 1)):
                touched += net_start[net + 1] - net_start[net]
                for j in range(net_start[net], net_start[net + 1]):
                    v = net_member[j]
                    if at[v] < 0:
                        continue
                    less_a, more_b = 0.0, 0.0
                    if pairs:
                        less_a = 2.0 * weight * ranks * net_ranks[j]
                        more_b = less_a
                    else:
                        if was_a == 1 or (was_a == 2 and where[v] == a):
                            less_a = weight
                        if was_b == 0 or (was_b == 1 and where[v] == b):
                            more_b = weight
                    if less_a == 0.0 and more_b == 0.0:
                        continue
                    tie[v, a] -= less_a
                    tie[v, b] += more_b
                    if fresh.seen[v] != steps:
                        fresh.seen[v] = steps
                        fresh.unit[found] = v
                        found += 1
            if closed and parts[net] <= 2:
                touched += domains + net_start[net + 1] - net_start[net]
                # u is left out: it does not move again, but counts where it is now.
                found = _close(net, u, 1.0, local, now, at, tie, fresh, found, steps)
        where[u] = b
        touched += found * (10 + domains)
        for i in range(found):
            v = fresh.unit[i]
            c = where[v]
            for d in range(domains):
                row[d] = tie[v, d]
            if to_large[v] == 1:
                _add_large(v, local, now, row)
            to = _target(v, local, now, row, spare)
            key[v] = row[to] - row[c] if to >= 0 else 0.0
            rise(heaps, first[c], at[v])
            sink(heaps, first[c], waiting[c], at[v])
    for step in range(steps - 1, kept - 1, -1):
        where[moved[step]] = came_from[step]
    if best_excess < start_excess:
        best_saved = np.inf
    return best_saved, touched


@compiled
def refine(local: Local, where: Ints) -> float:
    """As `refined`: changes `where` and returns the work done."""
    touches = 0
    for _ in range(_PASSES):
        gain, touched = _pass(local, where)
        touches += touched
        if gain <= 0.0:
            break
    return _CALL_WORK + touches / TOUCHES_PER_WORK
