"""Which nodes probe each other when: rounds of disjoint pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ..placement.inference.measurements import Measurement, ProbeKind, ProbeRound

Name = TypeVar("Name")
Pair = tuple[Name, Name]

ALL_PAIRS_UP_TO = 16
"""Nodes up to which every pair is probed; above, only O(log n) rounds are."""


def all_pairs(names: Sequence[Name]) -> list[list[Pair[Name]]]:
    """Every pair once, in n - 1 rounds (n when n is odd), by the circle method.

    One name stays, the others go round a table; those who sit opposite each other are a pair.
    """
    seats: list[Name | None] = [*names, None] if len(names) % 2 else [*names]
    found = []
    for _ in range(len(seats) - 1):
        opposite = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        found.append([(a, b) for a, b in opposite if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in found if pairs]


def hypercube(names: Sequence[Name]) -> list[list[Pair[Name]]]:
    """ceil(log2 n) rounds: in round k, position i meets position i xor 2^k.

    Together they join all names: clearing its highest bit leads each position to a lower one. With
    names in order of their domains, early rounds stay inside domains and late ones cross them.
    """
    count = len(names)
    return [
        [(names[i], names[i ^ bit]) for i in range(count) if i < i ^ bit < count]
        for bit in (1 << k for k in range(max(count - 1, 0).bit_length()))
    ]


def rounds(names: Sequence[Name], all_pairs_up_to: int = ALL_PAIRS_UP_TO) -> list[list[Pair[Name]]]:
    """Rounds of disjoint pairs: every pair for few names, O(log n) rounds for many.

    Give names in order of their domains, nearest neighbours next to each other.
    """
    return all_pairs(names) if len(names) <= all_pairs_up_to else hypercube(names)


class FixedRounds:
    """Rounds for bandwidth that are known beforehand, as `prober.Planner`."""

    def __init__(self, planned: Sequence[Sequence[tuple[str, str]]]) -> None:
        self._waiting = [
            ProbeRound(number, ProbeKind.BANDWIDTH, tuple(pairs))
            for number, pairs in enumerate(planned)
        ]

    def next_round(self) -> ProbeRound | None:
        """The next of them."""
        return self._waiting.pop(0) if self._waiting else None

    def add(self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float) -> None:
        """Nothing that is measured changes what comes."""
