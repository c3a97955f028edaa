"""Several heaps in one array, each with the item of the greatest key first."""

from __future__ import annotations

from typing import NamedTuple

from ..jobs.index import Floats, Ints
from .compiled import inner


class Heaps(NamedTuple):
    """Heaps of items, one after another, by the items' keys.

    item: those of each heap from where it starts. key: of each item. at: where in its heap an item
    is, -1 when in none.
    """

    item: Ints
    key: Floats
    at: Ints


@inner
def rise(heaps: Heaps, first: int, i: int) -> None:
    """Restore the order of a heap, which starts at `first`, from its entry i outwards."""
    item, key, at = heaps
    u = item[first + i]
    while i > 0:
        parent = (i - 1) // 2
        v = item[first + parent]
        if key[v] >= key[u]:
            break
        item[first + i] = v
        at[v] = i
        i = parent
    item[first + i] = u
    at[u] = i


@inner
def sink(heaps: Heaps, first: int, count: int, i: int) -> None:
    """Restore the order of a heap of `count` items from its entry i inwards."""
    item, key, at = heaps
    u = item[first + i]
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        if child + 1 < count and key[item[first + child + 1]] > key[item[first + child]]:
            child += 1
        v = item[first + child]
        if key[v] <= key[u]:
            break
        item[first + i] = v
        at[v] = i
        i = child
    item[first + i] = u
    at[u] = i


@inner
def take_first(heaps: Heaps, first: int, count: int) -> None:
    """Take the first item off a heap of `count`."""
    heaps.at[heaps.item[first]] = -1
    if count > 1:
        last = heaps.item[first + count - 1]
        heaps.item[first] = last
        heaps.at[last] = 0
        sink(heaps, first, count - 1, 0)
