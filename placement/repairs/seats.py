"""Sets of ranks on nodes, as compiled loops see them: what each place costs, tier by tier."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..jobs.index import ANY_KIND, PAIRS, RING, Demand, Fabric, Floats, Ints
from ..loops.compiled import inner, lean
from .nets import nets_and_links
from .seat_rules import SeatRules

TOLERANCE: Final = 1e-12
"""Part of all the bytes in question below which two costs are the same number."""
AWAY: Final = -1


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
    wanted = np.zeros(count, dtype=bool)
    wanted[movable] = True
    nets, links = nets_and_links(demand, item_of, wanted)
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
    by_item = np.lexsort((nets.net, nets.item))
    by_net = np.lexsort((nets.item, nets.net))
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
        form=nets.form,
        weight=nets.weight,
        item_start=np.searchsorted(nets.item[by_item], np.arange(count + 1)),
        item_net=nets.net[by_item],
        item_count=nets.held[by_item],
        net_start=np.searchsorted(nets.net[by_net], np.arange(len(nets.form) + 1)),
        net_item=nets.item[by_net],
        held=np.zeros((len(nets.form), int(offsets[-1])), dtype=np.int64),
        parts=np.zeros((fabric.levels, len(nets.form)), dtype=np.int64),
        placed=np.zeros(len(nets.form), dtype=np.int64),
        link_start=links.start,
        link_item=links.item,
        link_weight=links.weight,
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
