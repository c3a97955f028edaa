"""hwloc's XML (`lstopo topology.xml`): packages, devices, their distances and NVLinks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ..accelerator_names import kind_of_product
from ..errors import Problem
from ..links import MOST_LINKED_DEVICES
from .facts import ANY_NODE, Facts, Machine
from .hwloc_objects import Device, Tree, matrix, tree
from .node_paths import in_use, links_of, nearest, pairs, pci_path
from .registry import Importer
from .source import Source

_BANDWIDTHS = ("NVLinkBandwidth", "XGMIBandwidth")
_MEGABYTE = 1e6


class _Links:
    """The bandwidths of links in MB/s: between GPUs, to switches and to packages."""

    def __init__(self, size: int) -> None:
        self.told = False
        self.direct = [[0] * size for _ in range(size)]
        self.to_switch: list[dict[str, int]] = [{} for _ in range(size)]
        self.to_package: list[dict[int, int]] = [{} for _ in range(size)]

    def between(self, a: int, b: int) -> int:
        """MB/s of the direct links and of those over switches that both have links to."""
        shared = self.to_switch[a].keys() & self.to_switch[b].keys()
        over = sum(min(self.to_switch[a][one], self.to_switch[b][one]) for one in shared)
        return self.direct[a][b] + over

    def beyond_record(self, a: int, b: int) -> bool:
        """Both have links to switches, but none of them is recorded to join them."""
        return not self.between(a, b) and bool(self.to_switch[a]) and bool(self.to_switch[b])


def _certainty(source: Source) -> float:
    root = source.xml
    if root is None or root.tag != "topology":
        return 0.0
    return 0.95 if root.find("object") is not None else 0.3


def _read(source: Source) -> Facts:
    root = source.xml
    if root is None or root.tag != "topology":
        raise source.refuse("", "no topology element", "hand in the file of lstopo topology.xml")
    objects = tree(source, root)
    gpus = _in_order([device for device in objects.devices if device.kind == "gpu"])
    if len(gpus) > MOST_LINKED_DEVICES:
        found = f"{len(gpus)} accelerators; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse("", found, "hand in the file of one node")
    nics = [device for device in objects.devices if device.kind == "nic"]
    links = _Links(len(gpus))
    for element in root:
        if element.tag.startswith("distances2") and element.get("name") in _BANDWIDTHS:
            _take_links(links, *matrix(source, element), gpus, objects)
    warnings = _warnings(source, gpus, nics, links)
    machine, summary = _machine(objects, gpus, nics, links)
    return Facts(
        "hwloc-xml",
        summary,
        machines={objects.infos.get("HostName") or ANY_NODE: machine},
        not_alone=None if gpus else _without_accelerators(),
        warnings=tuple(warnings),
    )


def _without_accelerators() -> Problem:
    fix = "say what it has (--accelerator, --devices), or take lstopo on a node with accelerators"
    return Problem("", "a machine without accelerators", fix)


def _in_order(gpus: Sequence[Device]) -> list[Device]:
    """By the drivers' number where all have a different one, else as they stand in the file."""
    numbers = [gpu.number for gpu in gpus]
    if None in numbers or len(set(numbers)) < len(numbers):
        return list(gpus)
    return sorted(gpus, key=lambda gpu: gpu.number or 0)


def _take_links(
    links: _Links,
    ids: Sequence[str],
    values: Sequence[Sequence[int]],
    gpus: Sequence[Device],
    objects: Tree,
) -> None:
    """Sort the cells of a bandwidth matrix; those of an object with itself mean nothing."""
    links.told = True
    of_gpu = {key: i for i, gpu in enumerate(gpus) for key in gpu.ids}
    of_switch = {
        key: one.address for one in objects.devices if one.kind == "switch" for key in one.ids
    }
    for row, key in enumerate(ids):
        a = of_gpu.get(key)
        if a is None:
            continue
        for column, other in enumerate(ids):
            value = values[row][column]
            b = of_gpu.get(other)
            if row == column or not value or a == b:
                continue
            if b is not None:
                links.direct[a][b] = max(links.direct[a][b], value)
            elif other in of_switch:
                links.to_switch[a][of_switch[other]] = value
            elif other in objects.packages:
                links.to_package[a][objects.packages[other]] = value
    for a, b in combinations(range(len(gpus)), 2):
        both = max(links.direct[a][b], links.direct[b][a])
        links.direct[a][b] = links.direct[b][a] = both


def _path(a: Device, b: Device) -> str:
    same = bool(a.root) and a.root == b.root
    near = a.numa is not None and a.numa == b.numa
    bridges = (a.bridges, b.bridges) if same else ((), ())
    return pci_path(*bridges, own_ports=1, same_root=same, same_numa=near)


def _names(nic: Device) -> str:
    return (nic.fabrics or nic.ports or [nic.address])[0]


def _machine(
    objects: Tree, gpus: Sequence[Device], nics: Sequence[Device], links: _Links
) -> tuple[Machine, dict[str, Any]]:
    labels = [f"GPU{gpu.number if gpu.number is not None else i}" for i, gpu in enumerate(gpus)]
    if len(set(labels)) < len(labels):
        labels = [f"GPU{i}" for i in range(len(gpus))]
    training = [nic for nic in nics if nic.fabrics] or list(nics)
    near = [nearest({_names(nic): _path(gpu, nic) for nic in training}) for gpu in gpus]
    kinds = {_kind(gpu) for gpu in gpus}
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(gpus) or None,
        links=_node_links(gpus, links),
        nics=in_use([names for _, names in near], [_names(nic) for nic in training]),
        nearest_nics=tuple(names for _, names in near),
        numa_nodes=tuple(gpu.numa for gpu in gpus),
        cpus=tuple(gpu.near for gpu in gpus),
    )
    counts = objects.counts
    switches = [device for device in objects.devices if device.kind == "switch"]
    ethernet = [port for nic in nics if not nic.fabrics for port in nic.ports]
    summary: dict[str, Any] = {
        "host": objects.infos.get("HostName"),
        "packages": counts.get("Package", 0),
        "numa_nodes": counts.get("NUMANode"),
        "cores": counts.get("Core"),
        "cpus": counts.get("PU"),
        "gpus": len(gpus),
        "nics": len(nics),
        "ethernet_ports": len(ethernet),
        "hcas": sum(bool(nic.fabrics) for nic in nics),
        "nvswitches": len(switches),
        "gpu_list": [
            {
                "name": label,
                "address": gpu.address or None,
                "os_names": gpu.names,
                "accelerator": _kind(gpu),
                "package": gpu.package,
                "numa": gpu.numa,
                "nearest": {"path": path, "nics": list(names)},
                "mbyte_per_s_to_switches": links.to_switch[i] if links.told else None,
                "mbyte_per_s_total": sum(links.to_switch[i].values()) if links.told else None,
                "mbyte_per_s_to_packages": _keyed(links.to_package[i]) if links.told else None,
            }
            for i, (label, gpu, (path, names)) in enumerate(zip(labels, gpus, near, strict=True))
        ],
        "gpus_by_package": _by_package(labels, gpus),
        "nic_list": [_nic(nic) for nic in nics],
        "nvlinks": _pairs_told(labels, links),
        "gpus_of_each_switch": _of_switches(switches, links),
        "not_told": _not_told(gpus, nics, links, objects),
    }
    return machine, summary


def _kind(gpu: Device) -> str | None:
    return gpu.accelerator or (kind_of_product(gpu.product) if gpu.product else None)


def _keyed(by_package: Mapping[int, int]) -> dict[str, int]:
    return {str(package): value for package, value in by_package.items()}


def _by_package(labels: Sequence[str], gpus: Sequence[Device]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for label, gpu in zip(labels, gpus, strict=True):
        found.setdefault("unknown" if gpu.package is None else str(gpu.package), []).append(label)
    return found


def _nic(nic: Device) -> dict[str, Any]:
    return {
        "address": nic.address,
        "ports": nic.ports,
        "rdma_devices": nic.fabrics,
        "package": nic.package,
        "numa": nic.numa,
        "near_cpus": nic.near or None,
        "locality_overridden": nic.own_group,
        "pcie_gbyte_per_s": nic.gbyte_per_s,
    }


def _pairs_told(labels: Sequence[str], links: _Links) -> dict[str, Any] | None:
    """MB/s between each two GPUs that links join; None where the file does not record links."""
    if not links.told:
        return None
    size = range(len(labels))
    rates = [["0" if a == b else str(links.between(a, b)) for b in size] for a in size]
    return {pair: int(rate) for pair, rate in pairs(labels, rates).items() if int(rate)}


def _of_switches(switches: Sequence[Device], links: _Links) -> dict[str, int] | None:
    if not links.told:
        return None
    return {
        switch.address: sum(switch.address in held for held in links.to_switch)
        for switch in switches
    }


def _node_links(gpus: Sequence[Device], links: _Links) -> Any:
    """Links of all pairs; None where a pair's are not recorded."""
    size = range(len(gpus))
    if not links.told or any(links.beyond_record(a, b) for a, b in combinations(size, 2)):
        return None
    bandwidth: dict[str, float] = {}
    rows: list[list[str]] = []
    for a in size:
        row = []
        for b in size:
            rate = links.between(a, b) if a != b else 0
            name = f"links@{rate}" if rate else _path(gpus[a], gpus[b])
            if rate:
                bandwidth[name] = rate * _MEGABYTE
            row.append(name)
        rows.append(row)
    return links_of(rows, bandwidth)


def _warnings(
    source: Source, gpus: Sequence[Device], nics: Sequence[Device], links: _Links
) -> list[str]:
    found = []
    apart = sum(links.beyond_record(a, b) for a, b in combinations(range(len(gpus)), 2))
    if links.told and apart:
        found.append(
            f"{source.line_of('Bandwidth')}: trunk links between switches are not recorded: "
            f"{apart} pairs of GPUs are on different switches of one machine"
        )
    for device in (*gpus, *nics):
        if device.own_group:
            found.append(
                f"{source.line_of(device.address)}: locality of {device.address} overridden: it is "
                f"near to CPUs {device.near} only, which are no package or NUMA node"
            )
    return found


def _not_told(
    gpus: Sequence[Device], nics: Sequence[Device], links: _Links, objects: Tree
) -> list[str]:
    said = [] if nics else ["network interfaces: none is recorded"]
    if gpus and not links.told:
        said.append("NVLinks or xGMI links: no bandwidth matrix is recorded")
    said += [] if not gpus or all(_kind(gpu) for gpu in gpus) else ["kind of some accelerators"]
    said += [] if objects.counts.get("NUMANode") else ["NUMA nodes"]
    return [*said, "rate of the network interfaces"]


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="hwloc-xml",
        title="hwloc XML",
        produced_by="lstopo topology.xml",
        certainty=_certainty,
        read=_read,
    ),
)
