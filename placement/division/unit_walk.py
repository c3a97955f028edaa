"""Annealing over single units that remembers what ties each to every domain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import PAIRS, Floats, Ints
from ..loops.chance import BELOW, State, drawn
from ..loops.compiled import inner, lean
from .lists import relisted
from .local import Local
from .refine import TOUCHES_PER_WORK

_MOVE_TOUCHES, _LINK_TOUCHES = 24, 2
"""Entries that a move that is not made counts for, and each link of one that is."""
_COOLED = 0.05
"""The last temperature, to the first."""
SAME = 1e-9
"""Relative difference below which costs are the same."""
MOVES_PER_WORK = 8_000_000
"""Moves of a walk that makes few of them, a unit of work."""


class _Walk(NamedTuple):
    """A division on a walk, with what a move asks for.

    tie: `[unit, domain]` weight of links there. members, held, parts: of nets, `[net, domain]`
    units and ranks there, and domains of each. load, kind_load: room that is taken. listed, place,
    units: the units of each domain, where each stands among them, and how many they are.
    """

    where: Ints
    tie: Floats
    members: Ints
    held: Ints
    parts: Ints
    load: Ints
    kind_load: Ints
    listed: Ints
    place: Ints
    units: Ints


def typical_bytes(local: Local) -> float:
    """What a unit says to all others, in the mean; all-to-all nets left out, which are wide."""
    units = len(local.size)
    said = np.where(local.net_form == PAIRS, 0.0, local.net_weight)[local.unit_net]
    return float(local.unit_link_weight.sum() + said.sum()) / max(1, units)


def walked(local: Local, where: Ints, moves: int, heat: float, state: State) -> tuple[Ints, float]:
    """The best division met on a walk of `moves` moves and swaps from one that fits, and the work.

    heat: the first temperature, to `typical_bytes`. As `polished`, but links are summed up once for
    all domains: a move that is not made, as nearly all, costs the same for few links and many.
    """
    hot = heat * typical_bytes(local)
    if len(local.room) < 2 or len(local.size) < 2 or moves <= 0 or hot <= 0.0:
        return where, 0.0
    units, domains, nets = len(local.size), len(local.room), len(local.net_form)
    most = min(int(local.room.max()), units)
    walk = _Walk(
        where.copy(),
        np.zeros((units, domains)),
        np.zeros((nets, domains), dtype=np.int64),
        np.zeros((nets, domains), dtype=np.int64),
        np.zeros(nets, dtype=np.int64),
        np.zeros(domains, dtype=np.int64),
        np.zeros((domains, max(1, local.kind_room.shape[1])), dtype=np.int64),
        np.zeros((domains, most), dtype=np.int64),
        np.zeros(units, dtype=np.int64),
        np.zeros(domains, dtype=np.int64),
    )
    best = where.copy()
    touches = _walk(local, walk, moves, hot, best, state)
    return best, (touches + local.entries) / TOUCHES_PER_WORK


@inner
def _put(local: Local, walk: _Walk, u: int, b: int, sign: int) -> None:
    """Count unit u in domain b, or no longer."""
    walk.load[b] += sign * local.size[u]
    if local.kind_room.shape[1] > 0 and local.kind[u] >= 0:
        walk.kind_load[b, local.kind[u]] += sign * local.size[u]
    for i in range(local.unit_net_start[u], local.unit_net_start[u + 1]):
        net = local.unit_net[i]
        before = walk.members[net, b]
        walk.members[net, b] = before + sign
        walk.held[net, b] += sign * local.unit_net_ranks[i]
        if before == 0 or before + sign == 0:
            walk.parts[net] += sign


@inner
def _net_change(local: Local, walk: _Walk, u: int, b: int) -> float:
    """What the nets of unit u cost more when it moves to domain b."""
    a, change = walk.where[u], 0.0
    for i in range(local.unit_net_start[u], local.unit_net_start[u + 1]):
        net = local.unit_net[i]
        if local.net_form[net] == 2:
            ranks = local.unit_net_ranks[i]
            fewer = walk.held[net, a] - ranks - walk.held[net, b]
            change += 2.0 * local.net_weight[net] * ranks * fewer
            continue
        before = walk.parts[net]
        after = before
        if walk.members[net, a] == 1:
            after -= 1
        if walk.members[net, b] == 0:
            after += 1
        if local.net_form[net] == 0 and local.net_open[net] == 0:
            before = before if before > 1 else 0
            after = after if after > 1 else 0
        change += local.net_weight[net] * (after - before)
    return change


@inner
def _link_between(local: Local, u: int, v: int) -> float:
    """The weight of the link of two units, 0 where there is none."""
    start = local.unit_link_start
    if start[u + 1] - start[u] > start[v + 1] - start[v]:
        u, v = v, u
    for i in range(start[u], start[u + 1]):
        if local.unit_link[i] == v:
            return float(local.unit_link_weight[i])
    return 0.0


@inner
def _change(local: Local, walk: _Walk, u: int, b: int, v: int, most: float) -> float:
    """What it costs more that unit u moves to domain b, and v (if it is none, -1) to that of u.

    Less, where that is more than `most`.
    """
    a = walk.where[u]
    change = walk.tie[u, a] - walk.tie[u, b] + _net_change(local, walk, u, b)
    if v < 0:
        return float(change)
    change += walk.tie[v, b] - walk.tie[v, a]
    if local.unit_net_start[v + 1] > local.unit_net_start[v]:
        _put(local, walk, u, a, -1)
        _put(local, walk, u, b, 1)
        change += _net_change(local, walk, v, a)
        _put(local, walk, u, b, -1)
        _put(local, walk, u, a, 1)
    # Their own link, which takes long to find, can only make it dearer.
    if change <= most:
        change += 2.0 * _link_between(local, u, v)
    return float(change)


@inner
def _go(local: Local, walk: _Walk, u: int, b: int) -> int:
    """Move unit u to domain b, but for the lists of units; returns the links touched."""
    a = walk.where[u]
    _put(local, walk, u, a, -1)
    _put(local, walk, u, b, 1)
    walk.where[u] = b
    for i in range(local.unit_link_start[u], local.unit_link_start[u + 1]):
        walk.tie[local.unit_link[i], a] -= local.unit_link_weight[i]
        walk.tie[local.unit_link[i], b] += local.unit_link_weight[i]
    return int(local.unit_link_start[u + 1] - local.unit_link_start[u])


@inner
def _aim(local: Local, walk: _Walk, u: int, style: int, state: State) -> int:
    """A domain for unit u: mostly that of a neighbour."""
    links = local.unit_link_start[u + 1] - local.unit_link_start[u]
    nets = local.unit_net_start[u + 1] - local.unit_net_start[u]
    if style >= 6 or links + nets == 0:
        return int(drawn(state) % len(local.room))
    pick = drawn(state) % (links + nets)
    if pick < links:
        return int(walk.where[local.unit_link[local.unit_link_start[u] + pick]])
    net = local.unit_net[local.unit_net_start[u] + pick - links]
    first = local.net_start[net]
    return int(
        walk.where[local.net_member[first + drawn(state) % (local.net_start[net + 1] - first)]]
    )


@inner
def _fits(local: Local, walk: _Walk, u: int, b: int, v: int) -> bool:
    """Whether there is room for unit u in domain b when v, if it is one, goes where u was."""
    a = walk.where[u]
    more = local.size[u] - (local.size[v] if v >= 0 else 0)
    if walk.load[b] + more > local.room[b] or walk.load[a] - more > local.room[a]:
        return False
    if local.kind_room.shape[1] == 0:
        return True
    ku, kv = local.kind[u], local.kind[v] if v >= 0 else -1
    if ku == kv:
        return bool(
            ku < 0
            or (
                walk.kind_load[b, ku] + more <= local.kind_room[b, ku]
                and walk.kind_load[a, ku] - more <= local.kind_room[a, ku]
            )
        )
    if ku >= 0 and walk.kind_load[b, ku] + local.size[u] > local.kind_room[b, ku]:
        return False
    return bool(kv < 0 or walk.kind_load[a, kv] + local.size[v] <= local.kind_room[a, kv])


@lean
def _walk(local: Local, walk: _Walk, moves: int, hot: float, best: Ints, state: State) -> int:
    """Walk, and leave the best division met in `best`; returns the entries touched."""
    where, listed, place, count = walk.where, walk.listed, walk.place, walk.units
    units = len(where)
    for u in range(units):
        d = where[u]
        _put(local, walk, u, d, 1)
        listed[d, count[d]] = u
        place[u] = count[d]
        count[d] += 1
        for i in range(local.unit_link_start[u], local.unit_link_start[u + 1]):
            walk.tie[u, where[local.unit_link[i]]] += local.unit_link_weight[i]
    temperature, now, least = hot, 0.0, 0.0
    cooling = _COOLED ** (1.0 / max(1, moves // 128))
    touches, fresh = _MOVE_TOUCHES * moves, False
    for step in range(moves):
        if step % 128 == 127:
            temperature *= cooling
        u = drawn(state) % units
        a = where[u]
        style = drawn(state) % 8
        b = _aim(local, walk, u, style, state)
        if a == b or local.room[b] == 0:
            continue
        v = -1
        full = walk.load[b] + local.size[u] > local.room[b]
        if count[b] > 0 and (full or style % 2 == 0):
            v = listed[b, drawn(state) % count[b]]
        if not _fits(local, walk, u, b, v):
            continue
        most = -temperature * np.log((drawn(state) + 0.5) / BELOW)
        change = _change(local, walk, u, b, v, most)
        if change > most:
            continue
        if fresh and change > 0.0:
            # A best state is kept when it is left, not at each of the steps that lead there.
            for n in range(units):
                best[n] = where[n]
            touches += units
            fresh = False
        touches += _LINK_TOUCHES * _go(local, walk, u, b)
        if v >= 0:
            touches += _LINK_TOUCHES * _go(local, walk, v, a)
        relisted(listed, place, count, u, a, v, b)
        now += change
        if now < least - SAME * hot:
            least, fresh = now, True
    if fresh:
        for n in range(units):
            best[n] = where[n]
    return touches
