"""The example files of networks give their listed answers or are refused for the listed reason."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import Cluster, InvalidInput
from railweave.placement.importers.clusters import import_cluster
from railweave.placement.importers.facts import ANY_NODE, Facts
from railweave.placement.importers.foreign import ImportedFileWarning
from railweave.placement.importers.hostlists import expanded
from railweave.placement.importers.node_aliases import with_given_names
from railweave.placement.importers.registry import read_facts


@pytest.fixture
def inputs(shared: Path) -> Path:
    return shared / "inputs"


def holds(facts: Facts, **expected: Any) -> None:
    """The summary has these figures."""
    assert {key: facts.summary[key] for key in expected} == expected


def domains(facts: Facts, tier: str) -> dict[str, set[str]]:
    """Nodes of each domain of a tier."""
    assert facts.network is not None
    found: dict[str, set[str]] = {}
    for node, has in facts.network.domains.items():
        if tier in has:
            found.setdefault(has[tier], set()).add(node)
    return found


def tiers(facts: Facts) -> list[str]:
    assert facts.network is not None
    return [tier.name for tier in facts.network.tiers]


def refused(path: Path, *told: str) -> None:
    """Importing the file alone is refused, and the message holds these words."""
    with pytest.raises(InvalidInput) as caught:
        import_cluster([path])
    for words in told:
        assert words in str(caught.value)


def warned(facts: Facts, *told: str) -> None:
    for words in told:
        assert any(words in warning for warning in facts.warnings), facts.warnings


def test_slurm_blocks_of_azure(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/azure_block_topology.txt")
    holds(facts, blocks=4, nodes_per_block=[18], nodes=72, block_sizes=[1])
    block = domains(facts, "block")["block_5e797fc6-0f46-421a-8724-0e102c0f723c"]
    assert block == {f"hpcbench-hpc-{k}" for k in range(1, 72, 4)}
    assert "switches" not in facts.summary


def test_slurm_blocks_that_are_all_commented_out(inputs: Path) -> None:
    refused(
        inputs / "slurm_topology_conf/azure_slurm_illegal_block_topology.txt",
        "no active block: 4 blocks of 18 nodes are commented out",
        "BlockSizes=20 alone",
    )


def test_slurm_one_switch(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/dummy_switch.conf")
    holds(facts, switches=1, tiers=1, roots=["SwitchBidon"], node_list="slurm_node[1-4]")
    assert tiers(facts) == []
    warned(facts, "flat cluster")


def test_slurm_block_sizes_larger_than_the_cluster(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/slurm_block.conf")
    holds(facts, blocks=8, nodes_per_block=[4], nodes=32, node_list="node[01-32]")
    holds(facts, block_sizes=[4, 8, 16, 32, 64])
    warned(facts, "64 can never be filled")


def test_slurm_three_tiers(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/slurm_testcase3.conf")
    holds(facts, switches=23, leaves=20, nodes=400, tiers=3, roots=["root"])
    holds(facts, node_list="peta[10000-10399]")
    assert len(domains(facts, "leaf")) == 20 and len(domains(facts, "pod")) == 2


def test_slurm_trees_without_a_common_root(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/slurm_testcase6.conf")
    holds(facts, switches=7, nodes=40, roots=["spineA", "spineB", "leafC"], leaves=5)
    holds(facts, tiers_of_root={"spineA": 2, "spineB": 2, "leafC": 1})
    assert all(len(nodes) == 8 for nodes in domains(facts, "leaf").values())
    warned(facts, "more than 16 nodes cannot stay in one tree")


def test_slurm_tree_of_topograph(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_conf/topograph_slinky_oci_tree.conf")
    holds(facts, switches=19, switches_by_tier=[12, 6, 1], nodes=96, tiers=3, roots=["switch.3.1"])
    names = facts.summary["real_names"]
    assert names["switch.3.1"] == "core" and names["switch.1.10"] == "leaf-5-2"
    assert domains(facts, "leaf")["switch.1.10"] == {f"srv520{k}" for k in range(1, 9)}


def test_slurm_yaml_of_the_manual(inputs: Path) -> None:
    facts = read_facts(inputs / "slurm_topology_yaml/slurm_man_example.yaml")
    holds(facts, topologies=6, default="topo1")
    told: Mapping[str, Mapping[str, Any]] = facts.summary["described"]
    assert told["topo1"]["switches"] == 3 and told["topo1"]["roots"] == ["sw_root"]
    assert told["topo1"]["nodes"] == 4
    assert told["topo2"]["nodes_per_block"] == [4] and told["topo2"]["nodes"] == 16
    assert told["topo2"]["block_sizes"] == [4, 16]
    assert told["topo3"]["kind"] == told["topo3a"]["kind"] == "flat"
    assert told["topo4"]["rings"] == 2 and told["topo4"]["nodes_per_ring"] == [8]
    torus = told["topo5"]["toruses_described"][0]
    assert torus["dims"] == "4x4x2" and torus["nodes"] == 32
    assert torus["placements"] == ["2x2x1", "2x2x2", "4x4x2"]
    warned(facts, "topo2, topo3, topo3a, topo4, topo5")


def test_topograph_instances(inputs: Path) -> None:
    facts = read_facts(inputs / "topograph_model/graph_engine_output.json")
    holds(facts, instances=1, layers_of_instance={"I21": ["leaf-a", "spine-a"]})
    holds(facts, accelerator_domain_of_instance={"I21": "nvl-1"})
    holds(facts, accelerator_sub_domain_of_instance={"I21": "nvl-1.rack-1"})
    warned(facts, "cluster of one node")


@pytest.mark.parametrize(
    ("name", "switches", "nodes", "height", "root", "of_domain"),
    [
        ("medium", 7, "[1101-1102,1201-1202,1301-1302,1401-1402]", 3, "sw3", 2),
        ("nvl72", 7, "node[1101-1118,1201-1218,2101-2118,2201-2218]", 3, "core", 18),
        ("small-tree", 3, "I[21-22,25,34-36]", 2, "S1", 3),
    ],
)
def test_topograph_models(
    inputs: Path, name: str, switches: int, nodes: str, height: int, root: str, of_domain: int
) -> None:
    facts = read_facts(inputs / f"topograph_model/{name}.yaml")
    holds(facts, switches=switches, node_list=nodes, tiers=height, roots=[root])
    accelerators = facts.summary["accelerator_domains"]
    assert {len(expanded(members)) for members in accelerators.values()} == {of_domain}
    assert tiers(facts)[0] == "nvlink"
    if name == "medium":
        assert set(facts.summary["switch_labels"]) == {"sw3", "sw21", "sw22"}
    if name == "nvl72":
        assert accelerators["nvl-1-1"] == "node[1101-1118]"


def test_netq_compute_nodes(inputs: Path) -> None:
    path = inputs / "topograph_model/netq_computeNodes.json"
    facts = read_facts(path)
    holds(facts, nodes=2, gpus=8, health={"HEALTHY": 2}, nvlink_domains=1)
    assert list(facts.summary["gpus_of_nvlink_domain"].values()) == [8]
    where = facts.summary["location_of_node"]
    assert (where["node1"]["slot"], where["node1"]["tray"]) == (5, 4)
    assert (where["node2"]["slot"], where["node2"]["tray"]) == (22, 12)
    refused(path, "no network between them")


def test_infiniband_with_a_director(inputs: Path) -> None:
    facts = read_facts(inputs / "ibnetdiscover/azure_hdr_faked.txt")
    holds(facts, switch_records=8, leaf_switches=5, cas=10, links=18, links_degraded=0)
    holds(facts, directors={"rmd70-0101-0908-01ib1-A": ["L01", "L02", "S01"]}, switches=6)
    holds(facts, links_to_hosts=10, links_between_switches=7, links_to_aggregation_nodes=1)
    holds(facts, links_by_speed={"4xHDR": 18}, aggregation_nodes=1)
    assert set(facts.summary["hosts_of_leaf"].values()) == {2}
    joined = facts.summary["leaf_in_pod"]
    assert {name.rpartition("/")[2]: len(leaves.split(",")) for name, leaves in joined.items()} == {
        "L01": 3,
        "L02": 2,
    }


def test_names_of_an_infiniband_fabric(inputs: Path) -> None:
    paths = [inputs / f"ibnetdiscover/azure_{name}.txt" for name in ("hdr_faked", "ibstat_guids")]
    names = read_facts(paths[1])
    holds(names, hosts=10)
    refused(paths[1], "no links")
    named = with_given_names({"ib": read_facts(paths[0]), "names": names}, [])["ib"]
    found = {
        leaf.rpartition("-")[2]: {name[-2:] for name in nodes}
        for leaf, nodes in domains(named, "leaf").items()
    }
    assert found == {
        "01ib0": {"5I", "5J"},
        "02ib0": {"5K", "5L"},
        "03ib0": {"5M", "5N"},
        "11ib0": {"5O", "5P"},
        "12ib0": {"5Q", "5R"},
    }


def test_ibsim_net(inputs: Path) -> None:
    facts = read_facts(inputs / "ibnetdiscover/ibsim_net.txt")
    holds(facts, switch_records=2, cas=2, links=4, links_of_unknown_speed=4)
    holds(facts, parallel_links={"Switch1 - Switch2": 2})


def test_infiniband_with_its_port_down(inputs: Path) -> None:
    path = inputs / "ibnetdiscover/topograph_bad.out"
    refused(path, "1 CA, 0 switches, 0 links", "dgx-gb200-n01-c1 HCA-1", "port is down")


def test_infiniband_file_that_is_cut(inputs: Path) -> None:
    facts = read_facts(inputs / "ibnetdiscover/topograph_gb200_part.out")
    holds(facts, switch_records=10, switches_only_referred_to=9, links=316, links_degraded=0)
    holds(facts, links_by_speed={"4xNDR": 316}, cas=157, cas_without_node_name=24, hosts=59)
    holds(facts, management_hosts=["B11-P1-CUFM-02"], aggregation_nodes=9)
    holds(facts, leaf_spine_links=150, leaf_spine_pairs=76)
    assert len(facts.summary["parallel_links"]) == 74
    warned(facts, "file is incomplete", "with 2 ports")


def test_ports_of_ibnetdiscover(inputs: Path) -> None:
    facts = read_facts(inputs / "iblinkinfo/exporter_p_format.out")
    holds(facts, cas=3, switches=4, links=4, links_to_hosts=3, links_between_switches=1)
    holds(facts, links_by_speed={"4xEDR": 4}, ports_down=["2052/37 4x ???", "1781/80 4x SDR"])
    lids = {one["lid"] for one in facts.summary["switch_list"]}
    assert lids == {1719, 2052, 1516, 1781} and facts.summary["switches_only_referred_to"] == 1


def test_a_port_without_quotes(inputs: Path) -> None:
    facts = read_facts(inputs / "iblinkinfo/exporter_p_unnamed.out")
    holds(facts, links=0, ports_down=["479/22 4x QDR"])
    assert facts.summary["switch_list"] == [
        {
            "guid": "0x0002c9020040f161",
            "name": "Infiniscale-IV Mellanox Technologies",
            "lid": 479,
        }
    ]


def test_lldp_of_one_host(inputs: Path) -> None:
    facts = read_facts(inputs / "lldp/lldpcli_neighbors.json")
    (found,) = facts.summary["neighbours_of_host"].values()
    assert len(found) == 1
    assert (found[0]["interface"], found[0]["neighbour"]) == ("eth0", "ns-2.example.com")
    assert (found[0]["port"], found[0]["port_id"]) == ("eth1", "00:00:00:00:00:02")
    assert found[0]["switch"] is False


def test_containerlab_two_tiers(inputs: Path) -> None:
    facts = read_facts(inputs / "containerlab/clos01.yml")
    holds(facts, switches=3, hosts=2, links=4, tiers=2, link_speeds="unknown")
    holds(facts, switch_list=["leaf1", "leaf2", "spine"])


def test_containerlab_five_stages(inputs: Path) -> None:
    facts = read_facts(inputs / "containerlab/clos02.yml")
    holds(facts, switches=10, switches_by_tier=[4, 4, 2], hosts=4, links=16, tiers=3)
    above = facts.summary["above"]
    assert above["spine1"] == above["spine3"] == ["superspine1"]
    assert above["spine2"] == above["spine4"] == ["superspine2"]
    pods = list(domains(facts, "pod").values())
    assert pods == [{"client1", "client2"}, {"client3", "client4"}]


def test_containerlab_without_links(inputs: Path) -> None:
    refused(
        inputs / "containerlab/groups.yml",
        "4 nodes",
        "3 nokia_srlinux, 1 linux",
        "links is missing",
    )


def test_containerlab_routers_of_several_containers(inputs: Path) -> None:
    facts = read_facts(inputs / "containerlab/srsim_distributed.yaml")
    holds(facts, switches=2, switch_list=["srsim10", "srsim11"], containers=8, links=2, hosts=0)
    warned(facts, "same system MAC")


def test_simai_topology(inputs: Path) -> None:
    facts = read_facts(inputs / "simai_topo/spectrumx_32g.txt")
    holds(facts, nodes=108, gpus=32, nvswitches=4, switches=72, leaf_switches=8, spine_switches=64)
    holds(facts, links=576, servers=4, gpus_per_server=8, leaf_of_gpu="36 + gpu mod 8")
    assert facts.summary["link_kinds"] == [
        {"links": 32, "gbps": 2400, "latency_ns": 25},
        {"links": 32, "gbps": 100, "latency_ns": 500},
        {"links": 512, "gbps": 400, "latency_ns": 500},
    ]


def test_astra_sim_network(inputs: Path) -> None:
    facts = read_facts(inputs / "astra_sim/HGX-H100-validated.yml")
    holds(facts, dimensions=1, topology=["Switch"], npus=8, latency_ns=[936.25])
    holds(facts, bandwidth_gigabytes_per_s=[400])
    assert facts.machines[ANY_NODE].devices == 8


def test_htsim_topology(inputs: Path) -> None:
    facts = read_facts(inputs / "astra_sim/htsim_8nodes.topo")
    holds(facts, nodes=8, tiers=3, pod_size=4, pods=2, leaf_switches=4, middle_switches=4)
    assert facts.summary["tier_list"] == [
        {"tier": 0, "gbps": 200, "radix_down": 2, "radix_up": 2, "latency_ns": 1000},
        {"tier": 1, "gbps": 200, "radix_down": 2, "radix_up": 4, "latency_ns": 1000, "bundle": 1},
        {"tier": 2, "gbps": 100, "radix_down": 4, "latency_ns": 1000, "bundle": 2},
    ]


def test_simai_bandwidths(inputs: Path) -> None:
    facts = read_facts(inputs / "astra_sim/simai_busbw.yaml")
    told = facts.summary["bus_bandwidth_gigabytes_per_s"]
    assert told["TP"] == {
        "all_reduce": 300,
        "all_gather": 280,
        "reduce_scatter": 280,
        "all_to_all": 230,
    }
    assert told["DP"] == {"all_gather": 380, "reduce_scatter": 380}
    assert told["EP"] == {"all_gather": 45, "reduce_scatter": 45, "all_to_all": 80}
    assert told["PP"] == {"send_recv": 47.5}
    holds(facts, unset=["DP all_reduce", "DP all_to_all", "EP all_reduce"], nodes="unknown")


def test_aws_instances(inputs: Path) -> None:
    facts = read_facts(inputs / "aws_instance_topology/p5en_4inst.json")
    holds(facts, instances=4, tiers=3, roots=["nn-1example"], switches=6, capacity_blocks=[])
    assert domains(facts, "leaf")["nn-4example"] == {"i-1example", "i-2example"}
    assert domains(facts, "pod")["nn-2example"] == {"i-1example", "i-2example", "i-3example"}


def test_azure_partitions(inputs: Path) -> None:
    facts = read_facts(inputs / "azure_misc/nodes_clusterUUIDs.txt")
    holds(facts, nodes=72, nvlink_partitions=4, nodes_per_partition=[18], clique_ids="unknown")
    found = domains(facts, "nvlink")["5e797fc6-0f46-421a-8724-0e102c0f723c"]
    assert {"hpcbench-hpc-1", "hpcbench-hpc-5"} <= found and "hpcbench-hpc-2" not in found


def test_eks_labels(inputs: Path) -> None:
    facts = read_facts(inputs / "cloud_labels/aws_eks_node_labels.json")
    holds(facts, nodes=3, roots=["nn-1111111111example", "nn-4444444444example"])
    holds(facts, values_of_tier={"leaf": 3, "pod": 3, "zone": 2})
    assert sorted(map(len, domains(facts, "zone").values())) == [1, 2]


@pytest.mark.parametrize(("name", "fabrics"), [("oci_imds_0", 4), ("oci_imds_1", "unknown")])
def test_oracle_hosts(inputs: Path, name: str, fabrics: int | str) -> None:
    facts = read_facts(inputs / f"cloud_labels/{name}.txt")
    holds(facts, nodes=4, tiers=3, trees=4, gpu_memory_fabrics=fabrics)
    assert tiers(facts)[-3:] == ["local-block", "network-block", "hpc-island"]
    assert ("nvlink" in tiers(facts)) == (fabrics == 4)


def test_kueue_template(inputs: Path) -> None:
    path = inputs / "kueue_topology/gke_a3mega_kueue.tftpl.yaml"
    facts = read_facts(path)
    levels = facts.summary["topologies"]["gke-default"]
    assert [key.rpartition("/")[2] for key in levels] == [
        "gce-topology-block",
        "gce-topology-subblock",
        "gce-topology-host",
        "hostname",
    ]
    holds(facts, unresolved=["${accelerator_type}", "${num_gpus}"], documents=9)
    assert sorted(facts.summary["priority_classes"].values()) == [100, 250, 500, 750, 1000]
    assert facts.summary["gpu_quota"] == ["unresolved: ${num_gpus}"]
    refused(path, "no nodes")


def test_kueue_queues(inputs: Path) -> None:
    facts = read_facts(inputs / "kueue_topology/sample_queues.yaml")
    holds(facts, levels={"default": 3}, gpu_quota="none")
    assert facts.summary["quotas"]["tas-cluster-queue"] == {
        "tas-flavor": {"cpu": 100, "memory": "100Gi"}
    }


def test_volcano_discovery(inputs: Path) -> None:
    path = inputs / "volcano_hypernode/discovery_config.yaml"
    refused(
        path,
        "3 sources (ufm on, roce off, label on)",
        "topologyA2 (tor > hostname)",
        "topologyA3 (hypercluster > hypernode > hostname)",
    )
    with pytest.raises(InvalidInput) as caught:
        read_facts(path)
    assert "token" not in str(caught.value).partition("problem")[2]


def test_volcano_three_tiers(inputs: Path) -> None:
    facts = read_facts(inputs / "volcano_hypernode/three_tier.yaml")
    holds(facts, hypernodes=7, nodes=8, roots=["s6"], tiers=3)
    holds(facts, hypernodes_of_tier={1: ["s0", "s1", "s2", "s3"], 2: ["s4", "s5"], 3: ["s6"]})
    warned(facts, "without apiVersion", "without metadata", "the type of members")


def test_hived_cells(inputs: Path) -> None:
    facts = read_facts(inputs / "hived/design.yaml")
    holds(facts, cell_types=21, top_cells=10, node_cells=21, nodes=20, devices=270)
    assert list(facts.summary["devices_by_kind"].values()) == [6, 24, 208, 32]
    holds(facts, virtual_clusters=2, pinned_cells=3)
    assert len(facts.summary["cell_types_not_used"]) == 4
    warned(facts, "'1.0.0.2' has devices of several kinds")


def test_lingjun_table(shared: Path) -> None:
    facts = read_facts(shared / "facts/lingjun_topo.csv")
    holds(facts, nodes=847, domains_of_tier={"asw": 119, "psw": 3, "dsw": 1})
    holds(facts, labels_of_tier={"asw": 48, "psw": 3, "dsw": 1})
    holds(facts, hosts_of_psw={"P10": 362, "P12": 306, "P8": 179})
    assert facts.summary["tors_by_hosts"][8] == 68


def test_every_file_that_is_a_cluster_loads_as_one(inputs: Path) -> None:
    kinds = (
        "slurm_topology_conf",
        "slurm_topology_yaml",
        "topograph_model",
        "ibnetdiscover",
        "iblinkinfo",
        "containerlab",
        "simai_topo",
        "astra_sim",
        "aws_instance_topology",
        "cloud_labels",
        "volcano_hypernode",
        "hived",
    )
    loaded = 0
    for path in sorted(path for kind in kinds for path in (inputs / kind).iterdir()):
        try:
            facts = read_facts(path)
        except InvalidInput:
            continue
        if facts.not_alone is not None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportedFileWarning)
            cluster = Cluster.load(path)
        assert len(cluster.nodes) == max(len(facts.network.domains) if facts.network else 1, 1)
        loaded += 1
    assert loaded >= 20
