"""The page on the cost model: its program runs, and its tables are what the model gives."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.calibrate import measured, page  # noqa: E402

PAGE = (ROOT / "docs" / "cost-model.md").read_text(encoding="utf-8")


def test_the_program_of_the_page_runs_and_says_34_days() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/cost-model.md", "exec"), names)
    assert names["step"].days(300e9) == pytest.approx(34, rel=0.06)
    assert sum(names["step"].breakdown.values()) == pytest.approx(names["step"].step_s)
    for part in names["step"].breakdown:
        assert f"`{part}`" in PAGE


def test_the_constants_of_the_page_are_those_in_force() -> None:
    assert page.constants() in PAGE


def test_the_errors_of_the_page_are_those_of_the_model(shared: Path) -> None:
    facts = shared / "facts"
    steps = measured.load(facts).steps
    for table in (
        page.families(steps),
        page.sweeps(steps),
        page.collectives(measured.exchanges(facts)),
        page.memory(steps),
    ):
        assert table in PAGE
