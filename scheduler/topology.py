"""The cluster as the daemon knows it: what nodes have told, what was measured, and the probe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from ray.exceptions import RayError

from ..agents.assemble import assemble_cluster, find_domains, order_tiers
from ..agents.fleet import NodeAgent, by_domain, inventories
from ..agents.inventory import NodeInventory
from ..agents.probe_fleet import FleetEnds
from ..agents.prober import Probed, ProbeSettings, probe
from ..agents.rounds import FixedRounds, path_rounds
from ..placement.cluster import Cluster
from ..placement.drawing.svg import rate_text
from ..placement.errors import InvalidInput
from ..placement.inference.measurements import Measurement, ProbeKind
from ..placement.inference.probing import Probing
from .codec import encode
from .core import Core
from .views import ProbeProgress

_ANSWER_S = 10.0
_log = logging.getLogger(__name__)


class _Facts(BaseModel):
    """What the store keeps beside the cluster file, from which the file is made anew."""

    model_config = ConfigDict(frozen=True)

    inventories: dict[str, NodeInventory] = {}
    labels: dict[str, dict[str, str]] = {}
    measurements: tuple[Measurement, ...] = ()

    @field_validator("measurements", mode="before")
    @classmethod
    def _known_form(cls, stored: Any) -> Any:
        """Measurements that an earlier version has stored in its own form are measured anew."""
        if isinstance(stored, list):
            return [each for each in stored if not isinstance(each, dict) or "path" not in each]
        return stored


class Topology:
    """Makes the cluster file and keeps it in the store.

    cluster: the file as it is now; None before a node with a device was seen. problem: why it
    could not be made from what the nodes told last. turn: held by whoever measures, as two at a
    time would measure each other.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        stored = core.store.document("cluster")
        self.cluster = None if stored is None else Cluster.parse(stored, "the store's cluster")
        self._facts = _Facts.model_validate(core.store.document("facts") or {})
        self.problem = ""
        self.turn = asyncio.Lock()
        self._probe: asyncio.Task[None] | None = None
        self._lines: list[str] = []
        self._probe_error = ""

    @property
    def probing(self) -> bool:
        """Whether a probe is under way."""
        return self._probe is not None and not self._probe.done()

    def inventory(self, node: str) -> NodeInventory | None:
        """What a node told of itself when it joined."""
        return self._facts.inventories.get(node)

    def add(self, told: Sequence[NodeInventory], labels: Mapping[str, Mapping[str, str]]) -> None:
        """Take nodes in, or what has changed on them."""
        facts = _Facts(
            inventories={**self._facts.inventories, **{each.node: each for each in told}},
            labels={**self._facts.labels, **{node: dict(has) for node, has in labels.items()}},
            measurements=self._facts.measurements,
        )
        if facts != self._facts:
            self._keep(facts)

    def begin_probe(
        self,
        find_agents: Callable[[], Awaitable[dict[str, NodeAgent]]],
        settings: ProbeSettings,
    ) -> None:
        """Measure the network between these nodes; they and lost ones are the cluster then."""
        if not self.probing:
            self._lines.clear()
            self._probe_error = ""
            self._probe = asyncio.create_task(self._in_turn(find_agents, settings))

    async def progress(self, after: int, timeout_s: float) -> str:
        """The lines of the probe after the first `after`, as ProbeProgress in JSON."""
        await self._core.until(lambda: len(self._lines) > after or not self.probing, timeout_s)
        found = ProbeProgress(self.probing, self._lines[after:], self._probe_error)
        return encode(found, ProbeProgress)

    async def _in_turn(
        self,
        find_agents: Callable[[], Awaitable[dict[str, NodeAgent]]],
        settings: ProbeSettings,
    ) -> None:
        if self.turn.locked():
            self._say("waiting for the daemon's own measuring of the network to end")
        async with self.turn:
            await self._measure(find_agents, settings)

    async def _measure(
        self,
        find_agents: Callable[[], Awaitable[dict[str, NodeAgent]]],
        settings: ProbeSettings,
    ) -> None:
        agents = await find_agents()
        loop = asyncio.get_running_loop()

        async def occupied() -> set[str]:
            return {node for node, _ in self._core.store.held()}

        def busy() -> set[str]:
            return asyncio.run_coroutine_threadsafe(occupied(), loop).result(_ANSWER_S)

        def tell(done: int, line: str) -> None:
            loop.call_soon_threadsafe(self._say, f"after {done} rounds: {line}")

        try:
            tiers = self._core.settings.tiers or None
            excluded = set() if settings.include_busy else await occupied()
            planner = Probing(by_domain(agents, tiers), excluded=excluded)
            ends = FleetEnds(agents)
            probed = await asyncio.to_thread(
                lambda: probe(planner, ends, settings, busy=busy, progress=tell)
            )
            probed.left_alone |= excluded & agents.keys()
            if settings.paths and not probed.stopped:
                paths = _path_planner(agents, tiers, excluded, probed.rounds)
                probed = await asyncio.to_thread(
                    lambda: probe(
                        paths,
                        ends,
                        settings,
                        traced=True,
                        after=probed,
                        busy=busy,
                        progress=tell,
                    )
                )
            told = await asyncio.to_thread(inventories, agents)
        except (RayError, InvalidInput, OSError) as error:
            self._probe_error = f"the probe failed: {error}"
            self._say(self._probe_error)
            return
        self._tell_of(probed)
        # A node that was lost stays known until it is back or an operator lets go of it, so that
        # a job which waits for it does not become impossible.
        lost = self._core.store.quarantined().keys() - agents.keys()
        facts = self._facts
        measured = {each.pair for each in probed.measurements}
        kept = tuple(
            each
            for each in facts.measurements
            if each.pair not in measured and probed.left_alone.intersection(each.pair)
        )
        self._keep(
            _Facts(
                inventories={n: old for n, old in facts.inventories.items() if n in lost}
                | {each.node: each for each in told},
                labels={n: has for n, has in facts.labels.items() if n in lost}
                | {node: dict(agent.labels) for node, agent in agents.items()},
                measurements=(*kept, *probed.measurements),
            )
        )
        self._probe_error = self.problem

    def _tell_of(self, probed: Probed) -> None:
        for each in probed.measurements:
            if each.lost is not None:
                self._say(f"{each.a} - {each.b}: {each.lost}")
            elif each.hops and each.there_bytes_per_s is not None:
                rate = rate_text(each.there_bytes_per_s)
                self._say(f"{each.a} > {' > '.join(each.hops)} > {each.b}: {rate}")
        if probed.left_alone:
            names = ", ".join(sorted(probed.left_alone))
            self._say(f"left alone, as they run jobs: {names}")
        if probed.stopped:
            self._say(f"stopped early: {probed.stopped}")

    def _keep(self, facts: _Facts) -> None:
        """Make the cluster file of what is known, and keep both."""
        tiers = self._core.settings.tiers or None
        store, now_s = self._core.store, self._core.now_s()
        self._facts = facts
        store.put_document("facts", facts.model_dump(mode="json"), now_s)
        try:
            made = assemble_cluster(
                list(facts.inventories.values()), facts.measurements, facts.labels, tiers
            )
        except InvalidInput as error:
            self.problem = str(error)
            _log.warning("no cluster file: %s", error)
            return
        self.problem = ""
        # Nodes that join before the first pair is measured would all say that nothing is measured.
        for note in made.notes if self.probing and facts.measurements else ():
            self._say(note)
        if made.cluster != self.cluster:
            self.cluster = made.cluster
            store.put_document("cluster", made.cluster.to_data(), now_s)
            data: dict[str, Any] = {"notes": list(made.notes)}
            nodes, devices = made.cluster.nodes, sum(node.devices for node in made.cluster.nodes)
            message = f"the cluster has {devices} devices on {len(nodes)} nodes"
            self._core.note("cluster", message, data=data)
            self._core.unplaceable.clear()

    def _say(self, line: str) -> None:
        self._lines.append(line)
        self._core.changed()


def _path_planner(
    agents: Mapping[str, NodeAgent],
    tier_order: Sequence[str] | None,
    excluded: Collection[str],
    first: int,
) -> FixedRounds:
    """Rounds over every path between the domains of the nearest labelled tier."""
    nodes = [node for node in agents if node not in excluded]
    labels = {node: agents[node].labels for node in nodes}
    nearest = order_tiers(nodes, labels, tier_order)[:1]
    domains = find_domains(nodes, labels, nearest)
    of_node = {node: domains[node][nearest[0]] if nearest else node for node in nodes}
    return FixedRounds(path_rounds(of_node), (ProbeKind.LATENCY, ProbeKind.BANDWIDTH), first)
