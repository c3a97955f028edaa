"""A fabric whose rails meet only at the spine as one of planes: each block of rails by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.index import Fabric, Ints


def by_planes(fabric: Fabric, block: int) -> tuple[Fabric, Ints] | None:
    """Every node split into parts of `block` devices that lie in one block of rails.

    Parts of different blocks of rails share no domain, so that bytes between them count as crossing
    the spine: what ranks say to each other in a node is all that costs less than that. Devices that
    fill no part of a block are put together, node by node, into parts of a plane of their own.
    Returns the split fabric without rails and, for its slots, those of `fabric`; None where
    there is nothing to split.
    """
    assert fabric.rail is not None
    plane = fabric.rail // block
    order = np.lexsort((fabric.slot_device, plane, fabric.slot_node))
    part_node: list[int] = []
    part_plane: list[int] = []
    owner = np.full(len(order), -1, dtype=np.int64)
    odd = int(plane.max()) + 1
    cuts = np.flatnonzero(np.diff(fabric.slot_node, prepend=-1, append=-1))
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        node = int(fabric.slot_node[first])
        mine = order[first:last]
        left: list[int] = []
        for value in np.unique(plane[mine]).tolist():
            members = mine[plane[mine] == value].tolist()
            whole = len(members) // block * block
            for at in range(0, whole, block):
                owner[members[at : at + block]] = len(part_node)
                part_node.append(node)
                part_plane.append(value)
            left += members[whole:]
        for at in range(0, len(left), block):
            owner[left[at : at + block]] = len(part_node)
            part_node.append(node)
            part_plane.append(odd)
    if len(part_node) == len(cuts) - 1:
        return None
    nodes, planes = np.array(part_node), np.array(part_plane)
    domain = np.empty((fabric.levels, len(nodes)), dtype=np.int64)
    domain[0] = np.arange(len(nodes))
    for level in range(1, fabric.levels):
        keys = fabric.domain[level][nodes] * (odd + 1) + planes
        domain[level] = np.unique(keys, return_inverse=True)[1]
    if fabric.levels == 1:
        # Every node is an outermost domain already, and its parts do not become more apart.
        return None
    by_part = np.lexsort((fabric.slot_device, owner))
    split = replace(
        fabric,
        domain=domain,
        kind=fabric.kind[nodes],
        slot_node=owner[by_part],
        slot_device=fabric.slot_device[by_part],
        ring_position=np.lexsort((np.arange(len(nodes)), fabric.ring_position[nodes])),
        rail=None,
    )
    return split, by_part
