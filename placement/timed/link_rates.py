"""How fast the links of a cluster are: ports, NICs and uplinks, in seconds a byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..cluster import Cluster, CrossRail, Node
from ..ctg import Link, nic_id, switch_id
from ..errors import InvalidInput

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NODE_LATENCY_S = 0.6e-6
"""One hop over NVLink inside a node: NCCL's constant for ring and tree, protocol LL (tuning.cc)."""

_DEAD = 1e-9
"""The health that a dead link is reckoned with, so that times over it are long but comparable."""


@dataclass(frozen=True)
class LinkRates:
    """Links of a cluster. Levels are places in `Cluster.tier_names`: 0 the node, last the spine.

    first_network: the nearest level whose traffic goes through NICs; below it devices meet over
        NVLink or the like, through ports of their own.
    domain: `[level, node]`, the node's domain number at each level (its own at 0).
    port_s_per_byte: `[node, level]`, of a device that sends or receives at a scale-up level.
    nic_s_per_byte: `[level]`, of a NIC that sends or receives at a network level.
    uplink_s_per_byte: by level, `[domain]`: of one rail's links out of the domain into the next
        level, or at scale-up levels of all of them; empty where there are none.
    latency_s: `[level]`, one way.
    nic_slower: `[node, rail]`, uplink_slower: by level, `[domain, rail]`: how many times longer a
        byte takes than the rates above say, because the link is not well; 1 as built.
    """

    first_network: int
    domain: Ints
    port_s_per_byte: Floats
    nic_s_per_byte: Floats
    uplink_s_per_byte: list[Floats]
    latency_s: Floats
    nic_slower: Floats
    uplink_slower: list[Floats]

    @classmethod
    def of(cls, cluster: Cluster, link_health: Mapping[Link, float] | None = None) -> LinkRates:
        """The links of a cluster; `link_health` as in `build_ctg`, of network links.

        The links that lead into tier t out of a domain carry as much as the NICs below them (at
        scale-up tiers the devices) at t's bandwidth together, over t's oversubscription. Of those
        that lead out of a single NIC or device, into the nearest tier of their sort, no byte can be
        faster. The same as in the communication topology graph. A node whose accelerator has no
        known scale-up bandwidth is taken to have that of the nearest tier inside.
        """
        tiers = cluster.tiers
        levels = len(tiers)
        first = 1 + sum(tier.scale_up for tier in tiers)
        slowest = [0.0] + [
            max(
                1 / tier.bandwidth,
                tiers[base - 1].oversubscription / tiers[base - 1].bandwidth,
            )
            for level, tier in enumerate(tiers, start=1)
            for base in [1 if level < first else first]
        ]
        nodes = cluster.nodes
        domain = np.array(
            [
                list(range(len(nodes))),
                *(_numbers([n.domains[tier.name] for n in nodes]) for tier in tiers[:-1]),
                [0] * len(nodes),
            ],
            dtype=np.int64,
        ).reshape(levels + 1, len(nodes))
        port = np.tile(np.array(slowest), (len(nodes), 1))
        inner = {n.accelerator: 1 / _inner_bandwidth(cluster, n) for n in nodes}
        port[:, 0] = [inner[n.accelerator] for n in nodes]
        uplinks: list[Floats] = []
        for level in range(levels + 1):
            if level in (0, first - 1, levels):
                uplinks.append(np.zeros(0))
                continue
            into = tiers[level]
            ends = [n.devices for n in nodes] if level < first else [1] * len(nodes)
            held = np.maximum(np.bincount(domain[level], weights=ends), 1)
            uplinks.append(into.oversubscription / (into.bandwidth * held))
        nic_slower, uplink_slower = _slower(cluster, first, domain, link_health or {})
        return cls(
            first_network=first,
            domain=domain,
            port_s_per_byte=port,
            nic_s_per_byte=np.array(slowest),
            uplink_s_per_byte=uplinks,
            latency_s=np.array([NODE_LATENCY_S, *(tier.latency for tier in tiers)]),
            nic_slower=nic_slower,
            uplink_slower=uplink_slower,
        )

    @property
    def last(self) -> int:
        """The level of the spine."""
        return len(self.domain) - 1


def _slower(
    cluster: Cluster, first: int, domain: Ints, link_health: Mapping[Link, float]
) -> tuple[Floats, list[Floats]]:
    """How many times longer bytes take on the NICs and on the uplinks of each level."""
    levels = len(cluster.tiers)
    nics = np.ones((len(cluster.nodes), cluster.rails))
    uplinks = [
        np.ones((int(domain[level].max(initial=-1)) + 1, cluster.rails))
        for level in range(levels + 1)
    ]
    if not link_health:
        return nics, uplinks

    def switch(level: int, number: int, rail: int) -> str:
        tier = cluster.tiers[level - 1].name
        name = cluster.nodes[number].domains.get(tier, tier)
        last = level == levels and cluster.cross_rail is CrossRail.SPINE
        return switch_id(level, name, None if cluster.rails == 1 or last else rail)

    for number, node in enumerate(cluster.nodes):
        for rail in range(cluster.rails):
            lower = nic_id(node.name, rail)
            for level in range(first, levels + 1):
                upper = switch(level, number, rail)
                health = link_health.get((lower, upper), link_health.get((upper, lower), 1.0))
                slower = 1 / max(health, _DEAD)
                if level == first:
                    nics[number, rail] = slower
                else:
                    uplinks[level - 1][domain[level - 1, number], rail] = slower
                lower = upper
    return nics, uplinks


def _numbers(names: list[str]) -> list[int]:
    seen: dict[str, int] = {}
    return [seen.setdefault(name, len(seen)) for name in names]


def _inner_bandwidth(cluster: Cluster, node: Node) -> float:
    try:
        known = cluster.accelerator(node.accelerator).scale_up_bandwidth
    except InvalidInput:
        known = 0.0
    return known or cluster.tiers[0].bandwidth
