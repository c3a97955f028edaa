"""How broken rules are told."""

from __future__ import annotations

from ..errors import Problem

_MOST_SHOWN = 16


def does_not_divide(name: str, degree: int, count: int, what: str) -> Problem:
    """A degree of parallelism that does not divide a count of things."""
    found = f"{name} {degree} does not divide {what} ({count / degree:.6g} a rank)"
    return Problem(f"parallelism.{name}", found, f"use one of {divisors(count)}")


def divisors(count: int) -> str:
    """The divisors of a count, the first of them where there are many."""
    found = [degree for degree in range(1, min(count, 4096) + 1) if count % degree == 0]
    shown = ", ".join(map(str, found[:_MOST_SHOWN]))
    return f"{shown}, ..." if len(found) > _MOST_SHOWN else shown
