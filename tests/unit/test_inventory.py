"""What an inventory promises: what the machine has, and a named fact where it does not tell."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from railweave.agents.inventory import DeviceSource, find_devices, take_inventory
from railweave.agents.nics import LinkState, read_nics
from railweave.agents.nvml import Gpu, NvmlFacts, read_nvml
from railweave.placement.accelerator_names import kind_of_product

NO_DRIVER = NvmlFacts(absent="no NVIDIA driver: NVML Shared Library Not Found")


class MadeSysfs:
    """A sysfs tree with the interfaces a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class/net").mkdir(parents=True)

    def add(
        self,
        name: str,
        *,
        pci: str | None = None,
        below: str = "",
        numa: int = -1,
        driver: str = "",
        attributes: dict[str, str] | None = None,
    ) -> Path:
        values = {"operstate": "up", "type": "1", "address": "02:00:00:00:00:01", "mtu": "1500"}
        function = self.root / "devices" / (f"pci0000:00/{pci}" if pci else "virtual")
        device = function / below if below else function
        folder = device / "net" / name
        folder.mkdir(parents=True)
        for key, value in (values | (attributes or {})).items():
            (folder / key).write_text(value + "\n")
        if pci:
            (function / "numa_node").write_text(f"{numa}\n")
            (folder / "device").symlink_to(os.path.relpath(device, folder))
        if driver:
            (self.root / "bus" / driver).mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(self.root / "bus" / driver)
        (self.root / "class/net" / name).symlink_to(folder)
        return device


@pytest.fixture
def sysfs(tmp_path: Path) -> MadeSysfs:
    return MadeSysfs(tmp_path / "sys")


def rdma(device: Path, name: str, *interfaces: str, rate: str = "400 Gb/sec (4X NDR)") -> None:
    for port, interface in enumerate(interfaces, 1):
        folder = device / "infiniband" / name / f"ports/{port}"
        (folder / "gid_attrs/ndevs").mkdir(parents=True)
        (folder / "gid_attrs/ndevs/0").write_text(interface + "\n")
        (folder / "rate").write_text(rate + "\n")


def test_a_nic_is_described_by_rate_state_pci_numa_and_rdma_device(sysfs: MadeSysfs) -> None:
    device = sysfs.add(
        "ens1f0np0",
        pci="0000:1b:00.0",
        numa=1,
        driver="mlx5_core",
        attributes={"speed": "400000", "mtu": "9000", "address": "b8:3f:d2:00:00:01"},
    )
    rdma(device, "mlx5_0", "ens1f0np0")
    (nic,) = read_nics(sysfs.root)
    assert nic.state is LinkState.UP
    assert nic.bytes_per_s == 50e9
    assert (nic.mac, nic.mtu_bytes) == ("b8:3f:d2:00:00:01", 9000)
    assert (nic.pci_address, nic.numa_node, nic.driver) == ("0000:1b:00.0", 1, "mlx5_core")
    assert (nic.rdma_device, nic.virtual) == ("mlx5_0", False)


def test_each_port_of_a_card_finds_its_own_rdma_device(sysfs: MadeSysfs) -> None:
    for function, name in enumerate(("mlx5_2", "mlx5_3")):
        device = sysfs.add(f"ens2f{function}", pci=f"0000:3b:00.{function}")
        rdma(device, name, f"ens2f{function}")
    assert [nic.rdma_device for nic in read_nics(sysfs.root)] == ["mlx5_2", "mlx5_3"]


def test_an_infiniband_interface_takes_its_rate_from_its_port(sysfs: MadeSysfs) -> None:
    device = sysfs.add("ib0", pci="0000:5e:00.0", attributes={"type": "32", "dev_port": "1"})
    rdma(device, "mlx5_4", "ib9", "ib0", rate="200 Gb/sec (4X HDR)")
    (nic,) = read_nics(sysfs.root)
    assert (nic.bytes_per_s, nic.rdma_device) == (25e9, "mlx5_4")


def test_loopback_is_no_nic_and_virtual_interfaces_say_so(sysfs: MadeSysfs) -> None:
    sysfs.add("lo", attributes={"type": "772"})
    sysfs.add("docker0", attributes={"operstate": "lowerlayerdown"})
    sysfs.add("eth0", pci="0000:00:03.0", below="virtio2", driver="virtio_net")
    docker, eth = read_nics(sysfs.root)
    assert (docker.name, docker.virtual, docker.state) == ("docker0", True, LinkState.DOWN)
    assert (eth.pci_address, eth.numa_node, eth.driver) == ("0000:00:03.0", None, "virtio_net")
    assert eth.bytes_per_s is None


@pytest.mark.parametrize("speed", ["-1", "0", "", "fast"])
def test_a_rate_that_makes_no_sense_is_unknown(sysfs: MadeSysfs, speed: str) -> None:
    sysfs.add("eth0", pci="0000:00:03.0", attributes={"speed": speed, "operstate": "sleepy"})
    (nic,) = read_nics(sysfs.root)
    assert nic.bytes_per_s is None
    assert nic.state is LinkState.UNKNOWN


def test_a_machine_without_sysfs_has_no_nics(tmp_path: Path) -> None:
    assert read_nics(tmp_path / "absent") == ()


def test_this_machine_is_counted_as_it_is(sysfs: MadeSysfs) -> None:
    found = take_inventory("n0", "127.0.0.1", {}, {}, nvml=NO_DRIVER)
    assert found.cpus == len(os.sched_getaffinity(0))
    assert found.memory_bytes == psutil.virtual_memory().total
    assert {nic.name for nic in found.nics} == set(os.listdir("/sys/class/net")) - {"lo"}
    assert found.devices == ()
    assert found.device_source is DeviceSource.NONE


def test_an_absent_driver_is_a_fact_in_the_inventory_and_no_error(sysfs: MadeSysfs) -> None:
    sysfs.add("eth1", pci="0000:00:04.0", attributes={"operstate": "down"})
    found = take_inventory(
        "n0", "10.0.0.1", {"railweave_device": 2.0}, {}, sysfs=sysfs.root, nvml=NO_DRIVER
    )
    assert found.notes == (
        "no NVIDIA driver: NVML Shared Library Not Found",
        "no amdgpu driver: sysfs has no KFD topology",
        "interfaces without a link: eth1",
    )
    assert [(d.index, d.accelerator) for d in found.devices] == [(0, "declared"), (1, "declared")]
    assert found.device_source is DeviceSource.DECLARED


def gpus(count: int, product: str = "NVIDIA H100 80GB HBM3") -> NvmlFacts:
    return NvmlFacts(
        gpus=tuple(
            Gpu(
                index=i,
                product=product,
                uuid=f"GPU-{i}",
                memory_bytes=80 * 2**30,
                pci_address=f"0000:{i:02x}:00.0",
            )
            for i in range(count)
        ),
        driver="570.1",
    )


def test_nvml_names_the_devices_that_ray_reserves() -> None:
    devices, source, notes = find_devices(gpus(8), {"GPU": 8.0}, {})
    assert source is DeviceSource.NVML
    assert [device.index for device in devices] == list(range(8))
    assert {device.accelerator for device in devices} == {"H100-SXM"}
    assert devices[3].uuid == "GPU-3"
    assert notes == ()


def test_ray_bounds_what_nvml_shows_and_contradictions_are_named() -> None:
    devices, _, notes = find_devices(
        gpus(8), {"GPU": 4.0}, {"railweave.io/accelerator": "A100-80G"}
    )
    assert len(devices) == 4
    assert notes == (
        "NVML shows 8 devices, Ray's resource GPU is 4",
        "the label railweave.io/accelerator=A100-80G is not used: NVML shows H100-SXM",
    )
    devices, source, notes = find_devices(gpus(2), {}, {})
    assert (devices, source) == ((), DeviceSource.NONE)
    assert notes == ("NVML shows 2 devices, but Ray has no resource GPU here",)


def test_a_label_names_devices_that_nvml_does_not_know() -> None:
    label = {"railweave.io/accelerator": "Gaudi3"}
    devices, source, _ = find_devices(NO_DRIVER, {"GPU": 2.0}, label)
    assert (source, {d.accelerator for d in devices}) == (DeviceSource.RAY_GPU, {"Gaudi3"})
    devices, source, _ = find_devices(NO_DRIVER, {"railweave_device": 3.0}, label)
    assert (source, len(devices)) == (DeviceSource.DECLARED, 3)
    assert {d.accelerator for d in devices} == {"Gaudi3"}


class NVMLError(Exception):
    pass


class RecordedNvml:
    """pynvml's functions answering from a record, with bytes where old versions give bytes."""

    NVMLError = NVMLError

    def __init__(self, names: list[str | None], init_error: str = "") -> None:
        self.names = names
        self.init_error = init_error
        self.open = 0

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NVMLError(self.init_error)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if self.names[index] is None:
            raise NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:
        return self.names[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 * 2**30)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{0x1A + handle:02X}:00.0".encode())

    def nvmlDeviceGetNumaNodeId(self, handle: int) -> int:
        if handle == 0:
            raise NVMLError("not supported")
        return 1


def test_nvml_is_read_through_its_own_functions_and_closed_again() -> None:
    binding = RecordedNvml(["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"])
    facts = read_nvml(binding)
    assert facts.driver == "570.86.15"
    assert [gpu.pci_address for gpu in facts.gpus] == ["0000:1a:00.0", "0000:1b:00.0"]
    assert [gpu.numa_node for gpu in facts.gpus] == [None, 1]
    assert binding.open == 0


def test_a_lost_device_is_named_and_the_others_keep_their_indices() -> None:
    facts = read_nvml(RecordedNvml(["NVIDIA H200", None, "NVIDIA H200"]))
    devices, _, notes = find_devices(facts, {"GPU": 3.0}, {})
    assert [device.index for device in devices] == [0, 2]
    assert notes[0] == "device 1 cannot be read: GPU is lost"


def test_a_driver_that_does_not_answer_is_a_fact() -> None:
    facts = read_nvml(RecordedNvml([], init_error="Driver Not Loaded"))
    assert facts.absent == "no NVIDIA driver: Driver Not Loaded"
    assert read_nvml().absent.startswith("no NVIDIA driver") or read_nvml().gpus


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GH200 480GB", "GH200-480GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40G"),
        ("NVIDIA A100 80GB PCIe", "A100-80G"),
        ("NVIDIA A800-SXM4-80GB", "A800-80G"),
        ("NVIDIA H800", "H800"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100-SXM2-16GB", "Tesla-V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 4090", "GeForce-RTX-4090"),
        ("", "unknown"),
    ],
)
def test_product_names_become_the_catalogs_names(product: str, kind: str) -> None:
    assert kind_of_product(product) == kind
