"""What an agent breaks on purpose, and all that it refuses to touch."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from railweave.agents import breaking
from railweave.agents.attempt import Refused
from railweave.agents.checkpoint import Checkpointer, latest
from waiting import wait_until


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a rank of the job `mine`."""
    told = {"RAILWEAVE_ATTEMPT_ID": "x", "RAILWEAVE_JOB_ID": "mine"}
    child = subprocess.Popen(["sleep", "1000"], env={**os.environ, **told})
    wait_until(lambda: "RAILWEAVE_JOB_ID" in breaking._environment(child.pid), 60, "it is up")
    yield child
    child.kill()
    child.wait()


def test_only_ranks_of_the_job_that_is_named_are_signalled(rank: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Refused, match="belongs to mine, not to other"):
        breaking.act("signal_rank", {"job_id": "other", "pid": rank.pid, "number": 9})
    with pytest.raises(Refused, match="is no rank that runs here"):
        breaking.act("signal_rank", {"job_id": "mine", "pid": os.getpid(), "number": 9})
    assert rank.poll() is None
    breaking.act("signal_rank", {"job_id": "mine", "pid": rank.pid, "number": 9})
    assert rank.wait(60) == -9
    with pytest.raises(Refused, match="is no rank that runs here"):
        breaking.act("signal_rank", {"job_id": "mine", "pid": rank.pid, "number": 9})


def test_guards_and_workers_that_are_none_of_ours_are_refused(
    rank: subprocess.Popen[bytes],
) -> None:
    with pytest.raises(Refused, match="no guard above it"):
        breaking.act("signal_guard", {"job_id": "mine", "pid": rank.pid, "number": 9})
    with pytest.raises(Refused, match="no raylet above this process"):
        breaking.act("signal_ray", {"pid": rank.pid, "number": 9})
    with pytest.raises(Refused, match="no raylet above this process"):
        breaking.act("stop_gcs", {"for_s": 1.0})
    assert rank.poll() is None


def test_a_rank_that_takes_no_orders_says_how_to_start_it(rank: subprocess.Popen[bytes]) -> None:
    with pytest.raises(Refused, match="takes no orders; start"):
        breaking.act("order_rank", {"job_id": "mine", "pid": rank.pid, "order": {"do": "exit"}})


def test_what_is_unknown_or_given_wrongly_is_refused() -> None:
    with pytest.raises(Refused, match="cannot break 'everything'; it knows signal_rank"):
        breaking.act("everything", {})
    with pytest.raises(Refused, match="signal_rank cannot be done with \\['pids'\\]"):
        breaking.act("signal_rank", {"pids": 3})


def test_a_large_disk_is_never_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaking, "LARGEST_DISK_BYTES", 1)
    with pytest.raises(Refused, match="Put the job's checkpoints on a small one"):
        breaking.act("fill_disk", {"directory": str(tmp_path), "for_s": 1.0})
    with pytest.raises(Refused, match="is no folder of this node"):
        breaking.act("fill_disk", {"directory": str(tmp_path / "none"), "for_s": 1.0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("part", "how"), [("shard", "torn"), ("shard", "flipped"), ("manifest", "torn")]
)
def test_the_newest_checkpoint_is_damaged_and_then_passed_over(
    rank: subprocess.Popen[bytes], tmp_path: Path, part: str, how: str
) -> None:
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    damage = {
        "job_id": "mine",
        "pid": rank.pid,
        "directory": str(tmp_path),
        "part": part,
        "how": how,
        "seed": 5,
    }
    with pytest.raises(Refused, match="no checkpoint in"):
        breaking.act("damage_checkpoint", damage)
    assert rank.poll() is None
    for step in (10, 20):
        checkpoints.save(step, bytes(1000))
        checkpoints.commit(step)
    found = breaking.act("damage_checkpoint", damage)
    assert rank.wait(60) == -9
    assert "20" in Path(found["path"]).parent.name
    left = latest(tmp_path, world_size=1)
    assert left.step == 10
    assert [each.path for each in left.passed_over] == [str(Path(found["path"]).parent)]


def test_the_clock_jumps_and_is_right_again() -> None:
    before = time.time()
    try:
        breaking.act("shift_clock", {"offset_s": 86400.0, "for_s": 500.0})
        assert time.time() > before + 80000
        # A second jump is from the right time, not from the first.
        breaking.act("shift_clock", {"offset_s": -86400.0, "for_s": 500.0})
        assert time.time() < before - 80000
    finally:
        breaking.act("unshift_clock", {})
    assert abs(time.time() - before) < 1000
    with pytest.raises(Refused, match="give up to 600 s"):
        breaking.act("shift_clock", {"offset_s": 1.0, "for_s": 0.0})
