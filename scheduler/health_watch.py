"""The daemon measures the network again and again, and knows what of it is not well.

One measuring is a sweep over pairs that are always the same, as far as its budget goes; the next
goes on where it ended. It runs beside everything else: probes are calls of agents from a thread.
What is learned is in the store before anything is told of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..agents.fleet import NodeAgent
from ..agents.probe_fleet import FleetEnds
from ..agents.prober import Probed, probe
from ..placement.cluster import Cluster
from ..placement.errors import InvalidInput
from ..placement.inference.health import Finding, HealthRules
from ..placement.inference.health_book import HealthBook
from ..placement.inference.health_effects import Effects, effects_of
from ..placement.inference.measurements import Measurement, ProbeRound
from ..placement.inference.numbers import Path, meeting
from ..placement.inference.reprobing import Rewatching, watch_rounds, watched_pairs
from .core import Core
from .health_news import News, news, steadied
from .topology import Topology

_DOCUMENT = "health"
_ANSWER_S = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Network:
    """What is watched. tiers: names, nearest first. paths: by node its domains but the last."""

    tiers: tuple[str, ...]
    paths: dict[str, Path]

    @classmethod
    def of(cls, cluster: Cluster) -> Network:
        """The network of a cluster file."""
        tiers = tuple(tier.name for tier in cluster.tiers)
        inner = tiers[:-1]
        paths = {node.name: tuple(node.domains[tier] for tier in inner) for node in cluster.nodes}
        return cls(tiers, paths)


@dataclass
class Learned:
    """What re-probes have told. books: by rail; None where all NICs are one.

    found: what the books say now. known: what people were told. at: where the next sweep begins.
    """

    books: dict[int | None, HealthBook] = field(default_factory=dict)
    found: tuple[Finding, ...] = ()
    known: tuple[Finding, ...] = ()
    at: int = 0

    def learn(
        self,
        network: Network,
        measured: Iterable[Measurement],
        used: set[tuple[int, str]],
        rules: HealthRules,
        now_s: float,
    ) -> None:
        """Take in what a sweep has measured, in its order.

        used: domains, by the number of their tier, whose links outwards carry a job's traffic: of
        paths over them only whether they carry anything counts.
        """
        by_round: defaultdict[tuple[int | None, int | None], list[Measurement]] = defaultdict(list)
        for each in measured:
            taken = _outcome(each) if _shares(each, network, used) else each
            by_round[each.rail, each.round].append(taken)
        for (rail, _), together in by_round.items():
            if rail not in self.books:
                self.books[rail] = HealthBook(network.tiers, network.paths, rules)
            self.books[rail].observe(together, now_s)
        findings = [
            replace(each, rail=rail)
            for rail, book in self.books.items()
            for each in book.findings(now_s)
        ]
        self.found = steadied(self.found, findings)

    def tell(self, network: Network) -> list[News]:
        """What people are to be told now; it is known to them from then on."""
        domains = {
            node: dict(zip(network.tiers, path, strict=False))
            for node, path in network.paths.items()
        }
        told, known = news(self.known, self.found, domains)
        self.known = tuple(known)
        return told

    def move(self, network: Network, rules: HealthRules) -> None:
        """Go on with a network whose nodes or domains have changed."""
        self.books = {
            rail: HealthBook.restored(network.tiers, network.paths, book.to_data(), rules)
            for rail, book in self.books.items()
        }

    def to_data(self) -> dict[str, Any]:
        """What `restored` needs, as plain data."""
        return {
            "books": [[rail, book.to_data()] for rail, book in self.books.items()],
            "found": [each.to_data() for each in self.found],
            "known": [each.to_data() for each in self.known],
            "at": self.at,
        }

    @classmethod
    def restored(cls, data: Mapping[str, Any], network: Network, rules: HealthRules) -> Learned:
        """What was learned before. Raises InvalidInput, KeyError, ValueError, TypeError."""
        return cls(
            books={
                rail: HealthBook.restored(network.tiers, network.paths, book, rules)
                for rail, book in data["books"]
            },
            found=tuple(Finding.from_data(each) for each in data["found"]),
            known=tuple(Finding.from_data(each) for each in data["known"]),
            at=int(data["at"]),
        )


def _shares(found: Measurement, network: Network, used: set[tuple[int, str]]) -> bool:
    """Whether a probe's path leaves a domain over links that a job uses."""
    if found.a not in network.paths or found.b not in network.paths:
        return False
    one, other = network.paths[found.a], network.paths[found.b]
    return any(
        (tier, path[tier]) in used for tier in range(meeting(one, other)) for path in (one, other)
    )


def _outcome(found: Measurement) -> Measurement:
    quantities = ("round_trip_min_s", "there_bytes_per_s", "back_bytes_per_s", "loss")
    return found.model_copy(update=dict.fromkeys(quantities))


def links_used(
    nodes_of_jobs: Iterable[Iterable[str]], paths: Mapping[str, Path]
) -> set[tuple[int, str]]:
    """Domains, by the number of their tier, out of which a job sends."""
    used: set[tuple[int, str]] = set()
    for nodes in nodes_of_jobs:
        known = [paths[node] for node in nodes if node in paths]
        for tier in range(len(known[0]) if known else 0):
            domains = {path[tier] for path in known}
            if len(domains) > 1:
                used |= {(tier, domain) for domain in domains}
    return used


class HealthWatch:
    """Re-probes by the operator's settings, and what follows.

    agents: the agents of the nodes that can be asked now.
    """

    def __init__(
        self, core: Core, topology: Topology, agents: Callable[[], Mapping[str, NodeAgent]]
    ) -> None:
        self._core = core
        self._topology = topology
        self._agents = agents
        self._settings = core.settings.reprobe
        self._stored = core.store.document(_DOCUMENT)
        self._learned = Learned()
        self._learning = False
        self._cluster: Cluster | None = None
        self._network: Network | None = None
        self._rounds: list[ProbeRound] = []
        self._effects: tuple[Cluster | None, tuple[Finding, ...], int, Effects] | None = None
        measured_s = (self._stored or {}).get("measured_s")
        passed_s = core.now_s() - measured_s if measured_s else 0.0
        left_s = self._settings.every_s - passed_s
        self._due = time.monotonic() + min(max(0.0, left_s), self._settings.every_s)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What of the network is not well, gravest first; nothing where it is not measured."""
        self._follow()
        return self._learned.found if self._settings.every_s else ()

    def effects(self, cluster: Cluster) -> Effects:
        """What is not well, and means for placements on the cluster as it is now."""
        found = self.findings
        nodes = sum(node.devices > 0 for node in cluster.nodes)
        most_out = self._core.settings.rules.most_out(nodes)
        kept = self._effects
        if kept is None or kept[0] is not cluster or kept[1:3] != (found, most_out):
            kept = (cluster, found, most_out, effects_of(cluster, found, most_out))
            self._effects = kept
        return kept[3]

    async def tend(self) -> None:
        """Measure, where it is time to."""
        if not self._settings.every_s or time.monotonic() < self._due or self._topology.probing:
            return
        self._follow()
        network, agents = self._network, dict(self._agents())
        if network is None or len(agents.keys() & network.paths.keys()) < 2:
            return
        self._due = time.monotonic() + self._settings.every_s
        async with self._topology.turn:
            used = self._links_used(network)
            probed, planner = await self._sweep(network, agents)
            used |= self._links_used(network)
        # The cluster may have another form by now; what is learned is of the one that is followed.
        learned, network = self._learned, self._network or network
        now_s, rules = self._core.now_s(), self._settings.rules
        learned.at = planner.at

        def learn() -> tuple[list[News], str]:
            learned.learn(network, planner.heard, used, rules, now_s)
            new = learned.tell(network)
            return new, json.dumps(learned.to_data())

        self._learning = True
        try:
            new, text = await asyncio.to_thread(learn)
        finally:
            self._learning = False
        self._tell(new, text, now_s)
        _log.info(
            "measured the network again: %d rounds, %.1f MB, %.1f s; %d findings",
            probed.rounds,
            probed.moved_bytes / 1e6,
            probed.took_s,
            len(learned.found),
        )

    async def _sweep(
        self, network: Network, agents: Mapping[str, NodeAgent]
    ) -> tuple[Probed, Rewatching]:
        """Probe the pairs of the nodes that are there, one sweep at most."""
        loop = asyncio.get_running_loop()

        async def occupied() -> set[str]:
            return {node for node, _ in self._core.store.held()}

        def busy() -> set[str]:
            return asyncio.run_coroutine_threadsafe(occupied(), loop).result(_ANSWER_S)

        there = [
            replace(each, pairs=tuple(p for p in each.pairs if agents.keys() >= set(p)))
            for each in self._rounds
        ]
        planner = Rewatching(there, self._learned.at)
        ends, probes = FleetEnds(agents), self._settings.probes
        probed = await asyncio.to_thread(lambda: probe(planner, ends, probes, busy=busy))
        return probed, planner

    def _links_used(self, network: Network) -> set[tuple[int, str]]:
        by_job: defaultdict[str, set[str]] = defaultdict(set)
        for (node, _), holding in self._core.store.held().items():
            by_job[holding.job_id].add(node)
        return links_used(by_job.values(), network.paths)

    def _follow(self) -> None:
        """Take up what was stored, and a cluster file that has changed."""
        cluster = self._topology.cluster
        if cluster is None or cluster is self._cluster or self._learning:
            return
        self._cluster, network = cluster, Network.of(cluster)
        if network == self._network:
            return
        first, self._network = self._network is None, network
        rules = self._settings.rules
        self._rounds = watch_rounds(watched_pairs(network.paths), network.paths)
        try:
            if first and self._stored:
                kept = json.loads(self._stored["learned"])
                self._learned = Learned.restored(kept, network, rules)
            else:
                self._learned.move(network, rules)
        except (InvalidInput, KeyError, ValueError, TypeError) as error:
            # Of another version; it is learned anew, which takes a while and breaks nothing.
            _log.warning("what was known of the network's health cannot be read: %s", error)
            self._learned = Learned()
        self._stored = None

    def _tell(self, new: Sequence[News], text: str, now_s: float) -> None:
        """Keep what was learned, and tell what is new of it."""
        core = self._core
        core.store.put_document(_DOCUMENT, {"measured_s": now_s, "learned": text}, now_s)
        for each in new:
            core.note(each.kind, each.message, data=each.finding.to_data())
        if new:
            # What could not be placed before may have another place now, and the other way round.
            core.unplaceable.clear()
            core.changed()
