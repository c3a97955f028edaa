"""Which pairs are probed again and again, so that every link shows when it changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from .measurements import Measurement, Pair, ProbeKind, ProbeRound
from .numbers import Path, meeting

ALL_PAIRS_UP_TO = 8
"""Nodes up to which every pair is probed."""
SPEAKERS = 4
"""Nodes that are probed for the links out of their domain; several, to tell them from its links."""
_SHIFTS = (1, 2)
"""How many places further the partners of a node, or of a domain, stand: with those that it is the
partner of it has four, of which three bad ones are enough to blame it."""
_KINDS = (ProbeKind.LATENCY, ProbeKind.BANDWIDTH)


def watched_pairs(paths: Mapping[str, Path]) -> list[Pair]:
    """The pairs of a network that are to be probed again, always the same ones; O(nodes).

    paths: the nodes' domains at all tiers but the last. Inside the nearest domains each node has up
    to four partners. Between the domains of every farther tier a few nodes of each speak for the
    links out of it, in as different parts of it as there are.
    """
    nodes = sorted(paths, key=lambda node: (*reversed(paths[node]), node))
    if len(nodes) <= ALL_PAIRS_UP_TO:
        return list(combinations(sorted(nodes), 2))
    depth = len(paths[nodes[0]])
    found: dict[Pair, None] = {}
    for tier in range(depth + 1):
        # The parts that meet at a tier, by the domain that holds them.
        parts: defaultdict[Path, dict[Path, list[str]]] = defaultdict(dict)
        for node in nodes:
            inside = paths[node][tier:]
            part = (node, *inside) if tier == 0 else paths[node][tier - 1 :]
            parts[inside].setdefault(part, []).append(node)
        for together in parts.values():
            speakers = [_spread(members, tier) for members in together.values()]
            for shift in _SHIFTS:
                for index, mine in enumerate(speakers):
                    # Of two domains, each has only the other; then other nodes of it.
                    step = shift if shift % len(speakers) else 1
                    theirs = speakers[(index + step) % len(speakers)]
                    for place in range(max(len(mine), len(theirs))):
                        other = (place + shift - 1) % len(theirs)
                        a, b = mine[place % len(mine)], theirs[other]
                        if a != b:
                            found[(a, b) if a < b else (b, a)] = None
    return list(found)


def _spread(members: Sequence[str], tier: int) -> list[str]:
    """Some nodes of a domain, evenly over their order, in which near ones stand together."""
    if tier == 0 or len(members) <= SPEAKERS:
        return list(members)
    return [members[k * len(members) // SPEAKERS] for k in range(SPEAKERS)]


def watch_rounds(pairs: Iterable[Pair], paths: Mapping[str, Path]) -> list[ProbeRound]:
    """The pairs in rounds of latency and rounds of bandwidth; each is in one of both.

    No node is in two pairs of a round. In a round of bandwidth no domain has two pairs that leave
    it, so that each has the links out of it to itself, whichever of equal ways it takes.
    """
    pairs = list(pairs)
    rounds: list[ProbeRound] = []
    for kind in _KINDS:
        taken: list[set[tuple[int, str]]] = []
        packed: list[list[Pair]] = []
        first: defaultdict[tuple[int, str], int] = defaultdict(int)
        for pair in pairs:
            needs = set(_needs(pair, paths, kind))
            # What comes before the first round that a link is free in need not be looked at again.
            at = max(first[each] for each in needs)
            while at < len(taken) and taken[at] & needs:
                at += 1
            if at == len(taken):
                taken.append(set())
                packed.append([])
            taken[at] |= needs
            packed[at].append(pair)
            for each in needs:
                while first[each] < len(taken) and each in taken[first[each]]:
                    first[each] += 1
        rounds += [
            ProbeRound(len(rounds) + i, kind, tuple(found)) for i, found in enumerate(packed)
        ]
    return rounds


def _needs(pair: Pair, paths: Mapping[str, Path], kind: ProbeKind) -> Iterable[tuple[int, str]]:
    """What a pair must have to itself: its nodes, and for bulk data the ways out of its domains."""
    for end in pair:
        yield -1, end
        if kind is not ProbeKind.LATENCY:
            for tier in range(meeting(paths[pair[0]], paths[pair[1]])):
                yield tier, paths[end][tier]


class Rewatching:
    """Rounds over and over, as a prober's planner: one sweep over all of them at most a time.

    at: where the next sweep begins, so that one that a budget ended is gone on with.
    """

    def __init__(self, rounds: Sequence[ProbeRound], at: int = 0) -> None:
        self._rounds = rounds
        self.at = at % len(rounds) if rounds else 0
        self._done = 0
        self.heard: list[Measurement] = []

    def next_round(self) -> ProbeRound | None:
        """The next round; None when each was asked for once."""
        return self._rounds[self.at] if self._done < len(self._rounds) else None

    def add(self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float) -> None:
        """The round is done."""
        self.heard += measurements
        self._done += 1
        self.at = (self.at + 1) % len(self._rounds)
