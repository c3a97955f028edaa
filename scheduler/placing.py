"""Finding a placement for a job on what is free. Pure, and slow: it belongs into a thread.

The solver is imported in that thread too, as it takes longer than all the rest of the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..placement.cluster import Cluster
from ..placement.errors import Infeasible, InvalidInput
from ..placement.pcg import PCG
from ..placement.placement import Placement
from ..placement.timed.link_time import communication_time
from .job import Job
from .ledger import Ledger
from .records import Device

_POSSIBLE_S = 0.1
# A fresh placement moves ranks that could stay; it must save this much of the spine's traffic.
_WORTH_MOVING = 1.05
_BROKEN = "which carry nothing or come and go"


@dataclass(frozen=True)
class Found:
    """A placement; or why there is none now; or why there can never be one on this cluster.

    avoided: nodes that it does not use, behind links that are not well.
    """

    placement: Placement | None = None
    not_now: str = ""
    never: str = ""
    took_s: float = 0.0
    avoided: tuple[str, ...] = ()


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
    jobs keep as spares; they are taken only where there is no placement without them. Nodes behind
    links that are not well are used only where the step is predicted to be faster with them.
    """
    from ..placement.place import place

    began = time.perf_counter()
    graph = job.graph()
    reasons: list[str] = []
    found: list[tuple[float, Placement]] = []
    for offer in _offers(ledger, kept):
        try:
            placement = _first_on(
                job, graph, [ledger.available(but) for but in offer], before, seed
            )
        except Infeasible as error:
            reasons.append(str(error))
            continue
        except InvalidInput as error:  # a node or tier that its constraints name is not there
            told = "; ".join(str(problem) for problem in error.problems)
            return Found(not_now=f"its constraints: {told}", took_s=time.perf_counter() - began)
        cut = ledger.effects.crossed(node for node, _ in placement.devices)
        if cut is None:
            found.append((_seconds(graph, ledger, placement), placement))
        else:
            reasons.append(
                f"it would have to cross the links out of {cut.tier} {cut.name}, {_BROKEN}"
            )
    if found:
        best = found[0]
        for other in found[1:]:
            if other[0] * _WORTH_MOVING < best[0]:
                best = other
        used = {node for node, _ in best[1].devices}
        avoided = tuple(sorted(ledger.effects.shunned.keys() - used))
        return Found(best[1], took_s=time.perf_counter() - began, avoided=avoided)
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
    # What was refused of the whole cluster says more than what was of a part of it.
    return Found(not_now=reasons[min(1, len(reasons) - 1)], took_s=time.perf_counter() - began)


def _offers(ledger: Ledger, kept: Collection[str]) -> list[list[Collection[str]]]:
    """What a job may be placed on: of each list the first that has room, of those the best.

    Each is given by the nodes left out. Where links are not well: the cluster without the nodes
    behind them, the whole of it, and of domains that are cut off each by itself.
    """
    whole: list[Collection[str]] = [kept, ()] if kept else [()]
    effects = ledger.effects
    if not effects.shunned:
        return [whole]
    shunned = set(effects.shunned)
    nodes = {node.name for node in ledger.cluster.nodes}
    without: list[Collection[str]] = [shunned.union(but) for but in whole]
    alone: list[list[Collection[str]]] = [[nodes - inside] for inside in effects.cut.values()]
    return [without, whole, *alone]


def _first_on(
    job: Job, graph: PCG, offered: Sequence[Cluster], before: Placement | None, seed: int
) -> Placement:
    """A placement on the first of some clusters that has room. Raises Infeasible, InvalidInput."""
    from ..placement.place import place

    for number, available in enumerate(offered, start=1):
        try:
            placement = _repaired(job, graph, available, before, seed) if before else None
            return placement or place(
                graph,
                available,
                time_limit_s=job.time_limit_s,
                seed=seed,
                constraints=job.constraints,
            )
        except Infeasible:
            if number == len(offered):
                raise
    raise AssertionError("nothing was offered")


def _seconds(graph: PCG, ledger: Ledger, placement: Placement) -> float:
    """What a step's communication is predicted to take over the links as they are."""
    if not ledger.effects.shunned:
        return 0.0
    health = ledger.effects.link_health
    return communication_time(graph, ledger.cluster, placement.devices, health).total_s


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
