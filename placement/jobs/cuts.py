"""The solver's own count of what a placement costs: bytes that cross each boundary."""

from __future__ import annotations

import numpy as np

from .index import PAIRS, RING, TREE, Demand, Fabric, Floats, Ints

TOLERANCE = 1e-12
"""Relative difference below which two sums of bytes are the same number."""


def cut_bytes(fabric: Fabric, demand: Demand, slots: Ints) -> Floats:
    """Bytes a step that cross each level's boundary, with rank r on slot `slots[r]`.

    Level by level this is the traffic at all tiers beyond it, so that fewer bytes lexicographically
    from the last level inwards is fewer bytes lexicographically from the spine inwards.
    """
    domain = fabric.slot_domain[:, slots]
    totals = np.zeros(fabric.levels)
    for level in range(fabric.levels):
        totals[level] = _crossing(demand, domain[level][demand.member]).sum()
    if fabric.rail is not None:
        totals += _rail_bytes(fabric, demand, slots, domain)
    return totals


def _crossing(demand: Demand, labels: Ints) -> Floats:
    """Bytes of each group that cross between labels, where `labels` go with `demand.member`."""
    if demand.groups == 0:
        return np.zeros(0)
    width = int(labels.max()) + 1
    keys, counts = np.unique(demand.group_of * width + labels, return_counts=True)
    owner = keys // width
    parts = np.bincount(owner, minlength=demand.groups)
    together = np.bincount(owner, weights=counts.astype(np.float64) ** 2, minlength=demand.groups)
    edges = np.where(parts > 1, parts, 0).astype(np.float64)
    edges[demand.form == TREE] = parts[demand.form == TREE] - 1
    pairs = demand.form == PAIRS
    edges[pairs] = demand.size[pairs].astype(np.float64) ** 2 - together[pairs]
    crossing: Floats = edges * demand.weight
    return crossing


def _rail_bytes(fabric: Fabric, demand: Demand, slots: Ints, domain: Ints) -> Floats:
    """Bytes that cross a level only because their ends are on different rails."""
    assert fabric.rail is not None
    extra = np.zeros(fabric.levels)
    senders, receivers, weights = _edges(fabric, demand, slots)
    apart = (domain[0][senders] != domain[0][receivers]) & (
        fabric.rail[slots[senders]] != fabric.rail[slots[receivers]]
    )
    for level in range(fabric.levels):
        inside = domain[level][senders] == domain[level][receivers]
        extra[level] = weights[apart & inside].sum()
    return extra


def _edges(fabric: Fabric, demand: Demand, slots: Ints) -> tuple[Ints, Ints, Floats]:
    """Directed edges of rings and of pairs: sender, receiver, bytes."""
    most = int(fabric.slot_device.max()) + 1 if len(fabric.slot_device) else 1
    position = fabric.ring_position[fabric.slot_node] * most + fabric.slot_device
    rings = np.flatnonzero(demand.form == RING)
    senders, receivers, weights = [], [], []
    in_ring = np.isin(demand.group_of, rings)
    ring_member, ring_group = demand.member[in_ring], demand.group_of[in_ring]
    order = np.lexsort((position[slots[ring_member]], ring_group))
    ring_member, ring_group = ring_member[order], ring_group[order]
    if len(ring_member):
        last = np.flatnonzero(np.diff(ring_group, append=-1) != 0)
        first = np.concatenate([[0], last[:-1] + 1])
        follower = np.arange(1, len(ring_member) + 1)
        follower[last] = first
        senders.append(ring_member)
        receivers.append(ring_member[follower])
        weights.append(demand.weight[ring_group])
    pairs = demand.form == PAIRS
    two = np.flatnonzero(pairs & (demand.size == 2))
    senders.append(demand.member[demand.start[two]])
    receivers.append(demand.member[demand.start[two] + 1])
    weights.append(2 * demand.weight[two])
    for group in np.flatnonzero(pairs & (demand.size > 2)).tolist():
        ranks = demand.members(group)
        one, other = np.triu_indices(len(ranks), 1)
        senders.append(ranks[one])
        receivers.append(ranks[other])
        weights.append(np.full(len(one), 2 * demand.weight[group]))
    return np.concatenate(senders), np.concatenate(receivers), np.concatenate(weights)


def fewer(left: Floats, right: Floats) -> bool:
    """Whether `left` has fewer bytes than `right`, lexicographically from the last level inwards.

    Differences of rounding size count as none.
    """
    for one, other in zip(left[::-1].tolist(), right[::-1].tolist(), strict=True):
        if abs(one - other) > TOLERANCE * max(abs(one), abs(other)):
            return bool(one < other)
    return False


def fewer_bytes(fabric: Fabric, demand: Demand, slots: Ints, other: Ints) -> bool:
    """Whether one placement costs less than another."""
    return fewer(cut_bytes(fabric, demand, slots), cut_bytes(fabric, demand, other))
