"""Loads of all links in all phases, kept up to date while ranks move from slot to slot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..jobs.index import Floats, Ints
from ..loops.compiled import inner, lean
from .timed_job import Job, Net


class Loads(NamedTuple):
    """A placement and what it puts on links.

    slot: of each rank, -1 for none. rank: on each slot, -1 for none. lined: by group as
    `Job.member`, the slots of the members that have one, ascending; held: how many; stops: nodes
    with any. tree: by phase, a binary tree of maxima over the seconds of links, which are its
    second half. even: by phase, the sum of the links' seconds over `scale` to the power of 16, so
    that all of the nearly busiest links count in a search.
    level: of each group, where its farthest byte meets, -1 for nowhere.
    waiting: `[class, level]` groups. wait_s: by phase. work: one number, loads changed so far.
    shares, lanes: two rows by rail, scratch.
    """

    slot: Ints
    rank: Ints
    lined: Ints
    held: Ints
    stops: Ints
    tree: Floats
    even: Floats
    scale: Floats
    level: Ints
    waiting: Ints
    wait_s: Floats
    mark: Ints
    marked: Ints
    work: Ints
    shares: Floats
    lanes: Ints


def empty_loads(net: Net, job: Job) -> Loads:
    """No rank anywhere."""
    width = 1
    while width < len(net.link_low):
        width *= 2
    groups, classes = len(job.pattern), len(job.class_phase)
    ranks, slots, levels = len(job.kind), len(net.node), len(net.wait_s)
    waiting = np.zeros((classes, levels), dtype=np.int64)
    waiting[:, 0] = job.class_still
    wait_s = np.zeros(job.phases)
    still = job.class_still.astype(bool)
    np.maximum.at(wait_s, job.class_phase[still], job.class_steps[still] * net.wait_s[0])
    return Loads(
        slot=np.full(ranks, -1, dtype=np.int64),
        rank=np.full(slots, -1, dtype=np.int64),
        lined=np.full(len(job.member), -1, dtype=np.int64),
        held=np.zeros(groups, dtype=np.int64),
        stops=np.zeros(groups, dtype=np.int64),
        tree=np.zeros((job.phases, 2 * width)),
        even=np.zeros(job.phases),
        scale=np.ones(job.phases),
        level=np.full(groups, -1, dtype=np.int64),
        waiting=waiting,
        wait_s=wait_s,
        mark=np.zeros(groups + 1, dtype=np.int64),
        marked=np.zeros(groups, dtype=np.int64),
        work=np.zeros(1, dtype=np.int64),
        shares=np.zeros((2, net.rails)),
        lanes=np.zeros((2, net.rails), dtype=np.int64),
    )


@lean
def predicted_s(loads: Loads) -> float:
    """Seconds of all phases."""
    total = 0.0
    for phase in range(len(loads.wait_s)):
        total += loads.tree[phase, 1] + loads.wait_s[phase]
    return total


@lean
def smooth_s(loads: Loads) -> float:
    """Seconds of all phases with every busy link counting for something."""
    total = 0.0
    for phase in range(len(loads.wait_s)):
        even = max(0.0, loads.even[phase])
        for _ in range(4):
            even = np.sqrt(even)
        total += loads.scale[phase] * even + loads.wait_s[phase]
    return total


@lean
def rescale(loads: Loads) -> None:
    """Sum the powers anew, in units of the busiest link of each phase."""
    width = loads.tree.shape[1] // 2
    for phase in range(len(loads.wait_s)):
        top = loads.tree[phase, 1]
        loads.scale[phase] = top if top > 0 else 1.0
        total = 0.0
        for leaf in range(width, 2 * width):
            part = loads.tree[phase, leaf] / loads.scale[phase]
            for _ in range(4):
                part *= part
            total += part
        loads.even[phase] = total


@inner
def _put(
    tree: Floats, even: Floats, scale: Floats, work: Ints, phase: int, link: int, change_s: float
) -> None:
    at = tree.shape[1] // 2 + link
    old = tree[phase, at]
    new = old + change_s
    if new <= 1e-12 * abs(change_s):
        new = 0.0
    tree[phase, at] = new
    one, other = old / scale[phase], new / scale[phase]
    for _ in range(4):
        one *= one
        other *= other
    even[phase] += other - one
    work[0] += 1
    at >>= 1
    while at >= 1:
        top = max(tree[phase, 2 * at], tree[phase, 2 * at + 1])
        if tree[phase, at] == top:
            break
        tree[phase, at] = top
        at >>= 1


@inner
def _end(
    net: Net, loads: Loads, phase: int, level: int, slot: int, rail: int, inward: int, size: float
) -> None:
    """Add one end of bytes that meet at a level: through `slot`'s port, or a NIC of its node."""
    if level < net.first_network:
        _put(
            loads.tree,
            loads.even,
            loads.scale,
            loads.work,
            phase,
            2 * slot + inward,
            size * net.port_s[slot, level],
        )
        for inner in range(1, level):
            if net.uplink[inner, slot] >= 0:
                link = net.uplink[inner, slot] + inward
                _put(
                    loads.tree,
                    loads.even,
                    loads.scale,
                    loads.work,
                    phase,
                    link,
                    size * net.uplink_s[inner, slot],
                )
        return
    nic = net.first_nic + 2 * (net.node[slot] * net.rails + rail) + inward
    _put(loads.tree, loads.even, loads.scale, loads.work, phase, nic, size * net.nic_s[level])
    for inner in range(net.first_network, level):
        if net.uplink[inner, slot] >= 0:
            link = net.uplink[inner, slot] + 2 * rail + inward
            _put(
                loads.tree,
                loads.even,
                loads.scale,
                loads.work,
                phase,
                link,
                size * net.uplink_s[inner, slot],
            )


@inner
def _meeting(net: Net, one: int, other: int) -> int:
    level = 0
    while net.low[level, one] != net.low[level, other]:
        level += 1
    return int(level)


@inner
def _edge(
    net: Net,
    loads: Loads,
    phase: int,
    a0: int,
    a1: int,
    b0: int,
    b1: int,
    size: float,
    aligned: int,
) -> int:
    """Add bytes from the members at `lined[a0:a1]` on one node to those at `[b0:b1]` on another.

    Returns the farthest level at which some of them meet, -1 for no bytes.
    """
    if size == 0.0:
        return -1
    lined = loads.lined
    a, b = lined[a0], lined[b0]
    level = _meeting(net, a, b)
    last = len(net.wait_s) - 1
    if level < net.first_network:
        for i in range(a0, a1):
            _end(net, loads, phase, level, lined[i], 0, 0, size / (a1 - a0))
        for i in range(b0, b1):
            _end(net, loads, phase, level, lined[i], 0, 1, size / (b1 - b0))
        return level
    if aligned == 0:
        for i in range(b0, b1):
            rail = net.rail[lined[i]]
            _end(net, loads, phase, level, a, rail, 0, size / (b1 - b0))
            _end(net, loads, phase, level, b, rail, 1, size / (b1 - b0))
        return level
    have, want = loads.shares[0], loads.shares[1]
    for rail in range(net.rails):
        have[rail] = 0.0
        want[rail] = 0.0
    for i in range(a0, a1):
        have[net.rail[lined[i]]] += 1.0
    for i in range(b0, b1):
        want[net.rail[lined[i]]] += 1.0
    farthest = level
    for rail in range(net.rails):
        out, into = have[rail] / (a1 - a0), want[rail] / (b1 - b0)
        straight = min(out, into)
        if straight > 0.0:
            _end(net, loads, phase, level, a, rail, 0, size * straight)
            _end(net, loads, phase, level, b, rail, 1, size * straight)
        if out > straight:
            _end(net, loads, phase, last, a, rail, 0, size * (out - straight))
            farthest = last
        if into > straight:
            _end(net, loads, phase, last, b, rail, 1, size * (into - straight))
            farthest = last
    return farthest


@inner
def _within(net: Net, loads: Loads, phase: int, i0: int, i1: int, size: float, alone: bool) -> int:
    """Add a ring's or chain's edges among `lined[i0:i1]`, all on one node."""
    held = i1 - i0
    if held < 2:
        return -1
    each = size if alone else size * (held - 1) / held
    for i in range(i0, i1):
        _end(net, loads, phase, 0, loads.lined[i], 0, 0, each)
        _end(net, loads, phase, 0, loads.lined[i], 0, 1, each)
    return 0


@inner
def _run_end(net: Net, loads: Loads, i: int, end: int) -> int:
    high = net.high[0, loads.lined[i]]
    while i < end and loads.lined[i] < high:
        i += 1
    return i


@inner
def _whole_line(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    """Add (or with sign -1 take away) all of a ring or chain; returns its farthest level."""
    first = job.start[g]
    end = first + loads.held[g]
    loads.stops[g] = 0
    if end == first:
        return -1
    phase, ring = job.phase[g], job.pattern[g] == 0
    ahead, back = sign * job.ahead[g], sign * job.back[g]
    aligned = net.aligned if ring else 0
    stop = _run_end(net, loads, first, end)
    loads.stops[g] = 1
    alone = ring and stop == end
    farthest = _within(net, loads, phase, first, stop, ahead + back, alone)
    i0, i1 = first, stop
    while i1 < end:
        after = _run_end(net, loads, i1, end)
        loads.stops[g] += 1
        farthest = max(farthest, _within(net, loads, phase, i1, after, ahead + back, False))
        farthest = max(farthest, _edge(net, loads, phase, i0, i1, i1, after, ahead, aligned))
        farthest = max(farthest, _edge(net, loads, phase, i1, after, i0, i1, back, aligned))
        i0, i1 = i1, after
    if ring and i0 != first:
        farthest = max(farthest, _edge(net, loads, phase, i0, end, first, stop, ahead, aligned))
    return farthest


@inner
def _all_pairs(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    """Add all of an all-to-all, node by node; returns its farthest level."""
    first = job.start[g]
    end = first + loads.held[g]
    phase, size = job.phase[g], sign * job.ahead[g]
    lined = loads.lined
    last = len(net.wait_s) - 1
    farthest = -1
    lanes, own = loads.lanes[0], loads.lanes[1]
    i0 = first
    while i0 < end:
        i1 = _run_end(net, loads, i0, end)
        held = i1 - i0
        slot = lined[i0]
        for rail in range(net.rails):
            own[rail] = 0
        for i in range(i0, i1):
            own[net.rail[lined[i]]] += 1
        if held > 1:
            farthest = max(farthest, 0)
            for i in range(i0, i1):
                _end(net, loads, phase, 0, lined[i], 0, 0, size * (held - 1))
                _end(net, loads, phase, 0, lined[i], 0, 1, size * (held - 1))
        near, far = i0, i1
        for level in range(1, last + 1):
            # Members that share this level's domain and no nearer one lie on either side.
            low, high = near, far
            while near > first and lined[near - 1] >= net.low[level, slot]:
                near -= 1
            while far < end and lined[far] < net.high[level, slot]:
                far += 1
            met = (low - near) + (far - high)
            if met == 0:
                continue
            if level < net.first_network:
                farthest = max(farthest, level)
                for i in range(i0, i1):
                    _end(net, loads, phase, level, lined[i], 0, 0, size * met)
                    _end(net, loads, phase, level, lined[i], 0, 1, size * met)
                continue
            for rail in range(net.rails):
                lanes[rail] = 0
            for i in range(near, low):
                lanes[net.rail[lined[i]]] += 1
            for i in range(high, far):
                lanes[net.rail[lined[i]]] += 1
            if net.aligned == 0:
                farthest = max(farthest, level)
                for rail in range(net.rails):
                    if lanes[rail] > 0:
                        _end(net, loads, phase, level, slot, rail, 0, size * held * lanes[rail])
                    if own[rail] > 0:
                        _end(net, loads, phase, level, slot, rail, 1, size * own[rail] * met)
                continue
            for rail in range(net.rails):
                straight = size * own[rail] * lanes[rail]
                across = size * own[rail] * (met - lanes[rail])
                for inward in range(2):
                    if straight != 0.0:
                        farthest = max(farthest, level)
                        _end(net, loads, phase, level, slot, rail, inward, straight)
                    if across != 0.0:
                        farthest = last
                        _end(net, loads, phase, last, slot, rail, inward, across)
        i0 = i1
    return farthest


@inner
def _single_edge(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    first = job.start[g]
    one, other = loads.slot[job.member[first]], loads.slot[job.member[first + 1]]
    if one < 0 or other < 0:
        return -1
    # Sender first, whatever the order of the slots.
    loads.lined[first], loads.lined[first + 1] = one, other
    return _edge(
        net,
        loads,
        job.phase[g],
        first,
        first + 1,
        first + 1,
        first + 2,
        sign * job.ahead[g],
        net.aligned,
    )


@inner
def add_whole(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    """Add (or with sign -1 take away) all that a group does; returns its farthest level."""
    if job.pattern[g] == 3:
        return _single_edge(net, job, loads, g, sign)
    if job.pattern[g] == 2:
        return _all_pairs(net, job, loads, g, sign)
    return _whole_line(net, job, loads, g, sign)


@inner
def line_up(job: Job, loads: Loads, g: int) -> None:
    """Sort the slots of the members that have one."""
    first, held = job.start[g], 0
    for i in range(first, job.start[g + 1]):
        slot = loads.slot[job.member[i]]
        if slot < 0:
            continue
        at = first + held
        while at > first and loads.lined[at - 1] > slot:
            loads.lined[at] = loads.lined[at - 1]
            at -= 1
        loads.lined[at] = slot
        held += 1
    loads.held[g] = held


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
    n1 = _run_end(net, loads, n0, end)
    aligned = net.aligned if ring else 0
    if joint:
        if ring or (i0 > first and i1 < end):
            _edge(net, loads, phase, p0, p1, n0, n1, ahead, aligned)
            _edge(net, loads, phase, n0, n1, p0, p1, back, aligned)
        return
    _within(net, loads, phase, i0, i1, ahead + back, False)
    if ring or i0 > first:
        _edge(net, loads, phase, p0, p1, i0, i1, ahead, aligned)
        _edge(net, loads, phase, i0, i1, p0, p1, back, aligned)
    if ring or i1 < end:
        _edge(net, loads, phase, i0, i1, n0, n1, ahead, aligned)
        _edge(net, loads, phase, n0, n1, i0, i1, back, aligned)


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
        _whole_line(net, job, loads, g, -1.0)
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
        _whole_line(net, job, loads, g, 1.0)
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
        _put(
            loads.tree,
            loads.even,
            loads.scale,
            loads.work,
            phase,
            2 * slot,
            sign * job.still_out[i] * net.port_s[slot, 0],
        )
        _put(
            loads.tree,
            loads.even,
            loads.scale,
            loads.work,
            phase,
            2 * slot + 1,
            sign * job.still_in[i] * net.port_s[slot, 0],
        )


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
                level = _meeting(net, loads.lined[start], loads.lined[start + loads.held[g] - 1])
        set_level(net, job, loads, g, level)
