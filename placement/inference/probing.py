"""Which pairs to probe when: rounds of disjoint pairs, each chosen by what is known so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..errors import InvalidInput, Problem
from ..explained import Explained
from ..quantities import Positive
from .aiming import Pairs, full_links, in_rounds, own_links, quiet_paths
from .asking import Round, ask, enough_odds
from .clusters import Ints
from .evidence import Evidence, Gathering
from .measurements import Measurement, ProbeKind, ProbeRound
from .slow import added_s, without_slowness
from .tree import Split, grow, shared, standing

ALL_PAIRS_UP_TO = 16
"""Nodes up to which every pair is probed."""
_BLIND_ROUNDS = 6
"""Rounds of random pairs after which a network without levels counts as flat."""
_BLIND_BANDWIDTH_ROUNDS = 3
_LOSSES_OF_THE_DEAD = 5
_AIMED_ROUNDS = 4
"""Rounds kept for bandwidth: two for own links and quiet paths, and a full link of two tiers."""
_STEPS = (1, 1, 2, 2, 3, 3)
"""How far apart in the given order nodes stand that are probed first, as long as that pays."""
_PAYS = 0.5
_FIRST_SIGN = 0.02
"""Part of the nodes with another in their domain from which on a tier is followed up."""

Count = Annotated[int, Field(ge=0)]


class ProbeBudget(Explained):
    """What probing may cost in all; None is no limit.

    at_once: the most pairs of a round that move bulk data.
    """

    rounds: Count = 40
    probes: Count | None = None
    moved_bytes: Count | None = None
    seconds: Positive | None = None
    at_once: Annotated[int, Field(ge=1)] | None = None


@dataclass(frozen=True)
class Remaining:
    """What probing has not found out.

    ended: why no more is asked: "" while there are rounds to come, "done" when no further probe
    would tell more, or what of the budget is used up. unreached: nodes of which no probe
    succeeded. left_out: nodes not to be probed.
    doubtful: nodes whose domain is less certain than one error in 100 networks allows.
    unmeasured: nodes whose own link no probe of bandwidth has used.
    """

    ended: str
    unreached: tuple[str, ...]
    left_out: tuple[str, ...]
    doubtful: tuple[str, ...]
    unmeasured: tuple[str, ...]


class Probing:
    """A probing of some nodes: ask for the next round, run it, add what it measured.

    nodes: names; those that are likely near each other should stand near each other, which saves
    rounds, and costs two where it is wrong. excluded: nodes to leave alone. Invariant: rounds are
    numbered from 0 without gaps, and only the round given last is open.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        budget: ProbeBudget | None = None,
        excluded: Iterable[str] = (),
        seed: int = 0,
    ) -> None:
        twice = [node for node, count in Counter(nodes).items() if count > 1]
        if twice:
            problems = [Problem("nodes", f"{node!r} given twice", "name it once") for node in twice]
            raise InvalidInput("Probing", problems)
        self.nodes = tuple(nodes)
        self.budget = budget or ProbeBudget()
        self._index = {node: i for i, node in enumerate(self.nodes)}
        self._left_out = frozenset(excluded)
        self._allowed = np.array([node not in self._left_out for node in self.nodes], dtype=bool)
        self._seed = seed
        self._gathered = Gathering(self._index)
        self._rounds = self._probes = self._moved_bytes = 0
        self._seconds = 0.0
        self._lost = np.zeros(len(self.nodes), dtype=np.int64)
        self._found = np.zeros(len(self.nodes), dtype=np.int64)
        self._measured = np.zeros(len(self.nodes), dtype=bool)
        self._open: ProbeRound | None = None
        self._blind = 0
        self._aimed: list[tuple[ProbeKind, Pairs]] | None = None
        self._loaded = False
        self._ended = ""

    @property
    def rounds(self) -> int:
        """How many rounds were asked for."""
        return self._rounds

    def next_round(self) -> ProbeRound | None:
        """The next pairs to probe at the same time; None when nothing is to be asked any more."""
        self._ended = self._spent()
        if not self._ended and np.count_nonzero(self._available()) >= 2:
            kind, pairs = self._choose()
            if pairs:
                return self._opened(kind, pairs)
        self._ended = self._ended or "done"
        return None

    def add(
        self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float = 0.0
    ) -> None:
        """What a round measured; pairs without a measurement count as lost. Raises InvalidInput."""
        if asked is not self._open:
            fix = "add the measurements of the round that next_round gave last, once"
            raise InvalidInput("Probing", [Problem("asked", f"round {asked.number}", fix)])
        self._open = None
        found = list(measurements)
        self._gathered.add(found)
        self._seconds += took_s
        answered = set()
        for one in found:
            self._moved_bytes += one.moved_bytes
            if one.lost is None:
                answered.add(one.pair)
            if one.bytes_per_s is not None:
                for end in one.pair:
                    if end in self._index:
                        self._measured[self._index[end]] = True
        for a, b in asked.pairs:
            well = ((a, b) if a < b else (b, a)) in answered
            for end in (a, b):
                (self._found if well else self._lost)[self._index[end]] += 1

    def remaining(self) -> Remaining:
        """What is not known, and why no more is asked."""
        evidence = self._evidence()
        doubtful = self._allowed & (self._found > 0)
        if len(splits := grow(evidence)):
            wanted = enough_odds(len(self.nodes))
            sure = [standing(evidence, split).margins >= wanted for split in splits]
            doubtful &= ~np.all(sure, axis=0)
        else:
            doubtful &= self._found < min(_BLIND_ROUNDS, len(self.nodes) - 1)
        unreached = self._allowed & (self._found == 0)
        return Remaining(
            self._ended,
            self._named(unreached),
            self._named(~self._allowed),
            self._named(doubtful),
            self._named(self._allowed & ~unreached & ~self._measured),
        )

    def _named(self, which: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.nodes[i] for i in np.flatnonzero(which))

    def _available(self) -> NDArray[np.bool_]:
        dead = (self._found == 0) & (self._lost >= _LOSSES_OF_THE_DEAD)
        available: NDArray[np.bool_] = self._allowed & ~dead
        return available

    def _spent(self) -> str:
        limits = (
            ("rounds", self._rounds, self.budget.rounds),
            ("probes", self._probes, self.budget.probes),
            ("bytes", self._moved_bytes, self.budget.moved_bytes),
            ("seconds", self._seconds, self.budget.seconds),
        )
        return next(
            (
                f"the budget of {most:g} {what}"
                for what, used, most in limits
                if most is not None and used >= most
            ),
            "",
        )

    def _opened(self, kind: ProbeKind, pairs: Pairs) -> ProbeRound:
        if self.budget.probes is not None:
            pairs = pairs[: self.budget.probes - self._probes]
        if self.budget.at_once is not None and kind is not ProbeKind.LATENCY:
            pairs = pairs[: self.budget.at_once]
        named = tuple((self.nodes[a], self.nodes[b]) for a, b in pairs)
        self._open = ProbeRound(self._rounds, kind, named)
        self._rounds += 1
        self._probes += len(pairs)
        return self._open

    def _evidence(self) -> Evidence:
        evidence = self._gathered.evidence()
        return without_slowness(evidence, added_s(evidence))

    def _choose(self) -> tuple[ProbeKind, Pairs]:
        free = self._available()
        evidence = self._evidence()
        aims = min(_AIMED_ROUNDS, self.budget.rounds // 3)
        if self._aimed is None and self._rounds < self.budget.rounds - aims:
            pairs = self._for_the_tree(evidence, free)
            if pairs:
                return ProbeKind.LATENCY, pairs
        splits = grow(evidence)
        if self._aimed is None:
            self._aimed = self._aim(splits, free)
        if self._aimed:
            kind, pairs = self._aimed.pop(0)
            return kind, pairs
        if not self._loaded:
            # Rates may show tiers that round trips did not.
            if any(split.boundary.quantity == "rates" for split in splits):
                made = ask(evidence, splits, free, self._round_seed())
                if made.pairs and self._rounds < self.budget.rounds - len(splits):
                    return ProbeKind.BANDWIDTH, made.pairs
            self._loaded = True
            tiers = [split.labels for split in splits]
            loads = full_links(tiers, free, self._round_seed(), self.budget.at_once)
            self._aimed = [(ProbeKind.LOAD, pairs) for pairs in loads]
            if self._aimed:
                return self._aimed.pop(0)
        return ProbeKind.LOAD, []

    def _for_the_tree(self, evidence: Evidence, free: NDArray[np.bool_]) -> Pairs:
        """Pairs whose round trips tell most about the tree; none when it is certain."""
        nodes = np.flatnonzero(free)
        few = len(nodes) <= ALL_PAIRS_UP_TO
        if few and self._rounds < len(nodes) - 1 + len(nodes) % 2:
            return _circle(nodes, self._rounds)
        splits = grow(evidence, _FIRST_SIGN)
        pays = bool(splits) and np.mean(shared(splits[-1].labels)) > _PAYS
        if not few and self._rounds < (len(_STEPS) if pays else 2):
            return _neighbours(nodes, _STEPS[self._rounds], self._rounds % 2)
        if splits:
            return ask(evidence, splits, free, self._round_seed()).pairs
        self._blind += 1
        if few or self._blind > _BLIND_ROUNDS:
            return []
        made = Round(evidence, free, self._round_seed())
        made.among(nodes)
        return made.pairs

    def _aim(self, splits: list[Split], free: NDArray[np.bool_]) -> list[tuple[ProbeKind, Pairs]]:
        tiers: list[Ints] = [split.labels for split in splits]
        seed = self._round_seed()
        own, quiet = own_links(tiers, free, seed), quiet_paths(tiers, free, seed)
        most = self.budget.rounds - self._rounds - len(tiers)
        rounds = in_rounds(own, quiet, tiers[-1], most) if tiers else own
        if not tiers:
            nodes = np.flatnonzero(free)
            if len(nodes) <= ALL_PAIRS_UP_TO:
                rounds = [_circle(nodes, k) for k in range(len(nodes) - 1 + len(nodes) % 2)]
            else:
                for number in range(_BLIND_BANDWIDTH_ROUNDS):
                    made = Round(self._evidence(), free, seed + number + 1)
                    made.among(nodes)
                    rounds.append(made.pairs)
        return [(ProbeKind.BANDWIDTH, pairs) for pairs in rounds if pairs]

    def _round_seed(self) -> int:
        return self._seed * 1_000_003 + self._rounds


def _neighbours(nodes: Ints, step: int, half: int) -> Pairs:
    """Pairs of nodes `step` apart in their order; two halves together are all of them."""
    ordered = nodes.tolist()
    firsts = (i for i in range(len(ordered) - step) if (i // step) % 2 == half)
    return [(ordered[i], ordered[i + step]) for i in firsts]


def _circle(nodes: Ints, turn: int) -> Pairs:
    """One round of all pairs: one stays, the others go round a table; who sit opposite meet."""
    seats = [*nodes.tolist(), -1] if len(nodes) % 2 else nodes.tolist()
    turned = seats[1:]
    turn %= max(1, len(turned))
    seats = [*seats[:1], *turned[len(turned) - turn :], *turned[: len(turned) - turn]]
    half = len(seats) // 2
    pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
    return [(a, b) for a, b in pairs if a >= 0 and b >= 0]
