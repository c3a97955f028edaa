"""AMD GPUs and their xGMI links as the kernel driver shows them in sysfs (amdgpu and KFD)."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ..placement.accelerator_names import kind_of_pci, kind_of_product
from ..placement.importers.node_paths import XGMI_BYTES_PER_S
from ..placement.links import SELF
from .device_links import Matrix, xgmi_name
from .pci import path_between, pci_place, text

_XGMI = 11
"""HSA_IOLINK_TYPE_XGMI of the driver's interface."""
_LINE = re.compile(r"^(\w+) (\d{1,20})$", re.MULTILINE)


class AmdGpu(BaseModel):
    """One GPU in the driver's order. Unknown facts are None or empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    accelerator: str
    pci_address: str
    uuid: str = ""
    memory_bytes: int | None = None
    numa_node: int | None = None
    firmware: str = ""


class AmdFacts(BaseModel):
    """What the driver says of a node; `absent` says why it says nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: tuple[AmdGpu, ...] = ()
    driver: str = ""
    absent: str = ""
    links: Matrix = ()


def read_amd(sysfs: Path) -> AmdFacts:
    """The AMD GPUs of this node, by the nodes of KFD's topology that compute."""
    nodes = sysfs / "class/kfd/kfd/topology/nodes"
    if not nodes.is_dir():
        return AmdFacts(absent="no amdgpu driver: sysfs has no KFD topology")
    found: list[tuple[int, str]] = []
    for folder in nodes.iterdir():
        properties = _properties(folder / "properties")
        if folder.name.isdigit() and properties.get("simd_count", 0) > 0:
            found.append((int(folder.name), _address(properties)))
    found.sort()
    gpus = tuple(
        _gpu(sysfs, nodes / str(node), index, address)
        for index, (node, address) in enumerate(found)
    )
    driver = text(sysfs / "module/amdgpu/version") or ""
    return AmdFacts(gpus=gpus, driver=driver, links=_links(sysfs, nodes, found))


def _gpu(sysfs: Path, node: Path, index: int, address: str) -> AmdGpu:
    place = pci_place(sysfs, address)
    device = sysfs / "bus/pci/devices" / address
    kind = kind_of_pci(place.vendor, place.device) if place else None
    product = text(device / "product_name") or text(node / "name") or ""
    memory = text(device / "mem_info_vram_total") or ""
    unique = text(device / "unique_id") or ""
    return AmdGpu(
        index=index,
        accelerator=kind or kind_of_product(product),
        pci_address=address,
        uuid=f"GPU-{unique}" if unique else "",
        memory_bytes=int(memory) if memory.isdigit() else None,
        numa_node=place.numa_node if place else None,
        firmware=text(device / "vbios_version") or "",
    )


def _properties(path: Path) -> dict[str, int]:
    return {match[1]: int(match[2]) for match in _LINE.finditer(text(path) or "")}


def _address(properties: dict[str, int]) -> str:
    """Domain, bus, device and function from KFD's numbers (bus << 8 | device << 3 | function)."""
    domain, location = properties.get("domain", 0), properties.get("location_id", 0)
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _links(sysfs: Path, nodes: Path, found: list[tuple[int, str]]) -> Matrix:
    """xGMI where a link joins two GPUs, else their path over PCIe; empty where that is unknown."""
    rates: dict[tuple[int, int], float] = {}
    for node, _ in found:
        for folder in (nodes / str(node) / "io_links").glob("*"):
            link = _properties(folder / "properties")
            if link.get("type") == _XGMI:
                rate = link.get("max_bandwidth", 0) * 1e6 or XGMI_BYTES_PER_S
                rates[link.get("node_from", -1), link.get("node_to", -1)] = rate
    places = [pci_place(sysfs, address) for _, address in found]
    rows: list[tuple[str, ...]] = []
    for a, (node, _) in enumerate(found):
        row: list[str] = []
        for b, (other, _) in enumerate(found):
            one, two = places[a], places[b]
            rate = rates.get((node, other), rates.get((other, node), 0.0))
            if a == b:
                row.append(SELF)
            elif rate:
                row.append(xgmi_name(rate))
            elif one is None or two is None:
                return ()
            else:
                row.append(path_between(one, two))
        rows.append(tuple(row))
    return tuple(rows)
