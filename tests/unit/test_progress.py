"""What a rank reports of its steps: written by real processes, read from outside."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import NodeBench, node_bench
from railweave.agents import progress, report
from railweave.agents.attempt import NodePhase, NodeStatus, Vitals
from waiting import wait_until

STEPS = """
import time
from railweave.agents import report
for step in range(1, 8):
    report(step, loss=0.5 / step, compute_s=0.25)
open("reported", "w").write("yes\\n")
time.sleep(1000)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    found = tmp_path / "rank-0.progress"
    assert progress.create(found)
    monkeypatch.setenv(progress.VARIABLE, str(found))
    yield found
    monkeypatch.delenv(progress.VARIABLE)
    report(0)  # lets go of the file


def vitals_of(bench: NodeBench, rank: int = 0) -> Vitals | None:
    found = {each.rank: each for each in bench.runner.status("job", 1).rank_vitals()}
    return found.get(rank)


def test_the_last_reports_are_read_as_they_were_written(path: Path) -> None:
    assert progress.read(path) is None
    for step in range(100):
        report(step, loss=float(step), compute_s=step / 10)
    found = progress.read(path)
    assert found is not None
    assert (found.reports, found.step, found.loss, found.bad_losses) == (100, 99, 99.0, 0)
    assert [entry.step for entry in found.entries] == list(range(68, 100))
    assert found.compute_s(3) == (9.8, 3)
    assert found.typical_s is not None and 0 <= found.typical_s <= found.longest_s


def test_losses_that_are_no_numbers_are_counted_in_a_row(path: Path) -> None:
    for step, loss in enumerate([1.0, math.nan, 1.0, math.nan, math.inf, -math.inf]):
        report(step, loss=loss)
    report(6)  # says nothing of its loss
    found = progress.read(path)
    assert found is not None
    assert (found.bad_losses, found.bad_step, found.loss) == (3, 3, None)
    report(7, loss=0.1)
    recovered = progress.read(path)
    assert recovered is not None and recovered.bad_losses == 0


def test_outside_of_railweave_a_report_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    report(1, loss=math.nan)


def test_a_file_that_is_gone_costs_one_warning_and_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path / "none"))
    with pytest.warns(UserWarning, match="not reported to Railweave") as warned:
        for step in range(3):
            report(step)
    assert len(warned) == 1


@pytest.mark.parametrize("compute_s", [-1.0, math.nan, math.inf])
def test_a_compute_time_that_is_none_is_refused(compute_s: float) -> None:
    with pytest.raises(ValueError, match="compute_s is"):
        report(1, compute_s=compute_s)


@given(st.binary(max_size=1200))
def test_a_file_full_of_anything_is_no_progress(data: bytes) -> None:
    assert progress._unpacked(data) is None


@given(st.integers(0, 800), st.integers(1, 255))
def test_a_report_that_is_half_written_is_not_believed(place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank-0.progress"
        assert progress.create(path)
        reporter = progress.Reporter(path)
        reporter.report(1, 0.5, None)
        reporter.close()
        data = bytearray(path.read_bytes())
    data[place] ^= change
    assert progress._unpacked(bytes(data)) is None


def test_a_report_costs_next_to_nothing(path: Path) -> None:
    report(0)
    began = time.process_time()
    for step in range(2000):
        report(step, loss=1.0, compute_s=0.1)
    assert (time.process_time() - began) / 2000 < 2e-3


def test_the_import_of_report_loads_no_library() -> None:
    code = "import sys, railweave.agents; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "numpy", "ray", "torch", "asyncio"} & set(found.stdout.split())


def test_the_node_status_shows_the_steps_of_each_rank(node: NodeBench) -> None:
    node.launch(sys.executable, "-c", STEPS)
    node.wait_for_file("reported")
    found = wait_until(
        lambda: (seen := vitals_of(node)) and seen.reports == 7 and seen, 30, "steps are seen"
    )
    assert (found.step, found.compute_s, found.compute_steps) == (7, 0.25, 7)
    assert found.loss == pytest.approx(0.5 / 7)
    assert found.typical_s is not None
    later = wait_until(
        lambda: (seen := vitals_of(node)) and seen.quiet_s > found.quiet_s and seen, 30, "it ages"
    )
    assert later.report_age_s == later.quiet_s


def test_ranks_that_report_nothing_are_seen_too(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    found = wait_until(lambda: vitals_of(node), 30, "the rank is seen")
    assert (found.reports, found.step, found.state) == (0, None, "S")


def test_an_attempt_that_has_ended_has_no_vitals(node: NodeBench) -> None:
    node.launch("true")
    status = node.ended()
    assert (status.phase, status.vitals) == (NodePhase.ENDED, ())


def test_a_status_pickled_by_a_version_without_vitals_is_taken_in() -> None:
    status = NodeStatus(job_id="job", attempt=1, node="n0", phase=NodePhase.RUNNING)
    del status.__dict__["vitals"]
    again = pickle.loads(pickle.dumps(status))
    assert again.vitals == ()
    assert again.rank_vitals() == ()
