"""hwloc's XML of versions 1 to 3: devices counted once, links by their matrix, localities."""

from __future__ import annotations

import pytest
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.registry import read_source
from railweave.placement.importers.source import Source

_NUMBER = iter(range(1000, 10**6))


def os_device(name: str, kind: int, gp: int, **infos: str) -> str:
    inside = "".join(f'<info name="{key}" value="{value}"/>' for key, value in infos.items())
    return (
        f'<object type="OSDev" gp_index="{gp}" name="{name}" osdev_type="{kind}">{inside}</object>'
    )


def pci(bus: str, what: str, *inside: str, gp: int = 0, subtype: str = "") -> str:
    more = f' subtype="{subtype}"' if subtype else ""
    return (
        f'<object type="PCIDev" gp_index="{gp or next(_NUMBER)}"{more} pci_busid="{bus}" '
        f'pci_type="{what}" pci_link_speed="15.75">{"".join(inside)}</object>'
    )


def bridge(bus: str, *inside: str, host: bool = False) -> str:
    kind = "0-1" if host else "1-1"
    return (
        f'<object type="Bridge" gp_index="{next(_NUMBER)}" bridge_type="{kind}" '
        f'bridge_pci="{bus}" pci_busid="{bus}">{"".join(inside)}</object>'
    )


def package(number: int, *inside: str, kind: str = "Package") -> str:
    sets = f'cpuset="0x{1 << number:08x}" nodeset="0x{1 << number:08x}"'
    return (
        f'<object type="{kind}" os_index="{number}" gp_index="{number + 1}" {sets}>'
        f'<object type="NUMANode" os_index="{number}" {sets}/>'
        f'<object type="Core" {sets}><object type="PU" {sets}/></object>{"".join(inside)}</object>'
    )


def topology(*inside: str, version: str = "3.0", after: str = "") -> str:
    return (
        f'<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology '
        f'version="{version}">\n<object type="Machine" cpuset="0x3" nodeset="0x3">\n'
        + "\n".join(inside)
        + f"\n</object>\n{after}</topology>\n"
    )


def matrix(ids: list[str], values: list[list[int]]) -> str:
    flat = " ".join(str(value) for row in values for value in row)
    return (
        f'<distances2hetero nbobjs="{len(ids)}" kind="25" name="NVLinkBandwidth">'
        f"<indexes>{' '.join(ids)} </indexes><u64values>{flat} </u64values></distances2hetero>\n"
    )


GPU_TYPE = "0302 [10de:2330] [10de:16c1] a1 00"


def gpu(number: int, bus: str, gp: int) -> str:
    return pci(
        bus,
        GPU_TYPE,
        os_device(f"cuda{number}", 12, gp),
        os_device(f"opencl0d{number}", 12, gp + 1, OpenCLDeviceType="GPU"),
        os_device(f"nvml{number}", 12, gp + 2, GPUModel="NVIDIA H100"),
    )


def hca(bus: str, name: str, port: str) -> str:
    return pci(
        bus,
        "0207 [15b3:1021] [15b3:0041] 00 00",
        os_device(port, 16, next(_NUMBER)),
        os_device(name, 48, next(_NUMBER), NodeGUID="0000:0000:0000:0001"),
    )


def read(text: str) -> Facts:
    return read_source(Source.of_text("node.xml", text))


def test_a_gpu_of_three_backends_is_one_and_its_nic_is_found() -> None:
    facts = read(
        topology(
            package(
                0,
                bridge(
                    "h0",
                    bridge(
                        "0000:01:00.0",
                        bridge("0000:02:00.0", gpu(1, "0000:03:00.0", 10)),
                        bridge("0000:02:01.0", hca("0000:04:00.0", "mlx5_7", "ib0")),
                    ),
                    pci("0000:05:00.0", "0300 [102b:0532] [0000:0000] 00 00"),
                    host=True,
                ),
            ),
            package(1, bridge("h1", gpu(0, "0000:83:00.0", 20), host=True)),
        )
    )
    machine = facts.machines[ANY_NODE]
    assert machine.devices == 2
    assert machine.accelerator == "H100-SXM"
    assert machine.numa_nodes == (1, 0)
    assert machine.nics == ("mlx5_7",)
    assert [one["nearest"]["path"] for one in facts.summary["gpu_list"]] == ["SYS", "PIX"]
    assert facts.summary["gpus_by_package"] == {"1": ["GPU0"], "0": ["GPU1"]}
    assert (facts.summary["packages"], facts.summary["hcas"]) == (2, 1)
    assert machine.links is None
    assert facts.summary["nvlinks"] is None


def test_link_bandwidths_leave_out_cells_of_a_gpu_with_itself() -> None:
    gpus = [gpu(i, f"0000:0{i + 1}:00.0", 10 * (i + 1)) for i in range(3)]
    ids = ["OSDev:12", "OSDev:22", "OSDev:32", "Package:1"]
    big = 1000000
    values = [[big, 50000, 0, 9], [50000, big, 0, 0], [0, 0, big, 0], [9, 0, 0, big]]
    facts = read(topology(package(0, bridge("h", *gpus, host=True)), after=matrix(ids, values)))
    links = facts.machines[ANY_NODE].links
    assert facts.summary["nvlinks"] == {"GPU0-GPU1": 50000}
    assert facts.summary["gpu_list"][0]["mbyte_per_s_to_packages"] == {"0": 9}
    assert links is not None
    assert links.bytes_per_s[0][1] == 50e9
    assert links.matrix[0][2] == "PHB"


def switched(second: str) -> str:
    gpus = [gpu(i, f"0000:0{i + 1}:00.0", 10 * (i + 1)) for i in range(2)]
    switches = [
        pci(f"0000:0{i}:00.0", "0680 [0000:0000] [0000:0000] 00 00", gp=i, subtype="NVSwitch")
        for i in (8, 9)
    ]
    ids = ["OSDev:12", "OSDev:22", "PCIDev:8", "PCIDev:9"]
    to = {"same": [25000, 0], "other": [0, 25000]}[second]
    values = [[0, 0, 25000, 0], [0, 0, *to], [25000, to[0], 0, 0], [0, to[1], 0, 0]]
    return topology(package(0, bridge("h", *gpus, *switches, host=True)), after=matrix(ids, values))


def test_gpus_on_one_switch_are_linked_through_it() -> None:
    facts = read(switched("same"))
    assert facts.summary["nvlinks"] == {"GPU0-GPU1": 25000}
    assert facts.summary["nvswitches"] == 2
    assert facts.summary["gpus_of_each_switch"] == {"0000:08:00.0": 2, "0000:09:00.0": 0}
    assert facts.warnings == ()


def test_gpus_on_switches_without_recorded_trunks_are_one_machine_of_unknown_links() -> None:
    facts = read(switched("other"))
    assert len(facts.machines) == 1
    assert facts.machines[ANY_NODE].links is None
    assert "line" in facts.warnings[0]
    assert "trunk links between switches are not recorded: 1 pairs" in facts.warnings[0]


def test_a_group_made_for_devices_marks_their_locality_as_overridden() -> None:
    group = (
        '<object type="Group" kind="1000" cpuset="0x2" nodeset="0x1">'
        + bridge("h", hca("0000:43:00.0", "qib0", "ib0"), host=True)
        + "</object>"
    )
    facts = read(topology(package(0, group)))
    (nic,) = facts.summary["nic_list"]
    assert (nic["locality_overridden"], nic["near_cpus"], nic["package"]) == (True, "0x2", 0)
    assert "locality of 0000:43:00.0 overridden" in facts.warnings[0]
    assert facts.not_alone is not None


def test_version_one_has_sockets_other_kinds_of_devices_and_its_host_inside() -> None:
    text = topology(
        '<info name="HostName" value="n7"/>',
        package(
            0,
            pci(
                "0000:04:00.0",
                "0200 [8086:10fb] [0000:0000] 00",
                os_device("eth0", 2, next(_NUMBER)),
            ),
            pci(
                "0000:05:00.0",
                "0302 [10de:1db5] [0000:0000] 00",
                os_device("cuda0", 5, next(_NUMBER)),
            ),
            kind="Socket",
        ),
        version="1",
    )
    facts = read(text)
    assert list(facts.machines) == ["n7"]
    assert facts.summary["packages"] == 1
    assert facts.summary["ethernet_ports"] == 1
    assert facts.machines["n7"].accelerator == "V100"


def test_accelerators_without_pci_are_told_apart_by_the_drivers_numbers() -> None:
    loose = "".join(
        os_device(f"{backend}{i}", 12, next(_NUMBER))
        for i in range(2)
        for backend in ("nvml", "cuda")
    )
    assert read(topology(package(0, loose))).machines[ANY_NODE].devices == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<topology/>", "line 1: a topology without objects"),
        (topology(package(0), after=matrix(["OSDev:1"], [[1, 2]])), "2 values for 1 of 1 objects"),
        (
            topology(package(0), after=matrix(["OSDev:1"], [[1]]).replace(">1 <", ">x <")),
            "a value is no number",
        ),
        (topology(package(0)).replace("</topology>", ""), "not XML"),
        (topology('<object type="Misc">' * 300 + "</object>" * 300), "more than 256 levels"),
    ],
)
def test_damage_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match="problem") as caught:
        read(text)
    assert reason in str(caught.value)
