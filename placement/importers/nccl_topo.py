"""NCCL's and RCCL's system XML: what they found in a node, or a template for a kind of machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ..errors import Problem
from ..links import MOST_LINKED_DEVICES
from .facts import ANY_NODE, Facts, Machine
from .nccl_elements import Function, System, systems
from .node_paths import (
    XGMI_BYTES_PER_S,
    counted,
    in_use,
    links_of,
    nearest,
    pairs,
    pci_path,
)
from .registry import Importer
from .source import Source

_XGMI_NEWER_BYTES_PER_S = 64e9
"""One xGMI link of 16 lanes at 32 GT/s: MI300 and later."""
_NVLINK_BYTES_PER_S = {60: 20e9, 100: 50e9, 103: 50e9, 120: 50e9}
"""One NVLink in one direction by compute capability, where it is not 25 GB/s."""


def _certainty(source: Source) -> float:
    root = source.xml
    return 0.95 if root is not None and root.tag == "system" else 0.0


def _read(source: Source) -> Facts:
    root = source.xml
    if root is None or root.tag != "system":
        raise source.refuse("", "no system element", "hand in the file of NCCL_TOPO_DUMP_FILE")
    hosts = systems(source, root)
    if not any(host.functions or host.loose_nets for host in hosts):
        found = "a system without PCI functions"
        raise source.refuse(source.line_of("<system"), found, "hand in the whole file")
    warnings: list[str] = []
    machines: dict[str, Machine] = {}
    summaries: dict[str, Any] = {}
    for host in hosts:
        name = ANY_NODE if len(hosts) == 1 else f"host-{host.host or 'unnamed'}"
        machines[name], summaries[name] = _machine(source, host, warnings)
    alone = len(machines) == 1
    summary = next(iter(summaries.values())) if alone else {"hosts": len(machines), **summaries}
    return Facts(
        "nccl-topo-xml",
        summary,
        machines=machines,
        not_alone=_not_alone(hosts),
        warnings=tuple(warnings),
    )


def _not_alone(hosts: Sequence[System]) -> Problem | None:
    if any(host.of_kind("gpu") for host in hosts):
        return None
    functions = sum(len(host.functions) for host in hosts)
    found = f"{functions} PCI functions, of which the file does not tell what they are"
    fix = "say the type of machine (--accelerator, --devices), or add a second source"
    return Problem("", f"{found}: GPU and NIC counts cannot be told", fix)


def _machine(source: Source, system: System, warnings: list[str]) -> tuple[Machine, dict[str, Any]]:
    gpus = _in_order(system.of_kind("gpu"))
    nics = system.of_kind("nic")
    if len(gpus) > MOST_LINKED_DEVICES:
        found = f"{len(gpus)} GPUs; a node has at most {MOST_LINKED_DEVICES}"
        raise source.refuse("", found, "hand in the file of one node")
    labels = [f"GPU{gpu.dev if gpu.dev is not None else i}" for i, gpu in enumerate(gpus)]
    if len(set(labels)) < len(labels):
        raise source.refuse("", "two GPUs have one dev number", "hand in the file of one node")
    joined = _joined(source, gpus, labels, warnings)
    near = [_nearest(gpu, nics) for gpu in gpus]
    near_names = [[name for nic in found for name in _names(nic)] for _, found in near]
    every = [name for nic in nics for name in _names(nic)]
    loose = [net.name for net in system.loose_nets]
    used = in_use(near_names, every) or tuple(every or loose)
    rates = [
        net.bits_per_s / 8
        for nets in (*(nic.nets for nic in nics), system.loose_nets)
        for net in nets
        if net.name in used and net.bits_per_s
    ]
    kinds = {gpu.accelerator for gpu in gpus}
    told = bool(gpus) and all(gpu.described for gpu in gpus)
    unclear = bool(system.of_kind("function"))
    machine = Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(gpus) if gpus else None,
        links=_links(gpus, joined) if told else None,
        nics=used,
        nic_bytes_per_s=min(rates, default=None),
        nearest_nics=tuple(tuple(names) for names in near_names),
        numa_nodes=tuple(gpu.numa for gpu in gpus),
        cpus=tuple(system.cpus[gpu.cpu][1] for gpu in gpus),
    )
    summary: dict[str, Any] = {
        "gpus": len(gpus) if gpus or not unclear else None,
        "nics": len(nics) if nics or not unclear else None,
        "nets": len(loose) + sum(len(nic.nets) for nic in nics) if told else None,
        "numa_node_count": len({numa for numa, _ in system.cpus}),
        "numa_nodes": _by_numa(system, gpus, labels, nics),
        "pci_functions": len(system.functions),
        "pci_switches": system.switches,
        "nvswitches": len({j.target for gpu in gpus for j in gpu.joints if j.to_switch}),
        "gpu_addresses": {label: gpu.address for label, gpu in zip(labels, gpus, strict=True)},
        "accelerators": {label: gpu.accelerator for label, gpu in zip(labels, gpus, strict=True)},
        "architectures": {
            label: gpu.gcn or (None if gpu.sm is None else f"sm {gpu.sm}")
            for label, gpu in zip(labels, gpus, strict=True)
        },
        "net_list": _net_list(system, nics),
        "nearest_nics": {
            label: {
                "path": path,
                "nics": names,
                "addresses": [nic.address for nic in found],
                "shared_bridge": _shared(gpu, found),
            }
            for label, gpu, (path, found), names in zip(labels, gpus, near, near_names, strict=True)
        },
        "pcie": _pcie(labels, gpus, nics),
        **_link_summary(gpus, labels, joined, told),
        "not_told": _not_told(gpus, told, rates),
    }
    return machine, summary


def _in_order(gpus: Sequence[Function]) -> list[Function]:
    """By device number where all have one, else by bus address, as the drivers count them."""
    if all(gpu.dev is not None for gpu in gpus):
        return sorted(gpus, key=lambda gpu: gpu.dev or 0)
    return sorted(gpus, key=lambda gpu: _by_address(gpu.address))


def _by_address(address: str) -> tuple[int, str]:
    domain, _, rest = address.partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return 0, address


def _names(nic: Function) -> list[str]:
    return [net.name for net in nic.nets] or [nic.address]


def _path(a: Function, b: Function) -> str:
    return pci_path(
        a.bridges, b.bridges, own_ports=0, same_root=a.cpu == b.cpu, same_numa=a.numa == b.numa
    )


def _nearest(gpu: Function, nics: Sequence[Function]) -> tuple[str | None, list[Function]]:
    path, names = nearest({nic.address: _path(gpu, nic) for nic in nics})
    return path, [nic for nic in nics if nic.address in names]


def _shared(gpu: Function, nics: Sequence[Function]) -> str | None:
    """The innermost bridge above a GPU and the first of its nearest NICs."""
    others = nics[0].bridges if nics else ()
    return next((bridge for bridge in reversed(gpu.bridges) if bridge in others), None)


def _joined(
    source: Source, gpus: Sequence[Function], labels: Sequence[str], warnings: list[str]
) -> list[list[int]]:
    """Links between each two GPUs: direct ones, and through switches as many as the lesser has."""
    place = {gpu.address: i for i, gpu in enumerate(gpus)}
    direct = [[0] * len(gpus) for _ in gpus]
    to_switch = [0] * len(gpus)
    to_itself: list[str] = []
    for i, gpu in enumerate(gpus):
        for joint in gpu.joints:
            other = place.get(joint.target)
            if joint.to_switch:
                to_switch[i] += joint.count
            elif other == i:
                to_itself.append(f"{labels[i]} (count {joint.count})")
            elif other is not None:
                direct[i][other] += joint.count
            elif not joint.to_cpu:
                warnings.append(
                    f"{_line(source, joint.target)}{labels[i]} has {joint.count} links to "
                    f"{joint.target}, which the file does not describe; they are left out"
                )
    if to_itself:
        warnings.append(
            f"{_line(source, '<nvlink')}{len(to_itself)} self links were ignored: "
            f"{', '.join(to_itself)}; no GPU has a link to itself"
        )
    for a, b in combinations(range(len(gpus)), 2):
        if direct[a][b] != direct[b][a]:
            least = min(direct[a][b], direct[b][a]) or max(direct[a][b], direct[b][a])
            warnings.append(
                f"{_line(source, gpus[b].address)}{labels[a]} has {direct[a][b]} links to "
                f"{labels[b]}, which has {direct[b][a]} back; {least} is taken"
            )
            direct[a][b] = direct[b][a] = least
    return [
        [0 if a == b else direct[a][b] + min(to_switch[a], to_switch[b]) for b in range(len(gpus))]
        for a in range(len(gpus))
    ]


def _line(source: Source, text: str) -> str:
    line = source.line_of(text)
    return f"{line}: " if line else ""


def _links(gpus: Sequence[Function], joined: Sequence[Sequence[int]]) -> Any:
    xgmi = _is_xgmi(gpus)
    bandwidth: dict[str, float] = {}
    matrix: list[list[str]] = []
    for a, gpu in enumerate(gpus):
        row = []
        for b, other in enumerate(gpus):
            count = joined[a][b]
            name = _path(gpu, other)
            if count and xgmi:
                name = "XGMI" if count == 1 else f"XGMI*{count}"
                bandwidth[name] = count * _xgmi_rate(gpus)
            elif count:
                name = f"NV{min(count, 99)}"
            row.append(name)
        matrix.append(row)
    rates = [_NVLINK_BYTES_PER_S[gpu.sm] for gpu in gpus if gpu.sm in _NVLINK_BYTES_PER_S]
    if not xgmi and rates:
        bandwidth["NV"] = min(rates)
    return links_of(matrix, bandwidth)


def _is_xgmi(gpus: Sequence[Function]) -> bool:
    return any(joint.xgmi for gpu in gpus for joint in gpu.joints) or any(gpu.gcn for gpu in gpus)


def _xgmi_rate(gpus: Sequence[Function]) -> float:
    newer = all(gpu.gcn.removeprefix("gfx").startswith(("94", "95")) for gpu in gpus)
    return _XGMI_NEWER_BYTES_PER_S if newer else XGMI_BYTES_PER_S


def _link_summary(
    gpus: Sequence[Function], labels: Sequence[str], joined: Sequence[Sequence[int]], told: bool
) -> dict[str, Any]:
    """What joins the GPUs; all None where the file describes no GPU itself."""
    if not told:
        return {"link_kind": None, "linked_pairs": None, "links_per_gpu": None}
    pair_counts = {
        f"{labels[a]}-{labels[b]}": joined[a][b]
        for a, b in combinations(range(len(gpus)), 2)
        if joined[a][b]
    }
    paths = [[_path(a, b) for b in gpus] for a in gpus]
    xgmi = _is_xgmi(gpus)
    every = list(combinations(range(len(gpus)), 2))
    found: dict[str, Any] = {
        "link_kind": "xgmi" if xgmi else "nvlink",
        "linked_pairs": len(pair_counts),
        "link_counts": counted([str(count) for count in pair_counts.values()]),
        "links": pair_counts,
        "unlinked_pairs": [f"{labels[a]}-{labels[b]}" for a, b in every if not joined[a][b]],
        "links_per_gpu": {
            label: sum(j.count for j in gpu.joints if j.target != gpu.address)
            for label, gpu in zip(labels, gpus, strict=True)
        },
        "links_to_switches": {
            label: counts
            for label, gpu in zip(labels, gpus, strict=True)
            if (counts := {j.target: j.count for j in gpu.joints if j.to_switch})
        },
        "paths": pairs(labels, paths),
    }
    if xgmi:
        found["xgmi_over_others"] = _over_others(labels, joined)
    return found


def _over_others(labels: Sequence[str], joined: Sequence[Sequence[int]]) -> dict[str, Any]:
    """For pairs without a link of their own the GPUs that have one to both."""
    size = len(labels)
    return {
        f"{labels[a]}-{labels[b]}": {"hops": 2, "via": via}
        for a, b in combinations(range(size), 2)
        if not joined[a][b]
        and (via := [labels[c] for c in range(size) if joined[a][c] and joined[c][b]])
    }


def _by_numa(
    system: System, gpus: Sequence[Function], labels: Sequence[str], nics: Sequence[Function]
) -> dict[str, Any]:
    return {
        "unknown" if numa is None else str(numa): {
            "gpus": [x for x, gpu in zip(labels, gpus, strict=True) if gpu.numa == numa],
            "nics": [name for nic in nics if nic.numa == numa for name in _names(nic)],
            "pci_functions": sum(function.numa == numa for function in system.functions),
        }
        for numa in dict.fromkeys(numa for numa, _ in system.cpus)
    }


def _net_list(system: System, nics: Sequence[Function]) -> list[dict[str, Any]]:
    placed = [(net, nic) for nic in nics for net in nic.nets]
    return [
        {
            "name": net.name,
            "gbit_per_s": None if net.bits_per_s is None else net.bits_per_s / 1e9,
            "rdma": net.rdma,
            "nic": None if nic is None else nic.address,
            "numa": None if nic is None else nic.numa,
        }
        for net, nic in [*placed, *((net, None) for net in system.loose_nets)]
    ]


def _pcie(
    labels: Sequence[str], gpus: Sequence[Function], nics: Sequence[Function]
) -> dict[str, Any]:
    """Link speed and width of each GPU, and the slowest speed on its way to the CPU."""
    return {
        "speeds": counted(
            [
                "unknown" if one.gt_per_s is None else f"{one.gt_per_s:g} GT/s x{one.lanes or '?'}"
                for one in (*gpus, *nics)
            ]
        ),
        "slowest_to_cpu_gt_per_s": {
            label: gpu.path_gt_per_s for label, gpu in zip(labels, gpus, strict=True)
        },
    }


def _not_told(gpus: Sequence[Function], told: bool, rates: Sequence[float]) -> list[str]:
    said = [] if told else ["NVLinks and xGMI links: the file does not describe the GPUs"]
    said += [] if gpus and all(gpu.accelerator for gpu in gpus) else ["kind of GPU"]
    said += [] if rates else ["rate of the network interfaces"]
    if gpus and all(gpu.gt_per_s is None for gpu in gpus):
        said.append("speed of PCIe")
    return said


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nccl-topo-xml",
        title="NCCL or RCCL topology XML",
        produced_by="NCCL_TOPO_DUMP_FILE=topo.xml in the environment of a job",
        certainty=_certainty,
        read=_read,
    ),
)
