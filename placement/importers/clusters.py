"""One cluster from one or several foreign files, with everything that had to be assumed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..accelerators import CATALOG
from ..cluster import Cluster, Node, NodeState, Tier
from ..errors import InvalidInput, Problem
from ..fabrics import (
    AGGREGATION_LATENCY_S,
    LEAF_LATENCY_S,
    NVSWITCH_LATENCY_S,
    SPINE_LATENCY_S,
)
from ..links import NodeLinks
from ..names import lone_domain, some
from .facts import Facts, Machine, Network
from .machines import lone_names, machines_of
from .merging import Column, Ladder, merged
from .node_aliases import with_given_names
from .node_names import one_name_each
from .registry import read_files

UNKNOWN_ACCELERATOR = "unknown"
ASSUMED_NIC_BYTES_PER_S = 25e9
"""One 200 Gb/s interface, where no file gives a rate."""


@dataclass(frozen=True)
class Choices:
    """What an operator adds to files that do not say it, or settles where they differ.

    nic_bytes_per_s: rate of one interface in one direction. machine_nodes: for a file that
        describes a machine without naming it, a pattern (`dgx-*`) of the nodes that are like it.
    without_tiers: tiers to leave out.
    """

    name: str = "imported"
    accelerator: str | None = None
    devices: int | None = None
    rails: int | None = None
    nic_bytes_per_s: float | None = None
    machine_nodes: Mapping[str, str] = field(default_factory=dict)
    without_tiers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """A cluster, what each file said, and what a reader should know before relying on it."""

    cluster: Cluster
    facts: Mapping[str, Facts]
    warnings: tuple[str, ...]


def import_cluster(
    paths: Sequence[str | os.PathLike[str]], choices: Choices | None = None
) -> Imported:
    """Read files of any known format and make one cluster of them.

    Raises InvalidInput naming file, line and reason, also where files contradict each other.
    """
    return assembled(read_files(paths), choices)


def assembled(facts: Mapping[str, Facts], choices: Choices | None = None) -> Imported:
    """The cluster that the facts of several files make together. Raises InvalidInput."""
    chosen = choices or Choices()
    alone = [
        Problem(each.not_alone.place or file, each.not_alone.found, each.not_alone.fix)
        for file, each in facts.items()
        if each.not_alone is not None and not _told(each, chosen)
    ]
    if not facts or len(alone) == len(facts):
        nothing = [Problem("", "no file was given", "give at least one")]
        raise InvalidInput(", ".join(facts) or "import", alone or nothing)
    warnings = [f"{file}: {warning}" for file, each in facts.items() for warning in each.warnings]
    facts = with_given_names(facts, warnings)
    networks, named = one_name_each(facts, warnings)
    nodes = _node_names(networks, named, facts)
    machines = machines_of(nodes, named, facts, chosen.machine_nodes, warnings)
    ladder = merged(networks, nodes, chosen.without_tiers)
    warnings += ladder.warnings
    kinds = _kinds(nodes, machines, chosen, warnings)
    rate = chosen.nic_bytes_per_s or _nic_rate(machines)
    tiers = _tiers(ladder, rate, kinds, warnings)
    links, link_names = _links(machines)
    domains = _domains(nodes, ladder.columns, warnings)
    built = [
        Node(
            name=node,
            accelerator=kinds[node][0],
            devices=kinds[node][1],
            domains=domains[node],
            state=NodeState.FAULTY if machines[node].faulty else NodeState.FREE,
            links=link_names.get(node) if _fits(machines[node], kinds[node][1]) else None,
        )
        for node in nodes
    ]
    used = {node.links for node in built}
    cluster = Cluster(
        name=chosen.name,
        tiers=tiers,
        rails=chosen.rails or ladder.rails or _rails(machines, kinds),
        links={name: each for name, each in links.items() if name in used},
        nodes=tuple(built),
    )
    return Imported(cluster, dict(facts), tuple(warnings))


def _told(facts: Facts, choices: Choices) -> bool:
    """Whether the operator has said what a file of a machine leaves open."""
    return bool(
        facts.network is None and facts.machines and choices.accelerator and choices.devices
    )


def _node_names(
    networks: Sequence[tuple[str, Network]],
    named: Mapping[str, Machine],
    facts: Mapping[str, Facts],
) -> list[str]:
    """Every node once, in the order of the files; a lone machine is named after its file."""
    found: dict[str, None] = {}
    for _, network in networks:
        found |= dict.fromkeys(network.domains)
    found |= dict.fromkeys(named)
    if not found:
        found = dict.fromkeys(lone_names(facts))
    if not found:
        problem = Problem("", "no node is described", "add a file that names the nodes")
        raise InvalidInput(", ".join(facts), [problem])
    return list(found)


def _kinds(
    nodes: Sequence[str], machines: Mapping[str, Machine], choices: Choices, warnings: list[str]
) -> dict[str, tuple[str, int]]:
    """Accelerator and device count of each node."""
    unknown_kind, unknown_count = [], []
    found = {}
    for node in nodes:
        machine = machines[node]
        kind = choices.accelerator or machine.accelerator
        count = choices.devices or machine.devices
        unknown_kind += [node] if kind is None else []
        unknown_count += [node] if count is None else []
        found[node] = (kind or UNKNOWN_ACCELERATOR, 1 if count is None else count)
    if unknown_count:
        warnings.append(
            f"devices: no file says how many {_have(unknown_count)}; each stands as one device: "
            "give --devices, or the output of nvidia-smi topo -m of one of them"
        )
    if unknown_kind:
        warnings.append(
            f"accelerator: no file says what {_have(unknown_kind)}; the kind is "
            f"{UNKNOWN_ACCELERATOR!r}: give --accelerator"
        )
    return found


def _tiers(
    ladder: Ladder,
    nic_bytes_per_s: float | None,
    kinds: Mapping[str, tuple[str, int]],
    warnings: list[str],
) -> tuple[Tier, ...]:
    every = [column.tier for column in ladder.columns] + [ladder.spine]
    known = [tier.bytes_per_s for tier in every if tier.bytes_per_s and not tier.scale_up]
    rate = nic_bytes_per_s or min(known, default=None)
    assumed = rate or ASSUMED_NIC_BYTES_PER_S
    scale_up_rate = _scale_up_rate(kinds) or assumed
    matters = len(kinds) > 1
    lacking = [t.name for t in every if not t.bytes_per_s and not t.scale_up]
    if rate is None and lacking and matters:
        warnings.append(
            f"bandwidth: no file gives that of {', '.join(lacking)}; "
            f"{ASSUMED_NIC_BYTES_PER_S / 1e9:g} GB/s an interface is assumed: give --nic-bandwidth"
        )
    unrated = [t.name for t in every if not t.bytes_per_s and t.scale_up]
    if unrated and _scale_up_rate(kinds) is None:
        warnings.append(
            f"bandwidth: no file gives that of {', '.join(unrated)}, nor the kind of device; "
            f"{assumed / 1e9:g} GB/s is assumed: give --accelerator"
        )
    if matters and not all(tier.latency_s for tier in every):
        names = ", ".join(tier.name for tier in every if not tier.latency_s)
        warnings.append(f"latency: no file gives that of {names}; usual values are assumed")
    found = []
    network = [tier for tier in every if not tier.scale_up]
    for tier in every:
        latency = NVSWITCH_LATENCY_S
        if not tier.scale_up:
            place, last = network.index(tier), len(network) - 1
            inner = LEAF_LATENCY_S if place == 0 else AGGREGATION_LATENCY_S
            latency = SPINE_LATENCY_S if place == last else inner
        found.append(
            Tier(
                name=tier.name,
                bandwidth=tier.bytes_per_s or (scale_up_rate if tier.scale_up else assumed),
                latency=tier.latency_s or latency,
                oversubscription=tier.oversubscription or 1.0,
                scale_up=tier.scale_up,
            )
        )
    return tuple(found)


def _scale_up_rate(kinds: Mapping[str, tuple[str, int]]) -> float | None:
    rates = [CATALOG[kind].scale_up_bandwidth for kind, _ in kinds.values() if kind in CATALOG]
    return min(rates, default=None)


def _domains(
    nodes: Sequence[str], columns: Sequence[Column], warnings: list[str]
) -> dict[str, dict[str, str]]:
    """Each node's domains; one that no file places is alone with its own domain further in."""
    found: dict[str, dict[str, str]] = {node: {} for node in nodes}
    inner = {node: node for node in nodes}
    for column in columns:
        alone: dict[str, str] = {}
        taken = set(column.domains.values())
        lonely = []
        for node in nodes:
            domain = column.domains.get(node)
            if domain is None:
                lonely.append(node)
                domain = alone.get(inner[node])
            if domain is None:
                domain = lone_domain(node, taken)
                alone[inner[node]] = domain
            found[node][column.tier.name] = domain
        inner = {node: found[node][column.tier.name] for node in nodes}
        if lonely:
            warnings.append(
                f"{column.tier.name}: no file says in which {some(lonely)} "
                f"{'lies; it' if len(lonely) == 1 else 'lie; each'} stands alone"
            )
    return found


def _links(machines: Mapping[str, Machine]) -> tuple[dict[str, NodeLinks], dict[str, str]]:
    """The different ways in which nodes join their devices, by a name, and the name for each."""
    described: dict[str, NodeLinks] = {}
    of_node: dict[str, str] = {}
    for node, machine in machines.items():
        if machine.links is not None:
            links = _rated(machine.links, machine.nvlink_bytes_per_s)
            name = next((n for n, each in described.items() if each == links), None)
            if name is None:
                name = f"links-{len(described) + 1}"
                described[name] = links
            of_node[node] = name
    return described, of_node


def _rated(links: NodeLinks, nvlink_bytes_per_s: float | None) -> NodeLinks:
    if nvlink_bytes_per_s is None or "NV" in links.bandwidth:
        return links
    return NodeLinks(matrix=links.matrix, bandwidth={**links.bandwidth, "NV": nvlink_bytes_per_s})


def _fits(machine: Machine, devices: int) -> bool:
    return machine.links is not None and machine.links.devices == devices


def _nic_rate(machines: Mapping[str, Machine]) -> float | None:
    return min((m.nic_bytes_per_s for m in machines.values() if m.nic_bytes_per_s), default=None)


def _rails(machines: Mapping[str, Machine], kinds: Mapping[str, tuple[str, int]]) -> int:
    """NICs a node, of which no more count than it has devices: two ports of one card are a rail."""
    counts = [min(len(m.nics), kinds[node][1]) for node, m in machines.items() if m.nics]
    return max(1, min(counts, default=1))


def _have(nodes: Sequence[str]) -> str:
    return f"{some(nodes)} {'has' if len(nodes) == 1 else 'have'}"
