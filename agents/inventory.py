"""What a node has: CPUs, memory, network interfaces, devices."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field

from ..placement.accelerator_names import kind_of_product
from ..placement.links import SELF, NodeLinks
from .amd_gpus import AmdFacts, read_amd
from .device_links import xgmi_name
from .nics import Nic, read_nics
from .node_files import node_files, read_node_files
from .nvml import MigInstance, NvmlFacts, read_nvml
from .pci import numa_distances, pci_place
from .rails import NicOfDevice, nics_of_devices, training_nics
from .rdma import RdmaDevice, read_rdma

ACCELERATOR_LABEL = "railweave.io/accelerator"
DEVICE_RESOURCE = "railweave_device"
DECLARED_ACCELERATOR = "declared"


class DeviceSource(StrEnum):
    """Who says that a node has its devices."""

    NVML = "nvml"
    """NVIDIA's management library."""
    AMDGPU = "amdgpu"
    """AMD's kernel driver in sysfs, on a node where NVML says nothing."""
    RAY_GPU = "ray_gpu"
    """Ray's resource `GPU`, on a node where no driver says anything."""
    DECLARED = "declared"
    """Ray's resource `railweave_device`, which an operator declares."""
    NONE = "none"
    """Nobody: the node has no devices and is left out of placements."""


class Device(BaseModel):
    """One accelerator; `index` is the one that placements use. Unknown facts are None or empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int = Field(ge=0)
    accelerator: str
    memory_bytes: int | None = None
    uuid: str = ""
    pci_address: str | None = None
    numa_node: int | None = None
    firmware: str = ""
    parts: tuple[MigInstance, ...] = ()
    network: NicOfDevice = NicOfDevice()


class NodeInventory(BaseModel):
    """One node. `cpus` are those this process may use; `notes` are facts worth a reader's time.

    links: what joins each pair of devices, by index, as `nvidia-smi topo -m` names it; empty where
        it is not known.
    rdma: RDMA devices, also those without an interface. rails: names of the interfaces that are
        nearest to a device, of which each device's `network.rail` is one.
    numa_distances: for each NUMA node its distance to all, as firmware gives them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    host: str
    address: str = ""
    cpus: int
    memory_bytes: int
    nics: tuple[Nic, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    rails: tuple[str, ...] = ()
    numa_distances: dict[int, tuple[int, ...]] = {}
    devices: tuple[Device, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    device_source: DeviceSource = DeviceSource.NONE
    driver: str = ""
    notes: tuple[str, ...] = ()


def take_inventory(
    node: str,
    address: str,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    *,
    sysfs: Path = Path("/sys"),
    nvml: NvmlFacts | None = None,
    files: Path | None = None,
) -> NodeInventory:
    """The inventory of this machine as a node with these Ray resources and labels.

    sysfs: root of the tree that interfaces are read from.
    nvml: recorded facts; asked from the driver when None.
    files: a folder of tool outputs that say what no driver does; that of the environment when None.
    """
    facts = read_nvml() if nvml is None else nvml
    amd = read_amd(sysfs) if not facts.gpus else AmdFacts()
    devices, source, notes = find_devices(facts, resources, labels, amd)
    nics, rdma = read_nics(sysfs), read_rdma(sysfs)
    ways, rails = nics_of_devices(
        sysfs, [device.pci_address for device in devices], training_nics(nics, rdma)
    )
    devices = tuple(
        device.model_copy(update={"network": way, "numa_node": _numa_node(sysfs, device)})
        for device, way in zip(devices, ways, strict=True)
    )
    links = {DeviceSource.NVML: facts.links, DeviceSource.AMDGPU: amd.links}.get(source, ())
    found = NodeInventory(
        node=node,
        host=socket.gethostname(),
        address=address,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        nics=nics,
        rdma=rdma,
        rails=rails,
        numa_distances=dict(numa_distances(sysfs)),
        devices=devices,
        links=links,
        device_source=source,
        driver=facts.driver or amd.driver,
        notes=(*notes, *_condition(sysfs, nics, rdma, devices)),
    )
    folder = node_files() if files is None else files
    return found if folder is None else with_files(found, folder)


def with_files(inventory: NodeInventory, folder: Path) -> NodeInventory:
    """An inventory with what files tell and no driver did. What a driver told stays; a file that
    contradicts it is named in the notes.
    """
    machine, notes = read_node_files(folder, inventory.node, inventory.host)
    if machine is None:
        return inventory.model_copy(update={"notes": (*inventory.notes, *notes)})
    said = list(notes)
    count = len(inventory.devices)
    if machine.devices is not None and count and machine.devices != count:
        said.append(f"files tell of {machine.devices} devices, the node has {count}: not used")
        return inventory.model_copy(update={"notes": (*inventory.notes, *said)})
    devices = []
    for position, device in enumerate(inventory.devices):
        told: dict[str, object] = {}
        if machine.accelerator and device.accelerator == DECLARED_ACCELERATOR:
            told["accelerator"] = machine.accelerator
        elif machine.accelerator and device.accelerator != machine.accelerator:
            kind = machine.accelerator
            said.append(f"files call device {device.index} {kind}, it is {device.accelerator}")
        if device.numa_node is None and position < len(machine.numa_nodes):
            told["numa_node"] = machine.numa_nodes[position]
        if not device.network.nearest and position < len(machine.nearest_nics):
            names = machine.nearest_nics[position]
            rail = next((machine.nics.index(name) for name in names if name in machine.nics), None)
            told["network"] = NicOfDevice(nearest=names, rail=rail)
        devices.append(device.model_copy(update=told))
    links = inventory.links
    if not links and machine.links is not None and machine.links.devices == count:
        links = _named(machine.links)
    if machine.faulty:
        said.append(f"files say: {machine.faulty}")
    return inventory.model_copy(
        update={
            "devices": tuple(devices),
            "links": links,
            "rails": inventory.rails or machine.nics,
            "notes": (*inventory.notes, *said),
        }
    )


def _named(links: NodeLinks) -> tuple[tuple[str, ...], ...]:
    """Links by names that mean the same without the file's own rates."""
    return tuple(
        tuple(
            str(entry) if entry == SELF or str(entry) not in links.bandwidth else xgmi_name(rate)
            for entry, rate in zip(row, rates, strict=True)
        )
        for row, rates in zip(links.matrix, links.bytes_per_s, strict=True)
    )


def _numa_node(sysfs: Path, device: Device) -> int | None:
    """The device's NUMA node by the driver, else by its PCI function."""
    if device.numa_node is not None or device.pci_address is None:
        return device.numa_node
    place = pci_place(sysfs, device.pci_address)
    return place.numa_node if place else None


def _condition(
    sysfs: Path, nics: Sequence[Nic], rdma: Sequence[RdmaDevice], devices: Sequence[Device]
) -> list[str]:
    """What an operator should look at: links that are down or narrower than they could be."""
    found = []
    down = [nic.name for nic in nics if nic.state.value == "down" and not nic.virtual]
    if down:
        found.append(f"interfaces without a link: {', '.join(down)}")
    named = {nic.rdma_device for nic in nics}
    ports = [d.name for d in rdma if d.state.value == "down" and d.name not in named]
    if ports:
        found.append(f"RDMA devices without a link: {', '.join(ports)}")
    functions = {device.pci_address: f"device {device.index}" for device in devices}
    functions |= {device.pci_address: device.name for device in rdma}
    for address, name in functions.items():
        place = pci_place(sysfs, address) if address else None
        if place and place.link and place.best_link:
            # An idle device lowers the speed of its link to save power, but never its width.
            has, could = (link.rpartition(" x")[2] for link in (place.link, place.best_link))
            if int(has) < int(could):
                found.append(f"{name} ({address}): PCIe runs at x{has}, it could at x{could}")
    divided = [str(device.index) for device in devices if device.parts]
    if divided:
        found.append(f"devices that MIG divides: {', '.join(divided)}")
    return found


def find_devices(
    facts: NvmlFacts,
    resources: Mapping[str, float],
    labels: Mapping[str, str],
    amd: AmdFacts = AmdFacts(),  # noqa: B008 - frozen
) -> tuple[tuple[Device, ...], DeviceSource, tuple[str, ...]]:
    """A node's devices, who says so, and notes.

    Ray's `GPU` bounds what a driver shows, because Ray reserves no more than that. The accelerator
    label names the kind of devices that no driver knows.
    """
    notes = list(facts.faults)
    if facts.absent:
        notes.append(facts.absent)
    ray_gpus = int(resources.get("GPU", 0))
    declared = int(resources.get(DEVICE_RESOURCE, 0))
    label = labels.get(ACCELERATOR_LABEL, "")
    if not facts.gpus and amd.absent and (ray_gpus or declared):
        notes.append(amd.absent)
    driven, source, shown = _driven(facts, amd)
    if driven and ray_gpus:
        if len(driven) != ray_gpus:
            notes.append(f"{shown} shows {len(driven)} devices, Ray's resource GPU is {ray_gpus}")
        devices = tuple(device for device in driven if device.index < ray_gpus)
        kinds = {device.accelerator for device in devices}
        if label and kinds != {label}:
            found = ", ".join(sorted(kinds))
            said = f"the label {ACCELERATOR_LABEL}={label} is not used"
            notes.append(f"{said}: {shown} shows {found}")
        return devices, source, tuple(notes)
    if driven:
        notes.append(f"{shown} shows {len(driven)} devices, but Ray has no resource GPU here")
    for count, source in ((ray_gpus, DeviceSource.RAY_GPU), (declared, DeviceSource.DECLARED)):
        if count:
            kind = label or DECLARED_ACCELERATOR
            found_devices = tuple(Device(index=i, accelerator=kind) for i in range(count))
            return found_devices, source, tuple(notes)
    return (), DeviceSource.NONE, tuple(notes)


def _driven(facts: NvmlFacts, amd: AmdFacts) -> tuple[tuple[Device, ...], DeviceSource, str]:
    """The devices that a driver shows, and the driver's name."""
    if facts.gpus:
        nvidia = tuple(
            Device(
                index=gpu.index,
                accelerator=kind_of_product(gpu.product),
                memory_bytes=gpu.memory_bytes,
                uuid=gpu.uuid,
                pci_address=gpu.pci_address,
                numa_node=gpu.numa_node,
                firmware=gpu.firmware,
                parts=gpu.parts,
            )
            for gpu in facts.gpus
        )
        return nvidia, DeviceSource.NVML, "NVML"
    ours = tuple(Device(**gpu.model_dump()) for gpu in amd.gpus)
    return ours, DeviceSource.AMDGPU, "amdgpu"
