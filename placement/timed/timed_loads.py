"""Loads of all links in all phases, and the seconds that they make."""

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
def put(loads: Loads, phase: int, link: int, change_s: float) -> None:
    """Add seconds to a link, or take some away."""
    tree = loads.tree
    at = tree.shape[1] // 2 + link
    old = tree[phase, at]
    new = old + change_s
    if new <= 1e-12 * abs(change_s):
        new = 0.0
    tree[phase, at] = new
    one, other = old / loads.scale[phase], new / loads.scale[phase]
    for _ in range(4):
        one *= one
        other *= other
    loads.even[phase] += other - one
    loads.work[0] += 1
    at >>= 1
    while at >= 1:
        top = max(tree[phase, 2 * at], tree[phase, 2 * at + 1])
        if tree[phase, at] == top:
            break
        tree[phase, at] = top
        at >>= 1
