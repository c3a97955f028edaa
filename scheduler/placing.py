"""Finding a placement for a job on what is free. Pure, and slow: it belongs into a thread.

The solver is imported in that thread too, as it takes longer than all the rest of the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from ..placement.cluster import Cluster
from ..placement.errors import Infeasible, InvalidInput
from ..placement.pcg import PCG
from ..placement.placement import Placement
from .job import Job
from .ledger import Ledger
from .records import Device

_POSSIBLE_S = 0.1
# A fresh placement moves ranks that could stay; it must save this much of the spine's traffic.
_WORTH_MOVING = 1.05


@dataclass(frozen=True)
class Found:
    """A placement; or why there is none now; or why there can never be one on this cluster."""

    placement: Placement | None = None
    not_now: str = ""
    never: str = ""
    took_s: float = 0.0


def find_placement(
    job: Job,
    ledger: Ledger,
    before: Placement | None = None,
    seed: int = 0,
    kept: Collection[str] = (),
) -> Found:
    """Place a job on the free devices of a ledger within the job's own time limit.

    before: where the job's last attempt was. Then ranks stay where their devices are free, unless a
    fresh placement would save a good part of the traffic over the spine. kept: nodes that other
    jobs keep as spares; they are taken only where there is no placement without them.
    """
    from ..placement.place import place

    began = time.perf_counter()
    graph = job.graph()
    not_now = ""
    for but in ([kept] if kept else []) + [()]:
        available = ledger.available(but)
        try:
            placement = _repaired(job, graph, available, before, seed) if before else None
            if placement is None:
                placement = place(
                    graph,
                    available,
                    time_limit_s=job.time_limit_s,
                    seed=seed,
                    constraints=job.constraints,
                )
            return Found(placement, took_s=time.perf_counter() - began)
        except Infeasible as error:
            not_now = str(error)
        except InvalidInput as error:  # a node or tier that its constraints name is not there
            told = "; ".join(str(problem) for problem in error.problems)
            return Found(not_now=f"its constraints: {told}", took_s=time.perf_counter() - began)
    try:
        place(
            graph,
            ledger.whole(),
            time_limit_s=_POSSIBLE_S,
            seed=seed,
            constraints=job.constraints,
        )
    except Infeasible as error:
        return Found(never=str(error), took_s=time.perf_counter() - began)
    return Found(not_now=not_now, took_s=time.perf_counter() - began)


def _repaired(
    job: Job, graph: PCG, available: Cluster, before: Placement, seed: int
) -> Placement | None:
    """The placement of the last attempt on what is left of its devices, or a much better one.

    None when the cluster is not the one that the last attempt was placed on any more, or when the
    constraints cannot be kept by moving only the ranks that must.
    """
    from ..placement.repair import repair

    free = {(node.name, device) for node in available.nodes for device in node.usable_devices}
    has = {node.name: node.devices for node in available.nodes}
    lost = [
        (name, device)
        for name, device in before.devices
        if (name, device) not in free and device < has.get(name, 0)
    ]
    try:
        mended = repair(
            before,
            graph,
            available,
            lost,
            seed=seed,
            compare=True,
            time_limit_s=job.time_limit_s,
            constraints=job.constraints,
        )
    except InvalidInput:
        return None
    except Infeasible:
        if job.constraints is None:
            raise
        return None  # with more moves it may be possible
    fresh = mended.fresh
    if fresh and fresh.cross_spine_bytes * _WORTH_MOVING < mended.placement.cross_spine_bytes:
        return fresh
    return mended.placement


def moved_ranks(before: list[Device], after: list[Device]) -> int:
    """How many ranks have another device than before."""
    return sum(1 for old, new in zip(before, after, strict=True) if tuple(old) != tuple(new))
