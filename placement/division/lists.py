"""The units of each domain as lists, for walks that draw one of them."""

from __future__ import annotations

from ..jobs.index import Ints
from ..loops.compiled import inner


@inner
def relisted(listed: Ints, place: Ints, count: Ints, u: int, a: int, v: int, b: int) -> None:
    """Note that unit u went from domain a to b, and v, if it is one and not -1, from b to a.

    listed: `[domain, i]`, the units of each; place: where each stands in its list; count: units of
    each domain.
    """
    if v >= 0:
        listed[b, place[v]] = u
        listed[a, place[u]] = v
        place[u], place[v] = place[v], place[u]
        return
    last = listed[a, count[a] - 1]
    listed[a, place[u]] = last
    place[last] = place[u]
    count[a] -= 1
    listed[b, count[b]] = u
    place[u] = count[b]
    count[b] += 1
