"""What may be asked of a search: a limit of time and a seed."""

from __future__ import annotations

import math

from ..errors import InvalidInput, Problem

MOST_SEED = 2**31 - 1
"""Largest seed that every part of the solver takes."""


def check_search(what: str, time_limit_s: float, seed: int) -> None:
    """Refuse limits and seeds that mean nothing, by InvalidInput of `what`."""
    problems = []
    number = isinstance(time_limit_s, int | float) and not isinstance(time_limit_s, bool)
    if not number or not math.isfinite(time_limit_s) or time_limit_s < 0:
        fix = "give seconds: a finite number, 0 or more"
        problems.append(Problem("time_limit_s", f"found {time_limit_s!r}", fix))
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    if not whole or not 0 <= seed <= MOST_SEED:
        fix = f"give a whole number from 0 to {MOST_SEED}"
        problems.append(Problem("seed", f"found {seed!r}", fix))
    if problems:
        raise InvalidInput(what, problems)
