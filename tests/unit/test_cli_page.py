"""The page on the command: what its examples show is what they print, and no option is left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from railweave.placement import Cluster, Constraints
from railweave.placement.constraints_file import parse_constraints
from railweave.scheduler.cli.constraint_options import _FLAGS
from railweave.scheduler.cli.main import VERBS, run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_the_examples_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [files] = re.findall(r"```yaml\n(format: railweave.cluster/1.*?)```", PAGE, re.DOTALL)
    Path("cluster.yaml").write_text(files)
    Cluster.load("cluster.yaml")
    [job] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    Path("job.json").write_text(job)
    examples = re.findall(r"```console\n\$ railweave ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert [command.split()[0] for command, _ in examples] == ["place", "repair", "ports"]
    for command, shown in examples:
        capsys.readouterr()
        assert run(shlex.split(command)) == 0
        printed = capsys.readouterr().out
        lines = [line.rstrip() for line in printed.splitlines()]
        assert lines == [line.rstrip() for line in shown.splitlines()], printed


def test_the_page_has_every_verb_and_every_constraint() -> None:
    for verb in VERBS:
        assert f"### {verb}\n" in PAGE, verb
    for name in Constraints.model_fields:
        assert f"`{_FLAGS[name]}" in PAGE, name
    [text] = re.findall(r"```yaml\n(format: railweave.constraints/1.*?)```", PAGE, re.DOTALL)
    assert parse_constraints(text).spares == 1
