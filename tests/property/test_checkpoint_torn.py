"""Whatever happens to the newest checkpoint, `latest` never gives one that is torn."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.agents.checkpoint import Check, Checkpointer, CheckpointError, fence, latest, prune

WORLD_SIZE = 2


def shard(step: int, rank: int) -> bytes:
    return bytes((step * 7 + rank * 3 + i) % 256 for i in range(40 + rank))


def write(directory: Path, step: int, attempt: int = 1) -> None:
    ranks = [Checkpointer(directory, rank, WORLD_SIZE, attempt) for rank in range(WORLD_SIZE)]
    for rank in ranks:
        rank.save(step, shard(step, rank.rank))
    ranks[0].commit(step, timeout_s=5)


def chosen_step(directory: Path) -> int | None:
    """The step `latest` chooses, after checking that it is exactly what was saved."""
    found = latest(directory)
    if found.path is None:
        return None
    assert found.step is not None
    for rank in range(WORLD_SIZE):
        loaded = Checkpointer(directory, rank, WORLD_SIZE, 9).load(found)
        assert loaded == shard(found.step, rank)
    return found.step


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("checkpoints")
    write(directory, 1)
    write(directory, 2)
    return directory


def _damaged(data: st.DataObject, content: bytes, others: list[bytes]) -> bytes | None:
    kind = data.draw(st.sampled_from(["cut", "flip", "delete", "grow", "swap", "zero", "splice"]))
    at = data.draw(st.integers(0, len(content) - 1))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        bit = 1 << data.draw(st.integers(0, 7))
        return content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
    if kind == "delete":
        return None
    if kind == "grow":
        return content + data.draw(st.binary(min_size=1, max_size=8))
    if kind == "swap":
        return data.draw(st.sampled_from(others))
    if kind == "zero":
        return content[:at] + bytes(len(content) - at)
    return content[:at] + data.draw(st.binary(max_size=8)) + content[at:]


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_any_damage_to_any_file_of_the_newest_never_gives_a_torn_checkpoint(
    two_checkpoints: Path, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "c"
        shutil.copytree(two_checkpoints, directory)
        newest = directory / "step-000000000002.attempt-0001"
        files = sorted(newest.iterdir())
        everything = [file.read_bytes() for file in sorted(directory.glob("*/*"))]
        needed_changed = False
        for file in data.draw(st.lists(st.sampled_from(files), min_size=1, unique=True)):
            before = file.read_bytes()
            after = _damaged(data, before, everything)
            if after is None:
                file.unlink()
            else:
                file.write_bytes(after)
            receipt = file.name.startswith("shard-") and file.suffix == ".json"
            needed_changed |= after != before and not receipt
        assert chosen_step(directory) == (1 if needed_changed else 2)
        (passed_over, *_) = [*latest(directory).passed_over, None]
        assert (passed_over is not None) == needed_changed
        if passed_over is not None:
            assert passed_over.path == str(newest) and passed_over.reason


@settings(max_examples=examples(80), deadline=None)
@given(data=st.data())
def test_with_cheap_checks_a_torn_shard_is_still_refused_when_it_is_loaded(
    two_checkpoints: Path, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "c"
        shutil.copytree(two_checkpoints, directory)
        newest = directory / "step-000000000002.attempt-0001"
        file = newest / f"shard-00000{data.draw(st.integers(0, WORLD_SIZE - 1))}.bytes"
        before = file.read_bytes()
        after = _damaged(data, before, [b"", before[::-1]])
        file.unlink()
        if after is not None:
            file.write_bytes(after)
        found = latest(directory, check=Check.SIZES)
        for rank in range(WORLD_SIZE):
            try:
                loaded = Checkpointer(directory, rank, WORLD_SIZE, 9).load(found)
            except CheckpointError:
                continue
            assert loaded == shard(found.step or 0, rank)


# --- A process that is killed at any point of its writing -----------------------------------------

_CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "close", "rmdir")


def _kill_self_at(point: int, half_written: bool) -> None:
    """SIGKILL this process just before its `point`-th system call that changes files.

    With `half_written`, a write that is to be the last one still writes half of its bytes.
    """
    count = 0

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if count == point:
                if name == "write" and half_written:
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*args, **kwargs)

        return call

    for name in _CALLS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def _run_and_die(work: Callable[[], None], point: int, half_written: bool) -> bool:
    """Run `work` in a process of its own that dies at that point; whether it got there."""
    child = os.fork()
    if child == 0:
        try:
            _kill_self_at(point, half_written)
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def _points() -> Iterator[tuple[int, bool]]:
    point = 0
    while True:
        yield point, False
        yield point, True
        point += 1


def _killed_everywhere(
    tmp_path: Path, prepare: Callable[[Path], None], work: Callable[[Path], None]
) -> Iterator[Path]:
    """The directory after a kill at each point of `work` in turn, until it ends unharmed."""
    for point, half_written in _points():
        directory = tmp_path / f"{point}-{half_written}"
        prepare(directory)
        killed = _run_and_die(lambda at=directory: work(at), point, half_written)  # type: ignore[misc]
        yield directory
        if not killed:
            assert point > 4
            return
        shutil.rmtree(directory)


def test_a_rank_killed_anywhere_while_it_saves_leaves_no_torn_checkpoint(tmp_path: Path) -> None:
    def prepare(directory: Path) -> None:
        write(directory, 1)
        Checkpointer(directory, 0, WORLD_SIZE, 1).save(2, shard(2, 0))

    def work(directory: Path) -> None:
        Checkpointer(directory, 1, WORLD_SIZE, 1).save(2, shard(2, 1))

    for directory in _killed_everywhere(tmp_path, prepare, work):
        assert chosen_step(directory) == 1
        # The next attempt writes the same step again, whatever lies there.
        fence(directory, 2)
        write(directory, 2, attempt=2)
        assert chosen_step(directory) == 2
        prune(directory, 1)
        assert chosen_step(directory) == 2


def test_a_rank_killed_anywhere_while_it_saves_again_is_not_vouched_for_by_its_old_receipt(
    tmp_path: Path,
) -> None:
    def prepare(directory: Path) -> None:
        write(directory, 1)
        for rank in range(WORLD_SIZE):
            Checkpointer(directory, rank, WORLD_SIZE, 1).save(2, shard(2, rank)[::-1])
        Checkpointer(directory, 0, WORLD_SIZE, 1).save(2, shard(2, 0))

    def work(directory: Path) -> None:
        Checkpointer(directory, 1, WORLD_SIZE, 1).save(2, shard(2, 1))

    outcomes = []
    for directory in _killed_everywhere(tmp_path, prepare, work):
        folder = directory / "step-000000000002.attempt-0001"
        new = (folder / "shard-000001.bytes").read_bytes() == shard(2, 1)
        try:
            Checkpointer(directory, 0, WORLD_SIZE, 1).commit(2, timeout_s=0)
        except CheckpointError:
            assert chosen_step(directory) == 1
            outcomes.append("refused")
        else:
            # Killed before it began, the whole old save still stands; after it ended, the new one.
            found = latest(directory)
            assert found.step == 2
            loaded = Checkpointer(directory, 1, WORLD_SIZE, 9).load(found)
            assert loaded == (shard(2, 1) if new else shard(2, 1)[::-1])
            outcomes.append("new" if new else "old")
    assert set(outcomes) == {"old", "refused", "new"}


def test_a_rank_killed_anywhere_while_it_commits_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path,
) -> None:
    def prepare(directory: Path) -> None:
        write(directory, 1)
        for rank in range(WORLD_SIZE):
            Checkpointer(directory, rank, WORLD_SIZE, 1).save(2, shard(2, rank))

    def work(directory: Path) -> None:
        Checkpointer(directory, 0, WORLD_SIZE, 1).commit(2, timeout_s=5)

    steps = [chosen_step(d) for d in _killed_everywhere(tmp_path, prepare, work)]
    assert steps == sorted(steps, key=lambda step: step or 0)
    assert set(steps) == {1, 2}


def test_a_process_killed_anywhere_while_it_fences_leaves_the_fence_up_or_down(
    tmp_path: Path,
) -> None:
    for directory in _killed_everywhere(tmp_path, lambda d: write(d, 1), lambda d: fence(d, 2)):
        assert chosen_step(directory) == 1
        fence(directory, 2)
        assert chosen_step(directory) == 1


def test_a_process_killed_anywhere_while_it_prunes_leaves_the_newest(tmp_path: Path) -> None:
    def prepare(directory: Path) -> None:
        for step in (1, 2, 3):
            write(directory, step)

    for directory in _killed_everywhere(tmp_path, prepare, lambda d: prune(d, 1) and None):
        assert chosen_step(directory) == 3
        prune(directory, 1)
        assert chosen_step(directory) == 3


# --- Power loss: only what was synced survives ----------------------------------------------------


class _SyncedOnly:
    """Follows writes, syncs and renames, and can leave on disk only what was made durable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.root = root
        self.names: dict[int, str] = {}
        self.content: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.pending: dict[str, dict[str, str]] = {}
        for name in ("open", "write", "fsync", "replace", "unlink"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, getattr(self, name)(real))

    def open(self, real: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            handle = real(path, flags, *args, **kwargs)
            self.names[handle] = os.fspath(path)
            return handle

        return call

    def write(self, real: Callable[..., int]) -> Callable[..., int]:
        return real

    def fsync(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def call(handle: int) -> None:
            real(handle)
            path = self.names[handle]
            if os.path.isdir(path):
                for target, source in self.pending.pop(path, {}).items():
                    self.durable[target] = self.content.get(source, b"")
            else:
                self.content[path] = Path(path).read_bytes()

        return call

    def replace(self, real: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def call(source: str, target: str) -> None:
            real(source, target)
            self.pending.setdefault(os.path.dirname(target), {})[target] = source

        return call

    def unlink(self, real: Callable[..., None]) -> Callable[..., None]:
        return real

    def lose_power(self) -> None:
        """Rewrite the directory as it would be found after a power loss."""
        shutil.rmtree(self.root)
        for path, content in self.durable.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)


def test_a_committed_checkpoint_survives_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "c"
    with monkeypatch.context() as patch:
        disk = _SyncedOnly(patch, directory)
        write(directory, 1)
        disk.lose_power()
    assert chosen_step(directory) == 1
