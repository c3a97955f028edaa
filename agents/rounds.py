"""Rounds of disjoint pairs that are known beforehand: every link out of every domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..placement.inference.measurements import Measurement, Pair, ProbeKind, ProbeRound

_PATH_NEIGHBOURS = 2


def path_rounds(domains: Mapping[str, str]) -> list[list[Pair]]:
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
        pairs: list[Pair] = []
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
        planned: Sequence[Sequence[Pair]],
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
