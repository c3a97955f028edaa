"""What re-probes tell of the health of a network, and whose fault it is when paths are bad."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from ..domains import Domain
from .health import Finding, Health, HealthRules, Subject, Symptom
from .measurements import Measurement, Pair, ProbeKind
from .numbers import Path, meeting
from .path_health import PathHealth

_FEWEST_PEERS = 3
_FEWEST_RECENT, _MOST_RECENT = 8, 32
_GRAVEST = (Health.DOWN, Health.FLAPPING, Health.DEGRADED)


class HealthBook:
    """The health of all paths that are re-probed; times are the caller's, in seconds.

    tiers: names of the tiers, nearest first, with the last. paths: the nodes' domains at all but
    the last. Invariant: `observe` is called with times that do not go back.
    """

    def __init__(
        self,
        tiers: Sequence[str],
        paths: Mapping[str, Path],
        rules: HealthRules | None = None,
    ) -> None:
        self.rules = rules or HealthRules()
        self._tiers = tuple(tiers)
        self._domains = dict(paths)
        self._paths: dict[Pair, PathHealth] = {}
        self._by_tier: defaultdict[int, dict[Pair, PathHealth]] = defaultdict(dict)
        self._recent: defaultdict[tuple[int, str], deque[float]] = defaultdict(
            lambda: deque(maxlen=_MOST_RECENT)
        )
        self._behind: dict[str, float] = {}
        self._first_s: dict[str, float] = {}

    def observe(self, measurements: Iterable[Measurement], at_s: float) -> None:
        """Re-probes that ended at this time. Loaded rounds and unknown nodes do not count."""
        found = [
            each
            for each in measurements
            if each.kind is not ProbeKind.LOAD
            and each.a in self._domains
            and each.b in self._domains
        ]
        for each in found:
            path = self._path(each.pair)
            for end in each.pair:
                self._first_s.setdefault(end, at_s)
            path.add_outcome(at_s, each.lost is not None)
        samples = [
            (self._path(each.pair), name, self._tier(each.pair), value)
            for each in found
            if each.lost is None
            for name, value in (("bandwidth", each.bytes_per_s), ("speed", _speed(each)))
            if value is not None
        ]
        for path, name, tier, value in samples:
            if usual := path.series[name].usual:
                self._recent[tier, name].append(value / usual)
        for path, name, tier, value in samples:
            path.series[name].add(value, at_s, self._common(tier, name))
        self._note_behind({end for each in found for end in each.pair})

    def findings(self, now_s: float) -> tuple[Finding, ...]:
        """What is not well: domains, then nodes, then single paths; gravest first.

        A bad path counts once: towards the domain whose paths outwards are bad for the most part,
        else the node whose paths are, else itself.
        """
        left: dict[Pair, Finding] = {}
        for pair, path in self._paths.items():
            health, symptom, since_s, factor = path.state(now_s)
            if health is not Health.WELL:
                left[pair] = Finding(pair, health, symptom, since_s, factor)
        found = self._blamed(left, self._out_of_domains())
        nodes = self._blamed(left, self._of_nodes())
        named = {each.subject for each in nodes}
        cut = [each.subject for each in found if isinstance(each.subject, Domain)]
        for node, factor in self._behind.items():
            if node not in named and not any(self._inside(node, domain) for domain in cut):
                since_s = self._first_s[node]
                count = sum(node in pair for pair in self._paths)
                slow = Finding(node, Health.DEGRADED, Symptom.BANDWIDTH, since_s, factor, count)
                nodes.append(slow)
        found += [*nodes, *left.values()]
        return tuple(sorted(found, key=lambda each: (_GRAVEST.index(each.health), each.factor)))

    def _tier(self, pair: Pair) -> int:
        return meeting(self._domains[pair[0]], self._domains[pair[1]])

    def _path(self, pair: Pair) -> PathHealth:
        path = self._paths.get(pair)
        if path is None:
            path = self._paths[pair] = PathHealth(self.rules)
            self._by_tier[self._tier(pair)][pair] = path
        return path

    def _common(self, tier: int, name: str) -> float:
        """What paths of a tier have of their own past by now: 1 where too few tell.

        The upper quartile: links out of one domain of few may be in half of a tier's paths.
        """
        recent = self._recent[tier, name]
        return _upper(recent) if len(recent) >= _FEWEST_RECENT else 1.0

    def _out_of_domains(self) -> dict[Subject, list[Pair]]:
        groups: defaultdict[Domain, list[Pair]] = defaultdict(list)
        for pair in self._paths:
            for tier in range(self._tier(pair)):
                for end in pair:
                    groups[Domain(self._tiers[tier], self._domains[end][tier])].append(pair)
        ends = {
            subject: {end for pair in pairs for end in pair if self._inside(end, subject)}
            for subject, pairs in groups.items()
        }
        # Where one node alone speaks for its domain, the fault is taken to be the node's.
        return {subject: pairs for subject, pairs in groups.items() if len(ends[subject]) > 1}

    def _inside(self, node: str, domain: Domain) -> bool:
        return self._domains[node][self._tiers.index(domain.tier)] == domain.name

    def _of_nodes(self) -> dict[Subject, list[Pair]]:
        groups: defaultdict[Subject, list[Pair]] = defaultdict(list)
        for pair in self._paths:
            for end in pair:
                groups[end].append(pair)
        return dict(groups)

    def _blamed(
        self,
        left: dict[Pair, Finding],
        groups: Mapping[Subject, Sequence[Pair]],
    ) -> list[Finding]:
        """Subjects most of whose paths are bad, those with most first; takes the paths out."""
        found: list[Finding] = []
        while True:
            best: tuple[int, str] | None = None
            chosen: Subject | None = None
            for subject, pairs in groups.items():
                wrong = [pair for pair in pairs if pair in left]
                enough = len(wrong) >= max(self.rules.fewest, self.rules.part * len(pairs))
                if not enough or (isinstance(subject, Domain) and not self._spread(subject, wrong)):
                    continue
                rank = (len(wrong), str(subject))
                if best is None or rank > best:
                    best, chosen = rank, subject
            if chosen is None:
                return found
            taken = [left.pop(pair) for pair in groups[chosen] if pair in left]
            worst = min(taken, key=lambda each: _GRAVEST.index(each.health))
            alike = [each for each in taken if each.health is worst.health]
            found.append(
                Finding(
                    chosen,
                    worst.health,
                    worst.symptom,
                    min(each.since_s for each in alike),
                    statistics.median(each.factor for each in alike),
                    len(taken),
                )
            )

    def _spread(self, domain: Domain, wrong: Sequence[Pair]) -> bool:
        """Whether most of the domain's probed nodes have bad paths outwards, not one or two."""
        with_bad = {end for pair in wrong for end in pair if self._inside(end, domain)}
        known = {
            end
            for pair in self._paths
            for end in pair
            if self._inside(end, domain) and not all(self._inside(e, domain) for e in pair)
        }
        return len(with_bad) > 1 and len(with_bad) >= self.rules.part * len(known)

    def _note_behind(self, nodes: set[str]) -> None:
        """Of these nodes, those slower than others whatever their past: each against the medians of
        its tiers without it."""
        rates: defaultdict[int, list[tuple[Pair, float]]] = defaultdict(list)
        own: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for tier, paths in self._by_tier.items():
            for pair, path in paths.items():
                if (rate := path.series["bandwidth"].newest) is not None:
                    rates[tier].append((pair, rate))
                    for end in nodes.intersection(pair):
                        own[end].append((tier, rate))
        fast = {tier: _upper(rate for _, rate in found) for tier, found in rates.items()}
        for node, found_here in own.items():
            if len(found_here) < self.rules.fewest:
                continue
            factor = statistics.median(rate / fast[tier] for tier, rate in found_here)
            if factor < 1 - self.rules.behind / 2:
                factor = _without(node, found_here, rates)
            if factor < 1 - self.rules.behind:
                self._behind[node] = factor
            elif factor > 1 - self.rules.behind / 2:
                self._behind.pop(node, None)


def _speed(found: Measurement) -> float | None:
    return 1 / found.round_trip_min_s if found.round_trip_min_s is not None else None


def _upper(values: Iterable[float]) -> float:
    """The upper quartile: what is usual even where a slow node is in half of the paths."""
    ordered = sorted(values)
    return ordered[(3 * len(ordered)) // 4]


def _without(
    node: str,
    own: Sequence[tuple[int, float]],
    rates: Mapping[int, Sequence[tuple[Pair, float]]],
) -> float:
    """A node's rates over the medians of its tiers without it; 1 where no others tell."""
    usual = {}
    for tier in {tier for tier, _ in own}:
        others = [rate for pair, rate in rates[tier] if node not in pair]
        if len(others) >= _FEWEST_PEERS:
            usual[tier] = statistics.median(others)
    return statistics.median([rate / usual[t] for t, rate in own if t in usual] or [1.0])
