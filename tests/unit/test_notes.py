"""What ranks note reaches the history: each whole note once, and nothing that is none."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from node_bench import NodeBench, node_bench
from railweave.agents.notes import NAME, note, read_notes
from railweave.scheduler.core import Core
from railweave.scheduler.notes_of_ranks import NotesOfRanks
from railweave.scheduler.records import NewJob
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store
from waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAILWEAVE_PROGRESS", str(tmp_path / "progress"))
    return tmp_path


def test_notes_come_back_in_order_and_only_those_not_read_before(folder: Path) -> None:
    assert read_notes(folder) == []
    note("checkpoint", "one", step=1, stall_s=0.5)
    note("checkpoint-failed", "disk full", step=2, rank=3)
    first, second = read_notes(folder)
    assert (first.index, first.message, first.data) == (0, "one", {"step": 1, "stall_s": 0.5})
    assert read_notes(folder, 1) == [second] and second.kind == "checkpoint-failed"


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"kind": "succeed", "message": "x", "data": {}}\n',
        b'{"kind": "checkpoint", "message": 5, "data": {}}\n',
        b'{"kind": "checkpoint", "message": "x", "data": {"a": NaN}}\n',
        b'{"kind": "checkpoint", "message": "x"}\n',
        b"\xff\xfe\n",
        b'{"kind": "checkpoint", "message": "torn',
    ],
)
def test_what_is_no_note_is_left_out_and_those_around_it_count(folder: Path, line: bytes) -> None:
    note("checkpoint", "before")
    with (folder / NAME).open("ab") as stream:
        stream.write(line)
    note("checkpoint", "after")
    found = [each.message for each in read_notes(folder)]
    assert found == (["before", "after"] if line.endswith(b"\n") else ["before"])


def test_a_rank_that_notes_too_much_fills_no_disk(folder: Path) -> None:
    for _ in range(2000):
        note("checkpoint-failed", "x" * 5000)
    assert (folder / NAME).stat().st_size < 1.1 * 2**20
    (folder / NAME).unlink()
    os.symlink(folder / "elsewhere", folder / NAME)
    note("checkpoint", "x")
    assert not (folder / "elsewhere").exists() and read_notes(folder) == []


NOTING = "from railweave.agents.notes import note; note('checkpoint', 'from a rank', step=4)"


def test_a_node_tells_how_much_its_ranks_have_noted_also_when_they_have_ended(
    tmp_path: Path,
) -> None:
    bench: NodeBench
    with node_bench(tmp_path) as bench:
        bench.launch(sys.executable, "-c", NOTING)
        bench.ended()
        ((job_id, attempt, size_bytes),) = wait_until(bench.runner.noted, 30, "it is noted")
        assert (job_id, attempt) == ("job", 1) and size_bytes > 0
        (found,) = bench.runner.read_notes("job", 1, 0)
        assert (found.message, found.data) == ("from a rank", {"step": 4})


class Agent:
    """Stands for a node's agent: gives the notes of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[int] = []

    @property
    def read_notes(self) -> Any:
        return self

    def remote(self, job_id: str, attempt: int, after: int) -> Any:
        self.asked.append(after)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(read_notes(self.folder, after))
        return answer


def test_each_note_is_in_the_history_once_also_after_a_restart_of_the_daemon(folder: Path) -> None:
    store = Store.open(str(folder / "store.db"))
    store.take_epoch(1.0, "test")
    store.add_job(NewJob("job", "job", json.dumps({}), 1), 1.0)
    core = Core(Settings(state_dir=str(folder)), store)
    agent = Agent(folder)

    async def take(notes: NotesOfRanks) -> bool:
        noted = [("job", 1, (folder / NAME).stat().st_size), ("unknown", 1, 10)]
        new = notes.new("n0", noted)
        await notes.take("n0", agent, noted)
        return new

    before = NotesOfRanks(core)
    note("checkpoint", "one")
    assert asyncio.run(take(before))
    assert not asyncio.run(take(before))
    note("checkpoint", "two")
    after = NotesOfRanks(core)
    assert asyncio.run(take(after))
    events = [event for event in store.events("job", 0, 100) if event.kind == "checkpoint"]
    told = [(event.message, event.attempt, event.data["line"]) for event in events]
    assert told == [("one", 1, 0), ("two", 1, 1)]
    assert agent.asked == [0, 1]
    store.close()
