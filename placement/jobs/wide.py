"""Scale-up domains wider than a node: first which ranks share one, then which nodes inside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..division.arrange import divide
from ..division.polish import MOVES_PER_WORK
from ..loops.budget import Budget
from ..spread.room import Room
from .cuts import fewer_bytes
from .index import Demand, Fabric, Ints
from .large_jobs import found_by_search
from .units import unit_graph

_DOMAINS_SHARE, _NODES_SHARE = 0.45, 0.2


def scale_up_level(fabric: Fabric) -> int:
    """The level of the widest scale-up domains; 0 where these are the nodes."""
    inner = fabric.cluster.tiers[:-1]
    return sum(tier.scale_up for tier in inner)


def found_in_wide_domains(
    fabric: Fabric, demand: Demand, budget: Budget, seed: int
) -> tuple[Ints, float, str]:
    """Slots, a proven lower bound on the bytes across the outermost boundary, and how found.

    The search with scale-up domains for nodes keeps sets of ranks whole that no node holds; the
    search with nodes for nodes is tried beside it, and the better placement counts.
    """
    coarse = _with_domains_for_nodes(fabric)
    if coarse is None:
        return found_by_search(fabric, demand, budget, seed)
    domains, there = coarse
    work = budget.left
    found, bound, method = found_by_search(domains, demand, Budget(work * _DOMAINS_SHARE), seed)
    best = there[found]
    inside = _inside(fabric, demand, fabric.slot_domain[scale_up_level(fabric)][best], work, seed)
    if fewer_bytes(fabric, demand, inside, best):
        best = inside
    rest = Budget(work * (1 - _DOMAINS_SHARE - _NODES_SHARE))
    other, other_bound, other_method = found_by_search(fabric, demand, rest, seed)
    if fewer_bytes(fabric, demand, other, best):
        best, method = other, other_method
    return best, max(bound, other_bound), method


def _with_domains_for_nodes(fabric: Fabric) -> tuple[Fabric, Ints] | None:
    """The fabric without the levels inside scale-up domains, and its slots' numbers in `fabric`.

    None where scale-up domains are nodes, mix kinds of accelerator, or reach to the spine.
    """
    level = scale_up_level(fabric)
    if level == 0 or level >= fabric.levels or fabric.rail is not None:
        return None
    label = fabric.domain[level]
    count = int(label.max()) + 1
    member = np.zeros(count, dtype=np.int64)
    member[label] = np.arange(len(label))
    if (fabric.kind[member][label] != fabric.kind).any():
        return None
    slots = np.argsort(label[fabric.slot_node], kind="stable")
    first = np.full(count, len(label), dtype=np.int64)
    np.minimum.at(first, label, fabric.ring_position)
    domain = fabric.domain[level:][:, member].copy()
    domain[0] = np.arange(count)
    coarse = replace(
        fabric,
        domain=domain,
        kind=fabric.kind[member],
        slot_node=label[fabric.slot_node][slots],
        slot_device=fabric.slot_device[slots],
        ring_position=np.argsort(np.argsort(first)),
    )
    return coarse, slots


def _inside(fabric: Fabric, demand: Demand, home: Ints, work: float, seed: int) -> Ints:
    """Slots for ranks whose scale-up domain is known: the nodes of each by a walk of its own."""
    level = scale_up_level(fabric)
    graph, room = unit_graph(demand), Room.of(fabric, 1)
    node = np.empty(demand.ranks, dtype=np.int64)
    moves = int(work * _NODES_SHARE * MOVES_PER_WORK)
    for domain in np.unique(home).tolist():
        ranks = np.flatnonzero(home == domain)
        share = moves * len(ranks) // demand.ranks
        divide(graph, room, level, domain, ranks, 1, share, seed, node)
    order = np.argsort(node, kind="stable")
    within = np.arange(demand.ranks) - np.searchsorted(node[order], node[order])
    slots = np.empty(demand.ranks, dtype=np.int64)
    slots[order] = np.searchsorted(fabric.slot_node, node[order]) + within
    return slots
