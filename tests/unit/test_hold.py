"""What is held broken is mended: in time, on request, and when who broke it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from railweave.agents.hold import LONGEST_S, hold, mend
from railweave.agents.processes import process
from waiting import wait_until


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "1000"])
    yield child
    child.kill()
    child.wait()


def state(pid: int) -> str:
    found = process(pid)
    assert found is not None
    return found.state


def is_stopped(pid: int) -> bool:
    return state(pid) == "T"


def test_a_process_is_stopped_and_goes_on_when_its_time_is_over(
    sleeper: subprocess.Popen[bytes],
) -> None:
    found = process(sleeper.pid)
    assert found is not None
    hold(1.0, stopped=[found])
    wait_until(lambda: is_stopped(sleeper.pid), 60, "it is stopped")
    wait_until(lambda: not is_stopped(sleeper.pid), 60, "it goes on")


def test_mending_on_request_happens_at_once_and_twice_is_no_fault(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    found = process(sleeper.pid)
    assert found is not None
    (filler := tmp_path / "filler").touch()
    held = hold(500.0, stopped=[found], files=[str(filler)])
    wait_until(lambda: is_stopped(sleeper.pid), 60, "it is stopped")
    assert filler.exists()
    assert mend(held.pid, held.start_ticks, 60) and mend(held.pid, held.start_ticks)
    wait_until(lambda: not is_stopped(sleeper.pid), 60, "it goes on")
    assert not filler.exists()


def test_a_request_before_anything_is_broken_breaks_nothing(
    sleeper: subprocess.Popen[bytes],
) -> None:
    found = process(sleeper.pid)
    assert found is not None
    held = hold(500.0, stopped=[found], delay_s=500.0)
    assert mend(held.pid, held.start_ticks, 60)
    assert not is_stopped(sleeper.pid)


def test_what_is_held_is_mended_though_its_maker_was_killed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    found = process(sleeper.pid)
    assert found is not None
    code = (
        "import json, os, signal, sys\n"
        "from railweave.agents.hold import hold\nfrom railweave.agents.processes import process\n"
        "print(json.dumps(hold(2.0, stopped=[process(int(sys.argv[1]))]).pid), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    maker = subprocess.run(
        [sys.executable, "-c", code, str(sleeper.pid)], stdout=subprocess.PIPE, check=False
    )
    assert maker.returncode == -signal.SIGKILL
    holder = process(json.loads(maker.stdout))
    assert holder is None or os.getsid(holder.pid) == holder.pid
    wait_until(lambda: is_stopped(sleeper.pid), 60, "it is stopped")
    wait_until(lambda: not is_stopped(sleeper.pid), 60, "it goes on")


@pytest.mark.parametrize("for_s", [0.0, -1.0, LONGEST_S + 1])
def test_nothing_is_held_for_no_time_or_too_long(for_s: float) -> None:
    with pytest.raises(ValueError, match="give up to 600 s"):
        hold(for_s)
