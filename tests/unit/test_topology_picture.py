"""The pictures of a running cluster's network: what is degraded or dead stands beside its part."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from railweave.placement import Cluster
from railweave.placement.domains import Domain
from railweave.placement.inference.health import Between, Finding, Health, Symptom
from railweave.placement.inference.health_effects import effects_of
from railweave.scheduler.cli.main import run
from railweave.scheduler.health_news import clock, reason_of
from railweave.scheduler.ledger import Ledger
from railweave.scheduler.records import Holding
from railweave.scheduler.views import Network

CLUSTER = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "fabric",
        "tiers": [
            {"name": "leaf", "bandwidth": 12.5e6, "latency": 2e-5},
            {"name": "spine", "bandwidth": 3e6, "latency": 2e-3},
        ],
        "nodes": [
            {
                "name": f"h{leaf}-{host}",
                "accelerator": "cpu",
                "devices": 2,
                "domains": {"leaf": f"leaf{leaf}"},
            }
            for leaf in range(3)
            for host in range(2)
        ],
    }
)
SINCE_S = 1_700_000_000.0
SLOW = Finding("h0-1", Health.DEGRADED, Symptom.BANDWIDTH, SINCE_S, 0.4, 5)
DEAD = Finding(Domain("leaf", "leaf2"), Health.DOWN, Symptom.LOSS, SINCE_S, 0.0, 8)
LATE = Finding(Between("spine", "spine"), Health.DEGRADED, Symptom.LATENCY, SINCE_S, 0.7, 9)
PATH = Finding(("h0-0", "h1-0"), Health.FLAPPING, Symptom.LOSS, SINCE_S, 0.5, 1)
FOUND = (DEAD, PATH, SLOW, LATE)


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A daemon that has found all this out, and a job on one device."""
    effects = effects_of(CLUSTER, FOUND, most_out=2)
    away = {name: reason_of(finding) for name, finding in effects.out.items()}
    ledger = Ledger(CLUSTER, {("h1-1", 0): Holding("j", 1, 0)}, away, effects)
    network = Network(CLUSTER, ledger.shown(), FOUND)

    class Client:
        def network(self) -> Network:
            return network

    @contextmanager
    def connected() -> object:
        yield Client()

    monkeypatch.setattr("railweave.scheduler.cli.session.connected", connected)
    return network


def test_the_tree_says_beside_each_part_how_it_is_and_since_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["topology"]) == 0
    lines = capsys.readouterr().out.splitlines()
    since = f"since {clock(SINCE_S)}"

    def line(start: str) -> str:
        return next(each for each in lines if start in each)

    assert f"links inside it: speed of round trips at 70% of usual {since}" in lines[0]
    assert f"links out of it: down {since}" in line("leaf2  leaf")
    assert f"h0-1  2 cpu --  drained  bandwidth at 40% of usual {since}" in line("h0-1  2")
    assert "h1-1  2 cpu □■  1 in use" in line("h1-1")
    assert line("not well: path") == f"not well: path h0-0 - h1-0: flapping {since}"
    assert sum(each.startswith("not well: ") for each in lines) == 4


def test_the_drawing_and_the_page_mark_degraded_and_dead_links(tmp_path: Path) -> None:
    svg, page = tmp_path / "now.svg", tmp_path / "now.html"
    graph = tmp_path / "now.json"
    assert (
        run(["topology", "--svg", str(svg), "--html", str(page), "--graph-json", str(graph)]) == 0
    )
    drawn = svg.read_text()
    assert "leaf leaf2 to its spine switch: dead" in drawn
    assert "node h0-1 to its leaf switch: at 40% of" in drawn
    assert "leaf leaf1 to its spine switch: at 70% of" in drawn
    assert "link at 40%" in drawn and "drained: 2 devices" in drawn
    text = page.read_text()
    assert "What is not well" in text and clock(SINCE_S) in text
    assert "links out of leaf leaf2" in text and "path h0-0 - h1-0" in text
    weak = [edge for edge in json.loads(graph.read_text())["edges"] if edge["health"] < 1]
    assert sorted(edge["health"] for edge in weak) == [0.0, 0.4, 0.7, 0.7]


def test_json_is_the_cluster_file_with_what_is_not_well_as_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "c.yaml"
    assert run(["topology", "--json", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert Cluster.parse(printed) == Cluster.load(out) == CLUSTER
    told = json.loads(printed)["x-health"]
    assert told[0]["kind"] == "domain" and told[0]["names"] == ["leaf", "leaf2"]
    assert [Finding.from_data(each) for each in told] == list(FOUND)
