"""`rocm-smi --showtopo` and `amd-smi topology`: how a node's AMD GPUs are joined."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ..accelerator_names import kind_of_product
from .facts import ANY_NODE, Facts, Machine
from .node_paths import ANY_NUMA, SAME_NUMA, XGMI_BYTES_PER_S, counted, links_of
from .registry import Importer
from .rocm_tables import RANGE, TYPES, Tables, tables_certainty, tables_of, whole
from .source import Source

_XGMI_WEIGHT = 15
"""What the kernel counts for one xGMI link; a path of several has a multiple."""


def _read(source: Source) -> Facts:
    tables = tables_of(source)
    machine, summary = _machine(source, tables)
    return Facts(
        "rocm-topo", summary, machines={ANY_NODE: machine}, warnings=tuple(tables.warnings)
    )


def _machine(source: Source, tables: Tables) -> tuple[Machine, dict[str, Any]]:
    labels = tables.labels
    _warn_numa(source, tables)
    links = {f"{a}-{b}": _link(tables, a, b) for a, b in combinations(labels, 2)}
    numa = {label: _either(tables.affinity.get(label), tables.numa.get(label)) for label in labels}
    kinds = {kind_of_product(product) for product in tables.products.values()}
    bandwidth: dict[str, float] = {}
    matrix = [[_entry(tables, numa, bandwidth, a, b) for b in labels] for a in labels]
    known = all(entry is not None for row in matrix for entry in row)
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(labels),
        links=links_of([[str(e) for e in row] for row in matrix], bandwidth) if known else None,
        numa_nodes=tuple(numa[label] for label in labels),
    )
    told = [one["type"] for one in links.values() if one["type"] is not None]
    not_told = [] if tables.products else ["kind of GPU"]
    not_told += [] if tables.numa or tables.affinity else ["NUMA nodes"]
    not_told += [] if "bandwidth" in tables.cells else ["bandwidth of the links"]
    summary = {
        "gpus": len(labels),
        "link_counts": counted(told),
        "links": links,
        "xgmi_groups": _groups(labels, links),
        "numa_nodes": {label: tables.numa.get(label) for label in labels},
        "numa_affinity": {label: tables.affinity.get(label) for label in labels},
        "not_told": [*not_told, "network interfaces"],
    }
    return machine, summary


def _warn_numa(source: Source, tables: Tables) -> None:
    if not tables.numa and not tables.affinity:
        return
    last = tables.numa_line or len(source.lines)
    for label in tables.labels:
        number = label.removeprefix("GPU")
        for held, what in ((tables.numa, "node"), (tables.affinity, "affinity")):
            if label not in held and held:
                tables.warnings.append(
                    f"line {last}: NUMA {what} of GPU {number} missing (cut); unknown"
                )


def _link(tables: Tables, a: str, b: str) -> dict[str, Any]:
    word = tables.cell("type", a, b)
    spread = RANGE.fullmatch(tables.cell("bandwidth", a, b) or "")
    return {
        "type": TYPES.get(word.upper()) if word is not None else None,
        "weight": whole(tables.cell("weight", a, b)),
        "hops": whole(tables.cell("hops", a, b)),
        "bytes_per_s": int(spread[2]) * 1e6 if spread and int(spread[2]) else None,
    }


def _entry(
    tables: Tables,
    numa: dict[str, int | None],
    bandwidth: dict[str, float],
    a: str,
    b: str,
) -> str | None:
    """The name of what joins two GPUs, its rate put into `bandwidth`; None where not known.

    Hops are 1 for all of xGMI, so the weight tells how many links a path has. Over PCIe two hops
    meet at one CPU, more go through another.
    """
    if a == b:
        return "X"
    link = _link(tables, *sorted((a, b), key=tables.labels.index))
    if link["type"] == "XGMI":
        hops = max(1, round((link["weight"] or _XGMI_WEIGHT) / _XGMI_WEIGHT))
        rate = link["bytes_per_s"]
        name = "XGMI" if hops == 1 else f"XGMI/{hops}"
        if rate is not None and rate != XGMI_BYTES_PER_S:
            name += f"@{rate / 1e9:g}"
        bandwidth[name] = (rate or XGMI_BYTES_PER_S) / hops
        return name
    if link["type"] == "PCIE":
        if link["hops"] is not None:
            return SAME_NUMA if link["hops"] <= 2 else ANY_NUMA
        return SAME_NUMA if numa[a] is not None and numa[a] == numa[b] else ANY_NUMA
    return None


def _groups(labels: Sequence[str], links: dict[str, dict[str, Any]]) -> list[list[str]]:
    """GPUs that xGMI joins, directly or over others; a GPU without any is in none."""
    group = {label: {label} for label in labels}
    for a, b in combinations(labels, 2):
        if links[f"{a}-{b}"]["type"] == "XGMI" and group[a] is not group[b]:
            joined = group[a] | group[b]
            for label in joined:
                group[label] = joined
    found: list[list[str]] = []
    for label in labels:
        members = [one for one in labels if one in group[label]]
        if len(members) > 1 and members not in found:
            found.append(members)
    return found


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="rocm-topo",
        title="rocm-smi --showtopo or amd-smi topology",
        produced_by="rocm-smi --showtopo, amd-smi topology, or either with --json",
        certainty=tables_certainty,
        read=_read,
    ),
)
