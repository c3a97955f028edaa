"""The labels of Kubernetes nodes that tell where a node is in the network, by who writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .switch_graph import MOST_TIERS
from .tier_names import tier_names


@dataclass(frozen=True)
class LabelLadder:
    """keys: label keys and their tiers, nearest first. unique: a value is one place everywhere."""

    name: str
    keys: Mapping[str, str]
    unique: bool = True


_AWS_LAYER = re.compile(r"^topology\.k8s\.aws/network-node-layer-(\d{1,4})$")
_FABRIC_TIER = re.compile(r"^fabric\.topograph\.run/tier-(\d{1,4})$")
_FIXED = (
    LabelLadder(
        "GKE",
        {
            "cloud.google.com/gce-topology-host": "gce-host",
            "cloud.google.com/gce-topology-subblock": "subblock",
            "cloud.google.com/gce-topology-block": "block",
        },
        unique=False,
    ),
    LabelLadder(
        "OCI",
        {
            "oci.oraclecloud.com/rdma.local_block_id": "local-block",
            "oci.oraclecloud.com/rdma.network_block_id": "network-block",
            "oci.oraclecloud.com/rdma.hpc_island_id": "hpc-island",
        },
    ),
    LabelLadder(
        "OCI hosts",
        {
            "oci.oraclecloud.com/host.rack_id": "rack",
            "oci.oraclecloud.com/host.network_block_id": "network-block",
        },
    ),
    LabelLadder(
        "topograph",
        {
            "network.topology.nvidia.com/leaf": "leaf",
            "network.topology.nvidia.com/spine": "pod",
            "network.topology.nvidia.com/core": "zone",
        },
    ),
    LabelLadder(
        "topograph before its labels moved",
        {
            "network.topology.kubernetes.io/leaf": "leaf",
            "network.topology.kubernetes.io/spine": "pod",
            "network.topology.kubernetes.io/core": "zone",
        },
    ),
    LabelLadder(
        "topograph by blocks",
        {
            "network.topology.kubernetes.io/block": "leaf",
            "network.topology.kubernetes.io/spine": "pod",
            "network.topology.kubernetes.io/datacenter": "zone",
        },
    ),
    LabelLadder(
        "CoreWeave",
        {
            "ib.coreweave.cloud/leafgroup": "leafgroup",
            "ib.coreweave.cloud/superpod": "superpod",
            "ib.coreweave.cloud/fabric": "fabric",
        },
        unique=False,
    ),
    LabelLadder(
        "Kueue's example",
        {
            "cloud.provider.com/topology-rack": "rack",
            "cloud.provider.com/topology-block": "block",
        },
        unique=False,
    ),
    LabelLadder(
        "Volcano",
        {
            "volcano.sh/tor": "tor",
            "volcano.sh/hypernode": "hypernode",
            "volcano.sh/hypercluster": "hypercluster",
        },
        unique=False,
    ),
)
_LONGEST_KEY = 317
"""Of a label in Kubernetes: 253 characters of a domain, a slash and a name of 63."""
_WORDS = ("tor", "rack", "leaf", "subblock", "block", "pod", "superpod", "spine", "core")
_GENERAL = re.compile(
    rf"^[^/]*topology[^/]*/(?:[a-z-]*-)?({'|'.join(_WORDS)})$|"
    rf"^[^/]+/topology-({'|'.join(_WORDS)})$"
)
ZONES = LabelLadder(
    "zones",
    {"topology.kubernetes.io/zone": "zone", "topology.kubernetes.io/region": "region"},
    unique=False,
)
"""What is left where no label tells of the network."""
NVLINK_KEYS: tuple[str, ...] = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "network.topology.kubernetes.io/accelerator",
    "topology.k8s.aws/ultraserver-id",
    "oci.oraclecloud.com/rdma.gpu_memory_fabric_id",
    "ds.coreweave.com/nvlink.domain",
)
"""Labels whose value names an NVLink domain, the most trusted first."""
HOSTNAME_KEY = "kubernetes.io/hostname"
PART_KEY = "accelerator.topograph.run/sub-domain"


def ladders_in(keys: Iterable[str]) -> list[LabelLadder]:
    """Every ladder of which some keys are there, each with the keys it has."""
    there = set(keys)
    # AWS counts its layers from the root, topograph its tiers from the nodes.
    families = (
        ("EKS", _numbered(there, _AWS_LAYER)[::-1]),
        ("topograph's fabric", _numbered(there, _FABRIC_TIER)),
    )
    found = [
        LabelLadder(name, dict(zip(named, tier_names(len(named)), strict=True)))
        for name, named in families
        if named
    ]
    for ladder in _FIXED:
        keys_there = {key: tier for key, tier in ladder.keys.items() if key in there}
        if keys_there:
            found.append(LabelLadder(ladder.name, keys_there, ladder.unique))
    if not found:
        # Labels of a site's own: the words tell the order, which counting then confirms.
        short = [key for key in there if len(key) <= _LONGEST_KEY]
        own = {m[1] or m[2]: key for key in short if (m := _GENERAL.match(key))}
        named = {own[word]: word for word in _WORDS if word in own}
        found += [LabelLadder("the site", named, unique=False)] if named else []
    return found


def declared_ladder(name: str, keys: Sequence[str]) -> LabelLadder:
    """The ladder of keys that a site declares, the outermost first. A node's own name is no tier.

    Its tiers are called by the last words of the keys, or by whole keys where those are not apart.
    """
    inner = [key for key in reversed(keys) if key != HOSTNAME_KEY][:MOST_TIERS]
    words = [key.rpartition("/")[2].rpartition("topology-")[2] or key for key in inner]
    apart = len(set(words)) == len(words) and "spine" not in words
    return LabelLadder(name, dict(zip(inner, words if apart else inner, strict=True)), False)


def _numbered(keys: set[str], pattern: re.Pattern[str]) -> list[str]:
    """The keys of that form by their number."""
    matches = [match for key in keys if (match := pattern.match(key))]
    return [match[0] for match in sorted(matches, key=lambda match: int(match[1]))][:MOST_TIERS]
