"""Annealing on devices where different rails meet only at the spine: the exact cost of every move.

A ring visits nodes in one order and the devices of a node by index, so a rank that takes another
device may change which ranks its rings join.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..cluster import Cluster, CrossRail, Node, Tier
from ..jobs.cuts import fewer_bytes
from ..jobs.index import ANY_KIND, PAIRS, Demand, Fabric, Floats, Ints
from ..loops.chance import BELOW, State, drawn, seeded
from ..loops.compiled import compiled
from .rail_loads import Net, Seats, exchange, net_of

MOVES_PER_WORK = 400_000
"""Steps counted as one unit of work, where a rank has few groups."""
_INNER = 2.0**-10
"""What a byte costs at each level inwards, to one at the level outside it."""
_COLD = 0.001


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
    moves = int(work * MOVES_PER_WORK / _work_a_rank(net_of(demand)))
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
    net = net_of(demand)
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
    on = np.full(len(fabric.slot_node), -1, dtype=np.int64)
    on[start] = np.arange(len(start))
    seats = Seats(
        node=fabric.slot_node,
        rail=fabric.rail,
        domain=np.ascontiguousarray(fabric.slot_domain),
        key=key,
        level_cost=level_cost,
        slot=start,
        on=on,
        ring=net.ring_member[in_order],
        held=sizes,
    )
    kinds = (fabric.slot_kind, demand.kind)
    change = _walk(net, seats, *kinds, found, block, moves, seeded(seed), heat * reach)
    return Walked(found, change, level_cost)


def _work_a_rank(net: Net) -> float:
    """What one move of a rank touches, on average, to what MOVES_PER_WORK is counted for."""
    ranks = len(net.rank_link_start) - 1
    sizes = np.diff(net.ring_start).astype(np.float64)
    trees = np.diff(net.tree_start).astype(np.float64)
    touched = len(net.rank_link) + (sizes * (4 + sizes / 16)).sum() + 2 * (trees**2).sum()
    return 1.0 + float(touched) / max(1, ranks) / 16.0


@compiled
def _walk(
    net: Net,
    seats: Seats,
    slot_kind: Ints,
    kind: Ints,
    best: Ints,
    block: int,
    moves: int,
    state: State,
    hot: float,
) -> float:
    """Walk with `seats`; the best slots met are left in `best`, returns the change up to them."""
    node, rail, slot, on = seats.node, seats.rail, seats.slot, seats.on
    ranks, slots = len(slot), len(node)
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
        links = net.rank_link_start[r + 1] - net.rank_link_start[r]
        rings = net.rank_ring_start[r + 1] - net.rank_ring_start[r]
        if style < 6 or links + rings == 0:
            there = first[here] + drawn(state) % (last[here] - first[here])
        else:
            pick = drawn(state) % (links + rings)
            if pick < links:
                mate = net.rank_link[net.rank_link_start[r] + pick]
            else:
                g = net.rank_ring[net.rank_ring_start[r] + pick - links]
                mate = seats.ring[net.ring_start[g] + drawn(state) % seats.held[g]]
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
                change += exchange(net, seats, pair[i, 0], pair[i, 1])
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
