"""Checkpoints: what is saved comes back, what is not whole is never chosen, and it says why."""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from railweave.agents.checkpoint import (
    Check,
    Checkpointer,
    CheckpointError,
    CheckpointTimeout,
    FencedAttempt,
    fence,
    latest,
    next_attempt,
    prune,
)
from railweave.agents.checkpoint_manifest import seal
from saved_checkpoints import WORLD_SIZE, load, shard, write


@pytest.fixture(params=["path", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "path":
        return tmp_path / "checkpoints"
    if request.param == "file":
        return f"file://{tmp_path}/with%20space"
    return f"memory://{tmp_path.name}/checkpoints"


def test_every_rank_gets_its_own_bytes_back_from_every_kind_of_place(place: Any) -> None:
    assert not latest(place)
    path = write(place, 4)
    found = latest(place)
    assert (found.path, found.step, found.passed_over) == (path, 4, ())
    assert found.manifest is not None and found.manifest.world_size == WORLD_SIZE
    assert load(place, path) == [shard(4, rank) for rank in range(WORLD_SIZE)]
    assert Checkpointer(place, 1, WORLD_SIZE, 2).load(found) == shard(4, 1)


def test_torch_state_comes_back_bit_for_bit_with_safe_loading_only(place: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 7)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(2, 5)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "step": 12,
        "note": ("bytes", b"\x00\xff", None, 2.5),
    }
    checkpoints = Checkpointer(place, 0, 1, 1)
    checkpoints.save(12, state)
    loaded = checkpoints.load(checkpoints.commit(12))
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded["model"][name], tensor)
    moments = loaded["optimizer"]["state"]
    for index, values in optimizer.state_dict()["state"].items():
        assert all(torch.equal(moments[index][key], values[key]) for key in values)
    assert torch.equal(loaded["rng"], state["rng"])
    assert (loaded["step"], loaded["note"]) == (12, state["note"])


def test_state_that_safe_loading_would_refuse_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    with pytest.raises(CheckpointError, match=r"state\['run'\]\[0\] is a pathlib\..*Path"):
        checkpoints.save(1, {"run": [Path("x")]})
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    with pytest.raises(CheckpointError, match="nested deeper"):
        checkpoints.save(1, cyclic)
    assert not latest(tmp_path)


def test_a_shard_holding_a_foreign_pickle_runs_nothing(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(marker),))

    stream = io.BytesIO()
    torch.save({"x": Evil()}, stream)
    checkpoints = Checkpointer(tmp_path / "c", 0, 1, 1)
    checkpoints.save(1, {"x": 1})
    (file,) = (tmp_path / "c").glob("step-*/shard-*.torch")
    # A forger can make size and checksum agree; what protects is how the state is read.
    receipt = next((tmp_path / "c").glob("step-*/shard-*.json"))
    forged = _resealed(receipt.read_bytes(), stream.getvalue())
    file.write_bytes(stream.getvalue())
    receipt.write_bytes(forged)
    path = checkpoints.commit(1)
    with pytest.raises(CheckpointError, match=r"(?s)cannot resume rank 0.*[Ww]eights"):
        checkpoints.load(path)
    assert not marker.exists()


def _resealed(receipt: bytes, content: bytes) -> bytes:
    body = json.loads(receipt)
    del body["sha256"]
    body["shard"]["size_bytes"] = len(content)
    body["shard"]["sha256"] = hashlib.sha256(content).hexdigest()
    return seal(body)


def test_a_checkpoint_without_a_manifest_is_never_chosen_and_the_missing_ranks_are_named(
    place: Any,
) -> None:
    good = write(place, 1)
    for rank in (0, 2):
        Checkpointer(place, rank, WORLD_SIZE, 1).save(2, b"x")
    found = latest(place)
    assert found.path == good
    ((path, reason),) = found.passed_over
    assert "step-000000000002" in path
    assert reason == "no manifest: 2 of 3 shards are whole, none from rank 1"
    Checkpointer(place, 1, WORLD_SIZE, 1).save(2, b"x")
    assert "all 3 shards are whole, but it was never committed" in latest(place).passed_over[0][1]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("missing", "shard 2 is missing"),
        ("short", "shard 2 has 100 of 200 bytes"),
        ("long", "shard 2 has 201 bytes, not 200"),
        ("flipped", "shard 2: checksum differs"),
        ("linked", "shard 2 is missing"),
        ("folder", "shard 2 is missing"),
        ("torn manifest", "manifest damaged: torn, not JSON after 40 bytes"),
        ("empty manifest", "manifest damaged: empty"),
        ("edited manifest", "manifest damaged: its content does not match its own checksum"),
        ("respaced manifest", "its content does not match its own checksum"),
        ("foreign manifest", "manifest is of step 1, attempt 1"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(
    tmp_path: Path, damage: str, reason: str
) -> None:
    good = Path(write(tmp_path, 1))
    bad = Path(write(tmp_path, 2))
    file, manifest = bad / "shard-000002.bytes", bad / "manifest.json"
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "short":
        file.write_bytes(content[:100])
    elif damage == "long":
        file.write_bytes(content + b"x")
    elif damage == "flipped":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "linked":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    elif damage == "torn manifest":
        manifest.write_bytes(manifest.read_bytes()[:40])
    elif damage == "empty manifest":
        manifest.write_bytes(b"")
    elif damage == "edited manifest":
        manifest.write_text(manifest.read_text().replace('"world_size": 3', '"world_size": 2'))
    elif damage == "respaced manifest":
        manifest.write_bytes(manifest.read_bytes()[:-1])
    else:
        manifest.write_bytes((good / "manifest.json").read_bytes())
    found = latest(tmp_path)
    assert found.path == str(good)
    assert len(found.passed_over) == 1
    assert reason in found.passed_over[0].reason
    if damage == "flipped":
        assert latest(tmp_path, check=Check.SIZES).path == str(bad)
        with pytest.raises(CheckpointError, match=r"rank 2 .*checksum differs"):
            Checkpointer(tmp_path, 2, WORLD_SIZE, 3).load(bad)


def test_a_checkpoint_of_another_world_size_is_passed_over_and_not_loaded(place: Any) -> None:
    small = write(place, 1, world_size=2)
    large = write(place, 2, world_size=4)
    assert latest(place, world_size=2).path == small
    assert latest(place, world_size=2).passed_over[0].reason == "written by 4 ranks, not 2"
    assert Checkpointer(place, 0, 4, 5).latest().path == large
    with pytest.raises(CheckpointError, match="written by 4 ranks, not 2"):
        Checkpointer(place, 0, 2, 5).load(large)


def test_the_highest_step_wins_and_of_one_step_the_highest_attempt(place: Any) -> None:
    write(place, 10, attempt=1)
    again = write(place, 10, attempt=2)
    write(place, 9, attempt=3)
    assert latest(place).path == again


def test_commit_waits_for_the_last_rank(tmp_path: Path) -> None:
    ranks = [Checkpointer(tmp_path, rank, 2, 1) for rank in range(2)]
    ranks[0].save(1, b"a")
    late = threading.Timer(0.1, lambda: ranks[1].save(1, b"b"))
    late.start()
    path = ranks[0].commit(1, timeout_s=30)
    late.join()
    assert latest(tmp_path).path == path


def test_commit_without_all_ranks_times_out_naming_them(place: Any) -> None:
    rank = Checkpointer(place, 1, 4, 1)
    rank.save(1, b"x")
    with pytest.raises(CheckpointTimeout, match=r"3 of 4 ranks have not saved it \(0, 2, 3\)"):
        rank.commit(1, timeout_s=0.02)
    assert not latest(place)


def test_commit_calls_the_barrier_before_it_looks(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    checkpoints.commit(1, timeout_s=0, barrier=lambda: checkpoints.save(1, b"x"))
    assert latest(tmp_path).step == 1


def test_commit_refuses_a_shard_that_changed_after_its_receipt(tmp_path: Path) -> None:
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    checkpoints.save(1, b"0123456789")
    (file,) = tmp_path.glob("step-*/shard-*.bytes")
    file.write_bytes(b"01234")
    with pytest.raises(CheckpointError, match="not committed: shard 0 has 5 of 10 bytes"):
        checkpoints.commit(1)
    file.write_bytes(b"012345678X")
    with pytest.raises(CheckpointError, match="not committed: shard 0: checksum differs"):
        checkpoints.commit(1, check=Check.FULL)
    assert not latest(tmp_path)


def test_a_committed_checkpoint_is_never_written_again(place: Any) -> None:
    path = write(place, 1)
    checkpoints = Checkpointer(place, 0, WORLD_SIZE, 1)
    with pytest.raises(CheckpointError, match="already committed"):
        checkpoints.save(1, b"other")
    with pytest.raises(CheckpointError, match="already committed"):
        checkpoints.commit(1)
    assert load(place, path) == [shard(1, rank) for rank in range(WORLD_SIZE)]


def test_a_fenced_attempt_can_neither_save_nor_commit(place: Any) -> None:
    old = Checkpointer(place, 0, 1, 1)
    old.save(1, b"one")
    first = old.commit(1)
    old.save(2, b"two")
    fence(place, 2)
    with pytest.raises(FencedAttempt, match="attempt 2 of this job has begun"):
        old.commit(2)
    with pytest.raises(FencedAttempt):
        old.save(3, b"three")
    with pytest.raises(FencedAttempt):
        fence(place, 1)
    fence(place, 2)
    assert latest(place).path == first
    new = Checkpointer(place, 0, 1, 2)
    new.save(2, b"two again")
    assert latest(place).step == 1
    assert new.load(new.commit(2)) == b"two again"


def test_a_commit_that_slips_past_the_fence_is_passed_over_for_ever(tmp_path: Path) -> None:
    good = write(tmp_path, 1, attempt=1)
    late = Path(write(tmp_path, 2, attempt=1))
    # The writer was past its last check when the fence came down: hide its manifest, then show it.
    hidden = tmp_path / "hidden"
    (late / "manifest.json").rename(hidden)
    fence(tmp_path, 2)
    hidden.rename(late / "manifest.json")
    found = latest(tmp_path)
    assert found.path == good
    assert found.passed_over[0].reason == "written by attempt 1 after attempt 2 had fenced it out"
    fence(tmp_path, 3)
    assert latest(tmp_path).path == good
    own = write(tmp_path, 2, attempt=3)
    assert latest(tmp_path).path == own
    fence(tmp_path, 4)
    assert latest(tmp_path).path == own


def test_a_damaged_fence_still_shuts_older_attempts_out(tmp_path: Path) -> None:
    good = write(tmp_path, 1, attempt=1)
    fence(tmp_path, 2)
    (tmp_path / "fence-0002.json").write_bytes(b"")
    with pytest.raises(FencedAttempt):
        write(tmp_path, 2, attempt=1)
    assert latest(tmp_path).path == good
    fence(tmp_path, 3)
    assert latest(tmp_path).path == good


def test_launches_that_nobody_numbers_get_numbers_of_their_own(place: Any) -> None:
    assert next_attempt(place) == 1
    first = Checkpointer(place, 0, 1)
    first.save(1, b"unfinished")
    assert (first.attempt, next_attempt(place), Checkpointer(place, 0, 1).attempt) == (1, 2, 2)
    fence(place, 7)
    assert next_attempt(place) == 7


def test_the_environment_says_who_a_rank_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RANK", "WORLD_SIZE", "RAILWEAVE_ATTEMPT", "RAILWEAVE_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CheckpointError, match="set RAILWEAVE_CHECKPOINT_DIR"):
        Checkpointer()
    monkeypatch.setenv("RAILWEAVE_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(CheckpointError, match="rank 2 of 1 ranks does not exist"):
        Checkpointer()
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(CheckpointError, match="no attempt number"):
        Checkpointer()
    monkeypatch.setenv("RAILWEAVE_ATTEMPT", "x")
    with pytest.raises(CheckpointError, match="RAILWEAVE_ATTEMPT is 'x'"):
        Checkpointer()
    monkeypatch.setenv("RAILWEAVE_ATTEMPT", "3")
    found = Checkpointer()
    assert (found.rank, found.world_size, found.attempt) == (2, 4, 3)
    assert found.directory == str(tmp_path)


def test_prune_keeps_the_newest_good_ones_and_never_removes_the_last(place: Any) -> None:
    paths = [write(place, step) for step in (1, 2, 3, 4)]
    Checkpointer(place, 0, 1, 1).save(5, b"in progress")
    assert prune(place, 2) == (paths[1], paths[0])
    assert latest(place).path == paths[3]
    assert len(latest(place).passed_over) == 1
    with pytest.raises(ValueError, match="must stay"):
        prune(place, 0)


def test_prune_does_not_count_damaged_ones(tmp_path: Path) -> None:
    paths = [Path(write(tmp_path, step)) for step in (1, 2, 3)]
    for path in paths[1:]:
        (path / "shard-000001.bytes").unlink()
    assert prune(tmp_path, 1) == ()
    assert latest(tmp_path).path == str(paths[0])
    newest = write(tmp_path, 4)
    assert prune(tmp_path, 1) == tuple(str(path) for path in reversed(paths))
    assert latest(tmp_path).path == newest
