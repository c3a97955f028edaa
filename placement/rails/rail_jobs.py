"""Placing jobs too large for the exact model where different rails meet only at the spine."""

from __future__ import annotations

from dataclasses import replace

from ..bounds.rail_bound import rail_bound
from ..jobs.cuts import fewer_bytes
from ..jobs.gather import gather
from ..jobs.index import Demand, Fabric, Ints
from ..jobs.large_jobs import found_by_search
from ..loops.budget import Budget
from .lanes import in_lanes
from .rail_planes import by_planes
from .rail_walk import walked_on_rails

_PLANES_SHARE, _WALKS_SHARE = 0.25, 0.3
_HEATS = (1.0, 0.2)
_SEED_STEP = 7919


def found_on_rails(
    fabric: Fabric, demand: Demand, budget: Budget, seed: int
) -> tuple[Ints, float, str]:
    """Slots, a proven lower bound on the bytes at the spine, and how found.

    Two ways to start: by domains, as if rails did not matter, with the devices then chosen by lane;
    and by planes, as if every block of rails were a network of its own. A walk over single devices
    and blocks of them goes on from the better one. The bound by domains holds, as rails only add.
    """
    flat = replace(fabric, rail=None)
    gathered = gather(flat, demand)
    work = budget.left
    split = by_planes(fabric, gathered.atom)
    planes_share = _PLANES_SHARE if split is not None else 0.0
    by_domains = Budget(work * (1 - _WALKS_SHARE - planes_share))
    found, bound, method = found_by_search(flat, demand, by_domains, seed, gathered)
    bound = max(bound, rail_bound(fabric, demand))
    best = _better(fabric, demand, found, in_lanes(fabric, demand, found))
    if split is not None:
        planes, there = split
        inside, _, _ = found_by_search(planes, demand, Budget(work * _PLANES_SHARE), seed)
        in_parts = replace(planes, rail=fabric.rail[there] if fabric.rail is not None else None)
        for slots in (inside, in_lanes(in_parts, demand, inside)):
            best = _better(fabric, demand, best, there[slots])
    for turn, heat in enumerate(_HEATS):
        walked = walked_on_rails(
            fabric,
            demand,
            best,
            gathered.atom,
            work * _WALKS_SHARE / len(_HEATS),
            seed + _SEED_STEP * turn,
            heat,
        )
        best = _better(fabric, demand, best, walked)
    return best, bound, method


def _better(fabric: Fabric, demand: Demand, one: Ints, other: Ints) -> Ints:
    return other if fewer_bytes(fabric, demand, other, one) else one
