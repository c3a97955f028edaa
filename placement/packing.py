"""Packing in order: the placement every other one is measured against."""

from __future__ import annotations

import numpy as np

from .jobs.index import ANY_KIND, Demand, Fabric, Ints


def pack_in_order(fabric: Fabric, demand: Demand) -> Ints:
    """Slot of each rank: ranks in order onto free devices in the cluster file's order.

    A rank that needs a kind gets the first free device of it; any other rank gets the first free
    device that no later rank is bound to need. The job must be feasible.
    """
    kinds = len(fabric.kinds)
    if not (demand.kind >= 0).any():
        return np.arange(demand.ranks, dtype=np.int64)
    queues = [np.flatnonzero(fabric.slot_kind == k).tolist() for k in range(kinds)]
    heads = [0] * kinds
    still_needed = np.bincount(demand.kind[demand.kind >= 0], minlength=kinds).tolist()
    slots = np.empty(demand.ranks, dtype=np.int64)
    for rank, wanted in enumerate(demand.kind.tolist()):
        if wanted == ANY_KIND:
            spare = [k for k in range(kinds) if len(queues[k]) - heads[k] > still_needed[k]]
            chosen = min(spare, key=lambda k: queues[k][heads[k]])
        else:
            chosen = wanted
            still_needed[wanted] -= 1
        slots[rank] = queues[chosen][heads[chosen]]
        heads[chosen] += 1
    return slots
