"""How much work tests do: a little in every run, many times that in `make soak`."""

from __future__ import annotations

import os

EFFORT = "RAILWEAVE_TEST_EFFORT"


def examples(count: int) -> int:
    """How many examples of a property to try, where `count` are enough for every run."""
    return count * int(os.environ.get(EFFORT, "1"))
