"""A lower bound that holds for any job: what each group must cost by its size alone."""

from __future__ import annotations

import numpy as np

from ..jobs.index import PAIRS, RING, Demand, Fabric


def group_bound(fabric: Fabric, demand: Demand) -> float:
    """Bytes across the outermost boundary that the groups cost even if each had the job's room.

    A group larger than the largest outermost domain needs several; each group is counted as if it
    were alone.
    """
    free = np.sort(np.bincount(fabric.slot_domain[-1]))[::-1]
    largest = int(free[0]) if len(free) else 0
    total = 0.0
    for group in np.flatnonzero(demand.size > largest).tolist():
        size = int(demand.size[group])
        reach = np.minimum(np.cumsum(free), size)
        parts = int(np.searchsorted(reach, size)) + 1
        weight = float(demand.weight[group])
        if demand.form[group] == PAIRS:
            held = np.diff(np.concatenate([[0], reach[:parts]])).astype(np.float64)
            total += weight * (float(size) ** 2 - float((held**2).sum()))
        else:
            total += weight * (parts if demand.form[group] == RING else parts - 1)
    return total * (1 - 1e-12)
