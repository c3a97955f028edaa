"""Improving a placement by predicted time: small jobs are searched through, larger ones walked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..evaluate import Device
from ..jobs.index import Fabric, Ints
from ..pcg import PCG, Op
from .timed_exact import MOST_RANKS, searched_through
from .timed_job import MOST_LOADS, Job, Net, job_of, net_of
from .timed_loads import Loads, empty_loads
from .timed_moves import relocate
from .timed_walk import LOADS_PER_WORK, walked
from .timed_whole import Whole

_HEATS = (1e-3, 1e-2)
_EXACT_SHARE = 0.5
_MOST_PAIRS = 20_000_000
"""Pairs of members of large all-to-alls beyond which a move takes too long."""
_LARGE_GROUP = 64


@dataclass(frozen=True)
class Searched:
    """devices: the fastest found. proved: whether no placement is faster."""

    devices: list[Device]
    method: str
    proved: bool = False
    notes: list[str] = field(default_factory=list)


def searched(
    pcg: PCG,
    fabric: Fabric,
    devices: list[Device],
    seconds: float,
    unit_of: Ints,
    whole: Whole,
    work: float,
    seed: int,
) -> Searched:
    """The fastest placement met from `devices`, which take `seconds`.

    unit_of: by rank, the unit it moves with; those of a unit are on one node. whole: parts that are
    in one domain, and stay so.
    """
    net, order = net_of(fabric)
    number = {device: slot for slot, device in enumerate(fabric.devices(order))}
    slots = np.array([number[device] for device in devices], dtype=np.int64)
    ranks = len(slots)
    job = job_of(pcg, fabric, unit_of)
    if job.phases * len(net.link_low) > MOST_LOADS or _pairs(pcg) > _MOST_PAIRS:
        return Searched(devices, "", notes=["too large to be improved move by move"])
    method = "walk by time"
    if ranks <= MOST_RANKS:
        alone = job_of(pcg, fabric, np.arange(ranks))
        found = searched_through(net, alone, whole, slots, seconds, work * _EXACT_SHARE)
        if found.proved:
            return Searched(fabric.devices(order[found.slots]), "exact by time", True)
        slots, seconds = found.slots, found.seconds
        work *= 1 - _EXACT_SHARE
    units = np.argsort(unit_of, kind="stable").reshape(int(unit_of.max()) + 1, -1)
    best, best_s = slots, seconds
    for turn, heat in enumerate(_HEATS):
        loads = _loaded(net, job, best)
        left = work / len(_HEATS) - int(loads.work[0]) / LOADS_PER_WORK
        if left <= 0:
            break
        where, found_s = walked(
            net, job, loads, units, whole, left, seed * len(_HEATS) + turn, heat
        )
        if found_s < best_s:
            best, best_s = where, found_s
    return Searched(fabric.devices(order[best]), method)


def _loaded(net: Net, job: Job, slots: Ints) -> Loads:
    loads = empty_loads(net, job)
    relocate(net, job, loads, np.arange(len(slots)), slots, len(slots))
    return loads


def _pairs(pcg: PCG) -> int:
    return sum(
        len(group.ranks) ** 2
        for group in pcg.groups
        if group.op is Op.ALL_TO_ALL and len(group.ranks) > _LARGE_GROUP
    )
