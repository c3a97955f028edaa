"""What an imported file says, in one form for all formats: domains, machines, links, figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem
from ..links import NodeLinks

ANY_NODE = ""
"""The name of a machine whose file does not say which host it is."""


@dataclass(frozen=True)
class Machine:
    """The inside of a node. What a file does not tell is None or empty, never zero.

    nics: names of the network interfaces that carry training traffic, one rail each.
    nearest_nics: for each device, the interfaces nearest to it (several where they tie).
    numa_nodes: for each device; cpus: for each device, as the file writes CPU sets.
    """

    accelerator: str | None = None
    devices: int | None = None
    links: NodeLinks | None = None
    nics: tuple[str, ...] = ()
    nic_bytes_per_s: float | None = None
    nearest_nics: tuple[tuple[str, ...], ...] = ()
    numa_nodes: tuple[int | None, ...] = ()
    cpus: tuple[str, ...] = ()
    nvlink_bytes_per_s: float | None = None
    """Of one NVLink in one direction, which names such as NV12 in `links` count."""
    faulty: str = ""
    """Why the node should take no work; empty where it is well."""


@dataclass(frozen=True)
class TierFacts:
    """A level of the network that a file names; numbers it does not give are None."""

    name: str
    bytes_per_s: float | None = None
    latency_s: float | None = None
    oversubscription: float | None = None
    scale_up: bool = False


@dataclass(frozen=True)
class Network:
    """The tree of domains that a file describes.

    tiers: nearest first; one with a single domain joins all nodes. domains: `[node][tier]`
        domain; a node that lacks a tier is alone there.
    spine: numbers of the level that joins all; None where the file tells nothing of it.
    """

    tiers: tuple[TierFacts, ...]
    domains: Mapping[str, Mapping[str, str]]
    spine: TierFacts | None = None
    rails: int | None = None


@dataclass(frozen=True)
class Facts:
    """One file's content.

    format: the importer's name. summary: figures that a reader can check against the file, in the
        order they are shown (plain data: numbers, text, lists, mappings).
    network: None where the file tells nothing of tiers. machines: by node name, or ANY_NODE.
    not_alone: why these facts by themselves make no cluster and what to hand in with them; None
        where they do.
    aliases: other identifiers of nodes (GUIDs of ports, instance numbers) and the name of each. A
        file that is nothing but such a list gives its names to the nodes of others.
    label_levels: by the name of a topology, the keys of node labels that are its levels, the
        outermost first; a file of labelled nodes that is read with this one is read by them.
    warnings: oddities that were read all the same, each with its line where there is one.
    """

    format: str
    summary: Mapping[str, Any]
    network: Network | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    measurements: Mapping[str, Any] = field(default_factory=dict)
    not_alone: Problem | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    label_levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
