"""The objects of an hwloc topology XML (versions 1 to 3) as values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from ..accelerator_names import kind_of_pci
from .nccl_elements import address
from .source import Source

MOST_IN_A_MATRIX = 1024
_MOST_LEVELS = 256
_PCI_TYPE = re.compile(
    r"([0-9a-fA-F]{4})(?:[0-9a-fA-F]{2})?\s*\[([0-9a-fA-F]{4}):([0-9a-fA-F]{4})\]"
)
_ACCELERATOR_OS = re.compile(
    r"(nvml|cuda|rsmi|opencl|ze|ve|mic|amdsmi)(\d{1,4})\D?.*", re.IGNORECASE
)
_BACKENDS = ("nvml", "rsmi", "amdsmi", "cuda", "ze", "ve", "mic", "opencl")
"""Whose number of a device counts, the first that is there."""
_NETWORK, _OPENFABRICS = 2, 3
_GROUP_OF_IO = "1000"
"""hwloc's kind of a group that it made only because devices are near to just these CPUs."""


@dataclass
class Device:
    """A PCI function, or an accelerator that is listed without one. kind: gpu, nic, switch, other.

    bridges: ids of the bridges above, the outermost first; root: that of the host bridge.
    names: what the operating system calls it. near: the CPU set it is near to, as written.
    """

    address: str
    kind: str
    root: str
    bridges: tuple[str, ...]
    package: int | None
    numa: int | None
    near: str
    own_group: bool
    gbyte_per_s: float | None
    pci_ids: tuple[int, int] | None
    ids: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    fabrics: list[str] = field(default_factory=list)
    product: str | None = None

    @property
    def accelerator(self) -> str | None:
        return kind_of_pci(*self.pci_ids) if self.pci_ids else None

    @property
    def number(self) -> int | None:
        """Its number as the drivers count."""
        numbers = {
            match[1].lower(): int(match[2])
            for name in self.names
            if (match := _ACCELERATOR_OS.fullmatch(name))
        }
        return next((numbers[backend] for backend in _BACKENDS if backend in numbers), None)


@dataclass
class Tree:
    """Counts of CPU objects, all devices, packages by id, and facts by name."""

    version: str
    counts: dict[str, int] = field(default_factory=dict)
    devices: list[Device] = field(default_factory=list)
    packages: dict[str, int] = field(default_factory=dict)
    infos: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    package: int | None = None
    numa: int | None = None
    near: str = ""
    own_group: bool = False
    root: str = ""
    bridges: tuple[str, ...] = ()
    device: Device | None = None
    depth: int = 0


def tree(source: Source, root: Element) -> Tree:
    """All objects of a topology. Raises InvalidInput for one without objects or too deep."""
    found = Tree(version=root.get("version", "1"))
    stack = [(element, _Place()) for element in reversed(root) if element.tag == "object"]
    if not stack:
        where = source.line_of("<topology")
        raise source.refuse(where, "a topology without objects", "hand in the whole file")
    _take_infos(found, root)
    loose: dict[int, Device] = {}
    while stack:
        element, place = stack.pop()
        if place.depth > _MOST_LEVELS:
            raise source.refuse(
                "", f"objects in more than {_MOST_LEVELS} levels", "hand in lstopo's"
            )
        here = _enter(found, element, place, loose)
        stack += [(one, here) for one in reversed(element) if one.tag == "object"]
    return found


def _take_infos(found: Tree, element: Element) -> None:
    for info in element.findall("info"):
        found.infos.setdefault(info.get("name", ""), info.get("value", ""))


def _enter(found: Tree, element: Element, place: _Place, loose: dict[int, Device]) -> _Place:
    """Count an object and return the place of what it holds."""
    kind = {"Socket": "Package", "Node": "NUMANode"}.get(
        element.get("type", ""), element.get("type")
    )
    kind = kind or "unknown"
    found.counts[kind] = found.counts.get(kind, 0) + 1
    key = f"{kind}:{element.get('gp_index', '')}"
    package, numa = place.package, place.numa
    if kind == "Machine":
        _take_infos(found, element)
    if kind == "Package":
        package = _number(element.get("os_index"))
        package = len(found.packages) if package is None else package
        found.packages[key] = package
    if element.get("nodeset") is not None:
        numa = _only_bit(element.get("nodeset", ""))
    device, root, bridges = place.device, place.root, place.bridges
    if kind == "Bridge":
        if element.get("bridge_type", "").startswith("0"):
            root, bridges = key + element.get("bridge_pci", ""), ()
        else:
            bridges = (*bridges, address(element.get("pci_busid", "")))
    elif kind == "PCIDev":
        device = _pci_device(element, place, key)
        found.devices.append(device)
    elif kind == "OSDev":
        _take_os_device(found, element, place, key, loose)
    has_cpus = element.get("cpuset") is not None
    group = kind == "Group" and element.get("kind") == _GROUP_OF_IO
    return _Place(
        package,
        numa,
        element.get("cpuset", "") if has_cpus else place.near,
        group if has_cpus else place.own_group,
        root,
        bridges,
        device,
        place.depth + 1,
    )


def _pci_device(element: Element, place: _Place, key: str) -> Device:
    match = _PCI_TYPE.match(element.get("pci_type", ""))
    what = match[1].lower() if match else ""
    ids = (int(match[2], 16), int(match[3], 16)) if match else None
    kind = "other"
    if (
        what in ("0302", "0b40")
        or what.startswith("12")
        or (what == "0380" and ids and ids[0] == 0x1002)
    ):
        kind = "gpu"
    elif what.startswith("02") or what == "0c06":
        kind = "nic"
    if element.get("subtype") == "NVSwitch" or (what == "0680" and ids and ids[0] == 0x10DE):
        kind = "switch"
    speed = element.get("pci_link_speed", "")
    rate = float(speed) if re.fullmatch(r"\d{1,6}(\.\d{1,9})?", speed) else 0.0
    return Device(
        address=address(element.get("pci_busid", "")),
        kind=kind,
        root=place.root,
        bridges=place.bridges,
        package=place.package,
        numa=place.numa,
        near=place.near,
        own_group=place.own_group,
        gbyte_per_s=rate or None,
        pci_ids=ids,
        ids={key},
    )


def _take_os_device(
    found: Tree, element: Element, place: _Place, key: str, loose: dict[int, Device]
) -> None:
    """Add what the system calls a device to it, which may make it an accelerator or a NIC."""
    name = element.get("name", "")
    infos = {info.get("name"): info.get("value", "") for info in element.findall("info")}
    match = _ACCELERATOR_OS.fullmatch(name)
    fabric = "NodeGUID" in infos or _os_kind(found, element) == _OPENFABRICS
    device = place.device
    if device is None and match and match[1].lower() != "opencl":
        # Filters can leave PCI out; then one backend's numbers tell the devices apart.
        device = loose.get(int(match[2]))
        if device is None:
            device = Device(
                "", "gpu", "", (), place.package, place.numa, place.near, False, None, None
            )
            loose[int(match[2])] = device
            found.devices.append(device)
    if device is None:
        return
    device.ids.add(key)
    device.names.append(name)
    if match and infos.get("OpenCLDeviceType", "GPU") != "CPU" and device.kind == "other":
        device.kind = "gpu"
    device.product = device.product or infos.get("GPUModel") or None
    if fabric:
        device.fabrics.append(name)
        device.kind = "nic" if device.kind == "other" else device.kind
    elif _os_kind(found, element) == _NETWORK:
        device.ports.append(name)
        device.kind = "nic" if device.kind == "other" else device.kind


def _os_kind(found: Tree, element: Element) -> int | None:
    """The kind of an OS device as version 2 counts it; version 3 has a set of bits instead."""
    number = _number(element.get("osdev_type"))
    if number is None or not found.version.startswith("3"):
        return number
    return _OPENFABRICS if number & 32 else _NETWORK if number & 16 else None


def matrix(source: Source, element: Element) -> tuple[list[str], list[list[int]]]:
    """Ids of the objects (`OSDev:802`) of a distances2 or distances2hetero, and its values."""
    name = element.get("name", "distances")
    where = source.line_of(f'name="{name}"')
    kind = element.get("type", "")
    ids = [
        one if ":" in one else f"{kind}:{one}"
        for part in element.findall("indexes")
        for one in (part.text or "").split()
    ]
    words = [word for part in element.findall("u64values") for word in (part.text or "").split()]
    count = len(ids)
    if count > MOST_IN_A_MATRIX:
        found = f"{name}: {count} objects; at most {MOST_IN_A_MATRIX} are read"
        raise source.refuse(where, found, "hand in the file of one node")
    if len(words) != count * count or _number(element.get("nbobjs")) not in (None, count):
        found = f"{name}: {len(words)} values for {count} of {element.get('nbobjs')} objects"
        raise source.refuse(where, found, "hand in the whole file")
    if not all(re.fullmatch(r"\d{1,20}", word) for word in words):
        raise source.refuse(where, f"{name}: a value is no number", "hand in the whole file")
    values = [int(word) for word in words]
    return ids, [values[row * count : (row + 1) * count] for row in range(count)]


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,9}", text) else None


def _only_bit(text: str) -> int | None:
    """The number of the only bit that is set in a set such as `0x2` or `0x1,,0x0`; else None."""
    words = text.split(",")
    if not all(re.fullmatch(r"(0x)?[0-9a-fA-F]{0,8}", word) for word in words) or len(words) > 256:
        return None
    value = 0
    for word in words:
        value = value << 32 | int(word.removeprefix("0x") or "0", 16)
    return value.bit_length() - 1 if value and value & (value - 1) == 0 else None
