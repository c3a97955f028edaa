"""Assigning units one by one: annealing on the exact traffic between sibling domains."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import Ints
from ..loops.chance import BELOW, State, drawn, seeded
from ..loops.compiled import compiled, inner
from .lists import relisted
from .local import Local

MOVES_PER_WORK = 3_000_000
"""Moves counted as one unit of work."""
_SAME = 1e-9
"""Relative difference below which costs are the same."""


class _Division(NamedTuple):
    """Which domain each unit is in, `[net, domain]` ranks held there, and domains of each net."""

    where: Ints
    held: Ints
    parts: Ints


def polished(
    local: Local,
    where: Ints,
    moves: int,
    seed: int,
    heat: float = 1.0,
    above: Ints | None = None,
) -> Ints:
    """The best division met on a walk of `moves` moves and swaps from `where`.

    heat: scales the first temperature, which is the mean rise of a random step. above: for each
    domain the outer one it is part of; nothing is moved that costs more between those, and less
    there goes before all else.
    """
    if len(local.room) < 2 or len(local.size) < 2 or moves <= 0:
        return where
    reach = float(local.unit_link_weight.mean()) if len(local.unit_link_weight) else 0.0
    if len(local.net_weight):
        reach = max(reach, float(local.net_weight.mean()))
    if reach == 0.0:
        return where
    outer = np.zeros(len(local.room), dtype=np.int64) if above is None else above
    found = _polish(
        local,
        where.copy(),
        moves,
        seeded(seed),
        heat * reach,
        outer,
        _Division(
            outer[where],
            np.zeros((len(local.net_form), int(outer.max()) + 1), dtype=np.int64),
            np.zeros(len(local.net_form), dtype=np.int64),
        ),
    )
    if (outer[found] != outer[where]).any():
        wide = local._replace(room=np.bincount(outer, local.room).astype(np.int64))
        now, before = wide.bytes_of(outer[found]), wide.bytes_of(outer[where])
        if abs(now - before) > _SAME * abs(before):
            return found if now < before else where
    return found if local.bytes_of(found) < local.bytes_of(where) else where


@inner
def _move(u: int, b: int, division: _Division, local: Local) -> float:
    """Put unit u into domain b; returns the change of cost."""
    where, held, parts = division
    a = where[u]
    change = 0.0
    for i in range(local.unit_link_start[u], local.unit_link_start[u + 1]):
        at = where[local.unit_link[i]]
        if at == a:
            change += local.unit_link_weight[i]
        elif at == b:
            change -= local.unit_link_weight[i]
    for i in range(local.unit_net_start[u], local.unit_net_start[u + 1]):
        net, ranks = local.unit_net[i], local.unit_net_ranks[i]
        before_a, before_b = held[net, a], held[net, b]
        held[net, a] = before_a - ranks
        held[net, b] = before_b + ranks
        before = parts[net]
        after = before
        if before_a == ranks:
            after -= 1
        if before_b == 0:
            after += 1
        parts[net] = after
        if local.net_form[net] == 2:
            change += 2.0 * local.net_weight[net] * ranks * (before_a - ranks - before_b)
        elif after != before:
            if local.net_form[net] == 0 and local.net_open[net] == 0:
                if before == 1:
                    before = 0
                if after == 1:
                    after = 0
            change += local.net_weight[net] * (after - before)
    where[u] = b
    return change


@compiled
def _polish(
    local: Local,
    where: Ints,
    moves: int,
    state: State,
    hot: float,
    above: Ints,
    outer: _Division,
) -> Ints:
    size, kind, room, kind_room = local.size, local.kind, local.room, local.kind_room
    net_start, net_member = local.net_start, local.net_member
    unit_net_start, unit_net = local.unit_net_start, local.unit_net
    unit_link_start, unit_link = local.unit_link_start, local.unit_link
    units, domains, nets = len(where), len(room), len(local.net_form)
    kinds = kind_room.shape[1]
    held = np.zeros((nets, domains), dtype=np.int64)
    parts = np.zeros(nets, dtype=np.int64)
    inside = _Division(where, held, parts)
    for u in range(units):
        for i in range(unit_net_start[u], unit_net_start[u + 1]):
            held[unit_net[i], where[u]] += local.unit_net_ranks[i]
            outer.held[unit_net[i], outer.where[u]] += local.unit_net_ranks[i]
    for net in range(nets):
        for j in range(outer.held.shape[1]):
            if outer.held[net, j] > 0:
                outer.parts[net] += 1
        for j in range(domains):
            if held[net, j] > 0:
                parts[net] += 1
    # Units by domain, so that a partner for a swap is found at once.
    load, count = np.zeros(domains, dtype=np.int64), np.zeros(domains, dtype=np.int64)
    kind_load = np.zeros((domains, max(1, kinds)), dtype=np.int64)
    most = 0
    for j in range(domains):
        most = max(most, room[j])
    most = min(most, units)  # a unit takes at least one of the room
    listed = np.zeros((domains, most), dtype=np.int64)
    place = np.zeros(units, dtype=np.int64)
    for u in range(units):
        j = where[u]
        listed[j, count[j]] = u
        place[u] = count[j]
        count[j] += 1
        load[j] += size[u]
        if kinds > 0 and kind[u] >= 0:
            kind_load[j, kind[u]] += size[u]
    now = 0.0
    best_cost = 0.0
    best = where.copy()
    temperature = hot
    least = 1e-9 * hot
    cooling = 0.003 ** (1.0 / max(1, moves // 128))
    for step in range(moves):
        if step % 128 == 127:
            temperature *= cooling
        u = drawn(state) % units
        a = int(where[u])
        b = a
        links = unit_link_start[u + 1] - unit_link_start[u]
        mine = unit_net_start[u + 1] - unit_net_start[u]
        style = drawn(state) % 8
        if style < 6 and links + mine > 0:
            pick = drawn(state) % (links + mine)
            if pick < links:
                b = int(where[unit_link[unit_link_start[u] + pick]])
            else:
                net = unit_net[unit_net_start[u] + pick - links]
                members = net_start[net + 1] - net_start[net]
                b = int(where[net_member[net_start[net] + drawn(state) % members]])
        else:
            b = drawn(state) % domains
        if a == b or room[b] == 0:
            continue
        v = -1
        if count[b] > 0 and (load[b] + size[u] > room[b] or style % 2 == 0):
            v = int(listed[b, drawn(state) % count[b]])
        back = size[v] if v >= 0 else 0
        if load[b] + size[u] - back > room[b] or load[a] + back - size[u] > room[a]:
            continue
        if kinds > 0:
            ku = kind[u]
            kv = kind[v] if v >= 0 else -1
            more_b = size[u] - (back if kv == ku else 0)
            more_a = back - (size[u] if kv == ku else 0)
            if ku >= 0 and kind_load[b, ku] + more_b > kind_room[b, ku]:
                continue
            if kv >= 0 and kind_load[a, kv] + more_a > kind_room[a, kv]:
                continue
        outside = 0.0
        if above[a] != above[b]:
            outside = _move(u, above[b], outer, local)
            if v >= 0:
                outside += _move(v, above[a], outer, local)
            if outside > least:
                if v >= 0:
                    _move(v, above[b], outer, local)
                _move(u, above[a], outer, local)
                continue
        change = _move(u, b, inside, local)
        if v >= 0:
            change += _move(v, a, inside, local)
        accept = change <= 0.0 or outside < -least
        if not accept:
            chance = (drawn(state) + 0.5) / BELOW
            accept = chance < np.exp(-change / temperature)
        if not accept:
            if v >= 0:
                _move(v, b, inside, local)
            _move(u, a, inside, local)
            if above[a] != above[b]:
                if v >= 0:
                    _move(v, above[b], outer, local)
                _move(u, above[a], outer, local)
            continue
        relisted(listed, place, count, u, a, v, b)
        load[a] += back - size[u]
        load[b] += size[u] - back
        if kinds > 0:
            if kind[u] >= 0:
                kind_load[a, kind[u]] -= size[u]
                kind_load[b, kind[u]] += size[u]
            if v >= 0 and kind[v] >= 0:
                kind_load[b, kind[v]] -= back
                kind_load[a, kind[v]] += back
        now += change
        if outside < -least or now < best_cost - least:
            best_cost = now
            for n in range(units):
                best[n] = where[n]
    return best
