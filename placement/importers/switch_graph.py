"""From hosts, switches and cables to tiers and domains."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .facts import Network, TierFacts

_NAMES = {1: ("leaf",), 2: ("leaf", "pod"), 3: ("leaf", "pod", "zone")}


@dataclass(frozen=True)
class Cable:
    """What joins two ends (hosts or switches): `count` links of `bytes_per_s` in one direction."""

    a: str
    b: str
    bytes_per_s: float | None = None
    count: int = 1


def levels(hosts: Iterable[str], cables: Sequence[Cable]) -> dict[str, int]:
    """Hops from the nearest host: hosts 0, leaves 1, and so on; what no host reaches is missing."""
    joined = _neighbours(cables)
    found = dict.fromkeys(hosts, 0)
    queue = deque(found)
    while queue:
        end = queue.popleft()
        for other in joined.get(end, ()):
            if other not in found:
                found[other] = found[end] + 1
                queue.append(other)
    return found


def network_of(hosts: Sequence[str], cables: Sequence[Cable]) -> Network:
    """The tiers and domains that cables make.

    Two hosts share a domain of tier k when cables join them over switches of level k and below.
    Tiers that part hosts as the one below, or not at all, are left out. The rate of a tier is that
    of its slowest kind of link on the way up, its oversubscription what goes into its switches from
    below over what leaves them upwards. Host names stand for domains by the switches' names.
    """
    level = levels(hosts, cables)
    top = max(level.values(), default=0)
    parts: list[dict[str, str]] = []
    for height in range(1, top + 1):
        member = _components(hosts, cables, level, height)
        if not parts or len(set(member.values())) < len(set(parts[-1].values())):
            parts.append(member)
    joins_all = bool(parts) and len(set(parts[-1].values())) == 1
    inner = parts[:-1] if joins_all else parts
    names = _NAMES.get(len(inner)) or tuple(f"level-{k + 1}" for k in range(len(inner)))
    rates = _rates(level, cables)
    tiers = tuple(
        TierFacts(name, bytes_per_s=rates.get(k + 1, (None, None))[0])
        for k, name in enumerate(names)
    )
    spine = TierFacts("spine", *_spine_numbers(rates, len(inner)))
    domains = {host: {names[k]: inner[k][host] for k in range(len(inner))} for host in hosts}
    return Network(tiers, domains, spine, _rails(hosts, cables))


def _neighbours(cables: Sequence[Cable]) -> dict[str, list[str]]:
    joined: dict[str, list[str]] = {}
    for cable in cables:
        joined.setdefault(cable.a, []).append(cable.b)
        joined.setdefault(cable.b, []).append(cable.a)
    return joined


def _components(
    hosts: Sequence[str], cables: Sequence[Cable], level: Mapping[str, int], height: int
) -> dict[str, str]:
    """For each host the name of its component: that of the first switch of the highest level."""
    parent = {end: end for end in level}

    def root(end: str) -> str:
        while parent[end] != end:
            parent[end] = parent[parent[end]]
            end = parent[end]
        return end

    for cable in cables:
        if level.get(cable.a, height + 1) <= height and level.get(cable.b, height + 1) <= height:
            parent[root(cable.a)] = root(cable.b)
    names: dict[str, str] = {}
    for end in sorted(level, key=lambda end: (-level[end], end)):
        if level[end] <= height:
            names.setdefault(root(end), end)
    return {host: names[root(host)] for host in hosts}


def _rates(
    level: Mapping[str, int], cables: Sequence[Cable]
) -> dict[int, tuple[float | None, float]]:
    """By level k of the upper end: bytes/s of one link from k-1 to k, and the sum of them all."""
    slowest: dict[int, float | None] = {}
    total: dict[int, float] = {}
    for cable in cables:
        if cable.a not in level or cable.b not in level or level[cable.a] == level[cable.b]:
            continue
        upper = max(level[cable.a], level[cable.b])
        known = slowest.get(upper)
        if cable.bytes_per_s is not None:
            slowest[upper] = min(known or cable.bytes_per_s, cable.bytes_per_s)
            total[upper] = total.get(upper, 0.0) + cable.bytes_per_s * cable.count
    return {upper: (slowest[upper], total[upper]) for upper in slowest}


def _spine_numbers(
    rates: Mapping[int, tuple[float | None, float]], inner: int
) -> tuple[float | None, None, float | None]:
    host, up = rates.get(1), rates.get(inner + 1)
    if not host or not up or inner == 0:
        return (host[0] if host else None), None, None
    return host[0], None, max(1.0, host[1] / up[1])


def _rails(hosts: Sequence[str], cables: Sequence[Cable]) -> int | None:
    """Links a host has, where all have as many."""
    wanted = set(hosts)
    counts = dict.fromkeys(hosts, 0)
    for cable in cables:
        for end in (cable.a, cable.b):
            if end in wanted:
                counts[end] += cable.count
    return next(iter(set(counts.values()))) if len(set(counts.values())) == 1 else None
