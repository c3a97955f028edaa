"""NVLink partitions as lists of nodes with the UUID of the cluster that NVML reports."""

from __future__ import annotations

import re
from collections import Counter

from .facts import Facts, Network, TierFacts
from .hostlists import folded
from .registry import Importer
from .source import Source
from .tier_names import NVLINK

NAME = "cluster-uuids"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_LINE = re.compile(
    rf"^\s*([\w.-]+)(?:[ \t]*[:,][ \t]*|[ \t]+)({_UUID})(?:[ \t.,/:]+(\d{{1,9}}))?\s*$"
)
_TOLD = re.compile(
    r"^\s*([\w.-]+):\s.*\b(Cluster ?UUID|Clique ?ID)\s{0,40}:"
    rf"\s*({_UUID}|\d{{1,9}}|N/A)\s*$",
    re.I,
)
_NOBODY = "00000000-0000-0000-0000-000000000000"


def certainty(source: Source) -> float:
    """How sure it is: most lines are a node and a UUID."""
    lines = [line for line in source.lines[:400] if line.strip() and line.lstrip()[0] != "#"]
    hits = sum(bool(_LINE.match(line) or _TOLD.match(line)) for line in lines)
    return 0.9 if hits and hits > 0.8 * len(lines) else 0.0


def read(source: Source) -> Facts:
    """The partition of each node. Raises InvalidInput naming the line."""
    uuids: dict[str, str] = {}
    cliques: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(source.lines, 1):
        if not line.strip() or line.lstrip()[0] == "#":
            continue
        match, told = _LINE.match(line), _TOLD.match(line)
        if match:
            _set(source, number, uuids, lines, match[1], match[2].lower())
            if match[3]:
                _set(source, number, cliques, lines, match[1], match[3])
        elif told and told[2].lower().replace(" ", "") == "clusteruuid":
            _set(source, number, uuids, lines, told[1], told[3].lower())
        elif told:
            _set(source, number, cliques, lines, told[1], told[3])
        else:
            found = f"{line.strip()[:60]!r} is no node with a UUID"
            raise source.refuse(f"line {number}", found, "write lines such as node1: UUID")
    nodes = list(dict.fromkeys([*uuids, *cliques]))
    placed = {
        node: f"{uuids[node]}.{cliques[node]}" if node in cliques else uuids[node]
        for node in nodes
        if node in uuids and uuids[node] not in (_NOBODY, "n/a")
    }
    warnings = []
    lost = [node for node in nodes if node not in placed]
    if lost:
        shown = ", ".join(lost[:6])
        found = f"{len(lost)} nodes are in no NVLink partition: {shown}; each stands alone"
        warnings.append(found)
    members: dict[str, list[str]] = {}
    for node, partition in placed.items():
        members.setdefault(partition, []).append(node)
    summary = {
        "nodes": len(nodes),
        "nvlink_partitions": len(members),
        "nodes_per_partition": sorted(Counter(len(m) for m in members.values())),
        "nodes_of_partition": {one: folded(found) for one, found in members.items()},
        "clique_ids": "known" if cliques else "unknown",
    }
    network = Network(
        (TierFacts(NVLINK, scale_up=True),),
        {node: {NVLINK: placed[node]} if node in placed else {} for node in nodes},
    )
    return Facts(NAME, summary, network, warnings=tuple(warnings))


def _set(
    source: Source,
    number: int,
    told: dict[str, str],
    lines: dict[str, int],
    node: str,
    value: str,
) -> None:
    known = told.setdefault(node, value)
    lines.setdefault(node, number)
    if known != value:
        found = f"{node!r} is in {value} and, line {lines[node]}, in {known}"
        raise source.refuse(f"line {number}", found, "a node is in one partition")


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "NVLink partitions (ClusterUUID) by node",
        "nvidia-smi -q on every node, or azslurm topology",
        certainty,
        read,
    ),
)
