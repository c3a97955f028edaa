"""Checkpoints in places that are full, odd or hostile: a clear refusal, and nothing is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from railweave.agents.checkpoint import (
    Check,
    Checkpointer,
    CheckpointError,
    CheckpointTimeout,
    fence,
    latest,
    next_attempt,
    prune,
)
from saved_checkpoints import WORLD_SIZE, write


def test_prune_and_save_do_not_follow_links_out_of_the_directory(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    directory = tmp_path / "checkpoints"
    write(directory, 2)
    (directory / "step-000000000001.attempt-0001").symlink_to(outside)
    prune(directory, 1)
    with pytest.raises(CheckpointError, match="Not a directory"):
        Checkpointer(directory, 0, 1, 1).save(1, b"x")
    assert [p.name for p in outside.iterdir()] == ["precious"]


def test_only_folders_of_checkpoints_are_loaded(tmp_path: Path) -> None:
    write(tmp_path, 1)
    rank = Checkpointer(tmp_path, 0, WORLD_SIZE, 1)
    for path in ("", "/", str(tmp_path), f"{tmp_path}/step-1", f"{tmp_path}/../x"):
        with pytest.raises(CheckpointError, match="not a checkpoint's folder"):
            rank.load(path)
    with pytest.raises(CheckpointError, match="no manifest"):
        rank.load(tmp_path / "step-000000000009.attempt-0001")
    with pytest.raises(CheckpointError, match="no checkpoint to load"):
        rank.load(latest(tmp_path / "empty"))


def test_a_place_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nosuchscheme"):
        Checkpointer("nosuchscheme://bucket/x", 0, 1, 1)
    with pytest.raises(CheckpointError, match="write file:///folder"):
        Checkpointer("file://host/folder", 0, 1, 1)
    with pytest.raises(CheckpointError, match="out of range"):
        Checkpointer(tmp_path, 0, 1, 1).save(-1, b"x")


def test_a_full_or_unwritable_place_is_a_clear_error_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = write(tmp_path / "c", 1)
    real = os.write

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CheckpointError, match=r"rank 0 cannot save step 2: No space left.*free"):
        Checkpointer(tmp_path / "c", 0, WORLD_SIZE, 1).save(2, b"x")
    monkeypatch.setattr(os, "write", real)
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot save step 1"):
        Checkpointer(tmp_path / "file" / "c", 0, 1, 1).save(1, b"x")
    assert latest(tmp_path / "c").path == good
    assert not [p for p in (tmp_path / "c").rglob("*") if p.name.startswith(".")]


@pytest.mark.parametrize("torch_state", [False, True])
def test_a_file_size_limit_of_the_system_stops_a_save_cleanly(
    tmp_path: Path, torch_state: bool
) -> None:
    good = write(tmp_path, 1, world_size=1)
    state = "{'x': __import__('torch').zeros(100000)}" if torch_state else "bytes(400000)"
    code = (
        "import resource, sys\n"
        "from railweave.agents.checkpoint import *\n"
        f"state = {state}\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "try:\n    Checkpointer(sys.argv[1], 0, 1, 1).save(2, state)\n"
        "except CheckpointError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "cannot save step 2: File too large after" in done.stdout
    assert latest(tmp_path).path == good
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_loading_needs_neither_ray_nor_torch_nor_the_placement_package(tmp_path: Path) -> None:
    write(tmp_path, 1, world_size=1)
    code = (
        "import sys\nfrom railweave.agents.checkpoint import *\n"
        "rank = Checkpointer(sys.argv[1], 0, 1, 2)\nrank.save(2, b'x')\n"
        "rank.load(rank.commit(2))\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'ray','torch','fsspec','pydantic'}"
        "), 'railweave.placement' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] False"


def test_two_attempts_that_write_the_same_step_never_mix(tmp_path: Path) -> None:
    zombie = [Checkpointer(tmp_path, rank, 2, 1) for rank in range(2)]
    current = [Checkpointer(tmp_path, rank, 2, 2) for rank in range(2)]
    zombie[1].save(5, b"old 1")
    current[0].save(5, b"new 0")
    zombie[0].save(5, b"old 0")
    with pytest.raises(CheckpointTimeout):
        current[0].commit(5, timeout_s=0)
    current[1].save(5, b"new 1")
    path = current[0].commit(5)
    with contextlib.suppress(CheckpointError):
        zombie[0].commit(5, timeout_s=0)
    assert latest(tmp_path).path == path
    assert [rank.load(path) for rank in current] == [b"new 0", b"new 1"]


@pytest.mark.parametrize(
    "number", [1.0, 1.5, float("nan"), "1", True, None, b"1", [1]], ids=lambda value: repr(value)
)
def test_what_is_no_whole_number_is_refused_by_name(tmp_path: Path, number: Any) -> None:
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    calls: list[tuple[str, Any]] = [
        ("step", lambda: checkpoints.save(number, b"")),
        ("step", lambda: checkpoints.commit(number, timeout_s=0)),
        ("attempt", lambda: fence(tmp_path, number)),
    ]
    if number is not None:
        calls += [
            ("rank", lambda: Checkpointer(tmp_path, number, 4, 1)),
            ("world_size", lambda: Checkpointer(tmp_path, 0, number, 1)),
            ("attempt", lambda: Checkpointer(tmp_path, 0, 1, number)),
        ]
    for name, call in calls:
        with pytest.raises(CheckpointError, match=f"^{name} is .*, not a whole number"):
            call()
    assert not list(tmp_path.iterdir())


def test_any_kind_of_integer_is_a_step(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    checkpoints = Checkpointer(tmp_path, numpy.int32(0), numpy.int64(1), numpy.uint8(1))
    step = numpy.int64(7)
    checkpoints.save(step, b"state")
    assert checkpoints.load(checkpoints.commit(step)) == b"state"


@pytest.mark.parametrize("attempt", [-1, 10**9, 10**30])
def test_a_fence_that_would_not_hold_is_refused(tmp_path: Path, attempt: int) -> None:
    with pytest.raises(CheckpointError, match="out of range"):
        fence(tmp_path, attempt)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["", "a\0b", "file://", "file://elsewhere/x", "nosuch://x"])
def test_a_place_that_cannot_be_is_refused_by_every_call(place: str) -> None:
    for call in (latest, next_attempt, lambda p: fence(p, 1), lambda p: prune(p, 1), Checkpointer):
        with pytest.raises(CheckpointError):
            call(place)


@pytest.mark.parametrize("name", ["manifest.json", "shard-000001.bytes", "shard-000001.json"])
@pytest.mark.parametrize("committed", [True, False])
def test_a_pipe_in_place_of_a_file_stops_nobody(tmp_path: Path, name: str, committed: bool) -> None:
    good = write(tmp_path, 1)
    folder = Path(write(tmp_path, 2))
    if not committed:
        (folder / "manifest.json").unlink()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    whole = committed and name == "shard-000001.json"
    assert latest(tmp_path).path == (str(folder) if whole else good)
    assert latest(tmp_path, check=Check.SIZES).path == (str(folder) if whole else good)
    if not whole:
        with pytest.raises(CheckpointError):
            Checkpointer(tmp_path, 1, WORLD_SIZE, 9).load(folder)
    assert prune(tmp_path, 1) == ((good,) if whole else ())


def test_tensors_that_would_not_be_read_back_are_refused_when_saved(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Own(torch.Tensor):  # type: ignore[misc]
        pass

    marked, spoilt = torch.ones(2), torch.nn.Parameter(torch.ones(2))
    marked.partition, spoilt.owner = 1, object()
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    for state, told in (
        ({"w": [torch.ones(2).as_subclass(Own)]}, r"state\['w'\]\[0\] is a .*Own"),
        ({"w": spoilt}, r"state\['w'\]\.owner is a builtins\.object"),
    ):
        with pytest.raises(CheckpointError, match=told):
            checkpoints.save(1, state)
    kept = [marked, torch.nn.Parameter(torch.ones(2)), torch.nn.Buffer(torch.ones(2))]
    checkpoints.save(2, kept)
    back = checkpoints.load(checkpoints.commit(2))
    assert [type(part) for part in back] == [type(part) for part in kept]
    assert all(torch.equal(*pair) for pair in zip(kept, back, strict=True))
