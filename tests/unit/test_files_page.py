"""The page on file formats: its files load, its code runs, its numbers are the evaluator's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from railweave.placement import PCG, Cluster, Group, InvalidInput, Kind, Placement, evaluate

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "files.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


CLUSTER = Cluster.parse(blocks("yaml")[0])
PCG_TEXT, PLACEMENT_TEXT = blocks("json")
PLACEMENT_DATA = json.loads(PLACEMENT_TEXT)


def table_rows() -> dict[str, list[float]]:
    """Millions of bytes by group, from the worked example's table."""
    section = PAGE.split("### Worked example")[1]
    rows = re.findall(r"^\| \**(\w+)\** \| (.+?) \|$", section, re.MULTILINE)
    return {
        name: [float(cell.strip("* ")) for cell in cells.split("|")[:3]]
        for name, cells in rows
        if name not in ("group",)
    }


def test_the_worked_example_is_what_the_evaluator_counts() -> None:
    placement = Placement.parse(PLACEMENT_DATA)
    evaluation = evaluate(PCG.parse(PCG_TEXT), CLUSTER, placement.devices)
    rows = table_rows()
    counted = {
        group.name: [size / 1e6 for size in group.bytes_by_tier.values()]
        for group in evaluation.by_group
    }
    counted["total"] = [size / 1e6 for size in evaluation.traffic_bytes.values()]
    assert rows == counted
    assert placement.traffic_bytes == evaluation.traffic_bytes


def test_the_example_with_rails_apart_is_what_the_evaluator_counts() -> None:
    apart = Cluster.parse(CLUSTER.to_data() | {"cross_rail": "spine"})
    devices = Placement.parse(PLACEMENT_DATA).devices
    counted = evaluate(PCG.parse(PCG_TEXT), apart, devices).traffic_bytes
    told = re.findall(r"to `spine`: (\d+), (\d+), (\d+)\.", PAGE)
    assert [tuple(f"{size / 1e6:g}" for size in counted.values())] == told


def test_the_code_on_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text(blocks("yaml")[0])
    (tmp_path / "pcg.json").write_text(PCG_TEXT)
    (tmp_path / "placement.json").write_text(PLACEMENT_TEXT)
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "docs/files.md", "exec"), {})
    assert "activations {'node': 0.0, 'rack': 0.0, 'spine': 3000000.0}" in capsys.readouterr().out


def test_the_faults_shown_on_the_page_are_told_so() -> None:
    shown = blocks("text")[0]
    data = CLUSTER.to_data()
    spare = {"accelerator": "A100-80G", "devices": 8}
    data["nodes"] += [
        spare | {"name": f"b{number}", "domains": {"rack": "b"}} for number in range(2, 8)
    ]
    data["nodes"][7]["domains"]["rak"] = "b"
    data["nodes"][9]["free_devices"] = [0, 8]
    with pytest.raises(InvalidInput) as caught:
        Cluster.parse(data, "cluster.yaml")
    assert str(caught.value) == shown.rstrip()


def test_every_key_and_value_of_the_formats_is_on_the_page() -> None:
    for model in (Cluster, PCG, Group):
        for name in model.model_fields:
            assert re.search(rf"\b{name}\b", PAGE), name
    for kind in Kind:
        assert f"`{kind}`" in PAGE
    for word in (
        "scale_up",
        "oversubscription",
        "free_devices",
        "drained",
        "faulty",
        "reduce_scatter",
        "proved_optimal",
        "lower_bound_bytes",
    ):
        assert word in PAGE
