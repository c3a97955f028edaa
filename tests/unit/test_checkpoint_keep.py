"""What stays: by number, by step and by age; never less than the last good one or one in use."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.agents import checkpoint_keep
from railweave.agents.checkpoint import Checkpointer, Keep, latest, prune
from railweave.agents.checkpoint_keep import HOLD_S, holding
from railweave.agents.checkpoint_manifest import parse_step_folder
from railweave.agents.checkpoint_storage import open_storage


def write(directory: Path, step: int) -> str:
    checkpoints = Checkpointer(directory, 0, 1, 1)
    checkpoints.save(step, b"%d" % step)
    return checkpoints.commit(step)


def steps(directory: Path) -> list[int]:
    found = [parse_step_folder(path.name) for path in directory.glob("step-*")]
    return sorted(step for step, _ in filter(None, found))


def test_every_rule_keeps_what_it_names(tmp_path: Path) -> None:
    for step in range(1, 9):
        write(tmp_path, step)
    now_s = latest(tmp_path).manifest.committed_s  # type: ignore[union-attr]
    prune(tmp_path, Keep(last=2, every_steps=3, within_s=3600), now_s=now_s)
    assert steps(tmp_path) == list(range(1, 9))
    prune(tmp_path, Keep(last=2, every_steps=3, within_s=5), now_s=now_s + 60)
    assert steps(tmp_path) == [3, 6, 7, 8]
    prune(tmp_path, 1)
    assert steps(tmp_path) == [8]


@settings(max_examples=examples(40), deadline=None)
@given(
    damaged=st.lists(st.booleans(), min_size=1, max_size=6),
    last=st.integers(1, 4),
    every=st.none() | st.integers(1, 4),
)
def test_the_last_good_one_and_so_many_good_ones_stay_whatever_is_damaged(
    damaged: list[bool], last: int, every: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        for step, bad in enumerate(damaged, start=1):
            path = Path(write(directory, step))
            if bad:
                (path / "shard-000000.bytes").write_bytes(b"")
        good = [step for step, bad in enumerate(damaged, start=1) if not bad]
        prune(directory, Keep(last=last, every_steps=every))
        wanted = {*good[-last:], *(step for step in good if every and step % every == 0)}
        newer = {s for s in range(1, len(damaged) + 1) if not good or s > good[-1]}
        assert set(steps(directory)) == wanted | newer


def test_one_that_is_being_read_stays_until_it_is_read_or_its_reader_is_long_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Path(write(tmp_path, 1))
    write(tmp_path, 2)
    with holding(open_storage(tmp_path), old.name):
        assert prune(tmp_path, 1) == ()
        assert Checkpointer(tmp_path, 0, 1, 2).load(old) == b"1"
    assert not list(tmp_path.glob("hold-*"))
    monkeypatch.setattr(checkpoint_keep.secrets, "token_hex", lambda size: "0" * 2 * size)
    with holding(open_storage(tmp_path), old.name):
        killed = next(tmp_path.glob("hold-*")).read_bytes()
    note = tmp_path / f"hold-{old.name}.{'0' * 16}.json"
    note.write_bytes(killed)
    now_s = latest(tmp_path).manifest.committed_s  # type: ignore[union-attr]
    assert prune(tmp_path, 1, now_s=now_s + HOLD_S / 2) == ()
    assert prune(tmp_path, 1, now_s=now_s + 2 * HOLD_S) == (str(old),)
    assert not note.exists()


def test_what_cannot_be_written_to_can_still_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 1)

    def refused(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("railweave.agents.checkpoint_storage.FolderStorage.writing", refused)
    assert Checkpointer(tmp_path, 0, 1, 2).load(path) == b"1"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"last": 0}, "must stay"),
        ({"every_steps": 0}, "every_steps is 0"),
        ({"within_s": -1.0}, "within_s is -1"),
        ({"within_s": float("nan")}, "within_s is nan"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Keep(**rule)  # type: ignore[arg-type]
