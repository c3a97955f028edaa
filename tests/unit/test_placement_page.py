"""The page on placing: its program runs, its message is what is told, its constraints are all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from railweave.placement.constraints import Constraints

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "placement.md").read_text(encoding="utf-8")


def test_the_program_on_the_page_runs_and_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        exec(compile(block, f"docs/placement.md, block {number}", "exec"), scope)
    [shown] = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown in capsys.readouterr().out


def test_every_constraint_is_on_the_page() -> None:
    for name in Constraints.model_fields:
        assert f"`{name}=" in PAGE, name
