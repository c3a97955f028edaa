"""The example files that tell of a node's inside give the answers that are listed with them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from railweave.placement.errors import InvalidInput
from railweave.placement.importers.facts import ANY_NODE, Facts, Machine
from railweave.placement.importers.registry import read_facts

INPUTS = Path(__file__).parents[3] / "shared" / "inputs"
pytestmark = pytest.mark.skipif(not INPUTS.is_dir(), reason="the example files are not here")


def facts(name: str) -> Facts:
    return read_facts(INPUTS / name)


def only(found: Facts) -> Machine:
    (machine,) = found.machines.values()
    return machine


def refusal(name: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        facts(name)
    return str(caught.value)


def nearest(found: Facts, gpu: str) -> tuple[str | None, list[str]]:
    told = found.summary["nearest_nics"][gpu]
    return told["path"], told["nics"]


@pytest.mark.parametrize(
    ("name", "cpus", "numa"),
    [
        ("capture_linux_h100-80gb-hbm3", "0-19", 0),
        ("capture_linux_h200", "0-23", 0),
        ("capture_linux_h200-mig", "0-23", 0),
        ("capture_windows_geforce-rtx-2080-super", "", None),
        ("issue_single_gpu_numa_na", "0-7", None),
    ],
)
def test_single_gpus(name: str, cpus: str, numa: int | None) -> None:
    found = facts(f"nvidia_smi_topo/{name}.txt")
    machine = only(found)
    assert (machine.devices, machine.links, machine.nics) == (1, None, ())
    assert (machine.cpus, machine.numa_nodes) == ((cpus,), (numa,))
    assert nearest(found, "GPU0") == (None, [])
    assert found.summary["gpu_numa_ids"] == {"GPU0": None}
    assert any("MIG" in text for text in found.summary["not_told"])


def test_a_hybrid_cube_mesh() -> None:
    found = facts("nvidia_smi_topo/dgx1_v100_mlx5.txt")
    links = found.summary["links"]
    assert (found.summary["gpus"], found.summary["nics"]) == (8, 4)
    assert [links[f"GPU0-GPU{i}"] for i in (1, 3, 4, 5)] == ["NV1", "NV2", "NV2", "SYS"]
    assert set(found.summary["nvlinks_per_gpu"].values()) == {6}
    assert [group["cpus"] for group in found.summary["cpu_groups"]] == [
        "0-19,40-59",
        "20-39,60-79",
    ]
    for gpu in range(8):
        assert nearest(found, f"GPU{gpu}") == ("PIX", [f"mlx5_{gpu // 2}"])


def test_cut_matrices_are_refused() -> None:
    message = refusal("nvidia_smi_topo/issue_dgx2_16gpu_cut.txt")
    assert "rows GPU5..GPU15, mlx5_0..mlx5_9 are missing" in message
    assert "GPU4, ends at '0-23,4'" in message
    message = refusal("nvidia_smi_topo/issue_header_without_leading_blank.txt")
    assert "8 GPUs and 8 NICs, rows GPU7, mlx5_0..mlx5_7 are missing" in message
    assert "GPU6, ends at '64-'" in message
    message = refusal("nvidia_smi_topo/p2p_matrix_not_topo.txt")
    assert "nvidia-smi topo -p2p" in message
    assert "8 GPUs" in message


def test_matrices_of_four_and_eight() -> None:
    gb200 = facts("nvidia_smi_topo/issue_gb200_4gpu_nonics.txt")
    assert gb200.summary["link_counts"] == {"NV18": 6}
    assert only(gb200).numa_nodes == (0, 0, 1, 1)
    assert only(gb200).cpus == ("0-71", "0-71", "72-143", "72-143")
    assert any("NVLink domain" in text for text in gb200.summary["not_told"])
    nv6 = facts("nvidia_smi_topo/issue_h100_nv6_4gpu.txt")
    assert nv6.summary["link_counts"] == {"NV6": 6}
    assert only(nv6).numa_nodes == (3, 1, 7, 5)
    assert only(nv6).cpus[0] == "6,14,22,30"
    for gpu, nic in ((g, n) for g in range(4) for n in range(4)):
        path = nv6.summary["nic_paths"][f"GPU{gpu}"][f"NIC{nic}"]
        assert path == ("PIX" if gpu == nic else "SYS")
    assert set(nv6.summary["nic_names"].values()) == {None}
    a100 = facts("nvidia_smi_topo/stas_a100_narrow.txt")
    assert a100.summary["link_counts"] == {"NV12": 28}
    assert only(a100).numa_nodes == (0,) * 4 + (1,) * 4
    assert only(a100).cpus == ("0-23",) * 4 + ("24-47",) * 4
    two = facts("nvidia_smi_topo/stas_2gpu_nv2.txt")
    assert two.summary["links"] == {"GPU0-GPU1": "NV2"}
    assert only(two).numa_nodes == (None, None)


def test_matrices_without_nvlink() -> None:
    l40s = facts("nvidia_smi_topo/issue_l40s_niclegend.txt")
    assert l40s.summary["nic_names"] == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert l40s.summary["nic_links"] == {"NIC0-NIC1": "PIX"}
    assert l40s.summary["links"]["GPU0-GPU1"] == "NODE"
    assert l40s.summary["links"]["GPU0-GPU2"] == "SYS"
    assert nearest(l40s, "GPU0") == ("SYS", ["NIC0", "NIC1"])
    assert nearest(l40s, "GPU2") == ("NODE", ["NIC0", "NIC1"])
    mixed = facts("nvidia_smi_topo/issue_mixed_4090_5090_5gpu.txt")
    assert mixed.summary["link_counts"] == {"NODE": 4, "SYS": 4, "PHB": 2}
    assert only(mixed).numa_nodes == (1, 0, 0, 0, 0)
    assert only(mixed).cpus[:2] == ("8-15,24-31", "0-7,16-23")


def test_rocm_topologies() -> None:
    cut = facts("rocm_showtopo/mi300a_4gpu_cut.txt")
    assert {(one["type"], one["weight"]) for one in cut.summary["links"].values()} == {("XGMI", 15)}
    assert list(cut.summary["numa_nodes"].values()) == [0, 1, 2, 3]
    assert "NUMA affinity of GPU 3 missing (cut)" in cut.warnings[0]
    hives = facts("rocm_showtopo/mi50_two_hives_8gpu.txt")
    for a, b in combinations(range(8), 2):
        link = hives.summary["links"][f"GPU{a}-GPU{b}"]
        expected = ("XGMI", 15, 1) if a // 4 == b // 4 else ("PCIE", 72, 3)
        assert (link["type"], link["weight"], link["hops"]) == expected
    assert only(hives).numa_nodes == (None,) * 8
    assert "three matrices on the same lines" in refusal("rocm_showtopo/side_by_side_typed.txt")


def _g5(found: Facts) -> None:
    assert found.summary["gpus"] is None
    assert found.summary["pci_functions"] == 9
    assert [one["pci_functions"] for one in found.summary["numa_nodes"].values()] == [4, 5]
    assert found.not_alone is not None
    assert "type of machine" in found.not_alone.fix


def _p4d(found: Facts) -> None:
    assert found.summary["pci_switches"] == 4
    assert found.summary["gpu_addresses"]["GPU0"] == "0000:10:1c.0"
    assert nearest(found, "GPU0") == ("PIX", ["0000:10:1b.0"])
    assert found.summary["pcie"]["speeds"] == {"8 GT/s x16": 12}
    assert (found.summary["links_per_gpu"], only(found).links) == (None, None)


def _ncv4(found: Facts) -> None:
    assert found.summary["net_list"] == [
        {"name": "eth0", "gbit_per_s": 100.0, "rdma": False, "nic": None, "numa": None}
    ]
    assert [one["gpus"] for one in found.summary["numa_nodes"].values()] == [
        [f"GPU{i}"] for i in range(4)
    ]
    assert found.summary["linked_pairs"] == 0
    assert "4 self links were ignored: GPU0 (count 12)" in found.warnings[0]
    assert "speed of PCIe" in found.summary["not_told"]


def _ndv4(found: Facts) -> None:
    addresses = {address: gpu for gpu, address in found.summary["gpu_addresses"].items()}
    gpu = addresses["0003:00:00.0"]
    assert found.summary["numa_nodes"]["0"]["gpus"][0] == gpu
    assert nearest(found, gpu) == ("PIX", ["0103:00:00.0", "0104:00:00.0"])
    assert addresses["0001:00:00.0"] in found.summary["numa_nodes"]["1"]["gpus"]
    assert found.summary["pci_switches"] == 4
    assert found.summary["pcie"]["speeds"] == {"16 GT/s x16": 16}
    assert only(found).links is None


def _oci_a100(found: Facts) -> None:
    assert sorted(found.summary["numa_nodes"]) == ["1", "3", "5", "7"]
    for one in found.summary["numa_nodes"].values():
        assert (len(one["gpus"]), len(one["nics"])) == (2, 2)
        assert all(sorted(nearest(found, gpu)[1]) == sorted(one["nics"]) for gpu in one["gpus"])
    assert found.summary["links_per_gpu"] is None


def _oci_h100(found: Facts) -> None:
    assert found.summary["nets"] == 16
    assert {net["gbit_per_s"] for net in found.summary["net_list"]} == {200.0}
    assert set(found.summary["architectures"].values()) == {"sm 90"}
    assert set(found.summary["links_per_gpu"].values()) == {18}
    assert sorted(found.summary["links_to_switches"]["GPU0"].values()) == [4, 4, 5, 5]
    assert found.summary["linked_pairs"] == 28
    assert nearest(found, "GPU0")[1] == ["mlx5_18", "mlx5_19"]
    assert found.summary["nearest_nics"]["GPU0"]["shared_bridge"] == "0000:08:00.0"
    assert nearest(found, "GPU4")[1] == ["mlx5_32", "mlx5_33"]
    assert found.summary["pcie"]["speeds"] == {"32 GT/s x16": 16}


def _rccl_3p(found: Facts) -> None:
    (net,) = found.summary["net_list"]
    assert (net["name"], net["gbit_per_s"], net["numa"]) == ("mlx5_0", 200.0, 0)
    assert (found.summary["link_kind"], found.summary["linked_pairs"]) == ("xgmi", 0)
    assert [nearest(found, f"GPU{i}")[0] for i in range(3)] == ["PHB", "SYS", "SYS"]
    assert set(found.summary["pcie"]["slowest_to_cpu_gt_per_s"].values()) == {16.0}
    assert found.summary["pcie"]["speeds"]["32 GT/s x16"] == 3


def _rccl_3nic(found: Facts) -> None:
    assert found.summary["linked_pairs"] == 24
    assert found.summary["unlinked_pairs"] == ["GPU0-GPU5", "GPU1-GPU4", "GPU2-GPU7", "GPU3-GPU6"]
    assert found.summary["numa_nodes"]["0"]["nics"] == ["mlx5_0", "mlx5_1"]
    assert found.summary["numa_nodes"]["1"]["nics"] == ["mlx5_2"]
    assert nearest(found, "GPU0") == ("PHB", ["mlx5_0", "mlx5_1"])
    assert found.summary["nearest_nics"]["GPU0"]["shared_bridge"] is None


def _rccl_90a(found: Facts) -> None:
    pairs = ["0-1", "0-2", "0-6", "1-3", "1-5", "2-3", "2-4", "3-7", "4-5", "4-6", "5-7", "6-7"]
    named = {f"GPU{pair[0]}-GPU{pair[2]}": 1 for pair in pairs}
    assert found.summary["links"] == named
    assert set(found.summary["links_per_gpu"].values()) == {3}
    assert found.summary["xgmi_over_others"]["GPU0-GPU7"] == {"hops": 2, "via": ["GPU6"]}
    assert sorted(found.summary["numa_nodes"]) == ["0", "1", "3"]
    (net,) = found.summary["net_list"]
    assert (net["name"], net["gbit_per_s"], net["rdma"]) == ("bond0", 1.0, False)


def _rccl_940(found: Facts) -> None:
    assert found.summary["linked_pairs"] == 28
    assert set(found.summary["links_per_gpu"].values()) == {7}
    assert {net["gbit_per_s"] for net in found.summary["net_list"]} == {400.0}
    for i in range(8):
        assert nearest(found, f"GPU{i}")[1] == [f"mlx5_{i}"]
        assert found.summary["nearest_nics"][f"GPU{i}"]["shared_bridge"] is not None
    assert found.summary["pcie"]["speeds"] == {"32 GT/s x16": 16}


@pytest.mark.parametrize(
    ("name", "gpus", "nics", "numa_nodes", "check"),
    [
        ("aws_g5_48xl", None, None, 2, _g5),
        ("aws_p4d_24xl", 8, 4, 2, _p4d),
        ("azure_ncv4_a100pcie", 4, 0, 4, _ncv4),
        ("azure_ndv4_a100", 8, 8, 4, _ndv4),
        ("oci_a100_flattened", 8, 8, 4, _oci_a100),
        ("oci_h100_kubernetes", 8, 8, 2, _oci_h100),
        ("rccl_topo_3p_pcie", 3, 1, 2, _rccl_3p),
        ("rccl_topo_8p6l_3nic", 8, 3, 2, _rccl_3nic),
        ("rccl_topo_8p_90a_1", 8, 0, 3, _rccl_90a),
        ("rccl_topo_8p_940", 8, 8, 2, _rccl_940),
    ],
)
def test_nccl_topologies(
    name: str,
    gpus: int | None,
    nics: int | None,
    numa_nodes: int,
    check: Callable[[Facts], None],
) -> None:
    found = facts(f"nccl_topo_xml/{name}.xml")
    assert (found.summary["gpus"], found.summary["nics"]) == (gpus, nics)
    assert found.summary["numa_node_count"] == numa_nodes
    check(found)


def test_nccl_graphs() -> None:
    single = facts("nccl_graph_xml/azure_ncv4_graph.xml")
    told = single.summary["graphs"]
    assert [(one["id"], one["pattern"], one["channels"]) for one in told] == [
        (0, 4, 2),
        (1, 1, 4),
        (2, 3, 4),
    ]
    assert [path["gpus"] for path in told[0]["paths"]] == [[0, 1, 2, 3], [0, 3, 2, 1]]
    assert {(g["gbyte_per_s_intra"], g["gbyte_per_s_inter"]) for g in told} == {(12.0, 12.0)}
    assert {(g["type_intra"], g["type_inter"]) for g in told} == {("SYS", "PIX")}
    assert single.summary["single_node_only"]
    assert "exactly 4 GPUs" in single.warnings[0]
    nets = facts("nccl_graph_xml/issue524_2channels.xml")
    ring, tree, empty = nets.summary["graphs"]
    assert (ring["nets_in"], ring["nets_out"], ring["gbyte_per_s_inter"]) == ([3], [0], 12.0)
    assert (tree["nets_in"], tree["nets_out"], tree["gbyte_per_s_inter"]) == ([3], [3], 6.0)
    assert not empty["usable"]
    assert any("graph 1: all traffic on one net" in warning for warning in nets.warnings)


def test_hwloc_topologies() -> None:
    fake = facts("hwloc_xml/fake_pci_localities.xml").summary
    counts = ("packages", "numa_nodes", "cores", "gpus", "ethernet_ports", "hcas")
    assert [fake[key] for key in counts] == [4, 4, 40, 0, 4, 1]
    hca = next(nic for nic in fake["nic_list"] if nic["rdma_devices"])
    assert (hca["address"], hca["near_cpus"]) == ("0000:43:00.0", "0x00000022,0x0")
    assert (hca["package"], hca["locality_overridden"]) == (1, True)
    assert {n["package"] for n in fake["nic_list"] if not n["rdma_devices"]} == {0}
    dgx2 = facts("hwloc_xml/nvidia_dgx2.xml")
    keys = ("packages", "numa_nodes", "gpus", "nvswitches", "nics")
    assert [dgx2.summary[key] for key in keys] == [2, 2, 16, 12, 0]
    for i, gpu in enumerate(dgx2.summary["gpu_list"]):
        assert gpu["os_names"] == [f"nvml{i}"]
        assert gpu["package"] == i // 8
        assert list(gpu["mbyte_per_s_to_switches"].values()) == [25000] * 6
        assert gpu["mbyte_per_s_total"] == 150000
    assert set(dgx2.summary["gpus_of_each_switch"].values()) == {8}
    assert len(dgx2.machines) == 1
    assert "trunk links between switches are not recorded" in dgx2.warnings[0]
    power = facts("hwloc_xml/power8_gpu_distances.xml").summary
    assert [power[key] for key in ("packages", "numa_nodes", "gpus", "nics")] == [2, 2, 4, 0]
    assert power["nvlinks"] == {"GPU0-GPU1": 40000, "GPU2-GPU3": 40000}
    to_package = [gpu["mbyte_per_s_to_packages"] for gpu in power["gpu_list"]]
    assert to_package == [{"0": 40000}, {"0": 40000}, {"1": 40000}, {"1": 40000}]


def test_logs_of_nccl_tests() -> None:
    two = facts("nccl_tests_log/aws_srun_labelled.log").summary["runs"]
    assert [run["rows"] for run in two] == [7, 32]
    assert [run["peak_bus_gbyte_per_s"] for run in two] == [78.33, 487.09]
    assert [run["with_header"] for run in two] == [False, True]
    assert (two[1]["operations"], two[1]["ranks"]) == (["all-reduce"], 16)
    assert (two[1]["peak_bytes"], two[1]["bus_over_algorithm"]) == (2**34, 1.875)
    (dgx,) = facts("nccl_tests_log/deepops_dgxa100x4.log").summary["runs"]
    assert (dgx["rows"], dgx["ranks"], dgx["average_bus_gbyte_per_s"]) == (13, 32, 113.289)
    assert dgx["peak_bus_gbyte_per_s"] == 191.05
    assert dgx["peak_in_place_bus_gbyte_per_s"] == 191.56
    assert (dgx["least_bytes"], dgx["most_bytes"]) == (2**20, 2**32)
    (bench,) = facts("nccl_tests_log/superbench_allreduce.log").summary["runs"]
    assert (bench["rows"], bench["rows_of_some_bytes"]) == (34, 32)
    assert (bench["ranks_listed"], bench["processes"], bench["nodes"]) == (8, 1, 1)
    assert bench["accelerators"] == ["A100-40G"]
    assert bench["peak_algorithm_gbyte_per_s"] == 134.44
    assert bench["average_bus_gbyte_per_s"] == 68.4048
    assert bench["small_message_latency_us"] == pytest.approx(35, abs=0.5)


def test_logs_and_reports_of_nccl() -> None:
    log = facts("nccl_debug_log/issue1189_h20_system.log")
    one, zero = log.summary["blocks"]
    (graph,) = one["graphs"]
    assert (graph["pattern_name"], graph["cross_nic"], graph["channel_count"]) == ("ring", 1, 4)
    assert graph["channels"]["0"] == ["NET/3", "GPU/0", "GPU/1", "NET/2"]
    assert graph["channels"]["1"] == graph["channels"]["3"] == graph["channels"]["0"][::-1]
    assert (one["rank"], zero["rank"], log.summary["hosts"]) == (1, 0, 1)
    assert (zero["system"]["max_gbyte_per_s"], zero["system"]["total_gbyte_per_s"]) == (48.0, 370.8)
    links = {(x["from"], x["to"]): x["gbyte_per_s"] for x in zero["system"]["links"]}
    assert links["PCI/16000", "GPU/18000"] == 48.0
    assert links["GPU/18000", "NVS/0"] == 370.8
    assert links["NIC/19000", "NET/3"] == 50.0
    assert links["NIC/26000", "NET/8"] == 25.0
    assert log.summary["pxn_disabled"] is True
    assert "only CPU/0 shown" in log.warnings[0]
    ras = facts("nccl_debug_log/issue1730_ras.txt").summary
    assert [ras[key] for key in ("nodes", "processes", "gpus")] == [32, 256, 256]
    (communicator,) = ras["communicators"]
    assert (communicator["ranks"], communicator["ranks_per_node"]) == (256, 8)
    assert (communicator["status"], communicator["errors"]) == ("RUNNING", "OK")
    assert (ras["nccl_version"], ras["health"]) == ("2.26.2", None)


def test_job_files_and_link_states() -> None:
    shape = facts("ascend_ranktable/ge_cluster_config_v12.json")
    assert {name: m.devices for name, m in shape.machines.items()} == {"node_0": 1, "node_1": 1}
    assert shape.summary["ranks"] == {"node_0": [0], "node_1": [1]}
    assert shape.summary["usable_for"] == "shape only"
    eight = facts("ascend_ranktable/jittor_1x8.json")
    assert only(eight).devices == 8
    assert list(eight.summary["ranks"].values()) == [list(range(8))]
    assert eight.summary["version"] == "1.0"
    gaudi = facts("gaudi_hcl/hls1_8.json")
    assert (gaudi.summary["nodes"], gaudi.summary["type"]) == (1, "HLS1")
    assert gaudi.machines[ANY_NODE].devices == 8
    assert gaudi.not_alone is not None
    state = facts("azure_misc/rank_mismatch_nvlink_inactive.txt")
    told: dict[str, Any] = state.summary["links"]["GPU3"]
    assert (told["up"], told["inactive"], told["state"]) == ([0, 1, 2, 4], [3, 5], "degraded")
    assert set(told["gbyte_per_s"].values()) == {25.781}
    assert state.summary["gpus"] is None
