"""What re-probes tell of the health of a network, and whose fault it is when paths are bad."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from ..domains import Domain
from ..errors import InvalidInput, Problem
from ..explained import shown
from .health import Between, Finding, Health, HealthRules, Subject, Symptom
from .measurements import Measurement, Pair, ProbeKind
from .numbers import Path, meeting
from .path_health import ARRIVAL, BANDWIDTH, SPEED, PathHealth, arrival_of

FORMAT: Final = "railweave.health/1"
_FEWEST_PEERS = 3
_FEWEST_RECENT, _MOST_RECENT = 8, 32
_SYMPTOMS = {BANDWIDTH: Symptom.BANDWIDTH, SPEED: Symptom.LATENCY}
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
        self._common_since_s: dict[tuple[int, str], float] = {}
        self._behind: dict[str, float] = {}
        self._first_s: dict[str, float] = {}

    def to_data(self) -> dict[str, Any]:
        """What has been learned, as plain data for `restored`."""
        return {
            "format": FORMAT,
            "paths": [[*pair, path.to_data()] for pair, path in self._paths.items()],
            "recent": [
                [self._tiers[tier], name, list(values)]
                for (tier, name), values in self._recent.items()
            ],
            "common_since_s": [
                [self._tiers[tier], name, at_s]
                for (tier, name), at_s in self._common_since_s.items()
            ],
            "behind": self._behind,
            "first_s": self._first_s,
        }

    @classmethod
    def restored(
        cls,
        tiers: Sequence[str],
        paths: Mapping[str, Path],
        data: Mapping[str, Any],
        rules: HealthRules | None = None,
    ) -> Self:
        """A book with what another has learned, also where nodes or domains differ from that one's.

        Nodes that are not known any more are forgotten. Raises InvalidInput for data of another
        form.
        """
        book = cls(tiers, paths, rules)
        if data.get("format") != FORMAT:
            fix = "let it be learned anew"
            problem = Problem("format", f"{shown(data.get('format'))}, not {FORMAT}", fix)
            raise InvalidInput("health book", [problem])
        try:
            book._restore(data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = Problem("", shown(error), "let it be learned anew")
            raise InvalidInput("health book", [problem]) from error
        return book

    def _restore(self, data: Mapping[str, Any]) -> None:
        for one, other, path in data["paths"]:
            if one in self._domains and other in self._domains:
                self._path((one, other)).restore(path)
        for tier, name, values in data["recent"]:
            if tier in self._tiers:
                self._recent[self._tiers.index(tier), name].extend(map(float, values))
        for tier, name, at_s in data["common_since_s"]:
            if tier in self._tiers:
                self._common_since_s[self._tiers.index(tier), name] = float(at_s)
        for node in self._domains.keys() & data["behind"].keys():
            self._behind[node] = float(data["behind"][node])
        for node in self._domains.keys() & data["first_s"].keys():
            self._first_s[node] = float(data["first_s"][node])

    def observe(self, measurements: Iterable[Measurement], at_s: float) -> None:
        """Re-probes that ended at this time.

        Loaded rounds, unknown nodes and probes in which a node did not take part do not count.
        """
        found = [
            each
            for each in measurements
            if each.kind is not ProbeKind.LOAD
            and not each.unanswered
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
            for name, value in _quantities(each)
            if value is not None
        ]
        for path, name, tier, value in samples:
            if usual := path.series[name].usual:
                self._recent[tier, name].append(value / usual)
        for path, name, tier, value in samples:
            path.series[name].add(value, at_s, self._common(tier, name))
        self._note_common(at_s)
        self._note_behind({end for each in found for end in each.pair})

    def findings(self, now_s: float) -> tuple[Finding, ...]:
        """What is not well: tiers, domains, nodes, then single paths; gravest first.

        A bad path counts once: towards the domain whose paths outwards are bad for the most part,
        else the node whose paths are, else itself. A tier of which all paths are slow is a finding
        where the nearest one is not slow as well.
        """
        left: dict[Pair, Finding] = {}
        for pair, path in self._paths.items():
            health, symptom, since_s, factor = path.state(now_s)
            if health is not Health.WELL:
                left[pair] = Finding(pair, health, symptom, since_s, factor)
        found = [self._of_both(each) for each in self._blamed(left, self._out_of_domains())]
        found += self._slow_tiers()
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

    def _of_both(self, finding: Finding) -> Finding:
        """The finding of a domain's links; where it has one neighbour only, either may be at fault.

        Then it is of the links between them.
        """
        domain = finding.subject
        if not isinstance(domain, Domain):
            return finding
        tier = self._tiers.index(domain.tier)
        above = next(path for path in self._domains.values() if path[tier] == domain.name)
        beside = {
            path[tier] for path in self._domains.values() if path[tier + 1 :] == above[tier + 1 :]
        }
        return replace(finding, subject=self._between(tier, above)) if len(beside) == 2 else finding

    def _between(self, tier: int, path: Path) -> Between:
        """The links between the domains of a tier on this path and those beside it."""
        name = path[tier + 1] if tier + 1 < len(path) else self._tiers[-1]
        return Between(self._tiers[tier + 1], name)

    def _note_common(self, at_s: float) -> None:
        """Of each tier, whether its paths are slow all together."""
        change = self.rules.least_change
        for key in self._recent:
            common = self._common(*key) if key[1] in _SYMPTOMS else 1.0
            if common < 1 - change:
                self._common_since_s.setdefault(key, at_s)
            elif common > 1 - change / 2:
                self._common_since_s.pop(key, None)

    def _slow_tiers(self) -> list[Finding]:
        found = []
        for (tier, name), since_s in self._common_since_s.items():
            # What slows the nearest paths too is the nodes' load, or that of the probes.
            if tier and (0, name) in self._recent and (0, name) not in self._common_since_s:
                subject = Between(self._tiers[tier], self._tiers[tier])
                common, count = self._common(tier, name), len(self._by_tier[tier])
                symptom = _SYMPTOMS[name]
                found.append(Finding(subject, Health.DEGRADED, symptom, since_s, common, count))
        return found

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
        while left:
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
                break
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
        return found

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
                if (rate := path.series[BANDWIDTH].newest) is not None:
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


def _quantities(found: Measurement) -> Iterable[tuple[str, float | None]]:
    """What a probe tells of its path; more is better."""
    yield BANDWIDTH, found.bytes_per_s
    trip_s, loss = found.round_trip_min_s, found.loss
    yield SPEED, None if trip_s is None else 1 / trip_s
    yield ARRIVAL, None if loss is None else arrival_of(loss)


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
