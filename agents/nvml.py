"""NVIDIA devices through NVML. A node without them is a fact to name, not an error."""

from __future__ import annotations

import importlib
from typing import Any

from pydantic import BaseModel, ConfigDict

from .device_links import read_device_links


class MigInstance(BaseModel):
    """A part of a device that MIG divides off."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uuid: str
    name: str = ""
    memory_bytes: int | None = None


class Gpu(BaseModel):
    """One NVIDIA device, by NVML's index. firmware: its video BIOS.

    divided: whether MIG is on, and None where the driver does not tell; parts: the instances.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    index: int
    product: str
    uuid: str
    memory_bytes: int
    pci_address: str
    numa_node: int | None = None
    firmware: str = ""
    divided: bool | None = None
    parts: tuple[MigInstance, ...] = ()


class NvmlFacts(BaseModel):
    """What NVML says of a node; `absent` says why it says nothing.

    links: what joins each pair of devices; empty where it is not known or a device is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    absent: str = ""
    faults: tuple[str, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()


def read_nvml(binding: Any = None) -> NvmlFacts:
    """The devices of this node. `binding` has pynvml's functions; the library itself by default.

    A device that cannot be read is named in `faults` and left out.
    """
    if binding is None:
        try:
            binding = importlib.import_module("pynvml")
        except ImportError:
            return NvmlFacts(absent="nvidia-ml-py is not installed")
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        return NvmlFacts(absent=f"no NVIDIA driver: {error}")
    try:
        driver = _as_text(binding.nvmlSystemGetDriverVersion())
        gpus, faults, handles = [], [], []
        for index in range(binding.nvmlDeviceGetCount()):
            try:
                gpus.append(_read_gpu(binding, index))
                handles.append(binding.nvmlDeviceGetHandleByIndex(index))
            except binding.NVMLError as error:
                faults.append(f"device {index} cannot be read: {error}")
        links = read_device_links(binding, handles) if not faults else ()
        return NvmlFacts(gpus=tuple(gpus), driver=driver, faults=tuple(faults), links=links)
    except binding.NVMLError as error:
        return NvmlFacts(absent=f"the NVIDIA driver does not answer: {error}")
    finally:
        binding.nvmlShutdown()


def _read_gpu(binding: Any, index: int) -> Gpu:
    handle = binding.nvmlDeviceGetHandleByIndex(index)
    try:
        numa = int(binding.nvmlDeviceGetNumaNodeId(handle))
    except (binding.NVMLError, AttributeError):  # drivers before 530 do not tell
        numa = -1
    return Gpu(
        index=index,
        product=_as_text(binding.nvmlDeviceGetName(handle)),
        uuid=_as_text(binding.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(binding.nvmlDeviceGetMemoryInfo(handle).total),
        pci_address=_pci_address(_as_text(binding.nvmlDeviceGetPciInfo(handle).busId)),
        numa_node=numa if numa >= 0 else None,
        firmware=_asked(binding, "nvmlDeviceGetVbiosVersion", handle),
        divided=_divided(binding, handle),
        parts=_parts(binding, handle),
    )


def _asked(binding: Any, function: str, handle: Any) -> str:
    """A text that not every driver or device has; empty where it does not."""
    try:
        return _as_text(getattr(binding, function)(handle))
    except (binding.NVMLError, AttributeError):
        return ""


def _divided(binding: Any, handle: Any) -> bool | None:
    try:
        return int(binding.nvmlDeviceGetMigMode(handle)[0]) == 1
    except (binding.NVMLError, AttributeError):
        return None


def _parts(binding: Any, handle: Any) -> tuple[MigInstance, ...]:
    """The MIG instances of a device. Their slots can be empty, and then are an error to ask."""
    if not _divided(binding, handle):
        return ()
    found = []
    for slot in range(int(binding.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            part = binding.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            found.append(
                MigInstance(
                    uuid=_as_text(binding.nvmlDeviceGetUUID(part)),
                    name=_asked(binding, "nvmlDeviceGetName", part),
                    memory_bytes=int(binding.nvmlDeviceGetMemoryInfo(part).total),
                )
            )
        except binding.NVMLError:
            continue
    return tuple(found)


def _pci_address(bus_id: str) -> str:
    """`00000000:1B:00.0` as sysfs writes it: `0000:1b:00.0`."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _as_text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
