"""Devices for ranks whose nodes are known."""

from __future__ import annotations

import numpy as np

from .index import Fabric, Ints


def slots_on(fabric: Fabric, unit_of: Ints, node: Ints) -> Ints:
    """Each unit of ranks takes the next free devices of its node, ranks in order."""
    ranks = len(unit_of)
    order = np.lexsort((np.arange(ranks), unit_of, node[unit_of]))
    home = node[unit_of[order]]
    first = np.searchsorted(fabric.slot_node, home)
    within = np.arange(ranks) - np.searchsorted(home, home)
    slots = np.empty(ranks, dtype=np.int64)
    slots[order] = first + within
    return slots
