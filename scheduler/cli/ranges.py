"""Numbers for people: 0-7, 12."""

from __future__ import annotations

from collections.abc import Iterable


def ranges_text(numbers: Iterable[int]) -> str:
    """Ascending numbers, runs of them as first-last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
