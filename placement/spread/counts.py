"""The placement problem on counts: how many units of each class go into each domain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..jobs.index import Floats, Ints


@dataclass(frozen=True)
class Counts:
    """Classes of interchangeable units, in chains, to be spread over domains.

    height: units of each class to place here.
    cost: `[class, y]`, bytes that y units of the class in one domain cost there, up to a constant.
    link: bytes saved for each unit of class p that is with one of class p + 1; 0 where a chain
        ends. A spread x costs `sum cost[p, x[p, j]] - sum link[p] * min(x[p, j], x[p + 1, j])`.
        The last class is followed by the first: where `link[-1]` is not 0, the one chain of all
        classes, three or more, is closed.
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
        joined = np.minimum(spread, np.roll(spread, -1, axis=0)).sum(axis=1)
        return alone - float((joined * self.link).sum())

    def opened(self) -> tuple[Counts, float]:
        """A problem whose chains are all open, and a number to add to what its spreads cost.

        No spread then costs more than here. Of P equal classes in a ring whose links weigh w and
        the last v, take each of the P chains that miss one link, with all of its links at
        w + v / (P - 1). Their mean, with the weight of each chain such that every link counts with
        its own, is the cost here; and as the classes are equal, all those chains have the same
        least cost. Where classes or links differ, the links that close the chain are left out.
        """
        closing = float(self.link[-1])
        if closing == 0.0:
            return self, 0.0
        link = self.link.copy()
        link[-1] = 0.0
        inner, height = link[:-1], int(self.height[-1])
        alike = (self.height == height).all() and (self.cost == self.cost[0]).all()
        alike = alike and (self.kind == self.kind[0]).all()
        counted = 0.0
        if alike and inner.max() - inner.min() <= 1e-9 * inner.max():
            counted = min(closing, float(inner.min()))
            inner += counted / (self.classes - 1)
        return replace(self, link=link), (counted - closing) * height

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
