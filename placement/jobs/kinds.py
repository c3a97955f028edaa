"""Kinds of accelerator: a job, or each of its groups, on one kind alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations, product

from ..bounds.group_bound import group_bound
from ..cluster import Cluster
from ..constraints import SameKind
from ..errors import Infeasible
from ..feasibility import check_feasible
from ..pcg import PCG, Op, Requirement
from ..placement import Placement
from .index import Demand, Fabric

Solver = Callable[[PCG, float], Placement]
_MOST_ASSIGNMENTS = 24
"""Assignments of parts to kinds that are placed and compared."""


@dataclass(frozen=True)
class _Part:
    """Ranks that must be of one kind; `kinds` are those that may serve them."""

    ranks: tuple[int, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True)
class OnSameKind:
    """A job with the kinds of its parts as requirements, in each way that the free devices allow.

    complete: whether these are all ways. counts: how large the parts are and what is free, in
    words.
    """

    jobs: list[PCG]
    complete: bool
    counts: str


def on_same_kind(wish: SameKind, pcg: PCG, cluster: Cluster) -> OnSameKind:
    """Every assignment of parts to kinds where these are few, else those that fill kind by kind."""
    room = Counter[str]()
    for node in cluster.nodes:
        room[node.accelerator] += len(node.usable_devices)
    parts = _parts(wish, pcg, [kind for kind in sorted(room) if room[kind]])
    every = 1
    for part in parts:
        every = min(every * len(part.kinds), _MOST_ASSIGNMENTS + 1)
    complete = every <= _MOST_ASSIGNMENTS
    options = _all_ways(parts, room) if complete else _one_kind_after_the_other(parts, room)
    jobs = [_required(pcg, parts, kinds) for kinds in dict.fromkeys(options)]
    largest = max(len(part.ranks) for part in parts)
    held = f"{largest} ranks" if wish.per == "job" else f"groups of up to {largest} ranks"
    free = ", ".join(f"{count} {kind}" for kind, count in sorted(room.items()))
    what = "the whole job" if wish.per == "job" else "each group"
    counts = f"same_kind: {what} on one kind: {held}, and {free} devices are free"
    return OnSameKind(jobs, complete, counts)


def place_on_same_kind(
    wish: SameKind, pcg: PCG, cluster: Cluster, time_limit_s: float, solve: Solver
) -> Placement | None:
    """The best placement found with every part on one kind; None when no kinds have the room.

    solve: places a job within a time limit. Raises Infeasible when the job does not even fit on any
    kinds, and where `solve` refuses it on all that have the room.
    """
    fabric = Fabric.of(cluster)
    check_feasible(pcg, fabric)
    choice = on_same_kind(wish, pcg, cluster)
    if not choice.jobs:
        return None
    best: Placement | None = None
    least, refused = float("inf"), ""
    for job in choice.jobs:
        try:
            found_here = solve(job, time_limit_s / len(choice.jobs))
        except Infeasible as error:
            # A bound must hold for this assignment too, which only the constraints refuse.
            least, refused = 0.0, str(error)
            continue
        least = min(least, found_here.lower_bound_bytes)
        if best is None or _cost(found_here) < _cost(best):
            best = found_here
    if best is None:
        raise Infeasible(refused)
    if not choice.complete:
        least = min(least, group_bound(fabric, Demand.of(pcg, fabric.kinds)))
    spine = best.cross_spine_bytes
    return replace(best, lower_bound_bytes=min(least, spine), proved_optimal=spine <= least)


def _cost(placement: Placement) -> list[float]:
    return list(placement.traffic_bytes.values())[::-1]


def _parts(wish: SameKind, pcg: PCG, kinds: list[str]) -> list[_Part]:
    """The whole job, or the ranks that collectives join, with the kinds that may serve each."""
    leader = list(range(pcg.world_size))

    def find(rank: int) -> int:
        while leader[rank] != rank:
            leader[rank] = leader[leader[rank]]
            rank = leader[rank]
        return rank

    if wish.per == "job":
        leader = [0] * pcg.world_size
    else:
        for group in pcg.groups:
            if group.op is not Op.SEND_RECV:
                for rank in group.ranks[1:]:
                    leader[find(rank)] = find(group.ranks[0])
    members: dict[int, list[int]] = {}
    for rank in range(pcg.world_size):
        members.setdefault(find(rank), []).append(rank)
    needs = pcg.required_accelerators()
    found = []
    for ranks in members.values():
        wanted = {needs[rank] for rank in ranks if rank in needs}
        able = tuple(kind for kind in kinds if wanted <= {kind})
        found.append(_Part(tuple(ranks), able))
    return found


def _all_ways(parts: list[_Part], room: Counter[str]) -> Iterator[tuple[str, ...]]:
    for kinds in product(*(part.kinds for part in parts)):
        needed = Counter[str]()
        for part, kind in zip(parts, kinds, strict=True):
            needed[kind] += len(part.ranks)
        if all(needed[kind] <= room[kind] for kind in needed):
            yield kinds


def _one_kind_after_the_other(parts: list[_Part], room: Counter[str]) -> Iterator[tuple[str, ...]]:
    """Parts in order onto the first kind with room, for every order of the kinds."""
    orders = list(permutations(sorted(room)))[:_MOST_ASSIGNMENTS]
    for order in orders:
        for largest_first in (False, True):
            left = room.copy()
            chosen: dict[int, str] = {}
            sizes = [(len(part.kinds), -len(part.ranks) if largest_first else 0) for part in parts]
            for i in sorted(range(len(parts)), key=lambda at: (sizes[at], at)):
                size = len(parts[i].ranks)
                able = [kind for kind in order if kind in parts[i].kinds and left[kind] >= size]
                if not able:
                    break
                chosen[i] = able[0]
                left[able[0]] -= size
            if len(chosen) == len(parts):
                yield tuple(chosen[i] for i in range(len(parts)))


def _required(pcg: PCG, parts: list[_Part], kinds: tuple[str, ...]) -> PCG:
    requires = tuple(
        Requirement(ranks=part.ranks, accelerator=kind)
        for part, kind in zip(parts, kinds, strict=True)
    )
    return pcg.model_copy(update={"requires": requires})
