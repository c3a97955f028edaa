"""The cluster file `railweave.cluster/1`: nodes, their devices, and the tiers that join them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .accelerators import CATALOG, Accelerator
from .errors import InvalidInput, Problem
from .explained import Explained
from .files import Notes, dump, parse_text, read_data, validated, without_notes
from .links import NodeLinks
from .quantities import DeviceCount, Index, Name, NonNegative, Positive, RailCount

FORMAT: Final = "railweave.cluster/1"
NODE_TIER = "node"


class NodeState(StrEnum):
    """Whether a node may take new ranks."""

    FREE = "free"
    """In service; its free devices may be used."""
    BUSY = "busy"
    """In service but wholly taken."""
    DRAINED = "drained"
    """Taken out of service by an operator."""
    FAULTY = "faulty"
    """Set aside because something on it broke."""


class CrossRail(StrEnum):
    """How devices of different rails on different nodes reach each other."""

    NVLINK = "nvlink"
    """Forwarded inside the node to the peer's rail, as NCCL's PXN does."""
    SPINE = "spine"
    """Only through the last tier."""


class Tier(BaseModel):
    """A level of the network; `bandwidth` in bytes/s per NIC and direction, `latency` in s.

    At a `scale_up` tier devices meet over NVLink or a like link and not through NICs, so its
    bandwidth is per device: a scale-up domain wider than a node. `reduces`: its switches add in
    flight (SHARP).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    bandwidth: Positive
    latency: NonNegative
    oversubscription: Annotated[Positive, Field(ge=1)] = 1.0
    scale_up: bool = False
    reduces: bool = False


class Node(BaseModel):
    """One host: its accelerator kind, device count, and its domain at every tier but the last.

    links: which of the cluster's `links` joins its devices; None where that is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    accelerator: Name
    devices: DeviceCount
    domains: dict[Name, Name] = {}
    state: NodeState = NodeState.FREE
    free_devices: tuple[Index, ...] | None = None
    links: Name | None = None

    @property
    def usable_devices(self) -> tuple[int, ...]:
        """Device indices a new job may take, ascending: none unless the node is free."""
        if self.state is not NodeState.FREE:
            return ()
        if self.free_devices is None:
            return tuple(range(self.devices))
        return tuple(sorted(self.free_devices))


class Cluster(Explained):
    """A cluster as placement sees it. `load` and `parse` build it and explain every fault."""

    format: Literal["railweave.cluster/1"] = FORMAT
    name: Name
    accelerators: dict[Name, Annotated[Accelerator, Notes]] = Field(default_factory=dict)
    tiers: Annotated[tuple[Annotated[Tier, Notes], ...], Field(min_length=1)]
    rails: RailCount = 1
    cross_rail: CrossRail = CrossRail.NVLINK
    links: dict[Name, Annotated[NodeLinks, Notes]] = Field(default_factory=dict)
    nodes: tuple[Annotated[Node, Notes], ...]

    @model_validator(mode="before")
    @classmethod
    def _drop_notes(cls, data: Any) -> Any:
        return without_notes(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*_tier_problems(self), *_node_problems(self), *_nesting_problems(self)]
        if problems:
            raise InvalidInput("Cluster", problems)
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a cluster file (YAML or JSON), or a file of any format that `import` knows.

        Raises InvalidInput naming each fault's place; a foreign file gives an ImportedFileWarning
        for each thing it leaves open.
        """
        source = os.fspath(path)
        try:
            data = read_data(path)
        except InvalidInput:
            foreign = cls._foreign(path)
            if foreign is None:
                raise
            return foreign
        if isinstance(data, Mapping) and "format" in data:
            return validated(cls, data, source, FORMAT)
        foreign = cls._foreign(path)
        return validated(cls, data, source, FORMAT) if foreign is None else foreign

    @classmethod
    def _foreign(cls, path: str | os.PathLike[str]) -> Self | None:
        from .importers.foreign import foreign_cluster  # importers build on this module

        found = foreign_cluster(path)
        return None if found is None else cls.parse(found.to_data(), os.fspath(path))

    @classmethod
    def parse(cls, data: Mapping[str, Any] | str, source: str = "cluster") -> Self:
        """A cluster from plain data or from text. Raises InvalidInput naming each fault's place."""
        plain = parse_text(data, source) if isinstance(data, str) else data
        return validated(cls, plain, source, FORMAT)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cluster file: YAML when the name ends in .yaml or .yml, JSON otherwise."""
        dump(self.to_data(), path)

    def to_data(self) -> dict[str, Any]:
        """The cluster as plain data in the file format."""
        data: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        for tier in data["tiers"]:
            for key in ("scale_up", "reduces"):
                if not tier[key]:
                    del tier[key]
        for accelerator in data["accelerators"].values():
            if not accelerator["switch_reduces"]:
                del accelerator["switch_reduces"]
        if not data["links"]:
            del data["links"]
        return data

    @property
    def spine(self) -> str:
        """Name of the last tier, which joins everything."""
        return self.tiers[-1].name

    @property
    def tier_names(self) -> tuple[str, ...]:
        """All tiers where two devices can meet: "node", then the file's tiers, nearest first."""
        return (NODE_TIER, *(tier.name for tier in self.tiers))

    def accelerator(self, name: str) -> Accelerator:
        """Numbers of an accelerator kind: from this file, else from the built-in catalog."""
        found = self.accelerators.get(name) or CATALOG.get(name)
        if found is None:
            known = sorted({*self.accelerators, *CATALOG})
            raise InvalidInput(
                self.name,
                [
                    Problem(
                        "accelerators",
                        f"no numbers for {name!r}",
                        f"add it there, or use one of {', '.join(known)}",
                    )
                ],
            )
        return found

    def node(self, name: str) -> Node:
        """The node of that name. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(f"no node {name!r} in cluster {self.name!r}")

    def with_nodes(self, nodes: tuple[Node, ...]) -> Cluster:
        """The same network with other nodes (or nodes in another state)."""
        return Cluster(
            name=self.name,
            accelerators=self.accelerators,
            tiers=self.tiers,
            rails=self.rails,
            cross_rail=self.cross_rail,
            links=self.links,
            nodes=nodes,
        )


def _tier_problems(cluster: Cluster) -> list[Problem]:
    problems = []
    seen: dict[str, int] = {}
    for index, tier in enumerate(cluster.tiers):
        place = f"tiers[{index}].name"
        if tier.name == NODE_TIER:
            problems.append(
                Problem(
                    place,
                    "'node' is the name of the tier inside a node",
                    "give this tier another name",
                )
            )
        if tier.name in seen:
            problems.append(
                Problem(
                    place,
                    f"duplicate name {tier.name!r}, also tiers[{seen[tier.name]}]",
                    "rename one of them",
                )
            )
        seen.setdefault(tier.name, index)
        if tier.scale_up and index and not cluster.tiers[index - 1].scale_up:
            found = f"a scale-up tier farther than the network tier {cluster.tiers[index - 1].name}"
            fix = "put scale-up tiers first: they are nearer than any NIC"
            problems.append(Problem(f"tiers[{index}]", found, fix))
        if tier.scale_up and cluster.cross_rail is CrossRail.SPINE:
            found = f"different rails meet only at the spine, but tier {tier.name!r} is scale-up"
            fix = "use cross_rail: nvlink: a scale-up link reaches devices of every rail"
            problems.append(Problem("cross_rail", found, fix))
    return problems


def _node_problems(cluster: Cluster) -> list[Problem]:
    problems = []
    inner = [tier.name for tier in cluster.tiers[:-1]]
    seen: dict[str, int] = {}
    for index, node in enumerate(cluster.nodes):
        place = f"nodes[{index}]"
        if node.name in seen:
            problems.append(
                Problem(
                    f"{place}.name",
                    f"duplicate name {node.name!r}, also nodes[{seen[node.name]}]",
                    "rename one",
                )
            )
        seen.setdefault(node.name, index)
        for tier in node.domains:
            if tier == cluster.spine:
                fix = "remove it: the last tier joins all nodes"
                problems.append(
                    Problem(f"{place}.domains.{tier}", "a domain at the last tier", fix)
                )
            elif tier not in inner:
                close = difflib.get_close_matches(tier, inner, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                fix = f"{hint}tiers below the last are: {', '.join(inner) or '(none)'}"
                problems.append(Problem(f"{place}.domains.{tier}", f"unknown tier {tier!r}", fix))
        for tier in inner:
            if tier not in node.domains:
                fix = f"name its {tier}; where it is unknown, give it one of its own"
                problems.append(Problem(f"{place}.domains", f"no domain at tier {tier!r}", fix))
        problems += _device_problems(node, place)
        problems += _link_problems(node, place, cluster.links)
    return problems


def _link_problems(node: Node, place: str, links: dict[str, NodeLinks]) -> list[Problem]:
    if node.links is None:
        return []
    found = links.get(node.links)
    if found is None:
        close = difflib.get_close_matches(node.links, list(links), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        fix = f"{hint}describe it under links; there are: {', '.join(links) or '(none)'}"
        return [Problem(f"{place}.links", f"no links {node.links!r}", fix)]
    if found.devices != node.devices:
        say = (
            f"links {node.links!r} join {found.devices} devices and {node.name} has {node.devices}"
        )
        fix = "give it a matrix of its own size; devices that are not there have no row"
        return [Problem(f"{place}.links", say, fix)]
    return []


def _device_problems(node: Node, place: str) -> list[Problem]:
    problems = []
    seen: set[int] = set()
    for position, device in enumerate(node.free_devices or ()):
        where = f"{place}.free_devices[{position}]"
        if not 0 <= device < node.devices:
            have = f"0 to {node.devices - 1}" if node.devices else "none"
            problems.append(
                Problem(where, f"device index {device} out of range", f"{node.name} has {have}")
            )
        elif device in seen:
            problems.append(Problem(where, f"device index {device} given twice", "list it once"))
        seen.add(device)
    return problems


def _nesting_problems(cluster: Cluster) -> list[Problem]:
    problems = []
    inner = [tier.name for tier in cluster.tiers[:-1]]
    for lower, upper in pairwise(inner):
        parent: dict[str, tuple[str, int]] = {}
        for index, node in enumerate(cluster.nodes):
            low, up = node.domains.get(lower), node.domains.get(upper)
            if low is None or up is None:
                continue
            known, first = parent.setdefault(low, (up, index))
            if known != up:
                found = (
                    f"domains do not nest: {lower} {low!r} lies in {upper} {up!r} here "
                    f"and in {known!r} at nodes[{first}] ({cluster.nodes[first].name})"
                )
                fix = f"put all of {lower} {low!r} into one {upper}, or rename one {lower}"
                problems.append(Problem(f"nodes[{index}].domains.{upper}", found, fix))
    return problems
