"""`railweave checkpoints`: what it lists, what it finds damaged, and what it takes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from railweave.agents.checkpoint import Checkpointer, CheckpointError, latest
from railweave.agents.checkpoint_restore import restore
from railweave.agents.checkpoint_storage import open_storage
from railweave.scheduler.cli.main import FAILED, run


def write(directory: Path, step: int, ranks: int = 2) -> Path:
    every = [Checkpointer(directory, rank, ranks, 1) for rank in range(ranks)]
    for rank in every:
        rank.save(step, b"step %d rank %d" % (step, rank.rank))
    return Path(every[0].commit(step, timeout_s=5))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    where = tmp_path / "checkpoints"
    write(where, 10)
    damaged = write(where, 20)
    shard = damaged / "shard-000001.bytes"
    shard.write_bytes(shard.read_bytes()[:-1] + b"X")
    Checkpointer(where, 0, 2, 1).save(30, b"unfinished")
    return where


def test_it_lists_what_there_is_with_the_reason_of_what_cannot_be_used(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoints", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["30", "20", "10"]
    assert "no manifest: 1 of 2 shards are whole, none from rank 1" in lines[1]
    assert "whole by its sizes" in lines[2] and "whole by its sizes" in lines[3]
    assert run(["checkpoints", str(directory), "--json", "--step", "10"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["step"], row["ranks"], row["usable"], row["size_bytes"]) == (10, 2, True, 28)


def test_verify_reads_every_byte_and_fails_when_a_committed_one_is_damaged(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoints", str(directory), "--verify"]) == FAILED
    told = capsys.readouterr()
    assert "shard 1: checksum differs" in told.out
    assert "1 of 3 checkpoints in" in told.err and "are damaged" in told.err
    assert run(["checkpoints", str(directory), "--verify", "--step", "10"]) == 0
    assert "every byte compared" in capsys.readouterr().out


def test_restore_copies_a_whole_checkpoint_and_never_a_damaged_one(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out"
    assert run(["checkpoints", str(directory), "--restore", str(target)]) == FAILED
    assert "shard 1: checksum differs" in capsys.readouterr().err
    assert not latest(target)
    wanted = ["checkpoints", str(directory), "--restore", str(target), "--step", "10"]
    assert run(wanted) == 0
    found = latest(target)
    assert found.path is not None and found.path in capsys.readouterr().out
    for rank in range(2):
        assert Checkpointer(target, rank, 2, 2).load(found) == b"step 10 rank %d" % rank
    assert run(wanted) == FAILED
    assert "is there already; give another directory" in capsys.readouterr().err
    assert run([*wanted[:-1], "11"]) == FAILED
    assert "no usable checkpoint of step 11" in capsys.readouterr().err


def test_an_empty_place_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["checkpoints", f"{tmp_path}/none"]) == 0
    assert f"no checkpoint in {tmp_path}/none" in capsys.readouterr().out
    with pytest.raises(CheckpointError, match="no checkpoint to restore in"):
        restore(open_storage(tmp_path), tmp_path / "x")
