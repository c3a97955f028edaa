"""Annealing on devices where different rails meet only at the spine: the exact cost of every move.

A ring visits nodes in one order and the devices of a node by index, so a rank that takes another
device may change which ranks its rings join.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..cluster import Cluster, CrossRail, Node, Tier
from ..jobs.cuts import fewer_bytes
from ..jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Fabric, Floats, Ints
from ..loops.chance import BELOW, State, drawn, seeded
from ..loops.compiled import compiled, inner

MOVES_PER_WORK = 400_000
"""Steps counted as one unit of work, where a rank has few groups."""
_INNER = 2.0**-10
"""What a byte costs at each level inwards, to one at the level outside it."""
_COLD = 0.001


@dataclass(frozen=True)
class _Net:
    """Groups as arrays: rings by members, everything else by rank."""

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

    @classmethod
    def of(cls, demand: Demand) -> _Net:
        ring_start, ring_member, ring_weight, rank_ring_start, rank_ring = _part(demand, RING)
        tree_start, tree_member, tree_weight, rank_tree_start, rank_tree = _part(demand, TREE)
        one, other, weight = _links(demand)
        by_end = np.argsort(one, kind="stable")
        return cls(
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

    @property
    def work_a_rank(self) -> float:
        """What one move of a rank touches, on average, to what MOVES_PER_WORK is counted for."""
        ranks = len(self.rank_link_start) - 1
        sizes = np.diff(self.ring_start).astype(np.float64)
        trees = np.diff(self.tree_start).astype(np.float64)
        touched = len(self.rank_link) + (sizes * (4 + sizes / 16)).sum() + 2 * (trees**2).sum()
        return 1.0 + float(touched) / max(1, ranks) / 16.0


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


@dataclass(frozen=True)
class Walked:
    """The best slots met on a walk, and the change of cost that led there, as the walk counted it.

    level_cost: what a byte across each level's boundary counts in that cost.
    """

    slots: Ints
    change: float
    level_cost: Floats


def walked_on_rails(
    fabric: Fabric, demand: Demand, slots: Ints, block: int, work: float, seed: int, heat: float
) -> Ints:
    """The best slots met on a walk of so much work from `slots`; never worse."""
    moves = int(work * MOVES_PER_WORK / _Net.of(demand).work_a_rank)
    found = walk(fabric, demand, slots, block, moves, seed, heat).slots
    return found if fewer_bytes(fabric, demand, found, slots) else slots


def walk(
    fabric: Fabric, demand: Demand, slots: Ints, block: int, moves: int, seed: int, heat: float
) -> Walked:
    """A walk of so many steps.

    block: devices that move together in some of the steps, such as those of a tensor group.
    heat: the first temperature, to the mean bytes of an edge.
    """
    assert fabric.rail is not None
    net = _Net.of(demand)
    level_cost = _INNER ** np.arange(fabric.levels - 1, -1, -1, dtype=np.float64)
    edges = [net.ring_weight, net.rank_link_weight]
    reach = max((float(w.mean()) for w in edges if len(w)), default=0.0)
    if moves < 1 or reach == 0.0 or len(fabric.slot_node) < 2:
        return Walked(slots, 0.0, level_cost)
    most = int(fabric.slot_device.max()) + 1
    key = fabric.ring_position[fabric.slot_node] * most + fabric.slot_device
    start, found = slots.astype(np.int64), slots.astype(np.int64)
    sizes = np.diff(net.ring_start)
    in_order = np.lexsort((key[start[net.ring_member]], np.repeat(np.arange(len(sizes)), sizes)))
    change = _walk(
        start,
        found,
        fabric.slot_node,
        fabric.rail,
        key,
        np.ascontiguousarray(fabric.slot_domain),
        fabric.slot_kind,
        demand.kind,
        level_cost,
        net.ring_start,
        net.ring_member[in_order],
        sizes,
        net.ring_weight,
        net.rank_ring_start,
        net.rank_ring,
        net.rank_link_start,
        net.rank_link,
        net.rank_link_weight,
        net.tree_start,
        net.tree_member,
        net.tree_weight,
        net.rank_tree_start,
        net.rank_tree,
        block,
        moves,
        seeded(seed),
        heat * reach,
    )
    return Walked(found, change, level_cost)


@inner
def _edge(one: int, other: int, node: Ints, rail: Ints, domain: Ints, level_cost: Floats) -> float:
    """What a byte between two slots costs: at the levels it crosses, all of them between rails."""
    if node[one] == node[other]:
        return 0.0
    total = 0.0
    apart = rail[one] != rail[other]
    for level in range(len(level_cost)):
        if apart or domain[level, one] != domain[level, other]:
            total += level_cost[level]
    return total


@inner
def _lift(
    rank: int,
    slot: Ints,
    node: Ints,
    rail: Ints,
    key: Ints,
    domain: Ints,
    level_cost: Floats,
    ring_start: Ints,
    ring: Ints,
    held: Ints,
    ring_weight: Floats,
    rank_ring_start: Ints,
    rank_ring: Ints,
) -> float:
    """Take a rank out of its rings, which stay in order; returns the change of cost."""
    change = 0.0
    for i in range(rank_ring_start[rank], rank_ring_start[rank + 1]):
        g = rank_ring[i]
        first, count = ring_start[g], held[g]
        low, high = 0, count - 1
        mine = key[slot[rank]]
        while low < high:
            middle = (low + high) // 2
            if key[slot[ring[first + middle]]] < mine:
                low = middle + 1
            else:
                high = middle
        before = slot[ring[first + (low - 1) % count]]
        after = slot[ring[first + (low + 1) % count]]
        here = slot[rank]
        change -= ring_weight[g] * _edge(before, here, node, rail, domain, level_cost)
        change -= ring_weight[g] * _edge(here, after, node, rail, domain, level_cost)
        change += ring_weight[g] * _edge(before, after, node, rail, domain, level_cost)
        for at in range(low, count - 1):
            ring[first + at] = ring[first + at + 1]
        held[g] = count - 1
    return change


@inner
def _drop(
    rank: int,
    slot: Ints,
    node: Ints,
    rail: Ints,
    key: Ints,
    domain: Ints,
    level_cost: Floats,
    ring_start: Ints,
    ring: Ints,
    held: Ints,
    ring_weight: Floats,
    rank_ring_start: Ints,
    rank_ring: Ints,
) -> float:
    """Put a rank that was taken out into its rings again, at its slot; returns the change."""
    change = 0.0
    for i in range(rank_ring_start[rank], rank_ring_start[rank + 1]):
        g = rank_ring[i]
        first, count = ring_start[g], held[g]
        low, high = 0, count
        mine = key[slot[rank]]
        while low < high:
            middle = (low + high) // 2
            if key[slot[ring[first + middle]]] < mine:
                low = middle + 1
            else:
                high = middle
        for at in range(count, low, -1):
            ring[first + at] = ring[first + at - 1]
        ring[first + low] = rank
        held[g] = count + 1
        if count > 0:
            before = slot[ring[first + (low - 1) % (count + 1)]]
            after = slot[ring[first + (low + 1) % (count + 1)]]
            here = slot[rank]
            change += ring_weight[g] * _edge(before, here, node, rail, domain, level_cost)
            change += ring_weight[g] * _edge(here, after, node, rail, domain, level_cost)
            change -= ring_weight[g] * _edge(before, after, node, rail, domain, level_cost)
    return change


@inner
def _own_links(
    rank: int,
    slot: Ints,
    node: Ints,
    rail: Ints,
    domain: Ints,
    level_cost: Floats,
    rank_link_start: Ints,
    rank_link: Ints,
    rank_link_weight: Floats,
) -> float:
    total = 0.0
    for i in range(rank_link_start[rank], rank_link_start[rank + 1]):
        cost = _edge(slot[rank], slot[rank_link[i]], node, rail, domain, level_cost)
        total += rank_link_weight[i] * cost
    return total


@inner
def _own_trees(
    rank: int,
    slot: Ints,
    domain: Ints,
    level_cost: Floats,
    tree_start: Ints,
    tree_member: Ints,
    tree_weight: Floats,
    rank_tree_start: Ints,
    rank_tree: Ints,
) -> float:
    """What this rank alone adds to its trees: a domain that none of the others is in."""
    total = 0.0
    for i in range(rank_tree_start[rank], rank_tree_start[rank + 1]):
        g = rank_tree[i]
        for level in range(len(level_cost)):
            alone = True
            for at in range(tree_start[g], tree_start[g + 1]):
                other = tree_member[at]
                if other == rank or slot[other] < 0:
                    continue
                if domain[level, slot[other]] == domain[level, slot[rank]]:
                    alone = False
                    break
            if alone:
                total += tree_weight[g] * level_cost[level]
    return total


@inner
def _exchange(
    a: int,
    b: int,
    on: Ints,
    slot: Ints,
    node: Ints,
    rail: Ints,
    key: Ints,
    domain: Ints,
    level_cost: Floats,
    ring_start: Ints,
    ring: Ints,
    held: Ints,
    ring_weight: Floats,
    rank_ring_start: Ints,
    rank_ring: Ints,
    rank_link_start: Ints,
    rank_link: Ints,
    rank_link_weight: Floats,
    tree_start: Ints,
    tree_member: Ints,
    tree_weight: Floats,
    rank_tree_start: Ints,
    rank_tree: Ints,
) -> float:
    """Let what is on two slots change places; returns the change of cost."""
    change = 0.0
    trees = len(tree_weight) > 0 and node[a] != node[b]
    moved = (on[a], on[b])
    goals = (b, a)
    for rank in moved:
        if rank >= 0:
            change += _lift(
                rank,
                slot,
                node,
                rail,
                key,
                domain,
                level_cost,
                ring_start,
                ring,
                held,
                ring_weight,
                rank_ring_start,
                rank_ring,
            )
            # What links the two to each other costs the same before and after.
            change -= _own_links(
                rank,
                slot,
                node,
                rail,
                domain,
                level_cost,
                rank_link_start,
                rank_link,
                rank_link_weight,
            )
    # One after the other out of the trees and in again, so that a shared domain counts once.
    for rank in moved:
        if rank >= 0 and trees:
            change -= _own_trees(
                rank,
                slot,
                domain,
                level_cost,
                tree_start,
                tree_member,
                tree_weight,
                rank_tree_start,
                rank_tree,
            )
            slot[rank] = -1
    for i in range(2):
        rank = moved[i]
        if rank >= 0:
            slot[rank] = goals[i]
            if trees:
                change += _own_trees(
                    rank,
                    slot,
                    domain,
                    level_cost,
                    tree_start,
                    tree_member,
                    tree_weight,
                    rank_tree_start,
                    rank_tree,
                )
    on[a], on[b] = moved[1], moved[0]
    for rank in moved:
        if rank >= 0:
            change += _own_links(
                rank,
                slot,
                node,
                rail,
                domain,
                level_cost,
                rank_link_start,
                rank_link,
                rank_link_weight,
            )
            change += _drop(
                rank,
                slot,
                node,
                rail,
                key,
                domain,
                level_cost,
                ring_start,
                ring,
                held,
                ring_weight,
                rank_ring_start,
                rank_ring,
            )
    return change


@compiled
def _walk(
    slot: Ints,
    best: Ints,
    node: Ints,
    rail: Ints,
    key: Ints,
    domain: Ints,
    slot_kind: Ints,
    kind: Ints,
    level_cost: Floats,
    ring_start: Ints,
    ring: Ints,
    held: Ints,
    ring_weight: Floats,
    rank_ring_start: Ints,
    rank_ring: Ints,
    rank_link_start: Ints,
    rank_link: Ints,
    rank_link_weight: Floats,
    tree_start: Ints,
    tree_member: Ints,
    tree_weight: Floats,
    rank_tree_start: Ints,
    rank_tree: Ints,
    block: int,
    moves: int,
    state: State,
    hot: float,
) -> float:
    """Walk with `slot`; the best met is left in `best`, returns the change of cost up to it.

    ring, held: members in use of each ring from `ring_start` on, by their key.
    """
    ranks, slots = len(slot), len(node)
    on = np.full(slots, -1, dtype=np.int64)
    for r in range(ranks):
        on[slot[r]] = r
    first = np.zeros(slots, dtype=np.int64)
    last = np.zeros(slots, dtype=np.int64)
    for s in range(slots):
        first[s] = first[s - 1] if s > 0 and node[s - 1] == node[s] else s
    for s in range(slots - 1, -1, -1):
        last[s] = last[s + 1] if s + 1 < slots and node[s + 1] == node[s] else s + 1
    now, best_cost = 0.0, 0.0
    temperature = hot
    cooling = _COLD ** (64.0 / max(64, moves))
    pair = np.zeros((block, 2), dtype=np.int64)
    for step in range(moves):
        if step % 64 == 63:
            temperature *= cooling
        r = drawn(state) % ranks
        here = slot[r]
        style = drawn(state) % 16
        there = here
        links = rank_link_start[r + 1] - rank_link_start[r]
        rings = rank_ring_start[r + 1] - rank_ring_start[r]
        if style < 6 or links + rings == 0:
            there = first[here] + drawn(state) % (last[here] - first[here])
        else:
            pick = drawn(state) % (links + rings)
            if pick < links:
                mate = rank_link[rank_link_start[r] + pick]
            else:
                g = rank_ring[rank_ring_start[r] + pick - links]
                mate = ring[ring_start[g] + drawn(state) % held[g]]
            goal = slot[mate]
            if style < 11:
                # The partner's rail on the own node.
                for s in range(first[here], last[here]):
                    if rail[s] == rail[goal]:
                        there = s
            elif style < 14:
                there = first[goal] + drawn(state) % (last[goal] - first[goal])
            else:
                there = drawn(state) % slots
        if there == here:
            continue
        count = 1
        pair[0, 0], pair[0, 1] = here, there
        if block > 1 and drawn(state) % 3 == 0:
            # Whole blocks of devices change places.
            a = first[here] + (here - first[here]) // block * block
            b = first[there] + (there - first[there]) // block * block
            if a != b and a + block <= last[here] and b + block <= last[there]:
                count = block
                for i in range(block):
                    pair[i, 0], pair[i, 1] = a + i, b + i
        fits = True
        for i in range(count):
            for side in range(2):
                rank, goal = on[pair[i, side]], pair[i, 1 - side]
                if rank >= 0 and kind[rank] >= 0 and kind[rank] != slot_kind[goal]:
                    fits = False
        if not fits:
            continue
        for turn in range(2):
            change = 0.0
            for i in range(count):
                change += _exchange(
                    pair[i, 0],
                    pair[i, 1],
                    on,
                    slot,
                    node,
                    rail,
                    key,
                    domain,
                    level_cost,
                    ring_start,
                    ring,
                    held,
                    ring_weight,
                    rank_ring_start,
                    rank_ring,
                    rank_link_start,
                    rank_link,
                    rank_link_weight,
                    tree_start,
                    tree_member,
                    tree_weight,
                    rank_tree_start,
                    rank_tree,
                )
            if turn == 1:
                break
            accept = change <= 0.0
            if not accept:
                chance = (drawn(state) + 0.5) / BELOW
                accept = chance < np.exp(-change / temperature)
            if accept:
                now += change
                if now < best_cost - 1e-9 * hot:
                    best_cost = now
                    for rank in range(ranks):
                        best[rank] = slot[rank]
                break
    return best_cost


def warm_up_rails() -> None:
    """Compile the loops of this module."""
    tiers = (Tier(name="spine", bandwidth=1.0, latency=0.0),)
    nodes = tuple(Node(name=name, accelerator="A", devices=2) for name in "ab")
    cross = CrossRail.SPINE
    fabric = Fabric.of(Cluster(name="two", tiers=tiers, rails=2, cross_rail=cross, nodes=nodes))
    pair = Demand(
        ranks=2,
        form=np.array([PAIRS]),
        weight=np.ones(1),
        start=np.array([0, 2]),
        member=np.arange(2),
        kind=np.full(2, ANY_KIND),
    )
    walk(fabric, pair, np.array([0, 3]), 2, 10, 0, 1.0)
