"""Where a PCI function sits: bridges above it, NUMA node and link, as sysfs shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ..placement.importers.node_paths import pci_path

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_OWN_PORTS = 1
"""Linux lists every port of a PCIe switch, so that two devices on one have a port each."""


class PciPlace(BaseModel):
    """One function. bridges: those above it, the outermost first; root: its host bridge.

    link, best_link: speed and width that it runs at and could, such as `32.0 GT/s x16`; empty
    where sysfs does not say.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str
    root: str
    bridges: tuple[str, ...] = ()
    numa_node: int | None = None
    link: str = ""
    best_link: str = ""
    vendor: int | None = None
    device: int | None = None


def pci_place(sysfs: Path, address: str) -> PciPlace | None:
    """Where the function of that address sits; None where sysfs does not have it."""
    folder = sysfs / "bus/pci/devices" / address
    if not ADDRESS.fullmatch(address) or not folder.exists():
        return None
    parts = folder.resolve().parts
    root = next((part for part in parts if _ROOT.fullmatch(part)), "")
    functions = [part for part in parts if ADDRESS.fullmatch(part)]
    numa = _number(folder / "numa_node", 10)
    return PciPlace(
        address=address,
        root=root,
        bridges=tuple(functions[:-1]),
        numa_node=numa if numa is not None and numa >= 0 else None,
        link=_link(folder, "current"),
        best_link=_link(folder, "max"),
        vendor=_number(folder / "vendor", 16),
        device=_number(folder / "device", 16),
    )


def path_between(a: PciPlace, b: PciPlace) -> str:
    """What lies between two functions, in the words of `nvidia-smi topo -m`."""
    same_root = bool(a.root) and a.root == b.root
    return pci_path(
        a.bridges if same_root else (),
        b.bridges if same_root else (),
        own_ports=_OWN_PORTS,
        same_root=same_root,
        same_numa=a.numa_node is not None and a.numa_node == b.numa_node,
    )


def numa_distances(sysfs: Path) -> Mapping[int, tuple[int, ...]]:
    """For each NUMA node its distance to all, as firmware gives them (10 is itself)."""
    found: dict[int, tuple[int, ...]] = {}
    for folder in sorted((sysfs / "devices/system/node").glob("node[0-9]*")):
        words = (text(folder / "distance") or "").split()
        if folder.name[4:].isdigit() and words and all(word.isdigit() for word in words):
            found[int(folder.name[4:])] = tuple(int(word) for word in words)
    return dict(sorted(found.items()))


def text(path: Path) -> str | None:
    """A sysfs attribute; None where it cannot be read, as many while a device is off."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: Path, base: int) -> int | None:
    try:
        return int(text(path) or "", base)
    except ValueError:
        return None


def _link(folder: Path, which: str) -> str:
    speed = re.match(r"[0-9.]+ GT/s", text(folder / f"{which}_link_speed") or "")
    width = _number(folder / f"{which}_link_width", 10)
    return f"{speed[0]} x{width}" if speed and width else ""
