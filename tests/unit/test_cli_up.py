"""What `railweave up` asks of the daemon that it starts; with Ray: tests/ray."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from railweave.scheduler.cli import cmd_up
from railweave.scheduler.cli.main import run
from railweave.scheduler.settings import Reprobe, Settings
from railweave.scheduler.views import DaemonStatus


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each daemon that was to be started."""
    found: list[Settings] = []
    status = DaemonStatus(
        epoch=1, pid=1, started_s=0.0, state_dir="/s", fenced="", jobs={}, nodes=[], probing=False
    )

    def start_daemon(state_dir: Any, **settings: Any) -> None:
        found.append(Settings(state_dir=str(state_dir), **settings))

    monkeypatch.setattr(cmd_up, "start_daemon", start_daemon)
    monkeypatch.setattr(cmd_up, "use_cluster", lambda: None)
    monkeypatch.setattr(cmd_up, "connected", contextlib.nullcontext)
    monkeypatch.setattr(cmd_up, "wait_for_agents", lambda _: status)
    return found


def test_how_the_network_is_measured_again_is_what_the_daemon_is_told(
    asked: list[Settings],
) -> None:
    words = ["--reprobe", "60", "--reprobe-seconds", "5", "--reprobe-bytes", "1000"]
    assert run(["up", "--state-dir", "/s", *words, "--reprobe-busy"]) == 0
    assert run(["up", "--state-dir", "/s"]) == 0
    told, usual = (settings.reprobe for settings in asked)
    probes = told.probes
    assert (told.every_s, probes.budget_s, probes.budget_bytes) == (60.0, 5.0, 1000)
    assert probes.include_busy and not usual.probes.include_busy
    assert usual == Reprobe()
