"""The small examples and the code on the documents' pages do what they say."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.checkpoint import latest as latest_checkpoint

ROOT = Path(__file__).resolve().parents[2]


def test_placing_offline_sends_less_over_the_spine_than_packing_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["place_offline.py", "--time-limit-s", "10"])
    runpy.run_path(str(ROOT / "examples" / "place_offline.py"), run_name="__main__")
    shown = capsys.readouterr().out
    table = {
        tier: (float(packed), float(placed))
        for tier, packed, placed in re.findall(r"^(\w+) +([\d.]+) +([\d.]+)$", shown, re.MULTILINE)
    }
    assert list(table) == ["node", "tor", "pod", "spine"]
    packed, placed = table["spine"]
    assert placed < packed / 4
    assert f"over the spine: {placed:.2f} GB, proved the least possible" in shown
    nodes = re.findall(r"u\d+n\d+", shown)
    assert len(nodes) == len(set(nodes)) == 8


def test_the_page_on_checkpoints_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    save, background, resume, why, sliced = blocks
    for name in ("RANK", "WORLD_SIZE", "RAILWEAVE_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAILWEAVE_CHECKPOINT_DIR", str(tmp_path))
    model = torch.nn.Linear(3, 2)
    scope: dict[str, Any] = {
        "torch": torch,
        "os": os,
        "model": model,
        "step": 7,
        "directory": str(tmp_path),
        "optimizer": torch.optim.AdamW(model.parameters()),
    }
    exec(save, scope)
    newest = latest_checkpoint(tmp_path)
    assert newest.path is not None
    monkeypatch.setenv("RAILWEAVE_RESUME_FROM", newest.path)
    exec(resume, scope)
    assert torch.equal(scope["state"]["model"]["weight"], model.weight)
    Checkpointer(tmp_path, 0, 2, 5).save(8, b"half")
    exec(why.replace("world_size=8", "world_size=1"), scope)
    shown = capsys.readouterr().out
    assert f"7 {newest.path}" in shown
    assert "because no manifest: 1 of 2 shards are whole, none from rank 1" in shown

    monkeypatch.setenv("RAILWEAVE_CHECKPOINT_DIR", str(tmp_path / "background"))
    exec(background, {"model": model, "first": 1, "steps": 12, "train": lambda step: None})
    found = latest_checkpoint(tmp_path / "background")
    assert found.path is not None and found.step >= 10

    written, read = sliced.split("load_sharded(os", 1)
    saves = Checkpointer(tmp_path / "sliced", 0, 1, 1)
    scope |= {"saves": saves, "weights": model.state_dict()}
    exec(written, scope | (moments := {"moments": {"m": torch.ones(3)}}))
    saves.commit(7, timeout_s=60)
    newest = latest_checkpoint(tmp_path / "sliced")
    assert newest.path is not None
    monkeypatch.setenv("RAILWEAVE_RESUME_FROM", newest.path)
    blank = torch.nn.Linear(3, 2).state_dict()
    state = {"model": blank, "optimizer": {"m": torch.zeros(3)}, "step": 0}
    exec(written.split("\n")[0] + "\nload_sharded(os" + read, scope | {"state": state})
    assert torch.equal(state["model"]["weight"], model.weight)
    assert torch.equal(state["optimizer"]["m"], moments["moments"]["m"])


def test_every_reason_on_the_page_is_one_that_the_code_gives() -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    reasons = re.findall(r"^\| `([^`]+)` \| ", page, re.MULTILINE)
    assert len(reasons) >= 8
    code = (ROOT / "agents" / "checkpoint_history.py").read_text(encoding="utf-8")
    for reason in reasons:
        words = re.split(r"\d+|\(\.\.\.\)|\.\.\.|, none from rank", reason)
        for part in (word.strip() for word in words):
            assert part in code, f"{reason!r}: {part!r} is not in the code"
