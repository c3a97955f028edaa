"""The elements of an NCCL or RCCL system XML as values: CPUs, PCI functions, GPUs, nets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from ..accelerator_names import kind_of_pci
from .source import Source

MOST_FUNCTIONS = 4096
_MOST_LEVELS = 32
_SPEED = re.compile(r"\s*(\d{1,4}(?:\.\d{1,6})?)\s*GT/s")
_WHOLE = re.compile(r"-?\d{1,15}")
_ADDRESS = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])")
_BRIDGE, _SWITCH, _CPU_LINK = "0x0604", "0x0680", "0x068001"
_GPU_CLASSES = ("0x03", "0x12", "0x0b40")
_NIC_CLASSES = ("0x02", "0x0c06")


@dataclass(frozen=True)
class Joint:
    """A link of a GPU: to a bus address, so many times, and the PCI class of what is there."""

    target: str
    count: int
    target_class: str
    xgmi: bool

    @property
    def to_switch(self) -> bool:
        return self.target_class.startswith(_SWITCH) and not self.to_cpu

    @property
    def to_cpu(self) -> bool:
        return self.target_class.startswith(_CPU_LINK)


@dataclass(frozen=True)
class Net:
    """A network interface as NCCL sees it. rdma: whether GPUs can be read directly (gdr)."""

    name: str
    bits_per_s: float | None
    rdma: bool | None
    port: int | None
    guid: str


@dataclass
class Function:
    """One PCI function. bridges: the addresses of those above it, the outermost first.

    gt_per_s, lanes: its own link; path_gt_per_s: the slowest link from it to the CPU.
    """

    address: str
    kind: str
    numa: int | None
    cpu: int
    bridges: tuple[str, ...]
    gt_per_s: float | None
    lanes: int | None
    path_gt_per_s: float | None
    accelerator: str | None
    dev: int | None = None
    sm: int | None = None
    gcn: str = ""
    described: bool = False
    """The file tells of the GPU itself, so that links which are not in there do not exist."""
    joints: list[Joint] = field(default_factory=list)
    nets: list[Net] = field(default_factory=list)


@dataclass
class System:
    """One host of the file. cpus: NUMA node and affinity; loose_nets: those without a device."""

    host: str
    cpus: list[tuple[int | None, str]] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    loose_nets: list[Net] = field(default_factory=list)
    switches: int = 0

    def of_kind(self, kind: str) -> list[Function]:
        return [function for function in self.functions if function.kind == kind]


def systems(source: Source, root: Element) -> list[System]:
    """The hosts that a file describes. Raises InvalidInput naming the address or line."""
    found: dict[str, System] = {}
    seen: set[tuple[str, str]] = set()
    count = 0
    for cpu in root:
        host = cpu.get("host_hash", "")
        system = found.setdefault(host, System(host))
        if cpu.tag != "cpu":
            continue
        numa = whole(cpu.get("numaid"))
        numa = numa if numa is not None and numa >= 0 else None
        system.cpus.append((numa, cpu.get("affinity", "")))
        stack: list[tuple[Element, tuple[Function, ...]]] = [(one, ()) for one in reversed(cpu)]
        while stack:
            element, above = stack.pop()
            if len(above) > _MOST_LEVELS:
                found_here = f"PCI bridges in more than {_MOST_LEVELS} levels"
                raise source.refuse("", found_here, "hand in the file as NCCL wrote it")
            if element.tag == "nic" or element.tag == "net":
                system.loose_nets += nets_of(element)
            elif element.tag == "pci":
                count += 1
                function = _function(source, element, above, numa, len(system.cpus) - 1)
                if (host, function.address) in seen:
                    place = source.line_of(str(element.get("busid")))
                    found_here = f"bus id {function.address} is there twice"
                    raise source.refuse(place, found_here, "give each function its own bus id")
                if count > MOST_FUNCTIONS:
                    found_here = f"more than {MOST_FUNCTIONS} PCI functions"
                    raise source.refuse("", found_here, "hand in the file of one node")
                seen.add((host, function.address))
                if function.kind == "bridge":
                    system.switches += 1
                    stack += [(one, (*above, function)) for one in reversed(element)]
                else:
                    system.functions.append(function)
    return [system for system in found.values() if system.cpus]


def _function(
    source: Source, element: Element, above: tuple[Function, ...], numa: int | None, cpu: int
) -> Function:
    busid = element.get("busid")
    if not busid:
        found = "a pci element without busid"
        raise source.refuse(source.line_of("<pci"), found, "give each function its bus id")
    kind = _kind(element)
    speed = _SPEED.match(element.get("link_speed", ""))
    gt_per_s = float(speed[1]) if speed and float(speed[1]) > 0 else None
    lanes = whole(element.get("link_width"))
    speeds = [one for one in (gt_per_s, *(bridge.gt_per_s for bridge in above)) if one is not None]
    vendor, device = hexadecimal(element.get("vendor")), hexadecimal(element.get("device"))
    function = Function(
        address=address(busid),
        kind=kind,
        numa=numa,
        cpu=cpu,
        bridges=tuple(bridge.address for bridge in above),
        gt_per_s=gt_per_s,
        lanes=lanes if lanes and lanes > 0 else None,
        path_gt_per_s=min(speeds, default=None),
        accelerator=kind_of_pci(vendor, device),
    )
    gpu = element.find("gpu")
    if gpu is not None:
        function.dev, function.sm = whole(gpu.get("dev")), whole(gpu.get("sm"))
        function.gcn, function.described = gpu.get("gcn", ""), True
        function.joints = [
            Joint(
                address(one.get("target", "")),
                max(0, whole(one.get("count")) or 0),
                one.get("tclass", "").lower(),
                one.tag == "xgmi",
            )
            for one in gpu
            if one.tag in ("nvlink", "xgmi")
        ]
    for nic in element.findall("nic"):
        function.nets += nets_of(nic)
    return function


def _kind(element: Element) -> str:
    """`gpu`, `nic`, `switch` (NVSwitch), `bridge`, or `function` where it cannot be told."""
    what = element.get("class", "").lower()
    if element.find("gpu") is not None:
        return "gpu"
    if element.find("nic") is not None:
        return "nic"
    if what.startswith(_BRIDGE) or element.find("pci") is not None:
        return "bridge"
    if what.startswith(_GPU_CLASSES):
        return "gpu"
    if what.startswith(_NIC_CLASSES):
        return "nic"
    return "switch" if what.startswith(_SWITCH) else "function"


def nets_of(nic: Element) -> list[Net]:
    """The nets of a nic element, or a net by itself."""
    found = []
    for net in [nic] if nic.tag == "net" else nic.findall("net"):
        megabits, gdr = whole(net.get("speed")), whole(net.get("gdr"))
        found.append(
            Net(
                name=net.get("name") or f"net{net.get('dev', '')}",
                bits_per_s=megabits * 1e6 if megabits is not None and megabits > 0 else None,
                rdma=None if gdr is None else gdr > 0,
                port=whole(net.get("port")),
                guid=net.get("guid", ""),
            )
        )
    return found


def address(text: str) -> str:
    """A bus id in small letters, its domain of four digits where it has no more."""
    plain = text.strip().lower()
    match = _ADDRESS.fullmatch(plain)
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}" if match else plain


def whole(text: str | None) -> int | None:
    """A whole number; None where the text is none."""
    plain = (text or "").strip()
    return int(plain) if _WHOLE.fullmatch(plain) else None


def hexadecimal(text: str | None) -> int | None:
    """A number as `0x10de`; None where the text is none."""
    plain = (text or "").strip().lower()
    return int(plain, 16) if re.fullmatch(r"(0x)?[0-9a-f]{1,8}", plain) else None
