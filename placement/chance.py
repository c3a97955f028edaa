"""Random numbers for compiled loops: the same from the same seed, in every thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import compiled

State = npt.NDArray[np.uint64]
BELOW = 2147483648
"""Numbers drawn are 0 to BELOW - 1."""


@compiled
def seeded(seed: int) -> State:
    """A generator's state."""
    state = np.zeros(1, dtype=np.uint64)
    state[0] = np.uint64(seed) * np.uint64(2654435761) + np.uint64(88172645463325252)
    for _ in range(8):
        drawn(state)
    return state


@compiled
def drawn(state: State) -> int:
    """The next number of a xorshift generator (Marsaglia 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(np.int64(x >> np.uint64(33)))
