"""Every importer has a small file of its kind, which it alone claims, reads and shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.clusters import assembled
from railweave.placement.importers.registry import importers, named, read_source, recognised
from railweave.placement.importers.source import Source
from railweave.scheduler.cli.main import run

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
FILES = sorted(path for path in SAMPLES.glob("*/*"))

TIERS_AND_NODES: dict[str, tuple[str, int] | None] = {
    "ascend-rank-table": ("spine", 2),
    "astra-sim-htsim": ("leaf pod spine", 32),
    "astra-sim-network": ("spine", 4),
    "aws-instance-topology": ("leaf pod spine", 8),
    "cluster-uuids": ("nvlink spine", 8),
    "containerlab": ("leaf spine", 4),
    "gaudi-hcl": None,
    "hived-cells": ("leaf pod spine", 8),
    "hwloc-xml": ("spine", 1),
    "iblinkinfo": ("leaf spine", 4),
    "ibnetdiscover": ("leaf spine", 4),
    "ibstat-names": None,
    "kueue-topology": None,
    "lingjun-csv": ("asw psw spine", 8),
    "lldp": ("spine", 1),
    "nccl-graph-xml": None,
    "nccl-log": None,
    "nccl-ras": None,
    "nccl-tests-log": None,
    "nccl-topo-xml": ("spine", 1),
    "netq-compute-nodes": None,
    "netq-topology-graph": ("leaf spine", 4),
    "node-labels": ("spine", 8),
    "nvidia-smi-nvlink": ("spine", 1),
    "nvidia-smi-topo": ("spine", 1),
    "oci-hosts": ("nvlink local-block network-block spine", 8),
    "rocm-topo": ("spine", 1),
    "simai-busbw": None,
    "simai-topology": ("leaf spine", 4),
    "slurm-topology-conf": ("leaf pod spine", 8),
    "slurm-topology-yaml": ("leaf spine", 8),
    "topograph-model": ("nvlink leaf pod spine", 8),
    "topograph-output": ("nvlink leaf pod spine", 8),
    "volcano-hypernode": ("leaf pod spine", 8),
}
"""What the samples make; None where they make no cluster by themselves."""


def test_every_importer_has_a_sample() -> None:
    assert {path.parent.name for path in FILES} == {importer.name for importer in importers()}
    assert set(TIERS_AND_NODES) == {importer.name for importer in importers()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_sample_is_claimed_by_its_importer_alone(path: Path) -> None:
    source = Source.load(path)
    importer = recognised(source)
    assert importer is not None and importer.name == path.parent.name
    others = [each for each in importers() if each.name != importer.name]
    mine = importer.certainty(source)
    assert [each.name for each in others if each.certainty(source) >= mine] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_a_sample_is_read_and_makes_the_cluster_it_describes(path: Path) -> None:
    facts = read_source(Source.load(path))
    assert facts.format == path.parent.name and facts.summary
    expected = TIERS_AND_NODES[facts.format]
    if expected is None:
        with pytest.raises(InvalidInput):
            assembled({path.name: facts})
        return
    cluster = assembled({path.name: facts}).cluster
    assert (" ".join(tier.name for tier in cluster.tiers), len(cluster.nodes)) == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_command_shows_a_sample(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    alone = TIERS_AND_NODES[path.parent.name] is None
    assert run(["import", path.name]) == (1 if alone else 0)
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{path.name}: {named(path.parent.name).title[:40]}")
    assert bool(printed.err) == alone
    assert run(["import", path.name, "--json"]) == (1 if alone else 0)
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["files"][0]["format"] == path.parent.name
    assert (data["cluster"] is None) == alone
