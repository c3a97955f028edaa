"""The page on importing: every format has its commands, and those that read files work."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from railweave.placement.importers.registry import importers, named
from railweave.scheduler.cli.main import run

TESTS = Path(__file__).resolve().parents[1]
SAMPLES = TESTS / "samples"
PAGE = (TESTS.parent / "docs" / "importing.md").read_text(encoding="utf-8")
ENTRIES = re.findall(
    r"^\*\*[^*]+\*\* \(`([a-z-]+)`\):.*?```sh\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE
)


def commands(block: str) -> list[list[str]]:
    """The arguments of each `railweave import` of a block of shell."""
    lines = [line for line in block.splitlines() if line.startswith("railweave import")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_every_format_has_its_commands() -> None:
    assert sorted(name for name, _ in ENTRIES) == sorted(each.name for each in importers())
    for name, block in ENTRIES:
        made, _, read = block.strip().rpartition("\n")
        [file] = (SAMPLES / name).iterdir()
        assert made and read == f"railweave import {file.name}"
        if not made.startswith("#") and ">" in made:
            assert re.search(rf"> ?{re.escape(file.name)}\b", made), made


@pytest.mark.parametrize(("name", "block"), ENTRIES, ids=[name for name, _ in ENTRIES])
def test_the_command_that_reads_a_format_does(
    name: str,
    block: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(SAMPLES / name)
    [command] = commands(block)
    code = run(command)
    assert code == (1 if capsys.readouterr().err else 0)


def test_several_files_together_are_one_cluster_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in sorted(path.name for path in SAMPLES.iterdir()):
        [file] = (SAMPLES / name).iterdir()
        # Of files called alike these are meant: instances of AWS, a matrix of nvidia-smi.
        if not (tmp_path / file.name).exists():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    before = PAGE[: PAGE.index("## Formats")]
    blocks = [found for found in commands(before) if "--machine" not in found]
    assert len(blocks) >= 5
    for command in blocks:
        assert run(command) == 0, command
        printed = capsys.readouterr().out
        assert "imported" in printed and "contradict" not in printed
    assert Path("cluster.yaml").is_file()


def test_formats_are_listed_with_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "--formats"]) == 0
    printed = capsys.readouterr().out
    for importer in importers():
        assert importer.name in printed and named(importer.name).produced_by
