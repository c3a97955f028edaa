"""The domain tree: which group of nodes joins a node at every tier, and what lies in each group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

from .cluster import NODE_TIER, Cluster


class Domain(NamedTuple):
    """A group of nodes at a tier. A node is a domain of tier "node"; the last tier has one."""

    tier: str
    name: str


@dataclass(frozen=True)
class DomainTree:
    """Domains from nodes up to the one that holds everything.

    tiers: "node" first, the last tier last.
    device_counts: devices of each node, by node name.
    parents: the domain around each domain; every domain but the root has one.
    """

    tiers: tuple[str, ...]
    device_counts: dict[str, int]
    parents: dict[Domain, Domain]

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """The domain tree of a cluster; its root bears the name of the last tier."""
        tiers = cluster.tier_names
        return cls.from_paths(
            tiers,
            {node.name: node.devices for node in cluster.nodes},
            {
                node.name: [*(node.domains[tier] for tier in tiers[1:-1]), tiers[-1]]
                for node in cluster.nodes
            },
        )

    @classmethod
    def from_paths(
        cls,
        tiers: Iterable[str],
        device_counts: dict[str, int],
        names_above: dict[str, list[str]],
    ) -> Self:
        """A tree from the names of the domains above each node, one a tier, nearest first."""
        tiers = tuple(tiers)
        parents: dict[Domain, Domain] = {}
        for node, names in names_above.items():
            below = Domain(NODE_TIER, node)
            for tier, name in zip(tiers[1:], names, strict=True):
                parents[below] = Domain(tier, name)
                below = parents[below]
        return cls(tiers, device_counts, parents)

    @property
    def root(self) -> Domain:
        """The domain of the last tier, which holds every node."""
        for domain in self.parents.values():
            if domain.tier == self.tiers[-1]:
                return domain
        return Domain(self.tiers[-1], self.tiers[-1])

    def parent(self, domain: Domain) -> Domain | None:
        """The domain around this one; None for the root."""
        return self.parents.get(domain)

    def children(self, domain: Domain) -> list[Domain]:
        """The domains one tier nearer inside this one, by name; none inside a node."""
        return self._children.get(domain, [])

    def domains(self, tier: str) -> list[Domain]:
        """All domains of a tier, by name. Raises KeyError for a tier that is not in `tiers`."""
        if tier not in self.tiers:
            raise KeyError(f"no tier {tier!r}; the tiers are {', '.join(self.tiers)}")
        if tier == self.tiers[-1]:
            return [self.root]
        return sorted(domain for domain in self.parents if domain.tier == tier)

    def nodes(self, domain: Domain) -> list[str]:
        """Names of the nodes in a domain, in the order of the tree below it."""
        if domain.tier == NODE_TIER:
            return [domain.name]
        return [node for child in self.children(domain) for node in self.nodes(child)]

    def devices(self, domain: Domain) -> list[tuple[str, int]]:
        """The devices in a domain as `(node name, device index)`."""
        return [
            (node, index)
            for node in self.nodes(domain)
            for index in range(self.device_counts[node])
        ]

    def path(self, node: str) -> list[Domain]:
        """The node's own domain and those around it, up to the root. Raises KeyError."""
        if node not in self.device_counts:
            raise KeyError(f"no node {node!r} among {len(self.device_counts)}")
        domains = [Domain(NODE_TIER, node)]
        while (above := self.parents.get(domains[-1])) is not None:
            domains.append(above)
        return domains

    def meeting_tier(self, node: str, other: str) -> str:
        """The first tier whose domain two nodes share ("node" for a node and itself)."""
        shared = set(self.path(other))
        return next(domain.tier for domain in self.path(node) if domain in shared)

    @cached_property
    def _children(self) -> dict[Domain, list[Domain]]:
        children: defaultdict[Domain, list[Domain]] = defaultdict(list)
        for domain, parent in self.parents.items():
            children[parent].append(domain)
        return {domain: sorted(found) for domain, found in children.items()}
