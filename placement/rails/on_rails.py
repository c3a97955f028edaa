"""Devices for the moved ranks of a repair where different rails meet only at the spine."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ..jobs.cuts import cut_bytes, fewer
from ..jobs.index import ANY_KIND, Demand, Fabric, Floats, Ints
from ..repairs.losses import Device, Loss

_MOST_TRIED = 600
"""Placements that are counted whole."""


def on_rails(
    loss: Loss, devices: list[Device], ranks: list[int], seed: int, anywhere: bool
) -> list[Device]:
    """Improve the devices of `ranks`: the best where there are few ways, else by steps.

    anywhere: whether they may go to other nodes too.
    """
    fabric = Fabric.of(loss.best_case())
    demand = Demand.of(loss.pcg, fabric.kinds)
    number = {
        device: s for s, device in enumerate(fabric.devices(np.arange(len(fabric.slot_node))))
    }
    slots = np.array([number[device] for device in devices])
    search = _Search(fabric, demand, slots, ranks, anywhere)
    if not search.all_ways():
        search.steps(np.random.default_rng(seed))
    return fabric.devices(search.best)


class _Search:
    """The best slots found so far for the ranks that move, and what they cost."""

    def __init__(
        self, fabric: Fabric, demand: Demand, slots: Ints, forced: list[int], anywhere: bool
    ) -> None:
        self._home = None if anywhere else fabric.slot_node[slots]
        self._fabric, self._demand, self._forced = fabric, demand, forced
        self.best = slots.copy()
        self._cost: Floats = cut_bytes(fabric, demand, slots)
        stays = np.ones(len(slots), dtype=bool)
        stays[forced] = False
        self._open = sorted(set(range(len(fabric.slot_node))) - set(slots[stays].tolist()))

    def _try(self, slots: Ints) -> None:
        cost = cut_bytes(self._fabric, self._demand, slots)
        if fewer(cost, self._cost):
            self.best, self._cost = slots.copy(), cost

    def _suits(self, rank: int, slot: int) -> bool:
        if self._home is not None and self._fabric.slot_node[slot] != self._home[rank]:
            return False
        return bool(self._demand.kind[rank] in (ANY_KIND, self._fabric.slot_kind[slot]))

    def all_ways(self) -> bool:
        """Try every choice of slots when they are few; whether it did."""
        ways = 1
        for i in range(len(self._forced)):
            ways *= len(self._open) - i
        if ways > _MOST_TRIED:
            return False
        slots = self.best.copy()

        def extend(position: int, free: list[int]) -> None:
            if position == len(self._forced):
                self._try(slots)
                return
            rank = self._forced[position]
            for slot in free:
                if self._suits(rank, slot):
                    slots[rank] = slot
                    extend(position + 1, [s for s in free if s != slot])

        extend(0, self._open)
        return True

    def steps(self, chance: np.random.Generator) -> None:
        """Move one rank to an open slot, or let two swap, while the number of tries lasts."""
        unused = sorted(set(self._open) - set(self.best[self._forced].tolist()))
        tries: list[tuple[int, int]] = [(r, -1 - s) for r in self._forced for s in unused]
        tries += combinations(self._forced, 2)
        for pick in chance.permutation(len(tries))[: _MOST_TRIED // 2].tolist():
            rank, other = tries[pick]
            slots = self.best.copy()
            if other < 0:
                if (slots == -1 - other).any() or not self._suits(rank, -1 - other):
                    continue
                slots[rank] = -1 - other
            else:
                if not (self._suits(rank, slots[other]) and self._suits(other, slots[rank])):
                    continue
                slots[[rank, other]] = slots[[other, rank]]
            self._try(slots)
