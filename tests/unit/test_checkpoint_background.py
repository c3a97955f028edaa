"""Saving in the background: training goes on, and whatever ends the writer harms nothing."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from railweave.agents.checkpoint import (
    Check,
    Checkpointer,
    CheckpointError,
    FencedAttempt,
    Keep,
    fence,
    latest,
    prune,
)
from railweave.agents.checkpoint_background import BackgroundSaves
from railweave.agents.checkpoint_pace import Pace
from railweave.agents.notes import read_notes
from waiting import wait_until

DEADLINE_S = 60


@contextmanager
def background(
    directory: Any, rank: int = 0, world_size: int = 1, attempt: int = 1, **more: Any
) -> Iterator[BackgroundSaves]:
    saves = BackgroundSaves(Checkpointer(directory, rank, world_size, attempt), **more)
    try:
        yield saves
    finally:
        saves.close()


def writer_pid(saves: BackgroundSaves) -> int:
    assert saves._writer is not None
    return saves._writer.pid


def test_what_was_saved_is_the_state_of_that_moment_whatever_training_does_next(
    tmp_path: Path,
) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.arange(200_000, dtype=torch.float32)
    with background(tmp_path) as saves:
        for step in (1, 2, 3):
            stall = saves.save(step, {"w": weight, "step": step})
            weight += 1
            assert stall.size_bytes > weight.nbytes and stall.total_s >= stall.copied_s > 0
        outcomes = saves.finish(DEADLINE_S)
    assert [outcome.step for outcome in outcomes] == [1, 2, 3]
    assert not any(outcome.failed for outcome in outcomes)
    for outcome in outcomes:
        loaded = Checkpointer(tmp_path, 0, 1, 2).load(outcome.path)
        assert loaded["step"] == outcome.step
        expected = torch.arange(200_000, dtype=torch.float32) + (outcome.step - 1)
        assert torch.equal(loaded["w"], expected)
    assert torch.serialization.get_crc32_options() is True


def test_a_step_is_a_checkpoint_once_every_rank_has_saved_it_and_old_ones_are_removed(
    tmp_path: Path,
) -> None:
    with (
        background(tmp_path, 0, 2, keep=Keep(last=2)) as first,
        background(tmp_path, 1, 2) as second,
    ):
        for step in range(1, 5):
            first.save(step, b"first %d" % step)
            assert second.save(step, b"second %d" % step).size_bytes == len(b"second 1")
            wait_until(lambda step=step: latest(tmp_path).step == step, DEADLINE_S, "it is whole")
        assert [o.path for o in second.finish(DEADLINE_S)] == [""] * 4
        assert [o.step for o in first.finish(DEADLINE_S)] == [1, 2, 3, 4]
    kept = sorted(path.name for path in tmp_path.glob("step-*"))
    assert [int(name[5:17]) for name in kept] == [3, 4]
    assert Checkpointer(tmp_path, 1, 2, 2).load(latest(tmp_path)) == b"second 4"


def test_a_step_that_one_rank_left_out_is_given_up_and_the_next_one_counts(tmp_path: Path) -> None:
    with background(tmp_path, 0, 2) as first, background(tmp_path, 1, 2) as second:
        first.save(1, b"a")
        first.save(2, b"b")
        second.save(2, b"c")
        one, two = sorted(first.finish(DEADLINE_S), key=lambda outcome: outcome.step)
    assert "1 of 2 ranks have not saved it (1); step 2 is complete since" in one.why
    assert two.path == latest(tmp_path).path


def test_a_step_that_never_becomes_whole_is_given_up_in_time_and_its_room_freed(
    tmp_path: Path,
) -> None:
    with background(tmp_path, 0, 2, commit_timeout_s=0.1) as saves:
        saves.save(1, b"a")
        (outcome,) = saves.finish(DEADLINE_S)
        assert outcome.why == "after 0.1 s 1 of 2 ranks have not saved it (1)"
        wait_until(lambda: not list(tmp_path.glob("step-*")), DEADLINE_S, "its folder is gone")


def test_a_killed_writer_costs_one_save_and_nothing_else(tmp_path: Path) -> None:
    with background(tmp_path) as saves:
        saves.save(1, b"one")
        saves.finish(DEADLINE_S)
        os.kill(writer_pid(saves), signal.SIGSTOP)
        saves.save(2, b"two")
        os.kill(writer_pid(saves), signal.SIGKILL)
        (lost,) = saves.finish(DEADLINE_S)
        assert lost.step == 2
        assert "killed by signal 9; the checkpoints before it are unharmed" in lost.why
        assert latest(tmp_path).step == 1
        saves.save(3, b"three")
        (saved,) = saves.finish(DEADLINE_S)
        assert latest(tmp_path).path == saved.path
        # Between two saves not even one is lost.
        os.kill(writer_pid(saves), signal.SIGKILL)
        os.waitid(os.P_PID, writer_pid(saves), os.WEXITED | os.WNOWAIT)
        saves.save(4, b"four")
        assert [outcome.failed for outcome in saves.finish(DEADLINE_S)] == [False]


def test_a_full_disk_is_an_outcome_and_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with background(tmp_path) as saves:
        saves.save(1, b"one")
        saves.finish(DEADLINE_S)
        limits = resource.prlimit(writer_pid(saves), resource.RLIMIT_FSIZE)
        resource.prlimit(writer_pid(saves), resource.RLIMIT_FSIZE, (1000, limits[1]))
        saves.save(2, bytes(5000))
        (failed,) = saves.finish(DEADLINE_S)
        assert "cannot save step 2: File too large" in failed.why and "unharmed" in failed.why
        assert "step 2" in caplog.text
        assert str(failed).startswith("not saved step=2 ")
        assert latest(tmp_path).step == 1
        resource.prlimit(writer_pid(saves), resource.RLIMIT_FSIZE, limits)
        saves.save(3, bytes(5000))
        assert not saves.finish(DEADLINE_S)[0].failed
    assert latest(tmp_path).step == 3


def test_a_storage_that_hangs_does_not_hang_the_training(tmp_path: Path) -> None:
    with background(tmp_path, longest_wait_s=0.05) as saves:
        saves.save(1, b"one")
        saves.finish(DEADLINE_S)
        os.kill(writer_pid(saves), signal.SIGSTOP)
        saves.save(2, b"two")
        stall = saves.save(3, b"three")
        assert stall.waited_s >= 0.05
        (left_out,) = saves.outcomes()
        assert left_out.step == 3 and "step 2 is still being written: left out" in left_out.why
        with pytest.raises(CheckpointError, match="step 2 is still being written"):
            saves.finish(0.05)
        os.kill(writer_pid(saves), signal.SIGCONT)
        (written,) = saves.finish(DEADLINE_S)
        assert (written.step, latest(tmp_path).step) == (2, 2)


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_last_save_of_a_rank_that_dies_is_still_written(tmp_path: Path, end: str) -> None:
    code = (
        "import os, signal, sys\n"
        "from railweave.agents.checkpoint import Checkpointer\n"
        "from railweave.agents.checkpoint_background import BackgroundSaves\n"
        "saves = BackgroundSaves(Checkpointer(sys.argv[1], 0, 1, 1))\n"
        f"saves.save(7, bytes(3_000_000))\n{end}\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=DEADLINE_S)
    wait_until(lambda: latest(tmp_path).step == 7, DEADLINE_S, "the writer has finished")


def test_a_writer_told_to_end_finishes_its_shard_and_goes(tmp_path: Path) -> None:
    with background(tmp_path, 0, 2) as saves:
        saves.save(1, bytes(10_000_000))
        os.kill(writer_pid(saves), signal.SIGTERM)
        (lost,) = saves.finish(DEADLINE_S)  # no other rank saves: it does not wait for one
        assert lost.step == 1
    shards = list(tmp_path.glob("step-*/shard-*.bytes"))
    assert all(shard.stat().st_size == 10_000_000 for shard in shards)


def test_an_attempt_that_was_fenced_is_told_so_by_its_next_save(tmp_path: Path) -> None:
    with background(tmp_path) as saves:
        saves.save(1, b"one")
        saves.finish(DEADLINE_S)
        fence(tmp_path, 2)
        saves.save(2, b"two")
        (refused,) = saves.finish(DEADLINE_S)
        assert "attempt 2 of this job has begun" in refused.why
        with pytest.raises(FencedAttempt, match="attempt 2 of this job has begun"):
            saves.save(3, b"three")
    assert latest(tmp_path).step == 1


def test_state_that_could_not_be_read_back_is_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with background(tmp_path) as saves:
        with pytest.raises(CheckpointError, match=r"rank 0 cannot save step 1: state\['p'\]"):
            saves.save(1, {"p": Path("x")})
        assert saves.finish(DEADLINE_S) == []


def test_the_writer_needs_neither_torch_nor_ray_nor_the_placement_package() -> None:
    code = (
        "import sys, railweave.agents.checkpoint_writer\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'ray','torch','numpy','pydantic'})"
        ", 'railweave.placement' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] False"


def test_all_ranks_save_at_the_steps_of_rank_0(tmp_path: Path) -> None:
    told: list[int] = []

    def of_rank_0(number: int) -> int:
        told.append(number)
        return number

    paces = [Pace(first_steps=3), Pace(first_steps=9)]
    with (
        background(tmp_path, 0, 2, pace=paces[0], agree=of_rank_0) as first,
        background(tmp_path, 1, 2, pace=paces[1], agree=lambda number: told[-1]) as second,
    ):
        due = [(first.should_save(step), second.should_save(step)) for step in range(11, 21)]
    assert due == [(step in (13, 16, 19),) * 2 for step in range(11, 21)]


def test_ranks_that_cannot_agree_are_told_what_to_do(tmp_path: Path) -> None:
    with (
        background(tmp_path, 0, 2) as saves,
        pytest.raises(CheckpointError, match=r"initialise torch.distributed, or give agree="),
    ):
        saves.should_save(1)


def test_the_stall_is_a_small_part_of_a_blocking_save(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    # What a rank of the example job keeps: weights and two moments of some 200,000 parameters.
    state = {f"part {index}": torch.randn(16_000) for index in range(39)}
    blocking_s, stalls_s = [], []
    plain = Checkpointer(tmp_path / "blocking", 0, 1, 1)
    for step in range(1, 21):
        began_s = time.monotonic()
        plain.save(step, state)
        plain.commit(step)
        prune(tmp_path / "blocking", 2, check=Check.SIZES)
        blocking_s.append(time.monotonic() - began_s)
    with background(tmp_path / "background", keep=Keep(last=2)) as saves:
        for step in range(1, 21):
            stalls_s.append(saves.save(step, state).total_s)
            saves.finish(DEADLINE_S)
    # The least of each is what they take when nobody else wants the core. The benchmark has the
    # figure to promise, a fifth; here a machine under load must not matter.
    assert min(stalls_s) <= 0.4 * min(blocking_s), (stalls_s, blocking_s)


def test_a_disk_without_room_is_told_to_the_jobs_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "attempt").mkdir()
    progress = tmp_path / "attempt" / "rank-0.progress"
    monkeypatch.setenv("RAILWEAVE_PROGRESS", str(progress))
    checkpoints = Checkpointer(tmp_path / "checkpoints", 0, 1, 1)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "fsync", lambda handle: _raise(full))
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoints.save(4, b"four")
    with pytest.raises(CheckpointError, match="No space left on device"):
        checkpoints.save(5, b"five")
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    checkpoints.save(6, b"six")
    (told,) = read_notes(tmp_path / "attempt")
    assert (told.kind, told.data["step"], told.data["rank"]) == ("disk_full", 4, 0)
    assert "unharmed" in told.message


def _raise(error: OSError) -> None:
    raise error
