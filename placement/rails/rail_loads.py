"""What ranks on slots cost where different rails meet only at the spine, move by move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import PAIRS, RING, TREE, Demand, Floats, Ints
from ..loops.compiled import inner


class Net(NamedTuple):
    """Groups as arrays: rings and trees by member, pairs that exchange bytes by rank.

    ring_start, tree_start: where each group's members begin. rank_ring: the rings of each rank,
    from `rank_ring_start` on; in the same way its trees and its links.
    """

    ring_start: Ints
    ring_member: Ints
    ring_weight: Floats
    rank_ring_start: Ints
    rank_ring: Ints
    rank_link_start: Ints
    rank_link: Ints
    rank_link_weight: Floats
    tree_start: Ints
    tree_member: Ints
    tree_weight: Floats
    rank_tree_start: Ints
    rank_tree: Ints


class Seats(NamedTuple):
    """The slots of a fabric, and who is on them.

    node, rail, domain: of each slot, domain by level. key: slots in the order in which rings visit
    them. level_cost: what a byte across each level's boundary counts. slot: of each rank, -1 while
    it is taken off. on: the rank on each slot, -1 for none. ring, held: the members of each ring
    that have a slot, by key, from `Net.ring_start` on, and how many.
    """

    node: Ints
    rail: Ints
    domain: Ints
    key: Ints
    level_cost: Floats
    slot: Ints
    on: Ints
    ring: Ints
    held: Ints


def net_of(demand: Demand) -> Net:
    """The groups of a job as arrays."""
    ring_start, ring_member, ring_weight, rank_ring_start, rank_ring = _part(demand, RING)
    tree_start, tree_member, tree_weight, rank_tree_start, rank_tree = _part(demand, TREE)
    one, other, weight = _links(demand)
    by_end = np.argsort(one, kind="stable")
    return Net(
        ring_start,
        ring_member,
        ring_weight,
        rank_ring_start,
        rank_ring,
        _starts(one, demand.ranks),
        other[by_end],
        weight[by_end],
        tree_start,
        tree_member,
        tree_weight,
        rank_tree_start,
        rank_tree,
    )


def _part(demand: Demand, form: int) -> tuple[Ints, Ints, Floats, Ints, Ints]:
    """The groups of a form, and by rank which of them it is in."""
    chosen = np.flatnonzero(demand.form == form)
    number = np.full(demand.groups, -1, dtype=np.int64)
    number[chosen] = np.arange(len(chosen))
    here = number[demand.group_of] >= 0
    member, group = demand.member[here], number[demand.group_of[here]]
    by_rank = np.argsort(member, kind="stable")
    return (
        _starts(group, len(chosen)),
        member,
        demand.weight[chosen],
        _starts(member, demand.ranks),
        group[by_rank],
    )


def _links(demand: Demand) -> tuple[Ints, Ints, Floats]:
    """Pairs of ranks that exchange bytes, from both ends; of each, the bytes both ways."""
    pairs = np.flatnonzero(demand.form == PAIRS)
    two = pairs[demand.size[pairs] == 2]
    ones, others = [demand.member[demand.start[two]]], [demand.member[demand.start[two] + 1]]
    weights = [2 * demand.weight[two]]
    for group in pairs[demand.size[pairs] > 2].tolist():
        ranks = demand.members(group)
        one, other = np.triu_indices(len(ranks), 1)
        ones.append(ranks[one])
        others.append(ranks[other])
        weights.append(np.full(len(one), 2 * demand.weight[group]))
    one, other, weight = np.concatenate(ones), np.concatenate(others), np.concatenate(weights)
    return np.concatenate([one, other]), np.concatenate([other, one]), np.tile(weight, 2)


def _starts(owner: Ints, count: int) -> Ints:
    held = np.cumsum(np.bincount(owner, minlength=count))
    return np.concatenate([np.zeros(1, dtype=np.int64), held]).astype(np.int64)


@inner
def _edge(seats: Seats, one: int, other: int) -> float:
    """What a byte between two slots costs: at the levels it crosses, all of them between rails."""
    if seats.node[one] == seats.node[other]:
        return 0.0
    total = 0.0
    apart = seats.rail[one] != seats.rail[other]
    for level in range(len(seats.level_cost)):
        if apart or seats.domain[level, one] != seats.domain[level, other]:
            total += seats.level_cost[level]
    return total


@inner
def _place_in(net: Net, seats: Seats, g: int, count: int, rank: int) -> int:
    """Where a rank's slot is among the first `count` members of a ring, or would be."""
    first = net.ring_start[g]
    mine = seats.key[seats.slot[rank]]
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if seats.key[seats.slot[seats.ring[first + middle]]] < mine:
            low = middle + 1
        else:
            high = middle
    return int(low)


@inner
def _detour(net: Net, seats: Seats, g: int, at: int, count: int) -> float:
    """What a ring of `count` members costs more by the one at `at`."""
    first = net.ring_start[g]
    before = seats.slot[seats.ring[first + (at - 1) % count]]
    here = seats.slot[seats.ring[first + at]]
    after = seats.slot[seats.ring[first + (at + 1) % count]]
    joined = _edge(seats, before, here) + _edge(seats, here, after)
    return float(net.ring_weight[g] * (joined - _edge(seats, before, after)))


@inner
def _lift(net: Net, seats: Seats, rank: int) -> float:
    """Take a rank out of its rings, which stay in order; returns the change of cost."""
    change = 0.0
    for i in range(net.rank_ring_start[rank], net.rank_ring_start[rank + 1]):
        g = net.rank_ring[i]
        first, count = net.ring_start[g], seats.held[g]
        at = _place_in(net, seats, g, count - 1, rank)
        change -= _detour(net, seats, g, at, count)
        for later in range(at, count - 1):
            seats.ring[first + later] = seats.ring[first + later + 1]
        seats.held[g] = count - 1
    return change


@inner
def _drop(net: Net, seats: Seats, rank: int) -> float:
    """Put a rank that was taken out into its rings again, at its slot; returns the change."""
    change = 0.0
    for i in range(net.rank_ring_start[rank], net.rank_ring_start[rank + 1]):
        g = net.rank_ring[i]
        first, count = net.ring_start[g], seats.held[g]
        at = _place_in(net, seats, g, count, rank)
        for later in range(count, at, -1):
            seats.ring[first + later] = seats.ring[first + later - 1]
        seats.ring[first + at] = rank
        seats.held[g] = count + 1
        change += _detour(net, seats, g, at, count + 1)
    return change


@inner
def _own_links(net: Net, seats: Seats, rank: int) -> float:
    total = 0.0
    for i in range(net.rank_link_start[rank], net.rank_link_start[rank + 1]):
        cost = _edge(seats, seats.slot[rank], seats.slot[net.rank_link[i]])
        total += net.rank_link_weight[i] * cost
    return total


@inner
def _own_trees(net: Net, seats: Seats, rank: int) -> float:
    """What this rank alone adds to its trees: a domain that none of the others is in."""
    total = 0.0
    slot, domain = seats.slot, seats.domain
    for i in range(net.rank_tree_start[rank], net.rank_tree_start[rank + 1]):
        g = net.rank_tree[i]
        for level in range(len(seats.level_cost)):
            alone = True
            for at in range(net.tree_start[g], net.tree_start[g + 1]):
                other = net.tree_member[at]
                if other == rank or slot[other] < 0:
                    continue
                if domain[level, slot[other]] == domain[level, slot[rank]]:
                    alone = False
                    break
            if alone:
                total += net.tree_weight[g] * seats.level_cost[level]
    return total


@inner
def exchange(net: Net, seats: Seats, a: int, b: int) -> float:
    """Let what is on two slots change places; returns the change of cost."""
    change = 0.0
    trees = len(net.tree_weight) > 0 and seats.node[a] != seats.node[b]
    moved = (seats.on[a], seats.on[b])
    goals = (b, a)
    for rank in moved:
        if rank >= 0:
            change += _lift(net, seats, rank)
            # What links the two to each other costs the same before and after.
            change -= _own_links(net, seats, rank)
    # One after the other out of the trees and in again, so that a shared domain counts once.
    for rank in moved:
        if rank >= 0 and trees:
            change -= _own_trees(net, seats, rank)
            seats.slot[rank] = -1
    for i in range(2):
        rank = moved[i]
        if rank >= 0:
            seats.slot[rank] = goals[i]
            if trees:
                change += _own_trees(net, seats, rank)
    seats.on[a], seats.on[b] = moved[1], moved[0]
    for rank in moved:
        if rank >= 0:
            change += _own_links(net, seats, rank)
            change += _drop(net, seats, rank)
    return change
