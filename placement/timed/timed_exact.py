"""Small jobs: searching through all placements for the one of least predicted time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Ints
from ..loops.compiled import inner, lean
from .timed_job import Job, Net
from .timed_lines import add_whole, line_up
from .timed_loads import Loads, empty_loads, predicted_s
from .timed_moves import hold_still, set_level
from .timed_walk import LOADS_PER_WORK
from .timed_whole import Whole, joins_part

MOST_RANKS = 24
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Through:
    """slots: the fastest placement found. proved: whether all were searched through."""

    slots: Ints
    seconds: float
    proved: bool


def searched_through(
    net: Net, job: Job, whole: Whole, start: Ints, seconds: float, work: float
) -> Through:
    """Place rank after rank everywhere it can be, as long as what is complete takes less time.

    A group counts once all of its members are placed, so that what is placed never takes more than
    the whole will. start: a placement that takes `seconds`. whole: parts that stay in one domain.
    Free devices of one node and rail are alike, and so are rails that nobody uses yet and that all
    nodes have in equal numbers.
    """
    rank_order, closing = _order(job)
    most = int(work * LOADS_PER_WORK)
    slots = start.copy()
    best, done = _search(
        net,
        job,
        whole,
        empty_loads(net, job),
        rank_order,
        closing,
        _rail_class(net),
        slots,
        seconds,
        most,
        np.zeros(net.rails, dtype=np.int64),
        np.full(len(rank_order) + 1, -1, dtype=np.int64),
    )
    return Through(slots, best, done)


def _order(job: Job) -> tuple[Ints, Ints]:
    """Ranks in the order to place, groups completed early; the place at which each group is."""
    groups = len(job.pattern)
    bytes_of = job.ahead + job.back
    order: list[int] = []
    seen: set[int] = set()
    for g in np.argsort(-bytes_of, kind="stable").tolist():
        for rank in job.member[job.start[g] : job.start[g + 1]].tolist():
            if rank not in seen:
                seen.add(rank)
                order.append(rank)
    order += [rank for rank in range(len(job.kind)) if rank not in seen]
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    closing = np.array(
        [place[job.member[job.start[g] : job.start[g + 1]]].max() for g in range(groups)],
        dtype=np.int64,
    )
    return np.array(order, dtype=np.int64), closing


def _rail_class(net: Net) -> Ints:
    """Of each rail the lowest one that has as many slots on every node."""
    nodes = int(net.node.max(initial=-1)) + 1
    table = np.bincount(net.node * net.rails + net.rail, minlength=nodes * net.rails)
    columns: dict[bytes, int] = {}
    by_rail = table.reshape(nodes, net.rails).T
    return np.array(
        [columns.setdefault(by_rail[r].tobytes(), r) for r in range(net.rails)], dtype=np.int64
    )


@inner
def _place(
    net: Net, job: Job, loads: Loads, closing: Ints, depth: int, rank: int, slot: int, sign: float
) -> None:
    """Put a rank on a free slot with the groups that it completes, or (sign -1) take it off."""
    if sign > 0:
        loads.slot[rank] = slot
        loads.rank[slot] = rank
        hold_still(net, job, loads, rank, 1.0)
    for i in range(job.of_start[rank], job.of_start[rank + 1]):
        g = job.of_group[i]
        if closing[g] == depth:
            if sign > 0 and job.pattern[g] != 3:
                line_up(job, loads, g)
            level = add_whole(net, job, loads, g, sign)
            set_level(net, job, loads, g, level if sign > 0 else -1)
    if sign < 0:
        hold_still(net, job, loads, rank, -1.0)
        loads.rank[slot] = -1
        loads.slot[rank] = -1


@lean
def _search(
    net: Net,
    job: Job,
    whole: Whole,
    loads: Loads,
    order: Ints,
    closing: Ints,
    rail_class: Ints,
    best: Ints,
    best_s: float,
    most: int,
    rail_used: Ints,
    tried: Ints,
) -> tuple[float, bool]:
    """Leave the best slots found in `best`; returns their seconds and whether all were tried."""
    ranks, slots = len(order), len(net.node)
    depth = 0
    while depth >= 0:
        if loads.work[0] > most:
            return best_s, False
        if depth == ranks:
            best_s = predicted_s(loads)
            for n in range(ranks):
                best[n] = loads.slot[n]
            depth -= 1
            continue
        rank = order[depth]
        if tried[depth] >= 0:
            rail_used[net.rail[tried[depth]]] -= 1
            _place(net, job, loads, closing, depth, rank, tried[depth], -1.0)
        slot = tried[depth] + 1
        found = False
        while slot < slots and not found:
            rail = net.rail[slot]
            fits = loads.rank[slot] < 0 and (job.kind[rank] < 0 or job.kind[rank] == net.kind[slot])
            if fits and net.same[slot] >= 0 and loads.rank[net.same[slot]] < 0:
                fits = False
            fits = fits and joins_part(net, whole, loads.slot, rank, slot)
            if fits and rail_used[rail] == 0:
                for other in range(rail):
                    if rail_class[other] == rail_class[rail] and rail_used[other] == 0:
                        fits = False
            if fits:
                loads.work[0] += 1
                _place(net, job, loads, closing, depth, rank, slot, 1.0)
                if predicted_s(loads) < best_s * (1 - _ROUNDING):
                    found = True
                else:
                    _place(net, job, loads, closing, depth, rank, slot, -1.0)
            if not found:
                slot += 1
        if found:
            tried[depth] = slot
            rail_used[net.rail[slot]] += 1
            depth += 1
            tried[depth] = -1
        else:
            tried[depth] = -1
            depth -= 1
    return best_s, True
