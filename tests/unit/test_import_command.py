"""`railweave import` ends with 2 for wrong usage or files, and with 1 for what is lacking."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from railweave.placement import Cluster
from railweave.placement.importers.source import MOST_BYTES
from railweave.scheduler.cli.main import run

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs `railweave import` in a folder with tree.conf and topo.txt."""
    tree, matrix = ("slurm-topology-conf/topology.conf", "nvidia-smi-topo/topo.txt")
    (tmp_path / "tree.conf").write_text((SAMPLES / tree).read_text())
    (tmp_path / "topo.txt").write_text((SAMPLES / matrix).read_text())
    monkeypatch.chdir(tmp_path)

    def run_import(*arguments: str) -> tuple[int, str, str]:
        code = run(["import", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_import


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"  \n\n", "the file is empty"),
        (b"\x80\x81abc", "byte 0: not UTF-8 text"),
        (b"SwitchName=a\0 Nodes=b\n", "a zero byte"),
        (b"hello\n", "it begins with 'hello'; railweave import --formats lists"),
        (b"<topology><object", "not XML"),
        (b"SwitchName=a Nodes=n[1-\n", "line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(
    imports: Run, content: bytes | None, told: str
) -> None:
    if content is not None:
        Path("file").write_bytes(content)
    code, out, err = imports("tree.conf", "file")
    assert (code, out) == (2, "")
    assert err.startswith("railweave: file: 1 problem") and told in err


def test_folders_and_files_that_are_too_large_are_refused(imports: Run) -> None:
    Path("folder").mkdir()
    with open("large", "wb") as file:
        os.truncate(file.fileno(), MOST_BYTES + 1)
    for name, told in (("folder", "Is a directory"), ("large", "bytes, which is the most")):
        code, _, err = imports(name)
        assert code == 2 and told in err and err.count("problem") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give at least one file"),
        ([""], "it is empty"),
        (["tree.conf", "--name", ""], "it is empty"),
        (["tree.conf", "--accelerator", " "], "it is empty"),
        (["tree.conf", "--format", "slurm-topology-con"], "did you mean 'slurm-topology-conf'"),
        (["tree.conf", "--format", "nvidia-smi-topo"], "no matrix of GPUs"),
        (["topo.txt", "--format", "slurm-topology-conf"], "line 1"),
        (["tree.conf", "topo.txt", "--machine", "topo.txt"], "is not FILE=PATTERN"),
        (["tree.conf", "topo.txt", "--machine", "x=gpu*"], "is not among the files"),
        (["tree.conf", "topo.txt", "--machine", "tree.conf=gpu*"], "describes no machines"),
        (["tree.conf", "--without-tier", "leafs"], "there are: leaf, pod"),
        (["tree.conf", "--nic-bandwidth", "nan"], "give bytes per second"),
        (["tree.conf", "--devices", "0"], "is not in the range"),
        (["tree.conf", "--out", "nowhere/cluster.yaml"], "does not exist"),
    ],
)
def test_wrong_usage_says_what_to_change(imports: Run, arguments: list[str], told: str) -> None:
    code, out, err = imports(*arguments)
    assert (code, out) == (2, "") and told in err


def test_files_that_contradict_each_other_are_shown_and_then_refused(imports: Run) -> None:
    Path("other.conf").write_text("SwitchName=a Nodes=gpu[01-08]\nSwitchName=b Nodes=x[1-2]\n")
    code, out, err = imports("tree.conf", "other.conf", "--out", "cluster.yaml")
    assert code == 1 and "tree.conf" in out and "--without-tier leaf" in err
    assert not Path("cluster.yaml").exists()


def test_a_pattern_says_which_nodes_a_machine_is_like(imports: Run) -> None:
    code, _, _ = imports(
        "tree.conf", "topo.txt", "--machine", "topo.txt=gpu0[1-4]", "--out", "cluster.yaml"
    )
    assert code == 0
    devices = {node.name: node.devices for node in Cluster.load("cluster.yaml").nodes}
    assert devices["gpu04"] == 4 and devices["gpu05"] == 1
    code, out, _ = imports("tree.conf", "topo.txt", "--machine", "topo.txt=dgx*")
    assert code == 0 and "no node is like 'dgx*'" in out


def test_the_tree_shows_node10_after_node9(imports: Run) -> None:
    Path("ten.conf").write_text("SwitchName=a Nodes=n[8-11]\nSwitchName=b Nodes=n[1-2]\n")
    code, out, _ = imports("ten.conf")
    shown = [line.split()[-4] for line in out.splitlines() if "─ n" in line]
    assert code == 0 and shown == ["n8", "n9", "n10", "n11", "n1", "n2"]
