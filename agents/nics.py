"""Network interfaces as sysfs shows them: rate, state, PCI device, NUMA node, RDMA device."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_LOOPBACK_TYPE = 772  # ARPHRD_LOOPBACK of <linux/if_arp.h>
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_IB_RATE = re.compile(r"([0-9.]+) Gb/sec")


class LinkState(StrEnum):
    """What an interface's `operstate` comes to."""

    UP = "up"
    """Can carry traffic."""
    DOWN = "down"
    """Cannot: no cable, switched off, or a lower layer is down."""
    UNKNOWN = "unknown"
    """The driver does not say; many virtual interfaces are like that while they work."""


# Every value of Linux's operstate (RFC 2863) in our words.
_STATES = {
    "up": LinkState.UP,
    "down": LinkState.DOWN,
    "lowerlayerdown": LinkState.DOWN,
    "notpresent": LinkState.DOWN,
    "dormant": LinkState.DOWN,
    "testing": LinkState.DOWN,
    "unknown": LinkState.UNKNOWN,
}


class Nic(BaseModel):
    """One interface. `bytes_per_s` is its nominal rate in one direction, None where unknown.

    `rdma_device` is the name under /sys/class/infiniband (InfiniBand or RoCE), whose firmware is
    the card's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    state: LinkState
    mac: str = ""
    bytes_per_s: float | None = None
    mtu_bytes: int | None = None
    virtual: bool = False
    driver: str = ""
    pci_address: str | None = None
    numa_node: int | None = None
    rdma_device: str | None = None
    firmware: str = ""
    driver_version: str = ""


def read_nics(sysfs: Path = Path("/sys")) -> tuple[Nic, ...]:
    """Every interface but loopback, by name. An interface that vanishes meanwhile is left out."""
    folder = sysfs / "class" / "net"
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return ()
    found = (_read_nic(folder / name) for name in names)
    return tuple(nic for nic in found if nic is not None)


def _read_nic(folder: Path) -> Nic | None:
    state = _text(folder / "operstate")
    if state is None or _number(folder / "type") == _LOOPBACK_TYPE:
        return None
    device = folder / "device"
    virtual = not device.exists()
    pci = None if virtual else _pci_folder(device.resolve())
    rdma = None if virtual else _rdma_device(device, folder)
    driver = device / "driver"
    return Nic(
        name=folder.name,
        state=_STATES.get(state, LinkState.UNKNOWN),
        mac=_text(folder / "address") or "",
        bytes_per_s=_rate(folder, device, rdma),
        mtu_bytes=_number(folder / "mtu"),
        virtual=virtual,
        driver=driver.resolve().name if driver.exists() else "",
        pci_address=pci.name if pci else None,
        numa_node=_numa_node(pci) if pci else None,
        rdma_device=rdma.name if rdma else None,
        firmware=(_text(rdma / "fw_ver") or "") if rdma else "",
        driver_version=_text(driver.resolve() / "module/version") or "" if driver.exists() else "",
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # many attributes refuse to be read while a link is down
        return None


def _number(path: Path) -> int | None:
    try:
        return int(_text(path) or "")
    except ValueError:
        return None


def _pci_folder(device: Path) -> Path | None:
    """The PCI function that a device is or hangs below (virtio devices hang below one)."""
    for folder in (device, *device.parents):
        if _PCI_ADDRESS.fullmatch(folder.name):
            return folder
    return None


def _numa_node(pci: Path) -> int | None:
    number = _number(pci / "numa_node")
    return number if number is not None and number >= 0 else None


def _rdma_device(device: Path, folder: Path) -> Path | None:
    """The RDMA device of an interface; a card of two ports has one device or two."""
    try:
        candidates = sorted((device / "infiniband").iterdir())
    except OSError:
        return None
    for candidate in candidates:
        for interface in candidate.glob("ports/*/gid_attrs/ndevs/*"):
            if _text(interface) == folder.name:
                return candidate
    return candidates[0] if candidates else None


def _rate(folder: Path, device: Path, rdma: Path | None) -> float | None:
    """Mbit/s of the interface in bytes/s; the RDMA port's rate where that is missing."""
    megabits = _number(folder / "speed")
    if megabits is not None and megabits > 0:
        return megabits * 1e6 / 8
    if rdma is not None:
        port = (_number(folder / "dev_port") or 0) + 1
        rate = _IB_RATE.match(_text(device / "infiniband" / rdma.name / f"ports/{port}/rate") or "")
        if rate:
            return float(rate[1]) * 1e9 / 8
    return None
