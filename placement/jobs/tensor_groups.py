"""Tensor-parallel groups that fit a scale-up domain stay in one, unless the request lifts that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..cluster import NODE_TIER, Cluster
from ..constraints import Constraints, Pin, Segments
from ..errors import Infeasible
from ..group_table import GroupList
from ..pcg import PCG, Op
from ..placement import Placement

Device = tuple[str, int]
Ranks = tuple[int, ...]
Solver = Callable[[PCG, Cluster, float, int, Constraints], Placement]
_NAME = re.compile(r"(tp|tensor)(?![a-z])", re.IGNORECASE)


def scale_up_tier(cluster: Cluster) -> str:
    """The widest tier at which devices meet over scale-up links: "node", or a wider one."""
    wide = [tier.name for tier in cluster.tiers if tier.scale_up]
    return wide[-1] if wide else NODE_TIER


def tensor_groups(pcg: PCG) -> list[Ranks]:
    """The ranks of each tensor-parallel group of a job, ascending, every set once: those of
    collectives whose name begins with tp or tensor."""
    table = pcg.table
    named = np.array([bool(_NAME.match(name)) for name in table.names], dtype=bool)
    chosen = named & (table.size > 1) & ~table.is_op(Op.SEND_RECV)
    sets = table.taken(np.flatnonzero(chosen)).ranks()
    return list(dict.fromkeys(tuple(sorted(ranks)) for ranks in sets))


def split_groups(pcg: PCG, cluster: Cluster, devices: Sequence[Device]) -> list[Ranks]:
    """The tensor-parallel groups that fit a scale-up domain of the cluster and are not in one."""
    return _that_fit(pcg, cluster, devices)[1]


def whole_groups(pcg: PCG, cluster: Cluster, devices: Sequence[Device]) -> list[Ranks]:
    """The tensor-parallel groups that fit a scale-up domain of the cluster and are in one."""
    return _that_fit(pcg, cluster, devices)[0]


def _that_fit(
    pcg: PCG, cluster: Cluster, devices: Sequence[Device]
) -> tuple[list[Ranks], list[Ranks]]:
    groups = tensor_groups(pcg)
    tier = scale_up_tier(cluster)
    if not groups or tier == cluster.spine:
        return [], []
    domain = {n.name: n.name if tier == NODE_TIER else n.domains[tier] for n in cluster.nodes}
    room = Counter[str]()
    for node in cluster.nodes:
        room[domain[node.name]] += len(node.usable_devices)
    widest = max(room.values(), default=0)
    whole: list[Ranks] = []
    split: list[Ranks] = []
    for ranks in groups:
        if len(ranks) <= widest:
            there = {domain[devices[rank][0]] for rank in ranks}
            (whole if len(there) == 1 else split).append(ranks)
    return whole, split


def with_whole_groups(
    found: Placement,
    pcg: PCG,
    cluster: Cluster,
    time_limit_s: float,
    seed: int,
    constraints: Constraints,
    solve: Solver,
) -> Placement:
    """`found`, or where it splits tensor-parallel groups a placement that does not.

    The job is placed once more with its groups as segments. Where no placement keeps them all
    whole, or the groups are not equal parts of the job, `found` stays, with a note.
    """
    broken = split_groups(pcg, cluster, found.devices)
    if not broken:
        return found
    tier = scale_up_tier(cluster)
    groups = tensor_groups(pcg)
    said = f"{len(broken)} of {len(groups)} tensor-parallel groups"
    order = _one_after_another(groups, pcg.world_size)
    if order is None or constraints.segments is not None:
        return _noted(found, f"{said} are split over domains of {tier}")
    place_of = {rank: position for position, rank in enumerate(order)}
    size = len(broken[0])
    wish = constraints.model_copy(
        update={
            "segments": Segments(ranks=size, tier=tier),
            "pinned": tuple(
                Pin(rank=place_of[pin.rank], node=pin.node, device=pin.device)
                for pin in constraints.pinned
            ),
        }
    )
    try:
        whole = solve(_renumbered(pcg, place_of), cluster, time_limit_s, seed, wish)
    except Infeasible:
        return _noted(found, f"{said} are split: no {tier} has room for each of them as a whole")
    devices = [whole.devices[place_of[rank]] for rank in range(pcg.world_size)]
    return replace(whole, devices=devices)


def _one_after_another(groups: list[Ranks], ranks: int) -> list[int] | None:
    """All ranks, group by group, where groups of one size cover each rank once; else None."""
    order = [rank for members in sorted(groups) for rank in members]
    even = len({len(members) for members in groups}) == 1
    return order if even and sorted(order) == list(range(ranks)) else None


def _renumbered(pcg: PCG, place_of: dict[int, int]) -> PCG:
    place = np.array([place_of[rank] for rank in range(pcg.world_size)], dtype=np.int64)
    groups = GroupList(replace(pcg.table, rank=place[pcg.table.rank]))
    requires = tuple(
        need.model_copy(update={"ranks": tuple(place_of[rank] for rank in need.ranks)})
        for need in pcg.requires
    )
    return pcg.model_copy(update={"groups": groups, "requires": requires})


def _noted(found: Placement, note: str) -> Placement:
    return replace(found, notes=[*found.notes, note])
