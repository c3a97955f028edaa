"""Ranks move from slot to slot, and the loads of all links with them."""

from __future__ import annotations

from ..jobs.index import Ints
from ..loops.compiled import inner, lean
from .timed_job import Job, Net
from .timed_lines import add_whole, edge, line_up, meeting, run_end, whole_line, within
from .timed_loads import Loads, put


@inner
def _around(
    net: Net, job: Job, loads: Loads, g: int, i0: int, i1: int, sign: float, joint: bool
) -> None:
    """Add what lies beside the members `lined[i0:i1]` of one node, and among them.

    With `joint`, i0 = i1 lies between two nodes and it is the edge across that is added.
    """
    first = job.start[g]
    end = first + loads.held[g]
    phase, ring = job.phase[g], job.pattern[g] == 0
    ahead, back = sign * job.ahead[g], sign * job.back[g]
    p1 = i0 if i0 > first else end
    p0 = p1 - 1
    low = net.low[0, loads.lined[p0]]
    while p0 > first and loads.lined[p0 - 1] >= low:
        p0 -= 1
    n0 = i1 if i1 < end else first
    n1 = run_end(net, loads, n0, end)
    aligned = net.aligned if ring else 0
    if joint:
        if ring or (i0 > first and i1 < end):
            edge(net, loads, phase, p0, p1, n0, n1, ahead, aligned)
            edge(net, loads, phase, n0, n1, p0, p1, back, aligned)
        return
    within(net, loads, phase, i0, i1, ahead + back, False)
    if ring or i0 > first:
        edge(net, loads, phase, p0, p1, i0, i1, ahead, aligned)
        edge(net, loads, phase, i0, i1, p0, p1, back, aligned)
    if ring or i1 < end:
        edge(net, loads, phase, i0, i1, n0, n1, ahead, aligned)
        edge(net, loads, phase, n0, n1, i0, i1, back, aligned)


@inner
def _place_of(net: Net, job: Job, loads: Loads, g: int, slot: int) -> int:
    """Where `slot` is in the line of its group, or would be."""
    low, high = job.start[g], job.start[g] + loads.held[g]
    while low < high:
        middle = (low + high) // 2
        if loads.lined[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return int(low)


@inner
def _change(net: Net, job: Job, loads: Loads, g: int, slot: int, enters: bool) -> None:
    """Put a slot into the line of a large group, or take it out."""
    first = job.start[g]
    at = _place_of(net, job, loads, g, slot)
    few = loads.stops[g] <= 3
    i0, i1 = at, at
    end = first + loads.held[g]
    low, high = net.low[0, slot], net.high[0, slot]
    while i0 > first and loads.lined[i0 - 1] >= low:
        i0 -= 1
    while i1 < end and loads.lined[i1] < high:
        i1 += 1
    if few:
        whole_line(net, job, loads, g, -1.0)
    else:
        _around(net, job, loads, g, i0, i1, -1.0, i0 == i1)
    if enters:
        for i in range(end, at, -1):
            loads.lined[i] = loads.lined[i - 1]
        loads.lined[at] = slot
        loads.held[g] += 1
        i1 += 1
    else:
        for i in range(at, end - 1):
            loads.lined[i] = loads.lined[i + 1]
        loads.held[g] -= 1
        i1 -= 1
    loads.work[0] += (end - at) // 8
    if few:
        whole_line(net, job, loads, g, 1.0)
        return
    if enters and i1 - i0 == 1:
        loads.stops[g] += 1
    if i0 == i1:
        loads.stops[g] -= 1
    _around(net, job, loads, g, i0, i1, 1.0, i0 == i1)


@inner
def hold_still(net: Net, job: Job, loads: Loads, rank: int, sign: float) -> None:
    """Add (or with sign -1 take away) what a rank exchanges inside its unit."""
    slot = loads.slot[rank]
    for i in range(job.still_start[rank], job.still_start[rank + 1]):
        phase = job.still_phase[i]
        put(loads, phase, 2 * slot, sign * job.still_out[i] * net.port_s[slot, 0])
        put(loads, phase, 2 * slot + 1, sign * job.still_in[i] * net.port_s[slot, 0])


@inner
def set_level(net: Net, job: Job, loads: Loads, g: int, level: int) -> None:
    """Say at which level a group's farthest byte meets, -1 for nowhere."""
    before = loads.level[g]
    if before == level:
        return
    mine = job.waiting[g]
    if before >= 0:
        loads.waiting[mine, before] -= 1
    if level >= 0:
        loads.waiting[mine, level] += 1
    loads.level[g] = level
    phase = job.class_phase[mine]
    longest = 0.0
    for c in range(len(job.class_phase)):
        if job.class_phase[c] != phase:
            continue
        for at in range(len(net.wait_s)):
            if loads.waiting[c, at] > 0:
                longest = max(longest, job.class_steps[c] * net.wait_s[at])
    loads.wait_s[phase] = longest


@lean
def relocate(net: Net, job: Job, loads: Loads, ranks: Ints, slots: Ints, count: int) -> None:
    """Put the first `count` of `ranks` on `slots`; -1 takes a rank off.

    Slots that the ranks do not leave must be free.
    """
    stamp = loads.mark[-1] + 1
    loads.mark[-1] = stamp
    marked = 0
    for n in range(count):
        rank = ranks[n]
        slot = loads.slot[rank]
        for i in range(job.of_start[rank], job.of_start[rank + 1]):
            g = job.of_group[i]
            if loads.mark[g] != stamp:
                loads.mark[g] = stamp
                loads.marked[marked] = g
                marked += 1
                if job.grown[g] == 0:
                    add_whole(net, job, loads, g, -1.0)
            if job.grown[g] == 1 and slot >= 0:
                _change(net, job, loads, g, slot, False)
        if slot >= 0:
            hold_still(net, job, loads, rank, -1.0)
            loads.rank[slot] = -1
    for n in range(count):
        rank = ranks[n]
        loads.slot[rank] = slots[n]
        if slots[n] < 0:
            continue
        loads.rank[slots[n]] = rank
        hold_still(net, job, loads, rank, 1.0)
        for i in range(job.of_start[rank], job.of_start[rank + 1]):
            if job.grown[job.of_group[i]] == 1:
                _change(net, job, loads, job.of_group[i], slots[n], True)
    for n in range(marked):
        g = loads.marked[n]
        if job.grown[g] == 0:
            if job.pattern[g] != 3:
                line_up(job, loads, g)
            level = add_whole(net, job, loads, g, 1.0)
        else:
            level = -1
            if loads.held[g] > 1:
                start = job.start[g]
                level = meeting(net, loads.lined[start], loads.lined[start + loads.held[g] - 1])
        set_level(net, job, loads, g, level)
