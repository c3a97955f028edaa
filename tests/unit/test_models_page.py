"""The page on models: its program runs and prints what it shows, every keyword is explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from railweave.placement.models import Dimensions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_program_on_the_page_runs_and_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        exec(compile(block, f"docs/models.md, block {number}", "exec"), scope)
    shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == "".join(shown)


def test_every_keyword_of_a_transformer_is_on_the_page() -> None:
    explained = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    named = {name for cell in explained for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(Dimensions.model_fields)
