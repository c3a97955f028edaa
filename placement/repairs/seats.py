"""Sets of ranks on nodes, as compiled loops see them: what each place costs, tier by tier."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..jobs.index import ANY_KIND, PAIRS, RING, Demand, Fabric, Floats, Ints
from ..loops.compiled import inner, lean
from .seat_rules import SeatRules

TOLERANCE: Final = 1e-12
"""Part of all the bytes in question below which two costs are the same number."""
AWAY: Final = -1
_MOST_PAIRED = 16
"""Items up to which an exchange of all with all is told pair by pair."""


class Seats(NamedTuple):
    """Items (ranks that move as one) on nodes, and what they say to each other. Changed in place.

    label: `[level, node]`, the node's domain, numbered through all levels but the node's own.
    at: node of each item, or AWAY. home: where it was, or AWAY where it must not stay.
    size: ranks. price: ranks that count as moved when it is not at home. need: kind or ANY_KIND.
    home_kind: the kind it had. inside: label or node it must stay in (see SeatRules), or AWAY.
    net: several items that pay `weight` by `form`; `held[net, label]` ranks are in a domain, in
        `parts[level, net]` different ones, `placed[net]` in all. Item i is in the nets
        `item_net[item_start[i]:...]` with `item_count` ranks, net n has
        `net_item[net_start[n]:...]`.
    link: pairs of items that pay `link_weight` when apart; of item i from `link_start[i]` on.
    room: free devices by node. used: ranks of the job by node. first, after: items of a node.
    alike: equal for nodes that differ in their room only. candidate: nodes in order of that.
    quota: ranks that each domain may still take, crowd: nodes, both by the rules' labels.
    purse: ranks that may still move beside those that must.
    """

    label: Ints
    kind: Ints
    at: Ints
    home: Ints
    size: Ints
    price: Ints
    need: Ints
    home_kind: Ints
    inside_level: Ints
    inside: Ints
    movable: Ints
    form: Ints
    weight: Floats
    item_start: Ints
    item_net: Ints
    item_count: Ints
    net_start: Ints
    net_item: Ints
    held: Ints
    parts: Ints
    placed: Ints
    link_start: Ints
    link_item: Ints
    link_weight: Floats
    room: Ints
    used: Ints
    first: Ints
    after: Ints
    alike: Ints
    candidate: Ints
    quota_label: Ints
    quota: Ints
    crowd_label: Ints
    crowd: Ints
    purse: Ints

    @property
    def levels(self) -> int:
        """How many boundaries traffic can cross."""
        return len(self.label)

    @property
    def slack(self) -> float:
        """Bytes that rounding explains."""
        nets = float((self.weight * np.diff(self.net_start)).sum())
        return TOLERANCE * max(1.0, nets + float(self.link_weight.sum()))


def seats_of(
    fabric: Fabric,
    demand: Demand,
    node: Ints,
    room: Ints,
    items: list[Ints],
    home_kind: Ints,
    forced: int,
    most: int,
    rules: SeatRules,
) -> Seats:
    """Seats with the first `forced` items away and every other one on its node.

    node: of each rank; of ranks in `items[:forced]` it is ignored. room: free devices by node once
    the forced ones have left. home_kind: by rank. most: ranks of the other items that may move;
    with 0 they only count as neighbours.
    """
    count = len(items)
    size = np.array([len(ranks) for ranks in items], dtype=np.int64)
    lead = np.array([ranks[0] for ranks in items], dtype=np.int64)
    item_of = np.full(demand.ranks, -1, dtype=np.int64)
    item_of[np.concatenate(items)] = np.repeat(np.arange(count), size)
    home = node[lead].copy()
    home[:forced] = AWAY
    price = size.copy()
    price[:forced] = 0
    need = np.maximum.reduceat(
        demand.kind[np.concatenate(items)], np.concatenate([[0], np.cumsum(size)[:-1]])
    )
    movable = np.flatnonzero((price == 0) | (price <= most)) if most else np.arange(forced)
    net, item, held = _entries(demand, item_of, count)
    net, item, held, form, weight = _merged(demand, net, item, held, count)
    wanted = np.zeros(count, dtype=bool)
    wanted[movable] = True
    net, item, held, form, weight = _concerned(net, item, held, form, weight, wanted)
    links, net, item, held, form, weight = _paired(net, item, held, form, weight)
    nodes = fabric.domain.shape[1]
    offsets = np.concatenate([[0], np.cumsum(fabric.domain[1:].max(axis=1, initial=-1) + 1)])
    label = fabric.domain.copy()
    label[1:] += offsets[:-1][: len(label) - 1, None]
    outer = fabric.domain[1] if fabric.levels > 1 else np.zeros(nodes, dtype=np.int64)
    if fabric.rail is not None:  # which devices are free matters then
        outer = np.arange(nodes)
    alike = outer * len(fabric.kinds) + fabric.kind
    alike = (alike * (int(room.max(initial=0)) + 1) + room) * 2
    open_ = room > 0
    open_[home[movable[movable >= forced]]] = True
    candidate = np.flatnonzero(open_)
    by_item = np.lexsort((net, item))
    by_net = np.lexsort((item, net))
    link_start, link_item, link_weight = _both_ways(links, count)
    seats = Seats(
        label=label,
        kind=fabric.kind,
        at=np.full(count, AWAY, dtype=np.int64),
        home=home,
        size=size,
        price=price,
        need=need.astype(np.int64),
        home_kind=home_kind[lead],
        inside_level=rules.inside_level[lead].copy(),
        inside=rules.inside[lead].copy(),
        movable=movable.astype(np.int64),
        form=form,
        weight=weight,
        item_start=np.searchsorted(item[by_item], np.arange(count + 1)),
        item_net=net[by_item],
        item_count=held[by_item],
        net_start=np.searchsorted(net[by_net], np.arange(len(form) + 1)),
        net_item=item[by_net],
        held=np.zeros((len(form), int(offsets[-1])), dtype=np.int64),
        parts=np.zeros((fabric.levels, len(form)), dtype=np.int64),
        placed=np.zeros(len(form), dtype=np.int64),
        link_start=link_start,
        link_item=link_item,
        link_weight=link_weight,
        room=room.copy(),
        used=np.zeros(nodes, dtype=np.int64),
        first=np.full(nodes, AWAY, dtype=np.int64),
        after=np.full(count, AWAY, dtype=np.int64),
        alike=alike,
        candidate=candidate[np.argsort(alike[candidate], kind="stable")],
        quota_label=rules.quota_label,
        quota=rules.quota.copy(),
        crowd_label=rules.crowd_label,
        crowd=rules.crowd.copy(),
        purse=np.array([most], dtype=np.int64),
    )
    staying = np.arange(forced, count)
    np.add.at(seats.room, home[staying], size[staying])  # put takes it again
    put_all(seats, staying, home[staying])
    return seats


def _entries(demand: Demand, item_of: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """(group, item, ranks) for each item of each group that lies in several."""
    owner = item_of[demand.member]
    known = owner >= 0
    keys, held = np.unique(demand.group_of[known] * count + owner[known], return_counts=True)
    group = keys // count
    several = np.bincount(group, minlength=demand.groups)[group] > 1
    return group[several], (keys % count)[several], held[several].astype(np.int64)


def _merged(
    demand: Demand, group: Ints, item: Ints, held: Ints, count: int
) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Groups with the same ranks of the same items as one net that pays for all of them."""
    if not len(group):
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, none, np.zeros(0)
    chance = np.random.default_rng(0)
    marks = chance.integers(1, 2**63, size=(2, count), dtype=np.uint64)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1])
    which = group[starts]
    ranks = held.astype(np.uint64)
    # Sums of random numbers stand for the members: equal only for equal ones, but for one in 2^120.
    sums = [np.add.reduceat(mark[item] * ranks, starts) for mark in marks]
    order = np.lexsort((sums[1], sums[0], demand.form[which]))
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for column in (sums[0], sums[1], demand.form[which]):
        new[1:] |= column[order][1:] != column[order][:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    weight = np.bincount(number, weights=demand.weight[which])
    leader = np.zeros(len(which), dtype=bool)
    leader[order[new]] = True
    lengths = np.diff(np.concatenate([starts, [len(group)]]))
    kept = np.repeat(leader, lengths)
    form = np.empty(len(weight), dtype=np.int64)
    form[number[leader]] = demand.form[which[leader]]
    merged: Ints = np.repeat(number, lengths)[kept]
    return merged, item[kept], held[kept], form, weight.astype(np.float64)


def _concerned(
    net: Ints, item: Ints, held: Ints, form: Ints, weight: Floats, wanted: np.ndarray
) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    """Only the nets that an item that may move is in, numbered anew."""
    has = np.bincount(net[wanted[item]], minlength=len(form)) > 0
    return _only(net, item, held, form, weight, has)


def _only(
    net: Ints, item: Ints, held: Ints, form: Ints, weight: Floats, chosen: np.ndarray
) -> tuple[Ints, Ints, Ints, Ints, Floats]:
    number = np.cumsum(chosen) - 1
    kept = chosen[net]
    return number[net[kept]], item[kept], held[kept], form[chosen], weight[chosen]


def _paired(
    net: Ints, item: Ints, held: Ints, form: Ints, weight: Floats
) -> tuple[tuple[Ints, Ints, Floats], Ints, Ints, Ints, Ints, Floats]:
    """Nets of two items, and small exchanges of all with all, as pairs; and the other nets."""
    order = np.argsort(net, kind="stable")
    net, item, held = net[order], item[order], held[order]
    members = np.bincount(net, minlength=len(form))
    starts = np.concatenate([[0], np.cumsum(members)]).astype(np.int64)
    pairable = (members == 2) | ((form == PAIRS) & (members <= _MOST_PAIRED))
    ones: list[Ints] = []
    others: list[Ints] = []
    costs: list[Floats] = []
    for width in np.unique(members[pairable]).tolist():
        nets = np.flatnonzero(pairable & (members == width))
        rows = starts[nets][:, None] + np.arange(width)
        for i in range(width):
            for j in range(i + 1, width):
                one, other = rows[:, i], rows[:, j]
                apart = np.where(form[nets] == RING, 2.0, 1.0)
                both = 2.0 * held[one] * held[other]
                apart = np.where(form[nets] == PAIRS, both, apart)
                ones.append(item[one])
                others.append(item[other])
                costs.append(weight[nets] * apart)
    none = np.zeros(0, dtype=np.int64)
    links = (
        np.concatenate([none, *ones]),
        np.concatenate([none, *others]),
        np.concatenate([np.zeros(0), *costs]),
    )
    return links, *_only(net, item, held, form, weight, ~pairable)


def _both_ways(links: tuple[Ints, Ints, Floats], count: int) -> tuple[Ints, Ints, Floats]:
    """Pairs as rows by item: where each begins, the other item, the weight."""
    one, other, weight = links
    keys = np.concatenate([one * count + other, other * count + one])
    pairs, index = np.unique(keys, return_inverse=True)
    summed = np.bincount(index, weights=np.concatenate([weight, weight]), minlength=len(pairs))
    start: Ints = np.searchsorted(pairs // count, np.arange(count + 1)).astype(np.int64)
    return start, pairs % count, summed.astype(np.float64)


@inner
def put(s: Seats, item: int, node: int) -> None:
    """Put an item that is away on a node with room for it."""
    size = s.size[item]
    for k in range(s.item_start[item], s.item_start[item + 1]):
        net, count = s.item_net[k], s.item_count[k]
        for level in range(1, len(s.label)):
            label = s.label[level, node]
            if s.held[net, label] == 0:
                s.parts[level, net] += 1
            s.held[net, label] += count
        if held_on_node(s, net, node) == 0:
            s.parts[0, net] += 1
        s.placed[net] += count
    s.at[item] = node
    s.after[item] = s.first[node]
    s.first[node] = item
    s.room[node] -= size
    s.quota[s.quota_label[node]] -= size
    if s.used[node] == 0:
        s.crowd[s.crowd_label[node]] -= 1
    s.used[node] += size
    if s.price[item] > 0 and node != s.home[item]:
        s.purse[0] -= s.price[item]


@inner
def take(s: Seats, item: int) -> None:
    """Take an item off its node."""
    node, size = s.at[item], s.size[item]
    if s.first[node] == item:
        s.first[node] = s.after[item]
    else:
        before = s.first[node]
        while s.after[before] != item:
            before = s.after[before]
        s.after[before] = s.after[item]
    s.at[item] = AWAY
    for k in range(s.item_start[item], s.item_start[item + 1]):
        net, count = s.item_net[k], s.item_count[k]
        for level in range(1, len(s.label)):
            label = s.label[level, node]
            s.held[net, label] -= count
            if s.held[net, label] == 0:
                s.parts[level, net] -= 1
        if held_on_node(s, net, node) == 0:
            s.parts[0, net] -= 1
        s.placed[net] -= count
    s.room[node] += size
    s.quota[s.quota_label[node]] += size
    s.used[node] -= size
    if s.used[node] == 0:
        s.crowd[s.crowd_label[node]] += 1
    if s.price[item] > 0 and node != s.home[item]:
        s.purse[0] += s.price[item]


@inner
def held_on_node(s: Seats, net: int, node: int) -> int:
    """Ranks of a net on a node."""
    held = 0
    item = s.first[node]
    while item >= 0:
        for k in range(s.item_start[item], s.item_start[item + 1]):
            if s.item_net[k] == net:
                held += s.item_count[k]
                break
        item = s.after[item]
    return held


@inner
def _held(s: Seats, level: int, net: int, node: int) -> int:
    """Ranks of a net in the domain of a node at a level."""
    if level > 0:
        return int(s.held[net, s.label[level, node]])
    return held_on_node(s, net, node)


@lean
def put_all(s: Seats, items: Ints, nodes: Ints) -> None:
    """Put items that are away on their nodes."""
    for k in range(len(items)):
        put(s, items[k], nodes[k])


@lean
def take_all(s: Seats, items: Ints) -> None:
    """Take items off their nodes."""
    for item in items:
        take(s, item)


@inner
def suits(s: Seats, item: int, node: int) -> bool:
    """Whether an item that is away may be put on a node."""
    size = s.size[item]
    if s.room[node] < size or s.quota[s.quota_label[node]] < size:
        return False
    if s.need[item] != ANY_KIND and s.need[item] != s.kind[node]:
        return False
    if s.inside[item] >= 0 and s.label[s.inside_level[item], node] != s.inside[item]:
        return False
    if s.used[node] == 0 and s.crowd[s.crowd_label[node]] < 1:
        return False
    return bool(s.price[item] == 0 or node == s.home[item] or s.purse[0] >= s.price[item])


@inner
def added(s: Seats, item: int, node: int, cost: Floats) -> None:
    """What putting an item that is away on a node adds, outermost level first, into `cost`.

    The last column counts ranks that would change their accelerator kind.
    """
    levels = len(s.label)
    for column in range(levels + 1):
        cost[column] = 0.0
    for k in range(s.item_start[item], s.item_start[item + 1]):
        net = s.item_net[k]
        form, weight = s.form[net], s.weight[net]
        for level in range(levels - 1, -1, -1):
            held = _held(s, level, net, node)
            column = levels - 1 - level
            if form == PAIRS:
                cost[column] += 2.0 * weight * s.item_count[k] * (s.placed[net] - held)
            elif held == 0 and s.parts[level, net] > 0:
                # The second domain of a ring adds two edges, any later one adds one.
                twice = form == RING and s.parts[level, net] == 1
                cost[column] += 2.0 * weight if twice else weight
    for k in range(s.link_start[item], s.link_start[item + 1]):
        other = s.at[s.link_item[k]]
        if other < 0:
            continue
        for level in range(levels):
            if s.label[level, other] == s.label[level, node]:
                break  # domains nest: farther out they share all
            cost[levels - 1 - level] += s.link_weight[k]
    if s.kind[node] != s.home_kind[item]:
        cost[levels] = s.size[item]


@inner
def change_at(s: Seats, level: int, item: int, there: int, other: int) -> float:
    """What the cost across the boundary at `level` changes by when an item goes to a node.

    other: an item of the same size that takes its place, AWAY for none; what they have in common
    stays as it is. Nothing is moved.
    """
    if other >= 0:
        here = s.at[item]
        return _one_way(s, level, item, here, there, other) + _one_way(
            s, level, other, there, here, item
        )
    return _one_way(s, level, item, s.at[item], there, other)


@inner
def _one_way(s: Seats, level: int, item: int, here: int, there: int, other: int) -> float:
    left, entered = s.label[level, here], s.label[level, there]
    if left == entered:
        return 0.0
    change = 0.0
    for k in range(s.item_start[item], s.item_start[item + 1]):
        net, count = s.item_net[k], s.item_count[k]
        shared = False
        if other >= 0:
            for m in range(s.item_start[other], s.item_start[other + 1]):
                if s.item_net[m] == net and s.item_count[m] == count:
                    shared = True
                    break
        if shared:
            continue
        behind, ahead = _held(s, level, net, here) - count, _held(s, level, net, there)
        if s.form[net] == PAIRS:
            change += 2.0 * s.weight[net] * count * (behind - ahead)
            continue
        parts = s.parts[level, net]
        after = parts - (behind == 0) + (ahead == 0)
        if s.form[net] == RING:
            change += s.weight[net] * ((after if after > 1 else 0) - (parts if parts > 1 else 0))
        else:
            change += s.weight[net] * (after - parts)
    for k in range(s.link_start[item], s.link_start[item + 1]):
        if s.link_item[k] != other:
            at = s.at[s.link_item[k]]
            if at >= 0:
                label = s.label[level, at]
                change += s.link_weight[k] * ((label != entered) - (label != left))
    return change
