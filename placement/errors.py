"""Errors a user can act on: what was tried, what was found, what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One fault of an input: where it is, what was found there, and what to change."""

    place: str
    found: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.found}; {self.fix}" if self.place else f"{self.found}; {self.fix}"
        )


class InvalidInput(ValueError):
    """A file or value that cannot be used; lists every problem found in it."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        shown = [f"  {problem}" for problem in self.problems[:20]]
        if len(self.problems) > len(shown):
            shown.append(f"  ... and {len(self.problems) - len(shown)} more")
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join([f"{source}: {count}", *shown]))

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[str, tuple[Problem, ...]]]:
        return (type(self), (self.source, self.problems))


class Infeasible(ValueError):
    """No valid placement exists; the message says what is short, by how much, and where."""


class BoundAboveCost(RuntimeWarning):
    """A lower bound that the placement found goes below: the bound is wrong, a fault of ours.

    bound_bytes: the bound. The placement is valid all the same and is returned with its own cost.
    """

    def __init__(self, bound_bytes: float, spine_bytes: float) -> None:
        self.bound_bytes = bound_bytes
        super().__init__(
            f"a lower bound of {bound_bytes:.12g} B over the spine is above the "
            f"{spine_bytes:.12g} B of the placement found; please report the cluster and the PCG"
        )
