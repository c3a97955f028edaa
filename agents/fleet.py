"""The agents of a Ray cluster: one a node, made where missing, and what they find out together."""

from __future__ import annotations

import ipaddress
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..placement.errors import InvalidInput, Problem
from ..placement.names import Natural, natural
from .agent import Agent
from .assemble import DOMAIN_LABEL, find_domains, order_tiers
from .inventory import NodeInventory
from .processes import be_favoured
from .rail_nics import VARIABLE, own_rail_nics

NAMESPACE = "railweave"
NODE_LABEL = "railweave.io/node"
_START_S = 60.0
_ANSWER_S = 10.0
_RETRY_S = 0.1


def agent_name(node: str) -> str:
    """The Ray name of a node's agent."""
    return f"railweave-agent-{node}"


@dataclass(frozen=True)
class NodeAgent:
    """A node as Ray knows it, and its agent."""

    node: str
    node_id: str
    address: str
    resources: Mapping[str, float]
    labels: Mapping[str, str]
    actor: ActorHandle[Any]


@dataclass(frozen=True)
class Fleet:
    """The agents by node name, and why nodes without one have none."""

    agents: dict[str, NodeAgent] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, Mapping[str, str]]:
        """Ray's labels by node."""
        return {node: agent.labels for node, agent in self.agents.items()}


class RailweaveAgent(Agent):
    """An agent inside its Ray worker; the name is what `ps` shows."""

    def __init__(
        self,
        node: str,
        address: str,
        state_dir: str,
        resources: Mapping[str, float],
        labels: Mapping[str, str],
    ) -> None:
        be_favoured()  # a sign of life must not wait for ranks that want every core
        node_id = ray.get_runtime_context().get_node_id()
        nics = own_rail_nics(address, os.environ.get(VARIABLE, ""))
        super().__init__(node, node_id, address, state_dir, raylet_pid(), resources, labels, nics)


def raylet_pid() -> int:
    """The raylet above this worker process. Raises RuntimeError where there is none."""
    pid = os.getppid()
    while pid > 1:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet":
            return pid
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
    raise RuntimeError(f"process {os.getpid()} has no raylet above it; agents run as Ray actors")


def node_names(ray_nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each alive node by Ray's node id: its label, else Ray's name, else its host.

    Ray's own default name, the address, does not count as a name. Where two nodes would have one
    name, each gets the start of its node id behind it.
    """
    found = {}
    for entry in ray_nodes:
        if not entry["Alive"]:
            continue
        given = entry.get("NodeName") or ""
        if given == entry["NodeManagerAddress"]:
            given = ""
        label = (entry.get("Labels") or {}).get(NODE_LABEL)
        found[entry["NodeID"]] = label or given or entry["NodeManagerHostname"]
    counts = Counter(found.values())
    return {
        node_id: name if counts[name] == 1 else f"{name}-{node_id[:8]}"
        for node_id, name in found.items()
    }


def ensure_agents(
    state_dir: str, timeout_s: float = _START_S, only: Sequence[str] | None = None
) -> Fleet:
    """Every alive node's agent, made where it is missing or belongs to a node that died.

    state_dir: where agents keep their state, on every node. only: the node names to look after.
    Blocks for at most `timeout_s`, then names what is missing. Raises InvalidInput, RayError.
    """
    if not os.path.isabs(state_dir):
        fix = "give an absolute path, one that every node can have"
        raise InvalidInput("state_dir", [Problem("", f"found {state_dir!r}", fix)])
    ray_nodes: list[dict[str, Any]] = [n for n in ray.nodes() if n["Alive"]]  # type: ignore[no-untyped-call]
    names = node_names(ray_nodes)
    waiting = {
        names[e["NodeID"]]: e for e in ray_nodes if only is None or names[e["NodeID"]] in only
    }
    fleet = Fleet()
    give_up = time.monotonic() + timeout_s
    while waiting:
        pings: dict[str, tuple[ActorHandle[Any], Any]] = {}
        for node, entry in waiting.items():
            try:
                actor = _made(node, entry, state_dir)
                pings[node] = (actor, actor.ping.remote())
            except (RayError, ValueError) as error:
                fleet.failures[node] = str(error)
        left_s = max(0.0, give_up - time.monotonic())
        ray.wait([ref for _, ref in pings.values()], num_returns=len(pings), timeout=left_s)
        for node, (actor, ref) in pings.items():
            reason = _unfit(actor, ref, waiting[node]["NodeID"])
            if reason:
                fleet.failures[node] = reason
                continue
            entry = waiting.pop(node)
            fleet.failures.pop(node, None)
            fleet.agents[node] = NodeAgent(
                node=node,
                node_id=entry["NodeID"],
                address=entry["NodeManagerAddress"],
                resources=entry["Resources"],
                labels=entry.get("Labels") or {},
                actor=actor,
            )
        if waiting:
            if time.monotonic() >= give_up:
                break
            time.sleep(_RETRY_S)
    return fleet


def _made(node: str, entry: Mapping[str, Any], state_dir: str) -> ActorHandle[Any]:
    """The node's agent, started if there is none of that name."""
    actor_class: Any = ray.remote(RailweaveAgent)
    made: ActorHandle[Any] = actor_class.options(
        name=agent_name(node),
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=1000,
        scheduling_strategy=NodeAffinitySchedulingStrategy(entry["NodeID"], soft=False),
    ).remote(
        node,
        entry["NodeManagerAddress"],
        state_dir,
        dict(entry["Resources"]),
        dict(entry.get("Labels") or {}),
    )
    return made


def _unfit(actor: ActorHandle[Any], ping: Any, node_id: str) -> str:
    """Why an agent cannot be used; empty when it is well. One on another node is ended."""
    try:
        found = ray.get(ping, timeout=0.1)
    except GetTimeoutError:
        return "its agent has not answered yet"
    except RayError as error:
        return f"its agent failed: {error}"
    if found.node_id == node_id:
        return ""
    ray.kill(actor, no_restart=True)
    return f"an agent of its name was on node {found.node_id}, which is replaced"


def inventories(agents: Mapping[str, NodeAgent], timeout_s: float = 30.0) -> list[NodeInventory]:
    """Every node's inventory. Raises RayError (GetTimeoutError) when one does not answer."""
    refs = [agent.actor.inventory.remote() for agent in agents.values()]
    found: list[NodeInventory] = ray.get(refs, timeout=timeout_s)
    return found


def by_domain(agents: Mapping[str, NodeAgent], tier_order: Sequence[str] | None) -> list[str]:
    """Node names with those of a domain next to each other, at every tier. Raises InvalidInput.

    Where no domain is known, by address: switches have subnets of their own, whatever hosts are
    called, and probing takes half as many rounds where neighbours in order are near each other.
    """
    nodes = sorted(agents)
    labels = {node: agents[node].labels for node in nodes}
    tiers = order_tiers(nodes, labels, tier_order) if _labelled(labels) else []
    domains = find_domains(nodes, labels, tiers)

    def place(node: str) -> tuple[tuple[str, ...], tuple[int, int], Natural]:
        known = tuple(domains[node][tier] for tier in reversed(tiers))
        return known, _address_order(agents[node].address), natural(node)

    return sorted(nodes, key=place)


def _address_order(address: str) -> tuple[int, int]:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return (0, 0)
    return (found.version, int(found))


def _labelled(labels: Mapping[str, Mapping[str, str]]) -> bool:
    return any(key.startswith(DOMAIN_LABEL) for found in labels.values() for key in found)
