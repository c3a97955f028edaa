"""What each group puts on the links of its members: rings, chains, all-to-alls and pairs."""

from __future__ import annotations

from ..loops.compiled import inner
from .timed_job import Job, Net
from .timed_loads import Loads, put


@inner
def _end(
    net: Net, loads: Loads, phase: int, level: int, slot: int, rail: int, inward: int, size: float
) -> None:
    """Add one end of bytes that meet at a level: through `slot`'s port, or a NIC of its node."""
    if level < net.first_network:
        put(loads, phase, 2 * slot + inward, size * net.port_s[slot, level])
        for inner in range(1, level):
            if net.uplink[inner, slot] >= 0:
                link = net.uplink[inner, slot] + inward
                put(loads, phase, link, size * net.uplink_s[inner, slot])
        return
    nic = net.first_nic + 2 * (net.node[slot] * net.rails + rail) + inward
    put(loads, phase, nic, size * net.nic_s[level])
    for inner in range(net.first_network, level):
        if net.uplink[inner, slot] >= 0:
            link = net.uplink[inner, slot] + 2 * rail + inward
            put(loads, phase, link, size * net.uplink_s[inner, slot])


@inner
def meeting(net: Net, one: int, other: int) -> int:
    level = 0
    while net.low[level, one] != net.low[level, other]:
        level += 1
    return int(level)


@inner
def edge(
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
    level = meeting(net, a, b)
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
def within(net: Net, loads: Loads, phase: int, i0: int, i1: int, size: float, alone: bool) -> int:
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
def run_end(net: Net, loads: Loads, i: int, end: int) -> int:
    high = net.high[0, loads.lined[i]]
    while i < end and loads.lined[i] < high:
        i += 1
    return i


@inner
def whole_line(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    """Add (or with sign -1 take away) all of a ring or chain; returns its farthest level."""
    first = job.start[g]
    end = first + loads.held[g]
    loads.stops[g] = 0
    if end == first:
        return -1
    phase, ring = job.phase[g], job.pattern[g] == 0
    ahead, back = sign * job.ahead[g], sign * job.back[g]
    aligned = net.aligned if ring else 0
    stop = run_end(net, loads, first, end)
    loads.stops[g] = 1
    alone = ring and stop == end
    farthest = within(net, loads, phase, first, stop, ahead + back, alone)
    i0, i1 = first, stop
    while i1 < end:
        after = run_end(net, loads, i1, end)
        loads.stops[g] += 1
        farthest = max(farthest, within(net, loads, phase, i1, after, ahead + back, False))
        farthest = max(farthest, edge(net, loads, phase, i0, i1, i1, after, ahead, aligned))
        farthest = max(farthest, edge(net, loads, phase, i1, after, i0, i1, back, aligned))
        i0, i1 = i1, after
    if ring and i0 != first:
        farthest = max(farthest, edge(net, loads, phase, i0, end, first, stop, ahead, aligned))
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
        i1 = run_end(net, loads, i0, end)
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
def _singleedge(net: Net, job: Job, loads: Loads, g: int, sign: float) -> int:
    first = job.start[g]
    one, other = loads.slot[job.member[first]], loads.slot[job.member[first + 1]]
    if one < 0 or other < 0:
        return -1
    # Sender first, whatever the order of the slots.
    loads.lined[first], loads.lined[first + 1] = one, other
    return edge(
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
        return _singleedge(net, job, loads, g, sign)
    if job.pattern[g] == 2:
        return _all_pairs(net, job, loads, g, sign)
    return whole_line(net, job, loads, g, sign)


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
