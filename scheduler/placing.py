"""Finding a placement for a job on what is free. Pure, and slow: it belongs into a thread.

The solver is imported in that thread too, as it takes longer than all the rest of the daemon.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..placement.errors import Infeasible
from ..placement.placement import Placement
from .job import Job
from .ledger import Ledger
from .records import Device

_POSSIBLE_S = 0.1


@dataclass(frozen=True)
class Found:
    """A placement; or why there is none now; or why there can never be one on this cluster."""

    placement: Placement | None = None
    not_now: str = ""
    never: str = ""
    took_s: float = 0.0


def find_placement(job: Job, ledger: Ledger, seed: int = 0) -> Found:
    """Place a job on the free devices of a ledger within the job's own time limit."""
    from ..placement.place import place

    began = time.perf_counter()
    graph = job.graph()
    try:
        placement = place(graph, ledger.available(), time_limit_s=job.time_limit_s, seed=seed)
    except Infeasible as error:
        not_now = str(error)
    else:
        return Found(placement, took_s=time.perf_counter() - began)
    try:
        place(graph, ledger.whole(), time_limit_s=_POSSIBLE_S, seed=seed)
    except Infeasible as error:
        return Found(never=str(error), took_s=time.perf_counter() - began)
    return Found(not_now=not_now, took_s=time.perf_counter() - began)


def moved_ranks(before: list[Device], after: list[Device]) -> int:
    """How many ranks have another device than before."""
    return sum(1 for old, new in zip(before, after, strict=True) if tuple(old) != tuple(new))
