"""The demo's promises: a real job recovers from a real loss, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from railweave.agents import processes
from waiting import wait_until

COMMAND = (sys.executable, "-c", "from railweave.scheduler.cli.main import main; main()", "demo")


@pytest.fixture
def started(nothing_left: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo as a process of its own, with nothing of the shared cluster in its environment."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with subprocess.Popen(
        [*COMMAND, "--report", str(tmp_path / "out" / "report.html"), "--steps", "50"],
        env=inherited | {"RAILWEAVE_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def read_until(child: subprocess.Popen[str], words: str) -> str:
    """Everything the child printed up to the line with these words."""
    assert child.stdout is not None
    text = ""
    for line in child.stdout:
        text += line
        if words in line:
            return text
    raise AssertionError(f"the demo ended without saying {words!r}:\n{text}")


@pytest.mark.timeout(400)
def test_the_demo_ends_succeeded_after_one_recovery_with_a_report_and_leaves_nothing(
    started: subprocess.Popen[str], tmp_path: Path
) -> None:
    text = read_until(started, "Node")
    tree = processes.below([started.pid], processes.table())
    assert started.stdout is not None
    text += started.stdout.read()
    assert started.wait(60) == 0, text
    end = text[text.index("== Ending everything") :]
    assert re.search(r"^train-gpt-\w+ +SUCCEEDED$", end, re.MULTILINE), end
    lines = [line.strip() for line in end.splitlines() if "  " in line.strip()]
    numbers = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines)
    assert numbers["attempts"] == "2" and numbers["recoveries"] == "1", text
    assert int(numbers["resumed from step"]) % 20 == 0 and int(numbers["steps lost"]) >= 3
    packed = numbers["spine bytes a step, packed in order"]
    assert "proved the fewest" in numbers["spine bytes a step, as placed"]
    assert packed not in numbers["spine bytes a step, as placed"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert report.count("<svg") >= 4 and "SUCCEEDED" in report and "loses power" in report
    assert len(tree) > 30
    gone(tree)
    assert not (tmp_path / "home").exists()


def test_ctrl_c_in_the_middle_leaves_nothing(
    started: subprocess.Popen[str], tmp_path: Path
) -> None:
    read_until(started, "node n0 is up")
    tree = processes.below([started.pid], processes.table())
    assert len(tree) > 6
    os.killpg(started.pid, signal.SIGINT)
    assert started.stdout is not None
    text = started.stdout.read()
    assert started.wait(60) == 130, text
    assert "interrupted" in text and "Traceback" not in text
    gone(tree)
    assert not (tmp_path / "home").exists()


def gone(tree: list[processes.Process]) -> None:
    def left() -> list[processes.Process]:
        found = [processes.process(entry.pid) for entry in tree]
        same = zip(found, tree, strict=True)
        return [f for f, entry in same if f is not None and f.start_ticks == entry.start_ticks]

    wait_until(lambda: not left(), 30, "every process of the demo is gone")
