"""Distances, rails, AMD GPUs, MIG and handed-in files: an inventory from recorded trees."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from railweave.agents.amd_gpus import read_amd
from railweave.agents.device_links import node_links
from railweave.agents.inventory import DeviceSource, NodeInventory, take_inventory
from railweave.agents.nics import LinkState
from railweave.agents.node_files import NODE_FILES, node_files
from railweave.agents.nvml import Gpu, NvmlFacts, read_nvml
from railweave.agents.pci import numa_distances, path_between, pci_place
from railweave.agents.rdma import read_rdma

NO_DRIVER = NvmlFacts(absent="no NVIDIA driver")


class RecordedTree:
    """A sysfs tree of PCI functions, RDMA devices and KFD nodes that a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def function(self, *way: str, numa: int = 0, **attributes: str) -> Path:
        """way: the host bridge, the bridges below it, and the function."""
        folder = self.root / "devices" / Path(*way)
        for name, value in ({"numa_node": str(numa)} | attributes).items():
            self.write(folder / name, value)
        listed = self.root / "bus/pci/devices" / way[-1]
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.symlink_to(os.path.relpath(folder, listed.parent))
        return folder

    def rdma(self, name: str, *way: str, numa: int = 0, state: str = "4: ACTIVE") -> None:
        function = self.function(*way, numa=numa)
        folder = function / "infiniband" / name
        for file, text in {
            "fw_ver": "28.39.1002",
            "board_id": "MT_0000000838",
            "ports/1/state": state,
            "ports/1/rate": "400 Gb/sec (4X NDR)",
            "ports/1/link_layer": "InfiniBand",
        }.items():
            self.write(folder / file, text)
        (folder / "device").symlink_to(os.path.relpath(function, folder))
        listed = self.root / "class/infiniband" / name
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.symlink_to(os.path.relpath(folder, listed.parent))

    def kfd(self, node: int, links: dict[int, tuple[int, int]], **properties: int) -> None:
        """links: for each node that one leads to its type and MB/s."""
        folder = self.root / "class/kfd/kfd/topology/nodes" / str(node)
        lines = "\n".join(f"{name} {value}" for name, value in properties.items())
        self.write(folder / "properties", lines)
        self.write(folder / "name", "aqua_vanjaram")
        for i, (to, (kind, rate)) in enumerate(links.items()):
            told = f"type {kind}\nnode_from {node}\nnode_to {to}\nmax_bandwidth {rate}"
            self.write(folder / f"io_links/{i}/properties", told)


@pytest.fixture
def tree(tmp_path: Path) -> RecordedTree:
    return RecordedTree(tmp_path / "sys")


SWITCH = ("pci0000:15", "0000:15:01.0", "0000:16:00.0")
OTHER = ("pci0000:80", "0000:80:01.0")


def two_switches(tree: RecordedTree) -> None:
    """GPUs 1a and 1c with NICs 1b and 1d on one switch of node 0, GPU 81 and NIC 91 on node 1."""
    for port, address in enumerate(("1a", "1c")):
        tree.function(*SWITCH, f"0000:17:0{port}.0", f"0000:{address}:00.0")
    for port, (name, address) in enumerate((("mlx5_0", "1b"), ("mlx5_1", "1d")), start=4):
        tree.rdma(name, *SWITCH, f"0000:17:0{port}.0", f"0000:{address}:00.0")
    tree.function(*OTHER, "0000:81:00.0", numa=1)
    tree.rdma("mlx5_2", "pci0000:90", "0000:90:01.0", "0000:91:00.0", numa=1)
    tree.rdma("mlx5_9", "pci0000:a0", "0000:a1:00.0", numa=2, state="1: DOWN")


def gpus(*addresses: str, **more: Any) -> NvmlFacts:
    return NvmlFacts(
        gpus=tuple(
            Gpu(
                index=i,
                product="NVIDIA H100 80GB HBM3",
                uuid=f"GPU-{i}",
                memory_bytes=80 * 2**30,
                pci_address=address,
                **more,
            )
            for i, address in enumerate(addresses)
        ),
        driver="570.1",
    )


def inventory(tree: RecordedTree, facts: NvmlFacts, **more: Any) -> NodeInventory:
    resources = {"GPU": float(len(facts.gpus) or more.pop("ray_gpus", 0))}
    return take_inventory("n0", "10.0.0.1", resources, {}, sysfs=tree.root, nvml=facts, **more)


def test_paths_between_functions_are_told_by_what_they_share(tree: RecordedTree) -> None:
    two_switches(tree)
    tree.function(*SWITCH, "0000:17:08.0", "0000:18:00.0", "0000:19:00.0", "0000:1f:00.0")
    tree.function("pci0000:15", "0000:15:02.0", "0000:20:00.0")
    tree.function("pci0000:30", "0000:30:01.0", "0000:31:00.0")
    place = {
        name: pci_place(tree.root, f"0000:{name}:00.0")
        for name in ("1a", "1b", "1f", "20", "31", "81")
    }
    first = place["1a"]
    assert first is not None
    assert (first.root, first.numa_node, len(first.bridges)) == ("pci0000:15", 0, 3)
    paths = [path_between(first, other) for name, other in place.items() if other and name != "1a"]
    assert paths == ["PIX", "PXB", "PHB", "NODE", "SYS"]
    assert pci_place(tree.root, "0000:ff:00.0") is None
    assert pci_place(tree.root, "../../etc") is None


def test_each_device_takes_the_nearest_nic_and_ties_are_shared_out(tree: RecordedTree) -> None:
    two_switches(tree)
    found = inventory(tree, gpus("0000:1a:00.0", "0000:1c:00.0", "0000:81:00.0"))
    assert found.rails == ("mlx5_0", "mlx5_1", "mlx5_2")
    assert [device.network.rail for device in found.devices] == [0, 1, 2]
    assert [device.network.path for device in found.devices] == ["PIX", "PIX", "NODE"]
    assert found.devices[0].network.nearest == ("mlx5_0", "mlx5_1")
    assert found.devices[0].network.paths["mlx5_2"] == "SYS"
    assert [device.numa_node for device in found.devices] == [0, 0, 1]
    assert "RDMA devices without a link: mlx5_9" in found.notes


def test_rdma_devices_are_described_also_without_an_interface(tree: RecordedTree) -> None:
    two_switches(tree)
    first, *_, last = read_rdma(tree.root)
    assert (first.name, first.state, first.bytes_per_s) == ("mlx5_0", LinkState.UP, 50e9)
    assert (first.firmware, first.board) == ("28.39.1002", "MT_0000000838")
    assert (first.link_layer, first.pci_address) == ("InfiniBand", "0000:1b:00.0")
    assert last.state is LinkState.DOWN
    assert read_rdma(tree.root / "absent") == ()


def test_a_link_that_lost_lanes_is_named_and_one_that_saves_power_is_not(
    tree: RecordedTree,
) -> None:
    best = {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
    tree.function(
        *OTHER, "0000:81:00.0", current_link_speed="2.5 GT/s", current_link_width="16", **best
    )
    tree.function(
        *OTHER, "0000:82:00.0", current_link_speed="32.0 GT/s", current_link_width="8", **best
    )
    notes = inventory(tree, gpus("0000:81:00.0", "0000:82:00.0")).notes
    assert notes == ("device 1 (0000:82:00.0): PCIe runs at x8, it could at x16",)


def test_distances_between_numa_nodes_are_firmwares(tree: RecordedTree) -> None:
    for node, distances in ((0, "10 21"), (1, "21 10"), (10, "")):
        tree.write(tree.root / f"devices/system/node/node{node}/distance", distances)
    assert numa_distances(tree.root) == {0: (10, 21), 1: (21, 10)}
    assert numa_distances(tree.root / "absent") == {}


def amd(tree: RecordedTree) -> None:
    tree.kfd(0, {1: (2, 0)}, cpu_cores_count=64, simd_count=0)
    for node, (bus, others) in {2: (0x0C, {3: (11, 64000), 0: (2, 0)}), 3: (0x22, {})}.items():
        tree.kfd(node, others, simd_count=1216, location_id=bus << 8, domain=0)
        tree.function(
            "pci0000:00",
            f"0000:{bus:02x}:00.0",
            vendor="0x1002",
            device="0x74a1",
            mem_info_vram_total=str(192 * 2**30),
            vbios_version="113-M3000100-102",
            unique_id=f"00ab{bus:02x}",
        )
    tree.kfd(4, {}, simd_count=1216, location_id=0x43 << 8)
    tree.function("pci0000:40", "0000:43:00.0", numa=1, vendor="0x1002", device="0x74a1")
    tree.write(tree.root / "module/amdgpu/version", "6.8.5")


def test_amd_gpus_and_their_xgmi_links_come_from_the_kernel(tree: RecordedTree) -> None:
    amd(tree)
    facts = read_amd(tree.root)
    assert [gpu.pci_address for gpu in facts.gpus] == [
        "0000:0c:00.0",
        "0000:22:00.0",
        "0000:43:00.0",
    ]
    first = facts.gpus[0]
    assert (first.accelerator, first.memory_bytes) == ("MI300X", 192 * 2**30)
    assert (first.firmware, first.uuid) == ("113-M3000100-102", "GPU-00ab0c")
    assert facts.links == (
        ("X", "XGMI@64", "SYS"),
        ("XGMI@64", "X", "SYS"),
        ("SYS", "SYS", "X"),
    )
    links = node_links(facts.links, 3)
    assert links is not None
    assert links.bytes_per_s[0][1] == 64e9


def test_a_node_with_amd_gpus_is_counted_by_their_driver(tree: RecordedTree) -> None:
    amd(tree)
    found = inventory(tree, NO_DRIVER, ray_gpus=3)
    assert found.device_source is DeviceSource.AMDGPU
    assert [device.accelerator for device in found.devices] == ["MI300X"] * 3
    assert found.devices[2].numa_node == 1
    assert found.driver == "6.8.5"
    assert found.links[0] == ("X", "XGMI@64", "SYS")
    assert read_amd(tree.root / "absent").absent.startswith("no amdgpu driver")


class MigError(Exception):
    pass


class RecordedMig:
    """pynvml's functions for a device that is divided into two instances of seven slots."""

    NVMLError = MigError

    def nvmlInit(self) -> None:
        """Nothing to open."""

    def nvmlShutdown(self) -> None:
        """Nothing to close."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return "590.48.01"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return "whole"

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200" if handle == "whole" else "NVIDIA H200 MIG 3g.71gb"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return {"whole": "GPU-1"}.get(handle, f"MIG-{handle}")

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(total=(141 if handle == "whole" else 71) * 2**30)

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(busId="00000000:1A:00.0")

    def nvmlDeviceGetVbiosVersion(self, handle: str) -> bytes:
        return b"96.00.A5.00.01"

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, slot: int) -> str:
        if slot > 1:
            raise MigError("not found")
        return str(slot)


def test_mig_instances_are_listed_and_noted(tree: RecordedTree) -> None:
    facts = read_nvml(RecordedMig())
    (gpu,) = facts.gpus
    assert (gpu.divided, gpu.firmware) == (True, "96.00.A5.00.01")
    assert [(part.uuid, part.memory_bytes) for part in gpu.parts] == [
        ("MIG-0", 71 * 2**30),
        ("MIG-1", 71 * 2**30),
    ]
    assert "devices that MIG divides: 0" in inventory(tree, facts).notes


TOPO = """\
\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\tSYS\t0-7\t0
GPU1\tNV4\t X \tSYS\tPIX\t8-15\t1
mlx5_0\tPIX\tSYS\t X \tSYS
mlx5_1\tSYS\tPIX\tSYS\t X
"""
NVLINK = "".join(
    f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: GPU-{i})\n" + "\t Link 0: 25 GB/s\n" * 1 for i in (0, 1)
)


def test_files_tell_what_no_driver_does(tree: RecordedTree, tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    tree.write(folder / "a-topo.txt", TOPO)
    tree.write(folder / "b-nvlink.txt", NVLINK)
    tree.write(folder / "c-notes.txt", "rebooted on Monday")
    found = inventory(tree, NO_DRIVER, ray_gpus=2, files=folder)
    assert found.links == (("X", "NV4"), ("NV4", "X"))
    assert [device.accelerator for device in found.devices] == ["A100-80G"] * 2
    assert [device.numa_node for device in found.devices] == [0, 1]
    assert found.rails == ("mlx5_0", "mlx5_1")
    assert [device.network.rail for device in found.devices] == [0, 1]
    assert any(note.startswith("c-notes.txt: not read: no format") for note in found.notes)


def test_what_a_driver_told_stays_and_contradictions_are_named(
    tree: RecordedTree, tmp_path: Path
) -> None:
    tree.write(tmp_path / "outputs/nvlink.txt", NVLINK)
    facts = gpus("0000:1a:00.0", "0000:1c:00.0", numa_node=3)
    found = inventory(tree, facts, files=tmp_path / "outputs")
    assert [device.numa_node for device in found.devices] == [3, 3]
    assert "files call device 0 A100-80G, it is H100-SXM" in found.notes
    one = inventory(tree, gpus("0000:1a:00.0"), files=tmp_path / "outputs")
    assert "files tell of 2 devices, the node has 1: not used" in one.notes


def test_a_folder_that_is_not_there_is_named_and_never_fatal(
    tree: RecordedTree, tmp_path: Path
) -> None:
    found = inventory(tree, NO_DRIVER, files=tmp_path / "absent")
    assert any("absent: cannot be read" in note for note in found.notes)
    assert node_files({NODE_FILES: " /etc/outputs "}) == Path("/etc/outputs")
    assert node_files({}) is None


def test_a_machine_of_another_name_is_not_taken(tree: RecordedTree, tmp_path: Path) -> None:
    text = "".join(f"elsewhere: {line}\n" for line in TOPO.splitlines())
    tree.write(tmp_path / "outputs/topo.txt", text)
    found = inventory(tree, NO_DRIVER, ray_gpus=2, files=tmp_path / "outputs")
    assert found.links == ()
    assert "topo.txt: nvidia-smi-topo says nothing of this node" in found.notes
