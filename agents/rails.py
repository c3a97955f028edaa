"""Which network interface serves which device of a node: the nearest, shared out evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ..placement.importers.node_paths import in_use, nearest
from .nics import LinkState, Nic
from .pci import PciPlace, path_between, pci_place
from .rdma import RdmaDevice


class NicOfDevice(BaseModel):
    """The way from a device to the network.

    paths: what lies between it and each interface. nearest: the nearest ones (several where they
    tie), `path` away. rail: which of the node's used interfaces it takes; None where none is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    paths: dict[str, str] = {}
    nearest: tuple[str, ...] = ()
    path: str | None = None
    rail: int | None = None


def training_nics(nics: Sequence[Nic], rdma: Sequence[RdmaDevice]) -> dict[str, str]:
    """PCI addresses of the interfaces that may carry training traffic, by name.

    RDMA devices that are not down where there are any, else physical interfaces that are not down.
    """
    found = {
        device.name: device.pci_address
        for device in rdma
        if device.pci_address and device.state is not LinkState.DOWN
    }
    return found or {
        nic.name: nic.pci_address
        for nic in nics
        if nic.pci_address and not nic.virtual and nic.state is not LinkState.DOWN
    }


def nics_of_devices(
    sysfs: Path, devices: Sequence[str | None], nics: Mapping[str, str]
) -> tuple[tuple[NicOfDevice, ...], tuple[str, ...]]:
    """The way of each device (by PCI address) to the network, and the interfaces in use.

    Devices to which the same interfaces are nearest share them in turn. An interface that is
    nearest to no device serves no rail.
    """
    places = {name: place for name, address in nics.items() if (place := pci_place(sysfs, address))}
    ways: list[tuple[dict[str, str], str | None, tuple[str, ...]]] = []
    for address in devices:
        place = pci_place(sysfs, address) if address else None
        paths = _paths(place, places)
        ways.append((paths, *nearest(paths)))
    used = in_use([names for _, _, names in ways], list(places))
    load = dict.fromkeys(used, 0)
    found = []
    for paths, path, names in ways:
        chosen = min(names, key=lambda name: load[name], default=None)
        if chosen is not None:
            load[chosen] += 1
        rail = used.index(chosen) if chosen is not None else None
        found.append(NicOfDevice(paths=paths, nearest=names, path=path, rail=rail))
    return tuple(found), used


def _paths(device: PciPlace | None, nics: Mapping[str, PciPlace]) -> dict[str, str]:
    if device is None:
        return {}
    return {name: path_between(device, place) for name, place in nics.items()}
