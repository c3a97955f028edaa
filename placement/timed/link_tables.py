"""What every set of a node's devices costs as a ring, a way, a tree or all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import compiled

CLOSED, OPEN, BRANCHED, EVERY = range(4)
"""A ring that lies in the node, the part of one that leaves it, a tree, and all ordered pairs."""
MOST_TABLED = 16
"""Free devices a node for which all sets are tabled; rings of as many go the shortest way."""


@dataclass(frozen=True)
class LinkTables:
    """Costs of sets of devices: bit i of a set is the i-th of `devices`.

    cost: `[form, set]`, seconds a byte.
    """

    devices: tuple[int, ...]
    cost: Floats

    @classmethod
    def of(cls, bytes_per_s: tuple[tuple[float, ...], ...], devices: tuple[int, ...]) -> LinkTables:
        """Tables for some devices of a node, ascending, at most MOST_TABLED of them."""
        return cls(devices, _tabled(_slowness(bytes_per_s, devices)))

    @cached_property
    def even(self) -> bool:
        """Whether no choice among the devices matters."""
        pairs = self.cost[EVERY]
        two = [1 << a | 1 << b for b in range(len(self.devices)) for a in range(b)]
        return len(two) == 0 or float(np.ptp(pairs[two])) == 0.0

    def least_with(self, form: int, size: int) -> Floats:
        """For each set, the least cost of any set of `size` devices that holds it."""
        count = len(self.devices)
        sets = np.arange(1 << count)
        sizes = np.zeros(1 << count, dtype=np.int64)
        for bit in range(count):
            sizes += sets >> bit & 1
        least: Floats = np.where(sizes == size, self.cost[form], np.inf)
        for bit in range(count):
            without = sets[(sets >> bit & 1) == 0]
            least[without] = np.minimum(least[without], least[without | 1 << bit])
        return least


def _slowness(bytes_per_s: tuple[tuple[float, ...], ...], devices: tuple[int, ...]) -> Floats:
    rates = np.array(bytes_per_s)[np.ix_(devices, devices)]
    slow: Floats = np.divide(1.0, rates, out=np.zeros_like(rates), where=rates > 0)
    return slow


@compiled
def _tabled(slow: Floats) -> Floats:
    count = len(slow)
    sets = 1 << count
    cost = np.zeros((4, sets))
    # Shortest ways by the set they pass and where they end (Held and Karp 1962); those of a closed
    # ring start at its lowest device.
    free = np.full((sets, count), np.inf)
    tied = np.full((sets, count), np.inf)
    for passed in range(1, sets):
        low = 0
        while passed >> low & 1 == 0:
            low += 1
        rest = passed ^ (1 << low)
        if rest == 0:
            free[passed, low] = 0.0
            tied[passed, low] = 0.0
            continue
        shortest, shortest_back = np.inf, np.inf
        for j in range(count):
            if passed >> j & 1 == 0:
                continue
            before = passed ^ (1 << j)
            for k in range(count):
                if before >> k & 1:
                    free[passed, j] = min(free[passed, j], free[before, k] + slow[k, j])
                    if j != low:
                        tied[passed, j] = min(tied[passed, j], tied[before, k] + slow[k, j])
            shortest = min(shortest, free[passed, j])
            shortest_back = min(shortest_back, tied[passed, j] + slow[j, low])
        cost[0, passed] = shortest_back
        cost[1, passed] = shortest
        pairs = 0.0
        for k in range(count):
            if rest >> k & 1:
                pairs += 2.0 * slow[low, k]
        cost[3, passed] = cost[3, rest] + pairs
        joined = 1 << low
        tree = 0.0
        while joined != passed:
            nearest, best = -1, np.inf
            for j in range(count):
                if passed >> j & 1 and joined >> j & 1 == 0:
                    for k in range(count):
                        if joined >> k & 1 and slow[k, j] < best:
                            nearest, best = j, slow[k, j]
            joined |= 1 << nearest
            tree += best
        cost[2, passed] = tree
    return cost


@compiled
def best_devices(
    start: Ints,
    weight: Floats,
    cost: Floats,
    least: Floats,
    group_start: Ints,
    group_rank: Ints,
    rank_start: Ints,
    rank_group: Ints,
    order: Ints,
    fixed: Ints,
    most_steps: int,
) -> tuple[Ints, float, bool]:
    """Distinct devices for ranks with the least cost, by branch and bound from `start`.

    cost, least: `[group, set]`, what a group on a set costs and the least it can when its further
    ranks join that set. order: ranks in the order they are placed; fixed ranks keep their device.
    Returns the devices, their cost, and whether all others were ruled out within `most_steps`.
    """
    ranks, groups = len(start), len(weight)
    count = 0
    while 1 << count < cost.shape[1]:
        count += 1
    best = start.copy()
    held = np.zeros(groups, dtype=np.int64)
    best_cost = 0.0
    for g in range(groups):
        full = 0
        for i in range(group_start[g], group_start[g + 1]):
            full |= 1 << start[group_rank[i]]
        best_cost += weight[g] * cost[g, full]
    margin = 1e-9 * best_cost
    taken = 0
    now = np.full(ranks, -1, dtype=np.int64)
    bound = np.zeros(ranks + 1)
    for g in range(groups):
        bound[0] += weight[g] * least[g, 0]
    for r in range(ranks):
        if fixed[r] == 1:
            now[r] = start[r]
            taken |= 1 << start[r]
            for i in range(rank_start[r], rank_start[r + 1]):
                g = rank_group[i]
                bound[0] -= weight[g] * least[g, held[g]]
                held[g] |= 1 << start[r]
                bound[0] += weight[g] * least[g, held[g]]
    # Each depth tries the devices in the order of the bound they lead to.
    tried = np.zeros((len(order), count), dtype=np.int64)
    reach = np.zeros((len(order), count))
    width = np.zeros(len(order), dtype=np.int64)
    at = np.zeros(len(order), dtype=np.int64)
    depth, steps, entering = 0, 0, True
    while depth >= 0:
        if steps >= most_steps:
            return best, best_cost, False
        if depth == len(order):
            if bound[depth] < best_cost - margin:
                best_cost = bound[depth]
                for n in range(ranks):
                    best[n] = now[n]
            depth -= 1
            entering = False
            continue
        r = order[depth]
        if entering:
            width[depth] = 0
            at[depth] = 0
            for device in range(count):
                if taken >> device & 1:
                    continue
                steps += 1
                sum_here = bound[depth]
                for i in range(rank_start[r], rank_start[r + 1]):
                    g = rank_group[i]
                    before, after = held[g], held[g] | 1 << device
                    sum_here += weight[g] * (least[g, after] - least[g, before])
                j = width[depth]
                while j > 0 and reach[depth, j - 1] > sum_here:
                    reach[depth, j] = reach[depth, j - 1]
                    tried[depth, j] = tried[depth, j - 1]
                    j -= 1
                reach[depth, j] = sum_here
                tried[depth, j] = device
                width[depth] += 1
        else:
            device = now[r]
            taken ^= 1 << device
            for i in range(rank_start[r], rank_start[r + 1]):
                held[rank_group[i]] ^= 1 << device
            now[r] = -1
        if at[depth] >= width[depth] or reach[depth, at[depth]] >= best_cost - margin:
            depth -= 1
            entering = False
            continue
        device = tried[depth, at[depth]]
        bound[depth + 1] = reach[depth, at[depth]]
        at[depth] += 1
        now[r] = device
        taken |= 1 << device
        for i in range(rank_start[r], rank_start[r + 1]):
            held[rank_group[i]] |= 1 << device
        depth += 1
        entering = True
    return best, best_cost, True


def warm_up_links() -> None:
    """Compile the loops of this module."""
    tables = LinkTables.of(((0.0, 1.0), (1.0, 0.0)), (0, 1))
    two, none = np.arange(2), np.zeros(2, dtype=np.int64)
    ends = np.array([0, 1, 2])
    cost = tables.cost[EVERY:]
    start = np.array([0, 2])
    best_devices(two, np.ones(1), cost, cost, start, two, ends, none, two, none, 9)
