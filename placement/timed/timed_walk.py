"""Walking from placement to placement towards less predicted time, by moves and swaps of units."""

from __future__ import annotations

import numpy as np

from ..jobs.index import Ints
from ..loops.chance import BELOW, State, drawn, seeded
from ..loops.compiled import inner, lean
from .timed_job import Job, Net
from .timed_loads import Loads, predicted_s, rescale, smooth_s
from .timed_moves import relocate
from .timed_whole import Whole, blocks_of, stays_whole

LOADS_PER_WORK = 3_000_000
"""Changes of a load counted as one unit of work."""
_STEP_LOADS = 20
"""What a step costs besides the loads it changes, in such changes."""


def walked(
    net: Net,
    job: Job,
    loads: Loads,
    units: Ints,
    whole: Whole,
    work: float,
    seed: int,
    hot: float,
) -> tuple[Ints, float]:
    """The slots of the fastest placement met on a walk from the one in `loads`, and its seconds.

    units: `[unit, place]`, the ranks of each; those of a unit stay on one node. whole: parts that
    are in one domain, and stay so; where all have one size they move as units too. hot: the first
    temperature, as a part of the seconds at the start. `loads` is used up.
    """
    unit_of = np.empty(len(job.kind), dtype=np.int64)
    unit_of[units] = np.arange(len(units))[:, None]
    most = int(work * LOADS_PER_WORK)
    blocks = blocks_of(whole)
    around = int((net.high[whole.level] - net.low[whole.level]).max())
    widest = max(units.shape[1], blocks.shape[1], around)
    scratch = np.zeros((3, 2 * widest), dtype=np.int64)
    then_at = np.full(len(job.kind), -1, dtype=np.int64)
    best = loads.slot.copy()
    seconds = _walk(
        net,
        job,
        loads,
        units,
        unit_of,
        whole,
        blocks,
        most,
        seeded(seed),
        hot,
        best,
        scratch,
        then_at,
    )
    return best, seconds


@inner
def _suits(net: Net, job: Job, rank: int, slot: int) -> bool:
    return bool(job.kind[rank] < 0 or job.kind[rank] == net.kind[slot])


@inner
def _picked(net: Net, loads: Loads, state: State) -> int:
    """A rank at the busiest link of a phase, phases by their seconds; -1 for none found."""
    total = 0.0
    for phase in range(len(loads.wait_s)):
        total += loads.tree[phase, 1]
    mark = (drawn(state) + 0.5) / BELOW * total
    phase = 0
    while phase < len(loads.wait_s) - 1 and mark > loads.tree[phase, 1]:
        mark -= loads.tree[phase, 1]
        phase += 1
    top = loads.tree[phase, 1]
    if top <= 0.0:
        return -1
    at = 1
    width = loads.tree.shape[1] // 2
    while at < width:
        one, other = loads.tree[phase, 2 * at], loads.tree[phase, 2 * at + 1]
        # Of links that are all but equally busy any may be the one.
        near = top * (1 - 1e-9)
        if one >= near and other >= near:
            at = 2 * at + drawn(state) % 2
        elif one >= near:
            at = 2 * at
        else:
            at = 2 * at + 1
    low, high = net.link_low[at - width], net.link_high[at - width]
    for _ in range(8):
        rank = loads.rank[low + drawn(state) % (high - low)]
        if rank >= 0:
            return int(rank)
    return -1


@inner
def _target(net: Net, job: Job, loads: Loads, rank: int, state: State) -> int:
    """A slot to go to: near a partner, anywhere, or in one of the domains around."""
    slots, levels = len(net.node), len(net.wait_s)
    style = drawn(state) % 8
    beside = -1
    groups = job.of_start[rank + 1] - job.of_start[rank]
    if style < 4 and groups > 0:
        g = job.of_group[job.of_start[rank] + drawn(state) % groups]
        size = job.start[g + 1] - job.start[g]
        beside = loads.slot[job.member[job.start[g] + drawn(state) % size]]
    elif style < 6:
        beside = loads.slot[rank]
    if beside < 0:
        return drawn(state) % slots
    level = drawn(state) % levels
    low, high = net.low[level, beside], net.high[level, beside]
    return int(low + drawn(state) % (high - low))


@inner
def _plan(
    net: Net,
    job: Job,
    loads: Loads,
    units: Ints,
    unit_of: Ints,
    rank: int,
    target: int,
    nodewise: bool,
    level: int,
    ranks: Ints,
    slots: Ints,
) -> int:
    """Who goes where so that `rank`'s unit (or its whole node) comes to the target's node.

    level: of the domain that holds a unit, 0 for a node. Fills `ranks` and `slots` and returns how
    many; 0 where it cannot be.
    """
    home = loads.slot[rank]
    size = units.shape[1]
    a0, a1 = net.low[level, home], net.high[level, home]
    b0, b1 = net.low[level, target], net.high[level, target]
    count = 0
    if nodewise:
        if a0 == b0 or a1 - a0 != b1 - b0:
            return 0
        for i in range(a1 - a0):
            for one, other in ((a0 + i, b0 + i), (b0 + i, a0 + i)):
                if loads.rank[one] >= 0:
                    ranks[count], slots[count] = loads.rank[one], other
                    count += 1
    elif loads.rank[target] >= 0:
        u, v = unit_of[rank], unit_of[loads.rank[target]]
        if u == v or v < 0:
            return 0
        for i in range(size):
            one, other = units[u, i], units[v, i]
            ranks[2 * i], slots[2 * i] = one, loads.slot[other]
            ranks[2 * i + 1], slots[2 * i + 1] = other, loads.slot[one]
        count = 2 * size
    else:
        u = unit_of[rank]
        at = target
        for _ in range(b1 - b0):
            if loads.rank[at] < 0 and count < size:
                ranks[count], slots[count] = units[u, count], at
                count += 1
            at = at + 1 if at + 1 < b1 else b0
        if count < size:
            return 0
    for n in range(count):
        if not _suits(net, job, ranks[n], slots[n]):
            return 0
    return count


@lean
def _walk(
    net: Net,
    job: Job,
    loads: Loads,
    units: Ints,
    unit_of: Ints,
    whole: Whole,
    blocks: Ints,
    most: int,
    state: State,
    hot: float,
    best: Ints,
    scratch: Ints,
    then_at: Ints,
) -> float:
    """Leave the slots of the fastest placement in `best`; returns its seconds. Rest: scratch."""
    rescale(loads)
    best_s = predicted_s(loads)
    now = smooth_s(loads)
    best_smooth = now
    ranks, slots, back = scratch[0], scratch[1], scratch[2]
    loads.work[0] = 0
    summed = 0
    temperature = hot * best_s
    start_s = best_s
    while loads.work[0] < most:
        loads.work[0] += _STEP_LOADS
        temperature = hot * start_s * 1e-4 ** (loads.work[0] / most)
        if loads.work[0] - summed > 64 * len(net.link_low) + 1_000_000:
            summed = loads.work[0]
            loads.work[0] += len(loads.wait_s) * len(net.link_low) // 4
            rescale(loads)
            now = smooth_s(loads)
        rank = -1
        if drawn(state) % 2 == 0:
            rank = _picked(net, loads, state)
        if rank < 0:
            rank = drawn(state) % len(job.kind)
        target = _target(net, job, loads, rank, state)
        nodewise = drawn(state) % 8 == 0
        block = len(blocks) > 0 and whole.of[rank] >= 0 and drawn(state) % 4 == 0
        movers, mover_of = (blocks, whole.of) if block else (units, unit_of)
        level = whole.level if block else 0
        count = _plan(
            net, job, loads, movers, mover_of, rank, target, nodewise, level, ranks, slots
        )
        if count == 0 or not stays_whole(net, whole, loads.slot, ranks, slots, count, then_at):
            continue
        for n in range(count):
            back[n] = loads.slot[ranks[n]]
        relocate(net, job, loads, ranks, slots, count)
        then = smooth_s(loads)
        rise = then - now
        if rise > 0.0 and (drawn(state) + 0.5) / BELOW >= np.exp(-rise / temperature):
            relocate(net, job, loads, ranks, back, count)
            continue
        now = then
        seconds = predicted_s(loads)
        if seconds < best_s * (1 - 1e-12) or (
            seconds <= best_s * (1 + 1e-12) and now < best_smooth * (1 - 1e-9)
        ):
            best_s, best_smooth = min(seconds, best_s), now
            for n in range(len(best)):
                best[n] = loads.slot[n]
            loads.work[0] += len(best) // 16
    return best_s
