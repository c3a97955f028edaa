"""System XML of NCCL and RCCL: GPUs, NICs, NUMA nodes and links, from dumps and from templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.registry import read_source
from railweave.placement.importers.source import Source


def gpu(bus: str, inside: str = "", dev: str = "0", more: str = 'class="0x030200"') -> str:
    return (
        f'<pci busid="{bus}" {more} link_speed="32.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{dev}" sm="90" rank="0" gdr="1">{inside}</gpu></pci>'
    )


def nic(bus: str, name: str, speed: int = 400000, gdr: int = 1) -> str:
    return (
        f'<pci busid="{bus}" class="0x020700" link_speed="32 GT/s" link_width="16"><nic>'
        f'<net name="{name}" dev="0" speed="{speed}" port="1" guid="0x1" gdr="{gdr}"/></nic></pci>'
    )


def bridge(bus: str, *inside: str, speed: str = "16.0 GT/s PCIe") -> str:
    head = f'<pci busid="{bus}" class="0x060400" link_speed="{speed}" link_width="16">'
    return head + "".join(inside) + "</pci>"


def system(*cpus: str) -> str:
    inside = "\n".join(
        f'<cpu numaid="{numa}" affinity="{numa}f" arch="x86_64">\n{text}\n</cpu>'
        for numa, text in enumerate(cpus)
    )
    return f'<system version="1">\n{inside}\n</system>\n'


def links(*targets: tuple[str, int], tag: str = "nvlink", tclass: str = "0x030200") -> str:
    return "".join(
        f'<{tag} target="{target}" count="{count}" tclass="{tclass}"/>' for target, count in targets
    )


def read(text: str) -> Facts:
    return read_source(Source.of_text("topo.xml", text))


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    return str(caught.value)


A, B, C = "0000:1a:00.0", "0000:2a:00.0", "0000:3a:00.0"


def test_links_numa_nodes_rates_and_the_nearest_nic_are_read() -> None:
    facts = read(
        system(
            bridge(
                "0000:10:00.0",
                gpu(A, links((B, 4))),
                nic("0000:11:00.0", "mlx5_3"),
            ),
            gpu(B, links((A.upper(), 4)), dev="1") + nic("0000:21:00.0", "mlx5_0", 200000),
        )
    )
    machine = facts.machines[ANY_NODE]
    assert machine.links is not None
    assert machine.links.matrix[0] == ("X", "NV4")
    assert machine.nics == ("mlx5_3", "mlx5_0")
    assert machine.nic_bytes_per_s == 25e9
    assert machine.nearest_nics == (("mlx5_3",), ("mlx5_0",))
    assert machine.numa_nodes == (0, 1)
    assert facts.summary["nearest_nics"]["GPU0"]["path"] == "PIX"
    assert facts.summary["nearest_nics"]["GPU0"]["shared_bridge"] == "0000:10:00.0"
    assert facts.summary["nearest_nics"]["GPU1"]["path"] == "PHB"
    assert facts.summary["pcie"]["slowest_to_cpu_gt_per_s"] == {"GPU0": 16.0, "GPU1": 32.0}
    assert facts.warnings == ()


def test_links_to_switches_join_all_by_what_the_lesser_has() -> None:
    switched = links(("0000:05:00.0", 9), ("0000:06:00.0", 9), tclass="0x068000")
    fewer = links(("0000:05:00.0", 9), ("fffffff:ffff:ff", 8), tclass="0x068000")
    facts = read(system(gpu(A, switched) + gpu(B, switched, "1") + gpu(C, fewer, "2")))
    assert facts.summary["links"] == {"GPU0-GPU1": 18, "GPU0-GPU2": 17, "GPU1-GPU2": 17}
    assert facts.summary["links_per_gpu"]["GPU2"] == 17
    assert facts.warnings == ()


def test_a_sparse_xgmi_graph_names_the_gpus_between() -> None:
    amd = 'class="0x120000" vendor="0x1002" device="0x74a1"'
    facts = read(
        system(
            gpu(A, links((B, 1), tag="xgmi"), "0", amd)
            + gpu(B, links((A, 1), (C, 2), tag="xgmi"), "1", amd)
            + gpu(C, links((B, 2), tag="xgmi"), "2", amd)
        ).replace('sm="90"', 'sm="304" gcn="gfx942"')
    )
    machine = facts.machines[ANY_NODE]
    assert facts.summary["link_kind"] == "xgmi"
    assert facts.summary["xgmi_over_others"] == {"GPU0-GPU2": {"hops": 2, "via": ["GPU1"]}}
    assert machine.accelerator == "MI300X"
    assert machine.links is not None
    assert machine.links.matrix[1] == ("XGMI", "X", "XGMI*2")
    assert machine.links.bytes_per_s[1] == (64e9, 0.0, 128e9)


def test_a_template_that_describes_no_gpu_leaves_its_links_unknown() -> None:
    facts = read(
        system(
            f'<pci busid="{B}" class="0x030200"/><pci busid="{A}" class="0x030200"/>'
            '<pci busid="0101:00:00.0" class="0x020700"/>'
        )
    )
    machine = facts.machines[ANY_NODE]
    assert (machine.devices, machine.links, machine.nic_bytes_per_s) == (2, None, None)
    assert facts.summary["linked_pairs"] is None
    assert facts.summary["gpu_addresses"] == {"GPU0": A, "GPU1": B}
    assert facts.summary["nets"] is None
    assert any("NVLink" in text for text in facts.summary["not_told"])


def test_functions_without_class_make_no_cluster_by_themselves() -> None:
    facts = read(system('<pci busid="0000:00:16.0"/>', '<pci busid="0000:00:17.0"/>'))
    assert facts.summary["gpus"] is None
    assert facts.machines[ANY_NODE].devices is None
    assert facts.not_alone is not None
    assert "2 PCI functions" in facts.not_alone.found
    assert "type of machine" in facts.not_alone.fix


def test_self_links_unknown_targets_and_uneven_counts_are_warned_of_by_line() -> None:
    facts = read(
        system(
            gpu(A, links((A, 12), (B, 4), ("0000:ff:00.0", 2))),
            gpu(B, links((A, 2)), dev="1"),
        )
    )
    text = " | ".join(facts.warnings)
    assert "line 3: GPU0 has 2 links to 0000:ff:00.0" in text
    assert "1 self links were ignored: GPU0 (count 12)" in text
    assert "GPU0 has 4 links to GPU1, which has 2 back; 2 is taken" in text
    assert facts.summary["links"] == {"GPU0-GPU1": 2}


def test_a_net_without_a_device_is_near_to_nobody_but_can_be_used() -> None:
    loose = '<nic><net name="eth0" speed="100000" gdr="0"/></nic>'
    facts = read(system(gpu(A) + loose))
    machine = facts.machines[ANY_NODE]
    assert (machine.nics, machine.nearest_nics) == (("eth0",), ((),))
    assert machine.nic_bytes_per_s == 12.5e9
    assert facts.summary["nics"] == 0
    assert facts.summary["net_list"][0]["rdma"] is False


def test_hosts_of_one_file_are_machines_of_their_own() -> None:
    text = system(gpu(A), gpu(A)).replace('numaid="0"', 'numaid="0" host_hash="0x1"')
    facts = read(text.replace('numaid="1"', 'numaid="1" host_hash="0x2"'))
    assert sorted(facts.machines) == ["host-0x1", "host-0x2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (system(gpu(A) + gpu(A)), "line 3: bus id 0000:1a:00.0 is there twice"),
        (system(gpu(A) + gpu(B)), "two GPUs have one dev number"),
        (system(""), "line 1: a system without PCI functions"),
        (system('<pci class="0x030200"/>'), "line 3: a pci element without busid"),
        (system(gpu(A)).replace("</cpu>", ""), "not XML"),
        ('<!DOCTYPE s [<!ENTITY a "b">]><system><cpu>&a;</cpu></system>', "EntitiesForbidden"),
    ],
)
def test_damage_is_refused(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_endless_bridges_and_functions_are_refused() -> None:
    deep = '<pci busid="0000:00:00.0">' * 60 + "</pci>" * 60
    assert "is there twice" in refusal(system(deep)) or "levels" in refusal(system(deep))
    chain = "".join(f'<pci busid="0000:{i:02x}:00.0" class="0x060400">' for i in range(60))
    assert "more than 32 levels" in refusal(system(chain + "</pci>" * 60))
    many = "".join(f'<pci busid="{i:04x}:00:00.0"/>' for i in range(4100))
    assert "more than 4096 PCI functions" in refusal(system(many))
    gpus = "".join(gpu(f"{i:04x}:00:00.0", dev=str(i)) for i in range(65))
    assert "65 GPUs; a node has at most 64" in refusal(system(gpus))


@given(st.integers(1, 6), st.randoms(use_true_random=False))
def test_random_meshes_are_read_back(size: int, random: Any) -> None:
    counts = [[0] * size for _ in range(size)]
    for a in range(size):
        for b in range(a):
            counts[a][b] = counts[b][a] = random.choice([0, 1, 2, 6])
    buses = [f"0000:{i + 16:02x}:00.0" for i in range(size)]
    order = random.sample(range(size), size)
    cpus = ["", ""]
    for i in order:
        joints = [(buses[j], counts[i][j]) for j in range(size) if counts[i][j]]
        cpus[i % 2] += gpu(buses[i], links(*joints), str(i))
    facts = read(system(*cpus))
    expected = {
        f"GPU{a}-GPU{b}": counts[a][b]
        for a in range(size)
        for b in range(a + 1, size)
        if counts[a][b]
    }
    assert facts.summary["links"] == expected
    assert facts.machines[ANY_NODE].numa_nodes == tuple(i % 2 for i in range(size))
