"""The page on planning: its program runs, and it prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import Limits, load_workload
from railweave.scheduler.cli.main import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "planning.md").read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    [cluster] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Path("cluster.yaml").write_text(cluster)
    return tmp_path


def test_the_command_prints_what_the_page_shows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headings and rules to the letter; numbers follow the constants of the cost model."""
    [command] = re.findall(r"```console\n\$ railweave ([^\n]*)\n", PAGE)
    assert run(shlex.split(command)) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [line.split() for line in texts()[0].splitlines()]
    assert printed[0] == shown[0]
    plain = [words for words in shown if not any(re.search(r"\d", word) for word in words)]
    assert len(plain) > 5
    for words in plain:
        assert words in printed or words[0] == "interleaving_rounds;"
    assert printed[2] == shown[2] and printed[-2:] == shown[-2:]
    assert [words[0] for words in printed if words and words[0] in ("1", "2", "3")] == [
        "1",
        "2",
        "3",
    ]
    assert load_workload("best.json").parallelism.world_size == 32
    assert Path("plan.html").read_text().startswith("<!doctype html>")


def test_the_program_on_the_page_runs_and_prints_what_it_shows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scope: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        exec(compile(block, f"docs/planning.md, block {number}", "exec"), scope)
    _, _, told = capsys.readouterr().out.partition("\n")
    assert without_numbers(told) == without_numbers(texts()[1])


def texts() -> list[str]:
    return re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def without_numbers(text: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", text)


def test_every_limit_is_an_option_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--help"]) == 0
    told = capsys.readouterr().out
    flags = {"schedules": "schedule", "context_forms": "context-form"}
    for name in Limits.model_fields:
        assert f"--{flags.get(name, name.replace('_', '-'))}" in told, name
