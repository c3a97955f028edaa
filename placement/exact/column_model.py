"""The cheapest choice of a column for every domain, by CP-SAT: how often each column is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ..jobs.index import Floats, Ints
from .least_sum import Sums, least_sum

MOST_COLUMNS: Final = 3_000
"""Columns up to which the model is worth building."""


@dataclass(frozen=True)
class Chosen:
    """A column for each domain, `[class, domain]`, or None, and what no choice costs less than.

    bound: the limit where no choice of the columns is cheaper.
    """

    spread: Ints | None
    bound: float
    work: float


def best_columns(
    columns: Ints,
    paid: Floats,
    touched: Ints,
    height: Ints,
    rooms: Ints,
    limit: float,
    work: float,
) -> Chosen:
    """The cheapest choice of one column a domain in which every class is placed whole.

    columns: `[column, class]` units; paid: what each costs; touched: how often a class counts as
    touched by it, once for a part and twice for the whole, which is twice or more in every choice.
    rooms: of the domains. Which domain takes which column makes no difference but for its room, so
    the model counts how often each is taken: of those that need more than any one room no more
    than there are domains with more.
    """
    used = columns.sum(axis=1)
    larger = [room for room in np.unique(rooms).tolist() if (used > room).any()]
    sums = Sums(
        paid,
        np.vstack([columns.T, np.ones_like(used)]),
        np.append(height, len(rooms)),
        np.vstack([-touched.T, *((used > room).astype(np.int64) for room in larger)]),
        np.array([-2] * len(height) + [int((rooms > room).sum()) for room in larger]),
        _times(columns, used, height, rooms),
    )
    found = least_sum(sums, limit, work)
    if found.often is None:
        return Chosen(None, found.bound, found.work)
    taken = np.repeat(np.arange(len(columns)), found.often)
    spread = np.zeros((len(height), len(rooms)), dtype=np.int64)
    by_room = np.argsort(-rooms, kind="stable")
    spread[:, by_room] = columns[taken[np.argsort(-used[taken], kind="stable")]].T
    return Chosen(spread, found.bound, found.work)


def _times(columns: Ints, used: Ints, height: Ints, rooms: Ints) -> Ints:
    """How often each column can be taken at most: by its classes, and by the domains with room."""
    held = np.where(columns > 0, height // np.maximum(columns, 1), len(rooms))
    fitting = (rooms >= used[:, None]).sum(axis=1)
    times: Ints = np.minimum(held.min(axis=1, initial=len(rooms)), fitting)
    return times
