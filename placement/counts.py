"""The placement problem on counts: how many units of each class go into each domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .index import Floats, Ints


@dataclass(frozen=True)
class Counts:
    """Classes of interchangeable units, in chains, to be spread over domains.

    height: units of each class to place here.
    cost: `[class, y]`, bytes that y units of the class in one domain cost there, up to a constant.
    link: bytes saved for each unit of class p that is with one of class p + 1; 0 where a chain
        ends. A spread x costs `sum cost[p, x[p, j]] - sum link[p] * min(x[p, j], x[p + 1, j])`.
    room: units each domain holds.
    kind: accelerator kind each class needs, or ANY_KIND; kind_room: `[domain, kind]`.
    """

    height: Ints
    cost: Floats
    link: Floats
    room: Ints
    kind: Ints
    kind_room: Ints

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.height)

    @property
    def domains(self) -> int:
        """How many domains there are."""
        return len(self.room)

    def bytes_of(self, spread: Ints) -> float:
        """What a spread `[class, domain]` costs, up to the constant."""
        classes = np.arange(self.classes)[:, None]
        alone = float(self.cost[classes, spread].sum())
        joined = np.minimum(spread[:-1], spread[1:]).sum(axis=1)
        return alone - float((joined * self.link[:-1]).sum())

    def fits(self, spread: Ints) -> bool:
        """Whether a spread places every unit within the room there is."""
        if (spread < 0).any() or (spread.sum(axis=1) != self.height).any():
            return False
        if (spread.sum(axis=0) > self.room).any():
            return False
        return all(
            (spread[self.kind == k].sum(axis=0) <= self.kind_room[:, k]).all()
            for k in range(self.kind_room.shape[1])
        )
