"""Which nodes probe each other when: rounds of disjoint pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ..placement.inference.measurements import Measurement, ProbeKind, ProbeRound

Name = TypeVar("Name")
Pair = tuple[Name, Name]

_PATH_NEIGHBOURS = 2
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


def path_rounds(domains: Mapping[str, str]) -> list[list[Pair[str]]]:
    """Rounds in which every domain sends to two others, so that each link out of it is used.

    domains: of each node at one tier. A domain sends to the next and to the one after it, in the
    order of their names: a link that is at fault then shows with both of them or with one, which
    tells the link up from the link down. A domain is in one pair of a round at most, so that not
    even acknowledgements share a link out of it with another pair's data.
    """
    members: dict[str, list[str]] = {}
    for node in sorted(domains):
        members.setdefault(domains[node], []).append(node)
    names = sorted(members)
    shifts = range(1, min(len(names) - 1, _PATH_NEIGHBOURS) + 1)
    waiting = [(a, (a + shift) % len(names)) for shift in shifts for a in range(len(names))]
    found = []
    while waiting:
        pairs: list[Pair[str]] = []
        used: set[int] = set()
        later = []
        for a, b in waiting:
            if used.isdisjoint((a, b)):
                used |= {a, b}
                pairs.append((members[names[a]][0], members[names[b]][-1]))
            else:
                later.append((a, b))
        found.append(pairs)
        waiting = later
    return found


class FixedRounds:
    """Rounds that are known beforehand, as `prober.Planner`: each once for every kind.

    first: the number of the first.
    """

    def __init__(
        self,
        planned: Sequence[Sequence[Pair[str]]],
        kinds: Sequence[ProbeKind] = (ProbeKind.BANDWIDTH,),
        first: int = 0,
    ) -> None:
        each = ((kind, pairs) for pairs in planned for kind in kinds)
        self._waiting = [
            ProbeRound(number, kind, tuple(pairs))
            for number, (kind, pairs) in enumerate(each, start=first)
        ]

    def next_round(self) -> ProbeRound | None:
        """The next of them."""
        return self._waiting.pop(0) if self._waiting else None

    def add(self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float) -> None:
        """Nothing that is measured changes what comes."""
