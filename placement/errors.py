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
