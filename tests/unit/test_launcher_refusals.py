"""How long a job waits after Ray, a node or a disk has refused its launch."""

from __future__ import annotations

from pathlib import Path

import pytest
from railweave.scheduler.core import Core
from railweave.scheduler.launcher import Launcher
from railweave.scheduler.nodes import Nodes
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store


def test_refusals_count_once_for_each_time_that_was_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path / "store.db")
    store.take_epoch(0.0, "test")
    core = Core(Settings(state_dir=str(tmp_path)), store)
    launcher = Launcher(core, Nodes(core))
    now_s = 100.0
    monkeypatch.setattr(core, "tick_s", lambda: now_s)

    def waits_s() -> float:
        launcher._refused("job", "the disk is full")
        return core.unplaceable["job"].until_s - now_s

    assert waits_s() == 10.0
    for _ in range(5):
        now_s += 0.5  # devices came free elsewhere, so it was tried again at once
        assert waits_s() == 10.0
    now_s += 10.0
    assert waits_s() == 20.0
    now_s += 20.0
    assert waits_s() == 40.0
    store.close()


def test_only_a_daemon_that_has_just_begun_waits_for_nodes_to_be_heard_of(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store.db")
    store.take_epoch(0.0, "test")
    store.quarantine("a2", "lost", 0.0, None)
    asked = ["a1", "a0", "a2", "a1"]
    assert Nodes(Core(Settings(state_dir=str(tmp_path)), store)).unheard(asked) == ["a0", "a1"]
    old = Settings(state_dir=str(tmp_path), settle_s=0.0)
    assert Nodes(Core(old, store)).unheard(asked) == []
    store.close()
