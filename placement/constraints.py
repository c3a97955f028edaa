"""What a placement must satisfy beside fitting: `Constraints`, and whether a placement does."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .cluster import NODE_TIER, Cluster, Node, NodeState
from .errors import InvalidInput, Problem
from .explained import Explained
from .pcg import PCG
from .quantities import MOST_RANKS, Index, Name

Count = Annotated[int, Field(ge=1, le=MOST_RANKS, strict=True)]
Device = tuple[str, int]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Together(_Part):
    """All ranks in one domain of a tier; when only preferred, of the nearest tier that can be."""

    tier: Name
    required: bool = True


class AtMost(_Part):
    """No domain of a tier holds more than so many nodes of the job: fault domains."""

    nodes: Count
    tier: Name


class Balanced(_Part):
    """Every domain of a tier that holds any rank holds equally many; `domains` of them if given."""

    tier: Name
    domains: Count | None = None


class Segments(_Part):
    """Ranks 0 to m-1, m to 2m-1, ... each lie in one domain of a tier (or "node")."""

    ranks: Count
    tier: Name = NODE_TIER


class Pin(_Part):
    """A rank that must be on a node, and on a device of it if one is given."""

    rank: Annotated[Index, Field(ge=0)]
    node: Name
    device: Annotated[Index, Field(ge=0)] | None = None


class SameKind(_Part):
    """One kind of accelerator for the whole job, or for all ranks that collectives join.

    The latter are the stages of a pipeline, each of which may have a kind of its own.
    """

    per: Literal["job", "group"] = "group"


class Constraints(Explained):
    """Side constraints of a placement; all of them hold at once.

    whole_nodes: only nodes of which every device is free. spares: so many nodes, wholly free, are
    kept for repairs near the job and named in the placement. split_tensor_groups: lifts the rule
    that a tensor-parallel group which fits a scale-up domain stays in one.
    """

    together: Together | None = None
    at_most: AtMost | None = None
    balanced: Balanced | None = None
    segments: Segments | None = None
    pinned: tuple[Pin, ...] = ()
    excluded_nodes: tuple[Name, ...] = ()
    whole_nodes: bool = False
    spares: Annotated[int, Field(ge=0, le=MOST_RANKS, strict=True)] = 0
    same_kind: SameKind | None = None
    split_tensor_groups: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        ranks: dict[int, int] = {}
        places: dict[tuple[str, int], int] = {}
        for index, pin in enumerate(self.pinned):
            where = f"pinned[{index}]"
            first = ranks.setdefault(pin.rank, index)
            if first != index:
                found = f"rank {pin.rank} is pinned twice, also pinned[{first}]"
                problems.append(Problem(where, found, "pin it once"))
            if pin.device is not None:
                first = places.setdefault((pin.node, pin.device), index)
                if first != index:
                    found = f"device {pin.device} of {pin.node} has a rank, see pinned[{first}]"
                    problems.append(Problem(where, found, "give every rank a device of its own"))
            if pin.node in self.excluded_nodes:
                found = f"{pin.node} is excluded"
                problems.append(Problem(where, found, "pin elsewhere, or do not exclude it"))
        if problems:
            raise InvalidInput("Constraints", problems)
        return self

    @property
    def on_devices(self) -> Constraints:
        """These without the ones that say what the job is: same_kind and split_tensor_groups."""
        return self.model_copy(update={"same_kind": None, "split_tensor_groups": False})

    @property
    def empty(self) -> bool:
        """Whether there is nothing to satisfy."""
        return self == Constraints()

    def check_names(self, pcg: PCG, cluster: Cluster) -> None:
        """Raise InvalidInput for tiers, nodes, devices and ranks that do not exist."""
        nodes = {node.name: node for node in cluster.nodes}
        tiers = list(cluster.tier_names)
        problems: list[Problem] = []
        for name in ("together", "at_most", "balanced", "segments"):
            part = getattr(self, name)
            if part is None:
                continue
            if part.tier not in tiers:
                fix = _hint(part.tier, tiers) or f"tiers are {', '.join(tiers)}"
                problems.append(Problem(f"{name}.tier", f"no tier {part.tier!r}", fix))
        for index, pin in enumerate(self.pinned):
            where = f"pinned[{index}]"
            if pin.rank >= pcg.world_size:
                fix = f"ranks are 0 to {pcg.world_size - 1}"
                problems.append(Problem(f"{where}.rank", f"rank {pin.rank} does not exist", fix))
            node = nodes.get(pin.node)
            if node is None:
                problems.append(_no_node(f"{where}.node", pin.node, list(nodes)))
            elif pin.device is not None and pin.device >= node.devices:
                have = f"0 to {node.devices - 1}" if node.devices else "none"
                found = f"device index {pin.device} out of range"
                problems.append(Problem(f"{where}.device", found, f"{node.name} has {have}"))
        for index, name in enumerate(self.excluded_nodes):
            if name not in nodes:
                problems.append(_no_node(f"excluded_nodes[{index}]", name, list(nodes)))
        if problems:
            raise InvalidInput("Constraints", problems)

    def usable(self, cluster: Cluster) -> Cluster:
        """The cluster with only those devices free that the job may use at all."""
        excluded = set(self.excluded_nodes)

        def closed(node: Node) -> bool:
            partly = self.whole_nodes and len(node.usable_devices) < node.devices
            return node.name in excluded or partly

        return with_free(
            cluster,
            {node.name: () if closed(node) else node.usable_devices for node in cluster.nodes},
        )

    def broken(
        self, cluster: Cluster, devices: Sequence[Device], tier: str | None = None
    ) -> list[str]:
        """The constraints that a placement does not satisfy, each with what is wrong.

        tier: the tier that a preference to be together has widened to; its own if None. Of
        same_kind only that of a whole job can be told without its groups. Spares are counted among
        the nodes of `cluster` that are wholly free and not used.
        """
        nodes = {node.name: node for node in cluster.nodes}
        wrong: list[str] = []

        def domain(name: str, at: str) -> str:
            if at == cluster.spine:
                return at
            return name if at == NODE_TIER else nodes[name].domains[at]

        used = sorted({name for name, _ in devices})
        if self.together:
            at = tier or self.together.tier
            found = {domain(name, at) for name in used}
            if len(found) > 1:
                wrong.append(f"together: the job is in {len(found)} domains of {at}")
        if self.at_most:
            most = Counter(domain(name, self.at_most.tier) for name in used)
            wrong += [
                f"at_most: {count} nodes in {self.at_most.tier} {where!r}"
                for where, count in sorted(most.items())
                if count > self.at_most.nodes
            ]
        if self.balanced:
            held = Counter(domain(name, self.balanced.tier) for name, _ in devices)
            if len(set(held.values())) > 1:
                wrong.append(f"balanced: domains hold {sorted(set(held.values()))} ranks")
            if self.balanced.domains not in (None, len(held)):
                wrong.append(f"balanced: {len(held)} domains of {self.balanced.tier}")
        if self.segments:
            parts: defaultdict[int, set[str]] = defaultdict(set)
            for rank, (name, _) in enumerate(devices):
                parts[rank // self.segments.ranks].add(domain(name, self.segments.tier))
            split = sum(len(found) > 1 for found in parts.values())
            if split:
                wrong.append(f"segments: {split} of {len(parts)} are split")
        for pin in self.pinned:
            name, index = devices[pin.rank]
            if name != pin.node or pin.device not in (None, index):
                wrong.append(f"pinned: rank {pin.rank} is on device {index} of {name}")
        wrong += [f"excluded_nodes: {n} is used" for n in used if n in self.excluded_nodes]
        if self.whole_nodes:
            partly = [n for n in used if len(nodes[n].usable_devices) < nodes[n].devices]
            wrong += [f"whole_nodes: {name} is not wholly free" for name in partly]
        kinds = {nodes[name].accelerator for name in used}
        if self.same_kind and self.same_kind.per == "job" and len(kinds) > 1:
            wrong.append(f"same_kind: the job is on {', '.join(sorted(kinds))}")
        if self.spares:
            have = len(free_nodes(self, cluster, set(used)))
            if have < self.spares:
                wrong.append(f"spares: {have} free nodes are left of {self.spares}")
        return wrong


def free_nodes(constraints: Constraints, cluster: Cluster, used: set[str]) -> list[str]:
    """Nodes that may be kept as spares: wholly free, not excluded and not used."""
    return [
        node.name
        for node in cluster.nodes
        if node.devices
        and len(node.usable_devices) == node.devices
        and node.name not in used
        and node.name not in constraints.excluded_nodes
    ]


def with_free(cluster: Cluster, free: dict[str, tuple[int, ...]]) -> Cluster:
    """The cluster with exactly these devices free, by node; on nodes left out, none."""

    def limited(node: Node) -> Node:
        here = free.get(node.name, ())
        if here == node.usable_devices:
            return node
        return node.model_copy(update={"state": NodeState.FREE, "free_devices": here})

    return cluster.model_copy(update={"nodes": tuple(limited(node) for node in cluster.nodes)})


def _no_node(place: str, name: str, known: list[str]) -> Problem:
    hint = _hint(name, known) or f"the cluster has {len(known)} nodes"
    return Problem(place, f"no node {name!r}", hint)


def _hint(name: str, known: list[str]) -> str:
    close: list[Any] = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
