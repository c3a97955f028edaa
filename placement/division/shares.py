"""Sharing work among several ways to improve something by what each has gained."""

from __future__ import annotations

import numpy as np

_LEAST = 0.1
"""Part of the work that each way gets whatever it gains."""
_KEPT = 0.97
"""Weight of what was gained before, at each further step."""
_FIRST_WORK = 1e-3
"""Work of each way that is taken as done before the first step."""


class Shares:
    """Which way comes next, so that each has the part of the work that its gains deserve.

    What a way gains for its work changes as a search goes on, so that what is long past counts
    less.
    """

    def __init__(self, ways: int) -> None:
        self._gained, self._work = np.zeros(ways), np.full(ways, _FIRST_WORK)
        self._owed = np.zeros(ways)

    def next(self) -> int:
        """The way that is owed most work."""
        return int(np.argmax(self._owed))

    def done(self, way: int, work: float, gained: float) -> None:
        """Count a step: its work, and what it gained, in any unit."""
        ways = len(self._owed)
        rate = self._gained / self._work
        even = np.full(ways, 1.0 / ways)
        deserved = rate / rate.sum() if rate.sum() > 0.0 else even
        least = min(_LEAST, 1.0 / ways)
        self._owed += work * ((1.0 - least * ways) * deserved + least)
        self._owed[way] -= work
        self._gained *= _KEPT
        self._work *= _KEPT
        self._gained[way] += gained
        self._work[way] += work
