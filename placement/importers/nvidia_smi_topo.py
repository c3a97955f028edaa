"""`nvidia-smi topo -m`: how the GPUs and network interfaces of a node are joined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..accelerator_names import kind_of_product
from .facts import Facts, Machine
from .node_paths import counted, in_use, links_of, nearest, pairs
from .nvidia_smi_matrix import (
    NVLINKS,
    TITLES,
    Matrix,
    by_host,
    has_itself,
    header_of,
    matrix_of,
    with_gpus,
)
from .registry import Importer
from .source import Source

_MOST_NVLINKS = 18
"""Of one GPU, in all generations up to the fifth."""


def _certainty(source: Source) -> float:
    header = any(header_of(line) for line in with_gpus(source))
    if not header:
        return 0.0
    told = any(title in source.text for title in TITLES)
    return 0.9 if told or any(has_itself(line) for line in with_gpus(source)) else 0.0


def _read(source: Source) -> Facts:
    machines: dict[str, Machine] = {}
    summaries: dict[str, Any] = {}
    warnings: list[str] = []
    for host, lines in by_host(source).items():
        matrix = matrix_of(source, lines)
        if matrix is not None:
            machines[host], summaries[host] = _machine(matrix)
            warnings += matrix.warnings
    if not machines:
        raise source.refuse("", "no matrix of GPUs", "hand in the output of nvidia-smi topo -m")
    alone = len(machines) == 1
    summary = next(iter(summaries.values())) if alone else {"hosts": len(machines), **summaries}
    return Facts("nvidia-smi-topo", summary, machines=machines, warnings=tuple(warnings))


def _machine(matrix: Matrix) -> tuple[Machine, dict[str, Any]]:
    gpus, nics = matrix.gpus, matrix.nics
    among = [[matrix.path(a, b) for b in gpus] for a in gpus]
    nic_paths = {gpu: {nic: matrix.path(gpu, nic) for nic in nics} for gpu in gpus}
    nearest_of = {gpu: nearest(nic_paths[gpu]) for gpu in gpus}
    named = {nic: matrix.names.get(nic, None if nic.startswith("NIC") else nic) for nic in nics}
    cpus = {gpu: _known_text(matrix.rows[gpu].told.get(TITLES[0], "")) for gpu in gpus}
    numa = {gpu: _known_text(matrix.rows[gpu].told.get(TITLES[1], "")) for gpu in gpus}
    kinds = {kind_of_product(product) for product in matrix.products.values()}
    near = [[named[nic] or nic for nic in nearest_of[gpu][1]] for gpu in gpus]
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(gpus),
        links=links_of(among),
        nics=in_use(near, [named[nic] or nic for nic in nics]),
        nearest_nics=tuple(tuple(names) for names in near),
        numa_nodes=tuple(_number(numa[gpu]) for gpu in gpus),
        cpus=tuple(cpus[gpu] or "" for gpu in gpus),
    )
    summary: dict[str, Any] = {
        "gpus": len(gpus),
        "nics": len(nics),
        "link_counts": counted(list(pairs(gpus, among).values())),
        "links": pairs(gpus, among),
        "nvlinks_per_gpu": {gpu: _nvlinks(row) for gpu, row in zip(gpus, among, strict=True)},
        "nearest_nics": {
            gpu: {"path": path, "nics": list(names)} for gpu, (path, names) in nearest_of.items()
        },
        "nic_paths": nic_paths,
        "nic_links": pairs(nics, [[matrix.path(a, b) for b in nics] for a in nics]),
        "nic_names": named,
        "cpus": cpus,
        "cpu_groups": _groups(cpus),
        "numa_nodes": {gpu: _number(numa[gpu]) for gpu in gpus},
        "gpu_numa_ids": {
            gpu: _number(_known_text(matrix.rows[gpu].told.get(TITLES[2], ""))) for gpu in gpus
        },
        "products": {gpu: matrix.products.get(gpu) for gpu in gpus},
        "not_told": _not_told(matrix, cpus, numa),
    }
    return machine, summary


def _nvlinks(row: Sequence[str]) -> int | None:
    """NVLinks of a GPU that lead to others of its node; None for a GPU without others.

    The matrix counts links to switches once for each GPU that they reach. More than a GPU has
    shows that they are such.
    """
    if len(row) < 2:
        return None
    counts = [int(match[1]) for cell in row if (match := NVLINKS.fullmatch(cell))]
    return sum(counts) if sum(counts) <= _MOST_NVLINKS else max(counts)


def _groups(cpus: dict[str, str | None]) -> list[dict[str, Any]]:
    groups: dict[str, list[str]] = {}
    for gpu, which in cpus.items():
        if which is not None:
            groups.setdefault(which, []).append(gpu)
    return [{"cpus": which, "gpus": gpus} for which, gpus in groups.items()]


def _known_text(cell: str) -> str | None:
    return None if cell in ("", "N/A") else cell


def _number(cell: str | None) -> int | None:
    return int(cell) if cell is not None and re.fullmatch(r"\d{1,9}", cell) else None


def _not_told(
    matrix: Matrix, cpus: dict[str, str | None], numa: dict[str, str | None]
) -> list[str]:
    said = [] if matrix.products else ["kind of GPU"]
    said.append("MIG state: a GPU in the matrix may be divided or taken")
    if any(NVLINKS.fullmatch(cell) for row in matrix.rows.values() for cell in row.cells):
        said.append("rate of one NVLink")
        said.append("NVLink domain: it may be wider than this node")
    said += ["CPU affinity"] if not any(cpus.values()) else []
    said += ["NUMA affinity"] if not any(value is not None for value in numa.values()) else []
    if any(nic.startswith("NIC") and nic not in matrix.names for nic in matrix.nics):
        said.append("device names of the NICs")
    return said


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nvidia-smi-topo",
        title="nvidia-smi topo -m",
        produced_by="nvidia-smi topo -m",
        certainty=_certainty,
        read=_read,
    ),
)
