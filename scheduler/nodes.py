"""The nodes: their agents, their signs of life, and which of them are kept out of placements."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from ..agents.attempt import Heartbeat, LogChunk, NodeStatus, Refused
from ..agents.fleet import Fleet, NodeAgent, ensure_agents, inventories, node_names
from ..agents.inventory import DEVICE_RESOURCE, DeviceSource
from ..agents.prober import ProbeSettings
from ..agents.troubles import ClockWatch, Kind, Trouble, steady_s
from .core import Core
from .fault import FaultKind
from .health_news import reason_of
from .health_watch import HealthWatch
from .ledger import Ledger
from .link import off_loop, reason, within
from .node_troubles import NodeTroubles
from .notes_of_ranks import NotesOfRanks
from .quarantine import NodeRecord, Why
from .reach import Reach
from .standings import Standings
from .topology import Topology
from .views import NodeView
from .watch import NodeGone

_ANSWER_S = 15.0
_CHECKPOINT_S = 120.0
_AGENT_START_S = 60.0
_STOP_S = 30.0
_JOIN_TASKS = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeFacts:
    """What a launch needs to know of a node. resource: the Ray resource that its devices are."""

    node_id: str
    address: str
    resource: str


class Nodes:
    """The nodes of the Ray cluster that have an agent, by name.

    on_lost: called with the node id of a node that was lost, why, and in which way. on_broken:
    called with the node id, the device and a message when a device is broken.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.topology = Topology(core)
        self.standings = Standings(core)
        self.on_lost: list[Callable[[str, str, FaultKind], Awaitable[None]]] = []
        self.on_broken: list[Callable[[str, int, str], Awaitable[None]]] = []
        self._agents: dict[str, NodeAgent] = {}
        self.health = HealthWatch(core, self.topology, lambda: self._agents)
        self._reach = Reach(core, self._agents, self.lost, self.refresh)
        self._pings: dict[str, asyncio.Task[None]] = {}
        self._joining: dict[str, str] = {}
        self._began_s = self._last_join_s = time.monotonic()
        self._held: dict[str, tuple[tuple[str, int], ...]] = {}
        self._pids: dict[str, int] = {}
        self._noted = NotesOfRanks(core)
        self._troubles = NodeTroubles(core)
        self._clock = ClockWatch(core.now_s(), steady_s())
        self._ending: set[tuple[str, str, int]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    # What others ask

    def facts(self, node: str) -> NodeFacts:
        """Where a node is. Raises NodeGone when it has no agent now."""
        agent = self._agent(node)
        told = self.topology.inventory(node)
        declared = told is None or told.device_source is DeviceSource.DECLARED
        return NodeFacts(agent.node_id, agent.address, DEVICE_RESOURCE if declared else "GPU")

    @property
    def settled(self) -> bool:
        """Whether all nodes that will join soon are known: none is joining, or did just now."""
        quiet_s = time.monotonic() - self._last_join_s
        return not self._joining and quiet_s >= self._core.settings.settle_s

    def unheard(self, nodes: Iterable[str]) -> list[str]:
        """Those of some nodes that a daemon which has just begun may still hear of."""
        if time.monotonic() - self._began_s >= self._core.settings.settle_s:
            return []
        return sorted(set(nodes) - self._agents.keys() - self._core.store.quarantined().keys())

    @property
    def devices(self) -> int:
        """Devices of all nodes that are known."""
        cluster = self.topology.cluster
        return 0 if cluster is None else sum(node.devices for node in cluster.nodes)

    def ledger(self) -> Ledger:
        """The devices now. Raises ValueError before the cluster is known."""
        cluster = self.topology.cluster
        if cluster is None:
            raise ValueError("no node of the cluster is known yet")
        away = {node.name: self._away(node.name) for node in cluster.nodes}
        effects = self.health.effects(cluster)
        for name, finding in effects.out.items():
            away[name] = away.get(name) or reason_of(finding)
        for name, found in self._core.store.quarantined().items():
            away[name] = found.reason
        reasons = {name: why for name, why in away.items() if why}
        return Ledger(cluster, self._core.store.held(), reasons, effects)

    async def free_port(self, node: str) -> int:
        """A TCP port that is free on a node. Raises NodeGone, RayError, TimeoutError."""
        actor: Any = self._agent(node).actor
        return int((await within(actor.free_port.remote(), _ANSWER_S))["port"])

    def has_agent(self, node: str) -> bool:
        """Whether a node can be asked for something now."""
        return node in self._agents

    def reachable(self) -> list[str]:
        """Nodes that have an agent and can be used, by name."""
        out = self._core.store.quarantined().keys()
        return sorted(node for node in self._agents if node not in out)

    def actor(self, node: str) -> Any:
        """A node's agent, as Ray calls it. Raises NodeGone."""
        return self._agent(node).actor

    async def latest_checkpoint(
        self, node: str, directory: str, attempt: int, world_size: int | None, peers: str = ""
    ) -> dict[str, Any]:
        """The newest complete checkpoint as a node sees it, older attempts being fenced out."""
        actor: Any = self._agent(node).actor
        call = actor.latest_checkpoint.remote(directory, attempt, world_size, peers)
        found: dict[str, Any] = await within(call, _CHECKPOINT_S)
        return found

    async def read_log(
        self, node: str, job_id: str, attempt: int, rank: int, offset: int, limit: int
    ) -> LogChunk:
        """A part of a rank's log. Raises LookupError when there is none or the node is away."""
        try:
            actor: Any = self._agent(node).actor
            call = actor.read_log.remote(job_id, attempt, rank, offset, limit)
            found: LogChunk = await within(call, _ANSWER_S)
        except Refused as refusal:
            raise LookupError(reason(refusal)) from None
        except (NodeGone, RayError, TimeoutError) as error:
            raise LookupError(f"the log is on {node}, out of reach: {reason(error)}") from None
        return found

    async def attempt_on(self, node: str, job_id: str, attempt: int) -> NodeStatus:
        """A node's part of an attempt. Raises LookupError when the node is out of reach."""
        try:
            actor: Any = self._agent(node).actor
            found: NodeStatus = await within(actor.status.remote(job_id, attempt), _ANSWER_S)
        except (NodeGone, RayError, TimeoutError) as error:
            raise LookupError(f"{node} is out of reach: {reason(error)}") from None
        return found

    def views(self) -> list[NodeView]:
        """Every node that is known or has an agent, by name."""
        ledger = None if self.topology.cluster is None else self.ledger()
        nodes = {} if ledger is None else {node.name: node for node in ledger.cluster.nodes}
        held: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (where, _), holding in ledger.held.items() if ledger else ():
            held[where][holding.job_id] += 1
        found = []
        for name in sorted({*nodes, *self._agents, *self._joining}):
            node, agent = nodes.get(name), self._agents.get(name)
            why = ledger.away.get(name, "") if ledger else ""
            found.append(
                NodeView(
                    name=name,
                    state="away" if why else "ok" if agent else "joining",
                    reason=why or self._joining.get(name, ""),
                    address=agent.address if agent else "",
                    accelerator=node.accelerator if node else "",
                    devices=node.devices if node else 0,
                    free=len(ledger.free_devices(node)) if ledger and node else 0,
                    held=dict(held[name]),
                    domains=dict(node.domains) if node else {},
                    silent_s=self._reach.silence_s(name),
                )
            )
        return found

    def begin_probe(self, settings: ProbeSettings) -> None:
        """Measure the network between all nodes, once those that have just come have an agent."""
        self.topology.begin_probe(self._settled_agents, settings)

    async def _settled_agents(self) -> dict[str, NodeAgent]:
        await self._core.until(lambda: bool(self._agents) and not self._joining, _AGENT_START_S)
        return dict(self._agents)

    # What happens to nodes

    def close(self) -> None:
        """Let go of every node."""
        self._reach.close()

    def lost(self, node: str, why: str, kind: FaultKind = FaultKind.NODE_LOST) -> None:
        """Count a node as lost: kept out until it has been well again for a while."""
        self.fault(node, Why.LOST, why)
        agent = self._agents.pop(node, None)
        ping = self._pings.pop(node, None)
        if ping is not None:
            ping.cancel()
        self._reach.forget(node)
        self._held.pop(node, None)
        self._pids.pop(node, None)
        self._core.changed()
        if agent is not None:
            _log.warning("node %s is lost: %s", node, why)
            for told in self.on_lost:
                self._background(told(agent.node_id, why, kind))

    def fault(self, node: str, why: Why, message: str, job_id: str = "", origin: str = "") -> None:
        """Hold a fault against a node, which may keep it out of placements for a time.

        origin: what told of it; the same one counts once.
        """
        cluster = self.topology.cluster
        nodes = sum(node.devices > 0 for node in cluster.nodes) if cluster else 0
        self.standings.fault(node, why, message, nodes, job_id, origin)

    def set_aside(self, node: str, why: str, for_s: float | None) -> None:
        """Keep a node out on request; what runs there goes on. Raises LookupError."""
        if node not in self._names():
            known = ", ".join(sorted(self._names())) or "none"
            raise LookupError(f"no node {node!r} in the cluster; its nodes are {known}")
        self.standings.set_aside(node, why, for_s)
        self._core.changed()

    def release(self, node: str) -> bool:
        """Use a node again on request; False when it was not kept out."""
        gone = self.standings.release(node)
        self._core.unplaceable.clear()
        self._core.changed()
        return gone

    def records(self) -> list[NodeRecord]:
        """What is held against the nodes, by name."""
        return self.standings.records(self._names())

    def _names(self) -> set[str]:
        cluster = self.topology.cluster
        return {*self._agents, *(node.name for node in (cluster.nodes if cluster else ()))}

    async def refresh(self) -> None:
        """Notice nodes that came, went, fell silent, or have been out long enough."""
        entries = [dict(entry) for entry in await off_loop(ray.nodes)]
        names = node_names(entries)
        for node, agent in list(self._agents.items()):
            if agent.node_id not in names:
                self.lost(node, "Ray says that the node is dead")
        self._reach.look()
        alive = set(names.values())
        for node in self._joining.keys() - alive:
            del self._joining[node]
        new = sorted(alive - self._agents.keys() - self._joining.keys())
        self._joining |= dict.fromkeys(new, "its agent is starting")
        # A node that hangs holds up only those that are asked together with it.
        share = math.ceil(len(new) / _JOIN_TASKS) or 1
        for first in range(0, len(new), share):
            self._background(self._join(new[first : first + share]))
        self._release_due()

    async def _join(self, new: list[str]) -> None:
        """Give new nodes an agent; those that get none are tried again by the next refresh."""
        try:
            fleet: Fleet = await off_loop(
                ensure_agents,
                self._core.settings.state_dir,
                _AGENT_START_S,
                new,
                timeout_s=2 * _AGENT_START_S,
            )
            told = await off_loop(inventories, fleet.agents, timeout_s=2 * _ANSWER_S)
            self.topology.add(told, fleet.labels)
            for node, agent in fleet.agents.items():
                self._joined(node, agent)
            for node, why in fleet.failures.items():
                _log.warning("no agent on %s: %s", node, why)
        except (RayError, TimeoutError) as error:
            _log.warning("agents of %s: %s", ", ".join(new), error)
        finally:
            for node in new:
                self._joining.pop(node, None)
            self._core.changed()

    def _joined(self, node: str, agent: NodeAgent) -> None:
        self._agents[node] = agent
        self._last_join_s = time.monotonic()
        self._reach.heard(node)
        self._pings[node] = self._background(self._ping(node, agent))
        self.standings.back(node)
        self._core.unplaceable.clear()
        self._core.changed()

    async def _ping(self, node: str, agent: NodeAgent) -> None:
        """Ask for signs of life until the node is lost."""
        while True:
            try:
                beat: Heartbeat = await within(
                    agent.actor.ping.remote(), self._core.settings.silent_s
                )
            except (RayError, TimeoutError) as error:
                _log.info("no answer from %s: %s", node, type(error).__name__)
            else:
                self._reach.heard(node, beat.line_port)
                self._held[node] = beat.attempts
                self._note_restart(node, beat.pid)
                self._troubles.take(node, beat.troubles, partial(self._act_on, agent))
                for job_id, attempt in beat.attempts:
                    self._end_if_over(node, agent, job_id, attempt)
                if self._noted.new(node, beat.notes):
                    self._background(self._noted.take(node, agent.actor, beat.notes))
            await asyncio.sleep(self._core.settings.heartbeat_s)

    def _note_restart(self, node: str, pid: int) -> None:
        """Write down that Ray had to start a node's agent again."""
        before = self._pids.get(node, pid)
        self._pids[node] = pid
        if before and before != pid:
            message = f"the agent of {node} died and was started again; its ranks go on meanwhile"
            data = {"node": node, "pid": pid, "pid_before": before}
            self._core.note("agent_restarted", message, data=data)

    def _act_on(self, agent: NodeAgent, trouble: Trouble, origin: str) -> None:
        if trouble.kind is Kind.DEVICE_ERROR:
            self.fault(agent.node, Why.DEVICE, trouble.message, origin=origin)
            device = -1 if trouble.device is None else trouble.device
            for told in self.on_broken:
                self._background(told(agent.node_id, device, trouble.message))

    def _end_if_over(self, node: str, agent: NodeAgent, job_id: str, attempt: int) -> None:
        """Stop ranks of an attempt that is over, as on a node that comes back from a partition."""
        if self._is_current(job_id, attempt) or (node, job_id, attempt) in self._ending:
            return
        self._ending.add((node, job_id, attempt))
        self._background(self._end(node, agent, job_id, attempt))

    async def _end(self, node: str, agent: NodeAgent, job_id: str, attempt: int) -> None:
        try:
            await within(agent.actor.stop.remote(job_id, attempt, 0.0), _STOP_S)
            message = f"ranks of an attempt that is over were ended on {node}"
            known = job_id if self._known(job_id) else None
            data = {"node": node, "job": job_id}
            self._core.note("leftover", message, job_id=known, attempt=attempt, data=data)
        except (RayError, TimeoutError) as error:
            _log.warning("attempt %d of %s stays on %s: %s", attempt, job_id, node, error)
        finally:
            self._ending.discard((node, job_id, attempt))

    def _is_current(self, job_id: str, attempt: int) -> bool:
        if not self._known(job_id):
            return False
        life = self._core.store.job(job_id).life
        return life.holds_devices and life.attempt == attempt

    def _known(self, job_id: str) -> bool:
        try:
            self._core.store.job(job_id)
        except LookupError:
            return False
        return True

    def _release_due(self) -> None:
        now_s = self._core.now_s()
        if jumped := self._clock.look(now_s, steady_s()):
            self.standings.shift(jumped.data["jump_s"])
        for node, found in self._core.store.quarantined().items():
            over = found.until_s is not None and now_s >= found.until_s
            leftover = [a for a in self._held.get(node, ()) if not self._is_current(*a)]
            if over and node in self._agents and not leftover:
                self.standings.let_back(node, "well again for long enough")
                self._core.unplaceable.clear()
                self._core.changed()

    def _agent(self, node: str) -> NodeAgent:
        agent = self._agents.get(node)
        if agent is None:
            raise NodeGone(f"node {node} has no agent now")
        return agent

    def _away(self, node: str) -> str:
        if node in self._agents:
            return ""
        return self._joining.get(node, "not in the Ray cluster")

    def _background(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _logged(work: Awaitable[Any]) -> None:
    try:
        await work
    except Exception:
        _log.exception("work in the background failed")
