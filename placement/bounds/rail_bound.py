"""What rails cost any placement: bytes that meet at the spine for want of one rail or one node."""

from __future__ import annotations

import numpy as np

from ..jobs.index import PAIRS, RING, Demand, Fabric


def rail_bound(fabric: Fabric, demand: Demand) -> float:
    """Bytes at the spine that groups cost by size alone where different rails meet only there.

    A group's ranks avoid the spine in one node, or on one rail of one outermost domain: the rows
    and columns of a grid. Each group is counted as if it were alone.

    - A ring that fits neither leaves a node for another rail at least once: inside a node it goes
      to ever higher rails, between nodes it keeps its rail, and it comes back to where it began.
    - All-to-all pairs that avoid the spine share a row or a column. The most such pairs that n
      cells have are those of the first n when whole lines are filled, the longer way first
      (Lindsey 1964, for products of complete graphs).
    """
    assert fabric.rail is not None
    if not len(fabric.slot_node):
        return 0.0
    in_node = int(np.bincount(fabric.slot_node).max())
    plane = fabric.slot_domain[-1] * (int(fabric.rail.max()) + 1) + fabric.rail
    on_rail = int(np.bincount(plane).max())
    ordered = bool((np.diff(fabric.rail) > 0)[np.diff(fabric.slot_node) == 0].all())
    total = 0.0
    for group in range(demand.groups):
        size, weight = int(demand.size[group]), float(demand.weight[group])
        if demand.form[group] == RING and ordered and size > max(in_node, on_rail):
            total += weight
        elif demand.form[group] == PAIRS and size > 2:
            aligned = size * (in_node + on_rail - 2) // 2
            if ordered:
                aligned = most_aligned(size, in_node, on_rail)
            total += weight * max(0, size * (size - 1) - 2 * aligned)
    return total * (1 - 1e-12)


def most_aligned(cells: int, rows: int, columns: int) -> int:
    """The most pairs of `cells` cells of one grid that share a row or a column.

    For more cells than the grid has, a bound: all rows and columns of each cell are full.
    """
    long, short = max(rows, columns), min(rows, columns)
    if cells > long * short:
        return cells * (long + short - 2) // 2
    full, rest = divmod(cells, long)
    return (
        full * (long * (long - 1) // 2)
        + rest * (rest - 1) // 2
        + rest * (full * (full + 1) // 2)
        + (long - rest) * (full * (full - 1) // 2)
    )
