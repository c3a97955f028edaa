"""Bandwidth, latency and oversubscription of each tier, from probes of pairs that meet there."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .measurements import Measurement, ProbeKind

Path = tuple[str, ...]
"""A node's domains, nearest tier first, without the last tier, which joins all."""

_FULL = 0.85
"""A pair that gets less than this part of what a quiet one gets shares a full link."""
_NEARLY_ALL = 0.9


@dataclass(frozen=True)
class TierNumbers:
    """What was measured at a tier; None where nothing was.

    bytes_per_s: median of quiet pairs and both directions. latency_s: one way, median of half the
    least round trips. oversubscription: of the links out of the domains one tier nearer: what their
    nodes could send together over what got through. pairs: different pairs that met there.
    """

    bytes_per_s: float | None
    latency_s: float | None
    oversubscription: float | None
    pairs: int


def meeting(one: Path, other: Path) -> int:
    """The number of the first tier whose domain two nodes share; that of the last is len(one)."""
    for tier, (mine, its) in enumerate(zip(one, other, strict=True)):
        if mine == its:
            return tier
    return len(one)


def tier_numbers(
    paths: Mapping[str, Path], tiers: int, measurements: Iterable[Measurement]
) -> list[TierNumbers]:
    """The numbers of each tier, nearest first; tiers: how many, with the last."""
    rates: list[list[float]] = [[] for _ in range(tiers)]
    trips: list[list[float]] = [[] for _ in range(tiers)]
    pairs: list[set[tuple[str, str]]] = [set() for _ in range(tiers)]
    loads: list[list[Measurement]] = [[] for _ in range(tiers)]
    for found in measurements:
        if found.lost is not None or found.a not in paths or found.b not in paths:
            continue
        tier = meeting(paths[found.a], paths[found.b])
        pairs[tier].add(found.pair)
        if found.kind is ProbeKind.LOAD:
            loads[tier].append(found)
            continue
        if found.round_trip_min_s is not None:
            trips[tier].append(found.round_trip_min_s / 2)
        both = (found.there_bytes_per_s, found.back_bytes_per_s)
        rates[tier] += [rate for rate in both if rate is not None]
    sizes = [Counter(path[tier] for path in paths.values()) for tier in range(tiers - 1)]
    quiet = [statistics.median(found) if found else None for found in rates]
    return [
        TierNumbers(
            quiet[tier],
            statistics.median(trips[tier]) if trips[tier] else None,
            _oversubscription(tier, quiet[tier], loads[tier], paths, sizes) if tier else None,
            len(pairs[tier]),
        )
        for tier in range(tiers)
    ]


def _oversubscription(
    tier: int,
    quiet: float | None,
    loads: Sequence[Measurement],
    paths: Mapping[str, Path],
    sizes: Sequence[Mapping[str, int]],
) -> float | None:
    """The median over pairs of domains that were loaded at once; None where that does not tell.

    Two domains with m pairs at once between them, of which the smaller has s nodes: when a pair got
    clearly less than a quiet one, the links were full, and s quiet pairs need s * quiet / (m *
    rate) times what they carry. When it did not, and m is nearly s, they carry all.
    """
    if quiet is None:
        return None
    together: dict[tuple[int | None, frozenset[str]], list[float]] = {}
    for found in loads:
        both = [r for r in (found.there_bytes_per_s, found.back_bytes_per_s) if r is not None]
        if both:
            ends = frozenset((paths[found.a][tier - 1], paths[found.b][tier - 1]))
            together.setdefault((found.round, ends), []).append(statistics.fmean(both))
    found_here = []
    for (_, ends), rates in together.items():
        smaller = min(sizes[tier - 1][domain] for domain in ends)
        rate = statistics.fmean(rates)
        if rate < _FULL * quiet:
            found_here.append(max(1.0, smaller * quiet / (len(rates) * rate)))
        elif len(rates) >= _NEARLY_ALL * smaller:
            found_here.append(1.0)
    return statistics.median(found_here) if found_here else None
