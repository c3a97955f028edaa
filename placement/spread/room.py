"""The room a fabric has for units: how many whole ones every domain can hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jobs.index import Fabric, Ints


@dataclass(frozen=True)
class Room:
    """Domains of a fabric with free devices, level by level, for units of `size` ranks.

    room: by level, `[domain]` units each domain holds when none is split over nodes.
    kind_room: by level, `[domain, kind]`, the same by accelerator kind.
    inside: by level, for each domain its child domains (one level further in) that have room;
        at the last index, one entry: the outermost domains.
    """

    size: int
    room: list[Ints]
    kind_room: list[Ints]
    inside: list[list[Ints]]

    @classmethod
    def of(cls, fabric: Fabric, size: int) -> Room:
        """Room for units of `size` ranks."""
        nodes = fabric.domain.shape[1]
        free = np.bincount(fabric.slot_node, minlength=nodes) // size
        kinds = len(fabric.kinds)
        by_kind = np.zeros((nodes, kinds), dtype=np.int64)
        by_kind[np.arange(nodes), fabric.kind] = free
        room, kind_room, inside = [free], [by_kind], [[np.zeros(0, dtype=np.int64)] * nodes]
        for level in range(1, fabric.levels):
            label = fabric.domain[level]
            count = int(label.max()) + 1
            summed = np.zeros((count, kinds), dtype=np.int64)
            np.add.at(summed, label, by_kind)
            room.append(summed.sum(axis=1))
            kind_room.append(summed)
            lower = fabric.domain[level - 1]
            pairs = np.unique(np.stack([label, lower]), axis=1)
            pairs = pairs[:, room[level - 1][pairs[1]] > 0]
            cuts = np.searchsorted(pairs[0], np.arange(count + 1))
            inside.append([pairs[1][cuts[d] : cuts[d + 1]] for d in range(count)])
        inside.append([np.flatnonzero(room[-1])])
        return cls(size, room, kind_room, inside)

    def total(self) -> int:
        """Units that fit when none is split over nodes."""
        return int(self.room[0].sum())
