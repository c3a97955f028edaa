"""The verbs that work on files: constraints, repair, port plans and explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, Constraints, Placement, evaluate
from railweave.placement.constraints_file import (
    constraints_data,
    load_constraints,
    parse_constraints,
)
from railweave.placement.paths.port_plan import PortPlan
from railweave.scheduler.cli.cmd_repair import devices_named
from railweave.scheduler.cli.main import run
from railweave.scheduler.cli.ranges import ranges_text


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with cluster.json (two pods of two racks of three nodes) and pcg.json (16 ranks)."""
    nodes = [
        {
            "name": f"p{p}r{r}n{n}",
            "accelerator": "H100",
            "devices": 4,
            "domains": {"rack": f"p{p}r{r}", "pod": f"p{p}"},
        }
        for p in range(2)
        for r in range(2)
        for n in range(3)
    ]
    tiers = [{"name": t, "bandwidth": 50e9, "latency": 2e-6} for t in ("rack", "pod", "spine")]
    cluster = {"format": "railweave.cluster/1", "name": "two", "tiers": tiers, "nodes": nodes}
    groups = [
        {
            "name": f"dp{i}/grads",
            "op": "all_reduce",
            "ranks": list(range(i, 16, 4)),
            "bytes": 1e9,
        }
        for i in range(4)
    ] + [
        {"name": f"tp{i}", "op": "all_reduce", "ranks": list(range(4 * i, 4 * i + 4)), "bytes": 9e9}
        for i in range(4)
    ]
    pcg = {"format": "railweave.pcg/1", "world_size": 16, "groups": groups}
    (tmp_path / "cluster.json").write_text(json.dumps(cluster))
    (tmp_path / "pcg.json").write_text(json.dumps(pcg))
    monkeypatch.chdir(tmp_path)
    return tmp_path


FILES = ["--cluster", "cluster.json", "--pcg", "pcg.json"]


def placed(*options: str) -> Placement:
    assert run(["place", *FILES, "--out", "placement.json", *options]) == 0
    return Placement.load("placement.json")


@pytest.mark.parametrize(
    ("options", "wish"),
    [
        (["--together", "pod"], {"together": {"tier": "pod"}}),
        (["--at-most", "1:rack"], {"at_most": {"nodes": 1, "tier": "rack"}}),
        (["--balanced", "rack:4"], {"balanced": {"tier": "rack", "domains": 4}}),
        (["--segments", "8:rack"], {"segments": {"ranks": 8, "tier": "rack"}}),
        (["--pin", "3=p1r1n2:0"], {"pinned": [{"rank": 3, "node": "p1r1n2", "device": 0}]}),
        (["--exclude", "p0r0n0", "--exclude", "p0r0n1"], {"excluded_nodes": ["p0r0n0", "p0r0n1"]}),
        (["--whole-nodes", "--spares", "2"], {"whole_nodes": True, "spares": 2}),
        (["--same-kind", "job"], {"same_kind": {"per": "job"}}),
    ],
)
def test_constraints_hold_whether_they_are_flags_or_a_file(
    here: Path, options: list[str], wish: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster.load("cluster.json")
    by_flags = placed(*options)
    (here / "wish.json").write_text(json.dumps({"format": "railweave.constraints/1", **wish}))
    by_file = placed("--constraints", "wish.json")
    assert by_flags.devices == by_file.devices
    assert load_constraints("wish.json").broken(cluster, by_flags.devices) == []
    assert len(by_flags.spares) == wish.get("spares", 0)
    assert all(spare in capsys.readouterr().out for spare in by_flags.spares[:1])


def test_a_constraints_file_comes_back_as_it_was_written() -> None:
    wish = Constraints(spares=2, excluded_nodes=("a",), whole_nodes=True)
    assert parse_constraints(constraints_data(wish)) == wish
    assert constraints_data(Constraints()) == {"format": "railweave.constraints/1"}
    assert (
        parse_constraints("format: railweave.constraints/1\nx-why: budget\nspares: 1").spares == 1
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["place", *FILES, "--at-most", "rack"], "write NODES:TIER"),
        (["place", *FILES, "--pin", "p0r0n0"], "write RANK=NODE"),
        (["place", *FILES, "--together", "pod", "--prefer-together", "pod"], "give one of"),
        (["place", *FILES, "--together", "rak"], "did you mean 'rack'"),
        (["place", *FILES, "--exclude", "p0r0n9"], "no node 'p0r0n9'"),
        (["place", *FILES, "--constraints", "pcg.json"], "this must be 'railweave.constraints/1'"),
        (["place", *FILES, "--constraints", "wish.json", "--spares", "2"], "give it in one place"),
        (["repair", *FILES, "--placement", "pcg.json"], "this must be 'railweave.placement/1'"),
        (["repair", *FILES, "--placement", "placement.json", "--lost", "p9"], "no node 'p9'"),
        (["ports", *FILES, "--placement", "placement.json"], "Missing option '--uplinks'"),
        (
            [
                "ports",
                *FILES,
                "--placement",
                "placement.json",
                "--uplinks",
                "2",
                "--addresses",
                "a",
            ],
            "give a list of addresses, one for each of 1 rail",
        ),
        (
            ["ports", *FILES, "--placement", "placement.json", "--uplinks", "2", "--trace", "a"],
            "write [source, destination",
        ),
        (["explain"], "give a JOB, or --cluster and --pcg"),
        (["explain", "job-1", *FILES], "not both"),
        (["explain", *FILES, "--tier", "rack"], "give --placement too"),
        (
            ["explain", *FILES, "--placement", "placement.json", "--tier", "rak"],
            "its tiers are node, rack, pod, spine",
        ),
    ],
)
def test_wrong_options_are_code_2_and_say_what_to_write(
    here: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    placed()
    (here / "wish.json").write_text('{"format": "railweave.constraints/1", "spares": 1}')
    (here / "a").write_text('{"p0r0n0": ["10.0.0.1", "10.0.0.2"]}')
    capsys.readouterr()
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and words in " ".join(shown.err.split()), shown.err


def test_repair_shows_who_moved_where_and_writes_the_placement(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = placed()
    lost = before.devices[0][0]
    capsys.readouterr()
    arguments = ["repair", *FILES, "--placement", "placement.json", "--lost", lost]
    assert run([*arguments, "--out", "after.json", "--placed-on", "cluster.json"]) == 0
    shown = capsys.readouterr().out
    after = Placement.load("after.json")
    assert "4 ranks of 16 moved, 4 had to" in shown and lost in shown
    assert after.devices[0][0] in shown and "no bound" not in shown
    assert lost not in {node for node, _ in after.devices}
    moved = [r for r in range(16) if before.devices[r] != after.devices[r]]
    assert moved == [r for r in range(16) if before.devices[r][0] == lost]
    assert run([*arguments, "--compare", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["moved"] == data["forced"] == moved
    assert data["devices"] == [list(device) for device in after.devices]
    assert data["fresh_bytes"]["spine"] <= data["traffic_bytes"]["spine"]
    assert Placement.parse({k: v for k, v in data.items() if k in after.to_data()})


def test_repair_keeps_constraints_or_says_which_is_in_the_way(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = placed("--at-most", "1:rack")
    lost = before.devices[0][0]
    arguments = ["repair", *FILES, "--placement", "placement.json", "--lost", lost]
    assert run([*arguments, "--at-most", "1:rack", "--out", "after.json"]) == 0
    after = Placement.load("after.json").devices
    assert len({node[:4] for node, _ in after}) == 4
    capsys.readouterr()
    assert run([*arguments, "--pin", f"0={lost}"]) == 1
    assert f"rank 0 is pinned to {lost}, which cannot be had any more" in capsys.readouterr().err


def test_what_is_lost_may_be_a_node_or_a_device_of_one() -> None:
    known = {"a", "b:1"}
    assert devices_named(["a", "a:3", "b:1", "b:1:0"], known) == ["a", ("a", 3), "b:1", ("b:1", 0)]


def test_ports_prints_the_plan_beside_the_usual_ports(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("--at-most", "1:rack")
    capsys.readouterr()
    arguments = ["ports", *FILES, "--placement", "placement.json", "--uplinks", "4"]
    assert run([*arguments, "--out", "ports.json"]) == 0
    shown = capsys.readouterr().out
    plan = PortPlan.load("ports.json")
    assert plan.first.planned.connections == plan.first.least_connections
    assert "addresses are made up" in shown
    row = next(line for line in shown.splitlines() if line.startswith("planned"))
    assert row.split()[1] == str(plan.first.planned.connections)
    assert run([*arguments, "--upper-uplinks", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["format"] == "railweave.ports/1" and data["upper"]["uplinks"] == 2
    assert PortPlan.model_validate(data).connections


def test_ports_use_the_addresses_and_paths_that_are_given(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    placed("--at-most", "1:rack")
    nodes = [node.name for node in Cluster.load("cluster.json").nodes]
    own = {name: [f"192.168.7.{i + 1}"] for i, name in enumerate(nodes)}
    (here / "nics.json").write_text(json.dumps(own))
    arguments = ["ports", *FILES, "--placement", "placement.json", "--uplinks", "2"]
    capsys.readouterr()
    assert run([*arguments, "--addresses", "nics.json", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {c["src"] for c in data["connections"]} <= {a for [a] in own.values()}
    rows = [
        [c["src"], c["dst"], port, c["dst_port"], port % 2]
        for c in data["connections"]
        for port in range(50000, 50008)
    ]
    (here / "trace.json").write_text(json.dumps(rows))
    traced = [*arguments, "--addresses", "nics.json", "--trace", "trace.json", "--json"]
    assert run(traced) == 0
    data = json.loads(capsys.readouterr().out)
    assert all(c["src_port"] % 2 == c["uplink"] for c in data["connections"])


@pytest.mark.parametrize("wrong", ["1e400", "true", "70000", "4.5", '"4791"', "null"])
def test_a_traced_port_that_is_none_is_shown_with_its_row(
    here: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    placed()
    (here / "t.json").write_text(f'[["10.0.0.1", "10.0.0.2", 50000, {wrong}, 1]]')
    capsys.readouterr()
    arguments = ["ports", *FILES, "--placement", "placement.json", "--uplinks", "2"]
    assert run([*arguments, "--trace", "t.json"]) == 2
    assert "[0]: found ['10.0.0.1', '10.0.0.2', 50000," in capsys.readouterr().err


def test_explain_says_where_the_traffic_of_a_placement_comes_from(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = placed("--balanced", "pod:2")
    capsys.readouterr()
    assert run(["explain", *FILES, "--placement", "placement.json", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    total = evaluate(PCG.load("pcg.json"), Cluster.load("cluster.json"), found.devices)
    assert data["bytes"] == total.cross_spine_bytes > 0
    assert sum(source["bytes"] for source in data["sources"]) == data["bytes"]
    assert run(["explain", *FILES, "--placement", "placement.json", "--tier", "node"]) == 0
    assert "tp*" in capsys.readouterr().out


def test_explain_names_the_constraint_in_the_way_and_what_can_be_had(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *FILES, "--together", "rack"]) == 0
    shown = capsys.readouterr().out
    assert "cannot be placed" in shown and "together in one pod" in shown
    assert run(["explain", *FILES, "--together", "rack", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert not data["possible"]
    first = parse_constraints(data["relaxations"][0]["constraints"])
    assert first.together is not None and first.together.tier == "pod"
    assert run(["explain", *FILES, "--together", "pod", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["possible"]


def test_ranges_of_numbers_are_short() -> None:
    assert ranges_text([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges_text([]) == ""
