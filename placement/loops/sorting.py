"""Sorting inside compiled loops: numba's own takes seconds to compile."""

from __future__ import annotations

from ..jobs.index import Floats, Ints
from .compiled import inner


@inner
def sort_by(keys: Floats, count: int, order: Ints, spare: Ints) -> None:
    """Fill `order` with the numbers below `count` by their rising keys; equal ones stay in order.

    Merges runs of twice the length each time. `spare` is scratch, as long as `order`.
    """
    for i in range(count):
        order[i] = i
    width = 1
    while width < count:
        for start in range(0, count, 2 * width):
            left, right = start, min(start + width, count)
            middle, end = right, min(start + 2 * width, count)
            for at in range(start, end):
                if right >= end or (left < middle and keys[order[left]] <= keys[order[right]]):
                    spare[at] = order[left]
                    left += 1
                else:
                    spare[at] = order[right]
                    right += 1
        for at in range(count):
            order[at] = spare[at]
        width *= 2
