"""The daemon's solver gets ready without holding up the loop that answers everybody."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import subprocess
import sys
import time

import pytest
from railweave.scheduler import solver_warm_up
from railweave.scheduler.solver_warm_up import warm_up_solver


def test_the_loop_answers_while_the_solver_gets_ready(caplog: pytest.LogCaptureFixture) -> None:
    late: list[float] = []

    async def heartbeat() -> None:
        while True:
            due = time.perf_counter() + 0.02
            await asyncio.sleep(0.02)
            late.append(time.perf_counter() - due)

    async def run() -> None:
        beating = asyncio.create_task(heartbeat())
        await warm_up_solver(1000)
        beating.cancel()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "the solver is ready for 1000 devices" in caplog.text
    assert max(late) < 5.0  # an agent counts as lost after 10 s without a sign of life
    assert sorted(late)[len(late) * 9 // 10] < 2


def test_a_cluster_of_few_devices_waits_for_no_loop_that_only_large_jobs_need() -> None:
    code = (
        "import sys; from railweave.placement.warm_up import warm_up; warm_up(8); "
        "print(*(name for name in sys.modules if name.startswith('railweave')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "railweave.placement.repairs.reseat" in loaded  # repairs
    for name in ("spread.anneal", "division.refine"):
        assert importlib.util.find_spec(f"railweave.placement.{name}")
        assert f"railweave.placement.{name}" not in loaded


def test_a_warm_up_that_fails_is_logged_and_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(solver_warm_up, "_CODE", "raise SystemExit('no room for the cache')")
    asyncio.run(warm_up_solver(8))
    assert "the solver is not warmed up: no room for the cache" in caplog.text


def test_a_daemon_that_ends_takes_its_warm_up_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver_warm_up, "_CODE", "import time; time.sleep(600)")

    async def run() -> None:
        task = asyncio.create_task(warm_up_solver(8))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    began = time.perf_counter()
    asyncio.run(run())
    assert time.perf_counter() - began < 30
