"""A network that exists only as numbers: it answers rounds of probes with noise and losses."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from railweave.placement.inference import Measurement, ProbeKind, ProbeRound


@dataclass
class SimulatedNetwork:
    """Nodes in nested domains, with what their probes would measure.

    paths: for each node its domains, nearest tier first, without the last tier that joins all.
    latencies_s, rates_bytes_per_s: of each tier, nearest first, the last tier's last (one way; of
        a pair alone). oversubscription: of each tier, 1 at the nearest.
    noise: relative standard deviation of every quantity. missing: the part of probes that fail.
    outliers: the part of round trips that take 2 to 6 times as long.
    slow: seconds that a node adds to each of its round trips. dead: nodes that answer nothing.
    degraded: the factor by which a node's or a pair's rate is lowered.
    """

    paths: dict[str, tuple[str, ...]]
    latencies_s: Sequence[float]
    rates_bytes_per_s: Sequence[float]
    oversubscription: Sequence[float] = ()
    noise: float = 0.1
    missing: float = 0.02
    outliers: float = 0.0
    slow: dict[str, float] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    degraded: dict[str | tuple[str, str], float] = field(default_factory=dict)
    seed: int = 0
    rounds: int = 0
    probes: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._sizes = Counter(
            (tier, path[tier]) for path in self.paths.values() for tier in range(len(path))
        )

    @classmethod
    def regular(
        cls,
        fanouts: Sequence[int],
        latencies_s: Sequence[float] | None = None,
        shuffled: bool = True,
        seed: int = 0,
        **others: object,
    ) -> SimulatedNetwork:
        """Equal domains: `(8, 16, 16)` is 8 pods of 16 leaves of 16 nodes each."""
        shapes: list[tuple[int, ...]] = [()]
        for fanout in fanouts:
            shapes = [(*shape, i) for shape in shapes for i in range(fanout)]
        paths = [
            tuple("-".join(map(str, shape[:depth])) for depth in range(len(fanouts) - 1, 0, -1))
            for shape in shapes
        ]
        return cls.of(paths, latencies_s, shuffled, seed, **others)

    @classmethod
    def of(
        cls,
        paths: Sequence[tuple[str, ...]],
        latencies_s: Sequence[float] | None = None,
        shuffled: bool = True,
        seed: int = 0,
        **others: object,
    ) -> SimulatedNetwork:
        """Nodes n0, n1, ... on these paths; shuffled: their names tell nothing of their places."""
        order = list(range(len(paths)))
        if shuffled:
            random.Random(seed + 1).shuffle(order)
        tiers = len(paths[0]) + 1
        others.setdefault("rates_bytes_per_s", [25e9] * tiers)
        return cls(
            {f"n{number}": paths[place] for number, place in enumerate(order)},
            latencies_s or [3e-6, 5e-6, 7e-6, 9e-6][:tiers],
            seed=seed,
            **others,  # type: ignore[arg-type]
        )

    @property
    def names(self) -> list[str]:
        """All nodes, in the order of their numbers."""
        return list(self.paths)

    def tier(self, a: str, b: str) -> int:
        """The number of the tier where two nodes meet, 0 the nearest."""
        one, two = self.paths[a], self.paths[b]
        return next((t for t in range(len(one)) if one[t] == two[t]), len(one))

    def domains(self, tier: int) -> set[frozenset[str]]:
        """The true domains of a tier."""
        found: dict[str, set[str]] = {}
        for node, path in self.paths.items():
            found.setdefault(path[tier], set()).add(node)
        return {frozenset(nodes) for nodes in found.values()}

    def probe(self, asked: ProbeRound) -> list[Measurement]:
        """What a round measures. Raises AssertionError when two of its pairs share an end."""
        ends = [end for pair in asked.pairs for end in pair]
        assert len(set(ends)) == len(ends), "pairs of a round share an end"
        self.rounds += 1
        self.probes += len(asked.pairs)
        crossing = self._crossing(asked.pairs) if asked.kind is not ProbeKind.LATENCY else Counter()
        return [self._one(a, b, asked, crossing) for a, b in asked.pairs]

    def _crossing(self, pairs: Iterable[tuple[str, str]]) -> Counter[tuple[int, str]]:
        count: Counter[tuple[int, str]] = Counter()
        for a, b in pairs:
            for tier in range(self.tier(a, b)):
                count[tier, self.paths[a][tier]] += 1
                count[tier, self.paths[b][tier]] += 1
        return count

    def _one(
        self, a: str, b: str, asked: ProbeRound, crossing: Counter[tuple[int, str]]
    ) -> Measurement:
        base = {"a": a, "b": b, "round": asked.number, "kind": asked.kind}
        if self.dead & {a, b} or self._random.random() < self.missing:
            return Measurement(**base, lost="timed out")  # type: ignore[arg-type]
        meets = self.tier(a, b)
        trip = 2 * self.latencies_s[meets] + self.slow.get(a, 0.0) + self.slow.get(b, 0.0)
        trip *= self._noisy()
        if self._random.random() < self.outliers:
            trip *= self._random.uniform(2, 6)
        if asked.kind is ProbeKind.LATENCY:
            return Measurement(**base, round_trip_min_s=trip)  # type: ignore[arg-type]
        rate = self.rates_bytes_per_s[meets]
        for tier in range(meets):
            over = self.oversubscription[tier + 1] if self.oversubscription else 1.0
            for end in (a, b):
                domain = (tier, self.paths[end][tier])
                above = self.rates_bytes_per_s[tier + 1]
                rate = min(rate, self._sizes[domain] * above / over / crossing[domain])
        low, high = min(a, b), max(a, b)
        for key in (a, b, (low, high)):
            rate *= self.degraded.get(key, 1.0)
        return Measurement(
            **base,  # type: ignore[arg-type]
            round_trip_min_s=trip,
            there_bytes_per_s=rate * self._noisy(),
            back_bytes_per_s=rate * self._noisy(),
            moved_bytes=2**25,
        )

    def _noisy(self) -> float:
        return max(0.05, 1 + self.noise * self._random.gauss(0, 1))
