"""What may be asked of a search: a limit of time, a seed, and constraints."""

from __future__ import annotations

import math

from ..constraints import Constraints
from ..errors import InvalidInput, Problem

MOST_SEED = 2**31 - 1
"""Largest seed that every part of the solver takes."""


def check_search(
    what: str, time_limit_s: float, seed: int, wish: Constraints | None = None
) -> None:
    """Refuse limits, seeds and constraints that mean nothing, by InvalidInput of `what`."""
    problems = []
    if wish is not None and not isinstance(wish, Constraints):
        fix = "give Constraints(...), or parse_constraints(...) of what a constraints file holds"
        problems.append(Problem("constraints", f"found {type(wish).__name__} {wish!r:.60}", fix))
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
