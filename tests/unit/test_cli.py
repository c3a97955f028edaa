"""The command's promises that need no Ray cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx
import pytest
from railweave.placement import PCG, Cluster, Placement, build_ctg, evaluate, fat_tree
from railweave.scheduler.cli.main import VERBS, run

COMMAND = (sys.executable, "-c", "from railweave.scheduler.cli.main import main; main()")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A cluster whose node order alternates between pods, and a job of two 4-rank rings."""
    nodes = [
        {
            "name": f"n{i}",
            "accelerator": "A100-80G-SXM",
            "devices": 2,
            "domains": {"pod": f"p{i % 2}"},
        }
        for i in range(4)
    ]
    cluster = {
        "format": "railweave.cluster/1",
        "name": "two-pods",
        "tiers": [
            {"name": "pod", "bandwidth": 25e9, "latency": 3e-6},
            {"name": "spine", "bandwidth": 25e9, "latency": 6e-6, "oversubscription": 4},
        ],
        "nodes": nodes,
    }
    groups = [
        {"name": f"ring{i}", "op": "all_reduce", "ranks": list(range(i * 4, i * 4 + 4)), "bytes": 8}
        for i in range(2)
    ]
    pcg = {"format": "railweave.pcg/1", "world_size": 8, "groups": groups}
    paths = tmp_path / "cluster.json", tmp_path / "pcg.json"
    for path, data in zip(paths, (cluster, pcg), strict=True):
        path.write_text(json.dumps(data))
    return str(paths[0]), str(paths[1])


def test_place_prints_traffic_beside_packing_in_order_and_the_bound(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, svg = tmp_path / "placement.json", tmp_path / "placement.svg"
    cluster, pcg = files
    assert (
        run(["place", "--cluster", cluster, "--pcg", pcg, "--out", str(out), "--svg", str(svg)])
        == 0
    )
    shown = capsys.readouterr()
    assert shown.err == ""
    spine = next(line for line in shown.out.splitlines() if line.startswith("spine"))
    assert spine.split() == ["spine", "0", "B", "48", "B"]  # two rings, two edges of 12 bytes each
    assert "proved the fewest possible" in shown.out
    placed = Placement.load(out)
    assert evaluate(PCG.load(pcg), Cluster.load(cluster), placed.devices).cross_spine_bytes == 0
    assert svg.read_text().startswith("<svg")


def test_place_json_is_the_placement_file_with_the_packed_traffic_beside_it(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["place", "--cluster", files[0], "--pcg", files[1], "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "railweave.placement/1"
    assert (
        data["packed_traffic_bytes"] == {"node": 72, "pod": 72 - 48 + 24, "spine": 48}
        or data["packed_traffic_bytes"]["spine"] == 48
    )
    assert len(data["devices"]) == 8


def test_place_that_cannot_fit_is_failure_1_and_says_what_is_short(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    big = tmp_path / "big.json"
    big.write_text('{"format": "railweave.pcg/1", "world_size": 9, "groups": []}')
    assert run(["place", "--cluster", files[0], "--pcg", str(big)]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "9" in shown.err and "8" in shown.err and "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Commands:"),
        (["plaice"], "No such command 'plaice'"),
        (["place"], "Missing option '--cluster'"),
        (["place", "--cluster", "{c}", "--pcg", "{p}", "--time-limit", "0"], "0.0"),
        (["place", "--cluster", "{c}", "--pcg", "{p}", "--time-limit", "nan"], "number of seconds"),
        (["place", "--cluster", "{c}", "--pcg", "{p}", "--seed", "-1"], "-1"),
        (["place", "--cluster", "/no/such", "--pcg", "{p}"], "No such file"),
        (["place", "--cluster", "{p}", "--pcg", "{p}"], "this must be 'railweave.cluster/1'"),
        (["place", "--cluster", "{c}", "--pcg", "{c}"], "this must be 'railweave.pcg/1'"),
        (["place", "--cluster", "{torn}", "--pcg", "{p}"], "line 1"),
        (["place", "--cluster", "{binary}", "--pcg", "{p}"], "not UTF-8"),
        (["place", "--cluster", "{c}", "--pcg", "{p}", "--out", "/no/such/x"], "does not exist"),
        (["topology", "--cluster", "{torn}"], "line 1"),
        (["topology", "--cluster", "{c}", "--svg", "/no/such/x.svg"], "does not exist"),
    ],
)
def test_wrong_usage_and_broken_input_are_code_2_with_what_to_do(
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    torn, binary = tmp_path / "torn.json", tmp_path / "binary.json"
    torn.write_text('{"format": "railweave.cluster/1", "nodes": [')
    binary.write_bytes(b"\xff\xfe\x00")
    names = {"c": files[0], "p": files[1], "torn": str(torn), "binary": str(binary)}
    assert run([word.format(**names) for word in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert "Traceback" not in shown.err


def test_topology_draws_domains_nodes_and_what_is_free(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(Path(files[0]).read_text())
    data["nodes"][1]["free_devices"] = [1]
    data["nodes"][2]["state"] = "faulty"
    Path(files[0]).write_text(json.dumps(data))
    svg = tmp_path / "fabric.svg"
    assert run(["topology", "--cluster", files[0], "--svg", str(svg)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("two-pods  spine 25 GB/s, 6 µs, 4:1; 4 nodes, 8 devices, 5 free")
    assert "1 faulty (n2)" in lines[0]
    drawn = [line.replace("\xa0", " ").rpartition("── ") for line in lines[1:7]]
    assert [(len(before), rest.split()[0]) for before, _, rest in drawn] == [
        (1, "p0"),
        (5, "n0"),
        (5, "n2"),
        (1, "p1"),
        (5, "n1"),
        (5, "n3"),
    ]
    assert "xx  faulty" in lines[3] and "□■  1 in use" in lines[5]
    assert svg.read_text().startswith("<svg")


def test_topology_writes_a_page_and_graphs_that_other_tools_read(
    files: tuple[str, str], tmp_path: Path
) -> None:
    page, graphml, graph = tmp_path / "t.html", tmp_path / "t.graphml", tmp_path / "t.json"
    outputs = ["--html", str(page), "--graphml", str(graphml), "--graph-json", str(graph)]
    assert run(["topology", "--cluster", files[0], *outputs]) == 0
    html = page.read_text()
    assert "<svg" in html and "<script" not in html and "two-pods" in html
    built = build_ctg(Cluster.load(files[0]))
    read = [
        networkx.read_graphml(graphml),
        networkx.node_link_graph(json.loads(graph.read_text()), edges="edges"),
    ]
    for found in read:
        assert set(found.nodes) == set(built.nodes)
        assert found.number_of_edges() == built.number_of_edges()


def test_topology_sums_up_a_large_cluster_unless_asked_for_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "big.yaml"
    cluster = fat_tree(racks=16, nodes_per_rack=8, racks_per_pod=4)
    cluster.save(path)
    assert run(["topology", "--cluster", str(path)]) == 0
    short = capsys.readouterr().out
    assert run(["topology", "--cluster", str(path), "--all"]) == 0
    whole = capsys.readouterr().out
    assert len(short.splitlines()) < 30 < 128 < len(whole.splitlines())
    assert cluster.nodes[0].name not in short


def test_topology_json_is_a_cluster_file(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topology", "--cluster", files[0], "--json"]) == 0
    assert Cluster.parse(capsys.readouterr().out) == Cluster.load(files[0])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_agrees_with_the_list(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: railweave {verb}")


def test_place_imports_neither_ray_nor_the_daemon(files: tuple[str, str]) -> None:
    code = (
        "import sys; from railweave.scheduler.cli.main import run; "
        f"code = run(['place', '--cluster', {files[0]!r}, '--pcg', {files[1]!r}]); "
        "heavy = [m for m in ('ray', 'torch', 'sqlalchemy') if m in sys.modules]; "
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_imports_only_what_it_prints() -> None:
    code = (
        "import sys; from railweave.scheduler.cli.main import run; run(['--help']); "
        "heavy = [m for m in ('ray', 'numpy', 'pydantic', 'rich') if m in sys.modules]; "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    fat_tree(racks=64).save(path)
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*COMMAND, "topology", "--cluster", str(path), "--all"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        os.close(writer)
        os.read(reader, 10)
        os.close(reader)
        assert child.stderr is not None
        assert child.stderr.read() == ""
        assert child.wait(30) in (0, 141)


def test_ctrl_c_is_one_word_and_code_130(files: tuple[str, str], tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    child = subprocess.Popen(
        [*COMMAND, "topology", "--cluster", str(fifo)], stderr=subprocess.PIPE, text=True
    )
    with child, fifo.open("w"):  # open for writing returns once the command reads
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        assert child.stderr.read().strip() == "interrupted"
        assert child.wait(30) == 130


def test_an_unforeseen_error_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("seven by zero")

    monkeypatch.setattr(Cluster, "load", broken)
    assert run(["topology", "--cluster", files[0]]) == 1
    shown = capsys.readouterr().err
    assert "this should not happen: ZeroDivisionError: seven by zero" in shown
    assert "RAILWEAVE_DEBUG=1" in shown


@pytest.mark.parametrize("option", ["--out", "--svg"])
@pytest.mark.parametrize("verb", ["place", "topology"])
def test_what_is_no_plain_file_is_written_into_and_never_replaced(
    verb: str, option: str, files: tuple[str, str], tmp_path: Path
) -> None:
    cluster, pcg = files
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    arguments = [verb, "--cluster", cluster, *(["--pcg", pcg] if verb == "place" else [])]
    try:
        for target in (pipe, link):
            assert run([*arguments, option, str(target)]) == 0
            assert os.read(reading, 1 << 16)
        assert pipe.is_fifo() and link.is_symlink()
    finally:
        os.close(reading)


def test_a_file_is_written_through_a_link_and_keeps_its_mode(
    files: tuple[str, str], tmp_path: Path
) -> None:
    cluster, pcg = files
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    assert run(["place", "--cluster", cluster, "--pcg", pcg, "--out", str(link)]) == 0
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o600
    assert len(Placement.load(real).devices) == 8


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (["--out", ""], "is empty"),
        (["--svg", ""], "is empty"),
        (["--out", "same", "--svg", "./same"], "two outputs"),
        (["--out", "nowhere/file"], "nowhere does not exist"),
    ],
)
@pytest.mark.parametrize("verb", ["place", "topology"])
def test_outputs_that_cannot_be_are_refused_before_the_work(
    verb: str,
    outputs: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [verb, "--cluster", "unread", *(["--pcg", "unread"] if verb == "place" else [])]
    assert run([*arguments, *outputs]) == 2
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, pcg = files
    assert run(["place", "--cluster", cluster, "--pcg", pcg, "--out", "/proc/placed.json"]) == 1
    assert capsys.readouterr().err.rstrip().endswith("'/proc/placed.json'")
