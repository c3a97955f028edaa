"""From hosts, switches and cables to tiers and domains."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..errors import InvalidInput, Problem
from .facts import Network, TierFacts
from .tier_names import tier_names

MOST_TIERS = 32
"""Deeper networks are no fabrics: the deepest that are built have five."""
FEW_HOSTS = 0.25
"""A switch with less than this part of the hosts of its neighbours is above them: a spine to which
a manager or a gateway is attached is no leaf."""


@dataclass(frozen=True)
class Cable:
    """What joins two ends (hosts or switches): `count` links of `bytes_per_s` in one direction."""

    a: str
    b: str
    bytes_per_s: float | None = None
    count: int = 1
    latency_s: float | None = None


def levels(hosts: Iterable[str], cables: Sequence[Cable]) -> dict[str, int]:
    """Hops from the nearest host: hosts 0, leaves 1, and so on; what no host reaches is missing.

    Hosts on a switch that has few of them beside its neighbours do not make it a leaf.
    """
    joined = _neighbours(cables)
    wanted = set(hosts)
    counts = {
        end: sum(other in wanted for other in others)
        for end, others in joined.items()
        if end not in wanted
    }
    found = dict.fromkeys(hosts, 0)
    queue = deque(
        end for end, count in counts.items() if count and not _is_above(end, counts, joined)
    )
    found |= dict.fromkeys(queue, 1)
    while queue:
        end = queue.popleft()
        for other in joined.get(end, ()):
            if other not in found:
                found[other] = found[end] + 1
                queue.append(other)
    return found


def network_of(
    hosts: Sequence[str],
    cables: Sequence[Cable],
    names: Mapping[str, str] | None = None,
    beside: Iterable[str] = (),
) -> Network:
    """The tiers and domains that cables make.

    beside: ends that send as hosts do and are not among the nodes, such as adapters without name.

    Two hosts share a domain of tier k when cables join them over switches of level k and below;
    cables between switches of one level join above it. Tiers that part hosts as the one below are
    left out. A domain is called as the first of its highest
    switches, by `names` where they are given.

    bytes_per_s of a tier: the least of the usual rates of one link on the way up to it.
    oversubscription: what all hosts can send over what all links of one level can take up, the
    worst on the way. Both None where a rate is not known; latency_s is the sum over the way up
    and down. The spine is None where nothing joins all hosts. Raises InvalidInput for more than
    MOST_TIERS tiers.
    """
    level = levels([*hosts, *beside], cables)
    growing = _Parts(hosts, level)
    parts: list[tuple[int, dict[str, str]]] = []
    domains_below = len(hosts)
    for height, joining in sorted(_by_height(level, cables).items()):
        for cable in joining:
            growing.join(cable.a, cable.b)
        if growing.count < domains_below or (height == 1 and growing.count > 1):
            parts.append((height, growing.names()))
            domains_below = growing.count
        if len(parts) > MOST_TIERS:
            found = f"more than {MOST_TIERS} tiers of switches between the hosts"
            raise InvalidInput("network", [Problem("", found, "hand in a fabric, not a chain")])
        if domains_below == 1:
            break
    joined = domains_below == 1
    inner = parts[:-1] if joined and parts else parts
    tiers = tier_names(len(inner))
    numbers = _Numbers(level, cables)
    called = names or {}
    return Network(
        tuple(numbers.tier(tiers[k], height) for k, (height, _) in enumerate(inner)),
        {
            host: {
                tiers[k]: called.get(member[host], member[host])
                for k, (_, member) in enumerate(inner)
            }
            for host in hosts
        },
        numbers.tier("spine", parts[-1][0] if parts else 1) if joined else None,
        _rails(hosts, cables),
    )


def _neighbours(cables: Sequence[Cable]) -> dict[str, list[str]]:
    joined: dict[str, dict[str, None]] = {}
    for cable in cables:
        joined.setdefault(cable.a, {})[cable.b] = None
        joined.setdefault(cable.b, {})[cable.a] = None
    return {end: list(others) for end, others in joined.items()}


def _is_above(end: str, counts: Mapping[str, int], joined: Mapping[str, Sequence[str]]) -> bool:
    """Whether the neighbours with hosts are many and have far more of them."""
    beside = [counts[other] for other in joined[end] if counts.get(other)]
    return len(beside) >= 2 and counts[end] < FEW_HOSTS * median(beside)


def _by_height(level: Mapping[str, int], cables: Sequence[Cable]) -> dict[int, list[Cable]]:
    """Cables by the level up to which they join: those within a level join from above it."""
    found: dict[int, list[Cable]] = {1: []}
    for cable in cables:
        if cable.a in level and cable.b in level:
            low, high = sorted((level[cable.a], level[cable.b]))
            found.setdefault(high + (low == high and high > 0), []).append(cable)
    return found


class _Parts:
    """Ends that hang together. count: parts that hold hosts."""

    def __init__(self, hosts: Sequence[str], level: Mapping[str, int]) -> None:
        self._hosts = hosts
        self._parent = {end: end for end in level}
        self._best = {end: (-height, end) for end, height in level.items()}
        self._hosting = set(hosts)
        self.count = len(self._hosting)

    def _root(self, end: str) -> str:
        parent = self._parent
        while parent[end] != end:
            parent[end] = parent[parent[end]]
            end = parent[end]
        return end

    def join(self, a: str, b: str) -> None:
        """Make one part of those of two ends."""
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        self._parent[a] = b
        self._best[b] = min(self._best[a], self._best[b])
        if a in self._hosting:
            self.count -= b in self._hosting
            self._hosting.add(b)

    def names(self) -> dict[str, str]:
        """For each host the first of the highest switches of its part."""
        return {host: self._best[self._root(host)][1] for host in self._hosts}


class _Numbers:
    """What the links between each two levels can carry, and how long the way over them takes."""

    def __init__(self, level: Mapping[str, int], cables: Sequence[Cable]) -> None:
        up: dict[int, list[Cable]] = {}
        across: dict[int, list[Cable]] = {}
        for cable in cables:
            if cable.a not in level or cable.b not in level:
                continue
            low, high = sorted((level[cable.a], level[cable.b]))
            if low == high:
                across.setdefault(high + 1, []).append(cable)
            else:
                # A host on a higher switch has its whole way up in one link.
                up.setdefault(1 if low == 0 else high, []).append(cable)
        # Switches of one level are joined directly where nothing is above them.
        self._links = across | up

    def tier(self, name: str, height: int) -> TierFacts:
        """The facts of traffic that goes up to level `height` and down again."""
        way = [self._links[k] for k in range(1, height + 1) if k in self._links]
        rates = [_usual([(c.bytes_per_s, c.count) for c in links]) for links in way]
        known = [rate for rate in rates if rate is not None]
        delays = [_usual([(c.latency_s, c.count) for c in links]) for links in way]
        sums = [_sum(links) for links in way]
        over = None
        if sums and all(sums):
            over = max(1.0, *(sums[0] / one for one in sums if one and sums[0]))
        return TierFacts(
            name,
            bytes_per_s=min(known) if known and len(known) == len(rates) else None,
            latency_s=(
                2 * sum(delay for delay in delays if delay is not None)
                if delays and None not in delays
                else None
            ),
            oversubscription=over,
        )


def _usual(values: Iterable[tuple[float | None, int]]) -> float | None:
    """The most frequent value, the least of several; None where none is known."""
    counts: Counter[float] = Counter()
    for value, count in values:
        if value is not None:
            counts[value] += count
    return min(counts, key=lambda value: (-counts[value], value)) if counts else None


def _sum(links: Sequence[Cable]) -> float | None:
    """Bytes/s of all links together; None where one is not known."""
    total = 0.0
    for cable in links:
        if cable.bytes_per_s is None:
            return None
        total += cable.bytes_per_s * cable.count
    return total


def _rails(hosts: Sequence[str], cables: Sequence[Cable]) -> int | None:
    """Links a host has, where all have as many."""
    counts = dict.fromkeys(hosts, 0)
    for cable in cables:
        for end in (cable.a, cable.b):
            if end in counts:
                counts[end] += cable.count
    each = set(counts.values())
    return each.pop() or None if len(each) == 1 else None
