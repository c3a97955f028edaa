"""What a node has: CPUs, memory, network interfaces, devices."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field

from ..placement.accelerator_names import kind_of_product
from .nics import Nic, read_nics
from .nvml import NvmlFacts, read_nvml

ACCELERATOR_LABEL = "railweave.io/accelerator"
DEVICE_RESOURCE = "railweave_device"
DECLARED_ACCELERATOR = "declared"


class DeviceSource(StrEnum):
    """Who says that a node has its devices."""

    NVML = "nvml"
    """NVIDIA's management library."""
    RAY_GPU = "ray_gpu"
    """Ray's resource `GPU`, on a node where NVML says nothing."""
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


class NodeInventory(BaseModel):
    """One node. `cpus` are those this process may use; `notes` are facts worth a reader's time.

    links: what joins each pair of devices, by index, as `nvidia-smi topo -m` names it; empty where
        it is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str
    host: str
    address: str = ""
    cpus: int
    memory_bytes: int
    nics: tuple[Nic, ...] = ()
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
) -> NodeInventory:
    """The inventory of this machine as a node with these Ray resources and labels.

    sysfs: root of the tree that interfaces are read from.
    nvml: recorded facts; asked from the driver when None.
    """
    facts = read_nvml() if nvml is None else nvml
    devices, source, notes = find_devices(facts, resources, labels)
    nics = read_nics(sysfs)
    down = [nic.name for nic in nics if nic.state.value == "down" and not nic.virtual]
    if down:
        notes = (*notes, f"interfaces without a link: {', '.join(down)}")
    return NodeInventory(
        node=node,
        host=socket.gethostname(),
        address=address,
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        nics=nics,
        devices=devices,
        links=facts.links if source is DeviceSource.NVML else (),
        device_source=source,
        driver=facts.driver,
        notes=notes,
    )


def find_devices(
    facts: NvmlFacts, resources: Mapping[str, float], labels: Mapping[str, str]
) -> tuple[tuple[Device, ...], DeviceSource, tuple[str, ...]]:
    """A node's devices, who says so, and notes.

    Ray's `GPU` bounds what NVML shows, because Ray reserves no more than that. The accelerator
    label names the kind of devices that NVML does not know.
    """
    notes = list(facts.faults)
    if facts.absent:
        notes.append(facts.absent)
    ray_gpus = int(resources.get("GPU", 0))
    declared = int(resources.get(DEVICE_RESOURCE, 0))
    label = labels.get(ACCELERATOR_LABEL, "")
    if facts.gpus and ray_gpus:
        if len(facts.gpus) != ray_gpus:
            notes.append(f"NVML shows {len(facts.gpus)} devices, Ray's resource GPU is {ray_gpus}")
        devices = tuple(
            Device(
                index=gpu.index,
                accelerator=kind_of_product(gpu.product),
                memory_bytes=gpu.memory_bytes,
                uuid=gpu.uuid,
                pci_address=gpu.pci_address,
                numa_node=gpu.numa_node,
            )
            for gpu in facts.gpus
            if gpu.index < ray_gpus
        )
        kinds = {device.accelerator for device in devices}
        if label and kinds != {label}:
            found = ", ".join(sorted(kinds))
            notes.append(f"the label {ACCELERATOR_LABEL}={label} is not used: NVML shows {found}")
        return devices, DeviceSource.NVML, tuple(notes)
    if facts.gpus:
        notes.append(f"NVML shows {len(facts.gpus)} devices, but Ray has no resource GPU here")
    for count, source in ((ray_gpus, DeviceSource.RAY_GPU), (declared, DeviceSource.DECLARED)):
        if count:
            kind = label or DECLARED_ACCELERATOR
            found_devices = tuple(Device(index=i, accelerator=kind) for i in range(count))
            return found_devices, source, tuple(notes)
    return (), DeviceSource.NONE, tuple(notes)
