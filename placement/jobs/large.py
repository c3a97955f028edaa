"""Placing jobs too large for the exact model."""

from __future__ import annotations

from dataclasses import dataclass

from ..loops.budget import Budget
from .index import Demand, Fabric, Ints


@dataclass(frozen=True)
class LargeResult:
    """A placement, and a proven lower bound on its bytes across the outermost boundary."""

    slots: Ints
    bound_bytes: float
    method: str


def place_large(fabric: Fabric, demand: Demand, budget: Budget, seed: int) -> LargeResult:
    """Place a job of any size; the job must be feasible."""
    # Imported here because compiled loops take half a second that reading a file does not need.
    from ..rails.rail_jobs import found_on_rails
    from .wide import found_in_wide_domains

    find = found_in_wide_domains if fabric.rail is None else found_on_rails
    return LargeResult(*find(fabric, demand, budget, seed))
