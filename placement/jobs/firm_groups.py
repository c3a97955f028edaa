"""Tensor-parallel groups as single units: the same job in fewer pieces, where they stay whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..cluster import NODE_TIER
from ..pcg import PCG
from .demand_of_units import demand_of_units
from .index import ANY_KIND, Demand, Fabric, Ints
from .tensor_groups import scale_up_tier, tensor_groups
from .units import contract, mixed_kinds, unit_graph


@dataclass(frozen=True)
class FirmGroups:
    """A job whose ranks are the tensor-parallel groups of another, on places for whole groups.

    fabric: a slot is room for one group on a node. demand: a rank is a group. unit_of: the group of
    each rank of the job; slots_of_place: `[place, i]`, the free devices of a slot of `fabric`.
    """

    fabric: Fabric
    demand: Demand
    unit_of: Ints
    slots_of_place: Ints

    def slots(self, places: Ints) -> Ints:
        """The slot of every rank, from the place of every group; ranks of a group in order."""
        order = np.argsort(self.unit_of, kind="stable")
        found = np.empty(len(self.unit_of), dtype=np.int64)
        found[order] = self.slots_of_place[places].ravel()
        return found

    def whole(self, node: Ints) -> bool:
        """Whether no group is split if each rank is on node `node[rank]`."""
        first = np.empty(self.demand.ranks, dtype=np.int64)
        first[self.unit_of] = node
        return bool((first[self.unit_of] == node).all())


def firm_groups(pcg: PCG, fabric: Fabric, demand: Demand) -> FirmGroups | None:
    """The job in units of tensor-parallel groups, where the rule is that they stay whole in nodes.

    None where there are none, they are not equal parts of the job, the nodes have no room for all
    of them whole, scale-up domains are not nodes, or rails meet only at the spine.
    """
    if fabric.rail is not None:
        return None
    if scale_up_tier(fabric.cluster) != NODE_TIER:
        return None
    unit_of = _equal_parts(tensor_groups(pcg), demand.ranks)
    if unit_of is None:
        return None
    size = int((unit_of == 0).sum())
    graph = unit_graph(demand)
    if mixed_kinds(graph, unit_of):
        return None
    units = demand_of_units(contract(graph, unit_of))
    rooms = np.bincount(fabric.slot_node, minlength=fabric.domain.shape[1]) // size
    if units is None or not _has_room(fabric, units, rooms):
        return None
    owner = np.repeat(np.arange(len(rooms)), rooms)
    within = np.arange(len(owner)) - np.searchsorted(owner, owner)
    first = np.searchsorted(fabric.slot_node, owner) + within * size
    places = replace(fabric, slot_node=owner, slot_device=fabric.slot_device[first])
    return FirmGroups(places, units, unit_of, first[:, None] + np.arange(size))


def _equal_parts(groups: list[tuple[int, ...]], ranks: int) -> Ints | None:
    """The group of each rank, where groups of one size of two or more hold every rank once."""
    if len({len(members) for members in groups}) != 1:
        return None
    member = np.array(sorted(groups), dtype=np.int64)
    if member.size != ranks or len(np.unique(member)) != ranks:
        return None
    unit_of = np.empty(ranks, dtype=np.int64)
    unit_of[member] = np.arange(len(member))[:, None]
    return unit_of


def _has_room(fabric: Fabric, units: Demand, rooms: Ints) -> bool:
    """Whether every kind has room for the units that need it, and all have for all."""
    have = np.bincount(fabric.kind, weights=rooms, minlength=len(fabric.kinds))
    needed = np.bincount(units.kind[units.kind != ANY_KIND], minlength=len(have))
    return bool((needed <= have).all()) and units.ranks <= int(rooms.sum())
