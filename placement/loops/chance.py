"""Random numbers for compiled loops: the same from the same seed, in every thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .compiled import inner

State = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
BELOW = 2147483648
"""Numbers drawn are 0 to BELOW - 1."""
_WORDS = 2**64


def seeded(seed: int) -> State:
    """A generator's state."""
    x = (seed * 2654435761 + 88172645463325252) % _WORDS
    for _ in range(8):
        x ^= x << 13 & _WORDS - 1
        x ^= x >> 7
        x ^= x << 17 & _WORDS - 1
    return np.array([x], dtype=np.uint64)


@inner
def drawn(state: State) -> int:
    """The next number of a xorshift generator (Marsaglia 2003)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return int(np.int64(x >> np.uint64(33)))


@inner
def shuffle(values: Ints, state: State) -> None:
    """Put values in an order drawn at random."""
    for i in range(len(values) - 1, 0, -1):
        j = drawn(state) % (i + 1)
        values[i], values[j] = values[j], values[i]
