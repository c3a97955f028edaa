"""The page on workloads: its program prints what it shows; every field, rule and kind is on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import Kind, Parallelism, Workload
from railweave.placement.strategies import cluster_rules
from railweave.placement.strategies.rules import RULES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")


def named_in_tables() -> set[str]:
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", PAGE, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([\w-]+)`", cell)}


def test_the_program_on_the_page_runs_and_prints_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope: dict[str, Any] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)):
        exec(compile(block, f"docs/workloads.md, block {number}", "exec"), scope)
    shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == "".join(shown)


def test_every_field_and_every_kind_of_group_is_on_the_page() -> None:
    fields = {*Parallelism.model_fields, *Workload.model_fields}
    assert fields | {str(kind) for kind in Kind} <= named_in_tables()


def test_every_rule_is_on_the_page() -> None:
    needing_cluster = {
        name
        for name, value in vars(cluster_rules).items()
        if getattr(value, "__annotations__", {}).get("case") == "_Case" and name[0] != "_"
    }
    assert len(needing_cluster) == 5
    assert set(RULES) | needing_cluster <= named_in_tables()
