"""The figures of a network that a reader can check: tiers, and the nodes of each domain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from .facts import Network
from .hostlists import folded


def network_summary(network: Network) -> dict[str, Any]:
    """Names of the tiers, the nodes of every domain of each, and which domains lie in which."""
    names = [tier.name for tier in network.tiers]
    summary: dict[str, Any] = {
        "tier_names": [*names, *(["spine"] if network.spine else [])],
        "domains": {name: _members(network.domains, name) for name in names},
    }
    for lower, upper in pairwise(names):
        within: dict[str, dict[str, None]] = {}
        for domains in network.domains.values():
            if lower in domains and upper in domains:
                within.setdefault(domains[upper], {})[domains[lower]] = None
        summary[f"{lower}_in_{upper}"] = {one: folded(inner) for one, inner in within.items()}
    if network.rails:
        summary["rails"] = network.rails
    return summary


def _members(domains: Mapping[str, Mapping[str, str]], tier: str) -> dict[str, str]:
    members: dict[str, list[str]] = {}
    for node, has in domains.items():
        if tier in has:
            members.setdefault(has[tier], []).append(node)
    return {domain: folded(nodes) for domain, nodes in members.items()}
