"""What the daemon reckons with when a job is to shrink: absences of nodes as its history tells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from railweave.scheduler.core import Core
from railweave.scheduler.elastic import Elastic
from railweave.scheduler.job import Job
from railweave.scheduler.ledger import Supply
from railweave.scheduler.lifecycle import JobEvent, JobState
from railweave.scheduler.nodes import Nodes
from railweave.scheduler.records import EventRecord, NewAttempt, NewJob
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store

DEVICES = tuple((f"n{number}", 0) for number in range(4))


class Bench:
    """A job of four devices that has lost the node of one."""

    def __init__(self, folder: Path, least: int | None = 2) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.core = Core(Settings(state_dir=str(folder)), self.store)
        self.elastic = Elastic(self.core, Nodes(self.core), self._stop)
        job = Job(name="j", entrypoint="true", devices=4, min_data_parallel=least)
        self.store.add_job(NewJob("j", "j", job.to_json(), 4, max_restarts=9), 0.0)
        self.now_s = 1.7e9
        self.core.now_s = lambda: self.now_s  # type: ignore[method-assign]

    async def _stop(self, job_id: str) -> None:
        raise AssertionError(f"{job_id} is not to be stopped")

    def loses(self, node: str, since_s: float) -> None:
        launch = NewAttempt({"devices": [list(device) for device in DEVICES]}, DEVICES)
        self.core.advance("j", JobEvent.LAUNCH, "placed", attempt=1, launch=launch)
        self.core.advance("j", JobEvent.RUNNING, "runs", attempt=1)
        self.core.advance("j", JobEvent.FAULT, "broke", attempt=1)
        self.core.advance("j", JobEvent.STOPPED, "stopped", attempt=1)
        self.store.quarantine(node, "lost", since_s, None)

    def absence(self, node: str, began_s: float, away_s: float) -> None:
        self.store.quarantine(node, "lost", began_s, None)
        self.store.release(node, "well again", began_s + away_s)

    def size(self, free: int) -> int:
        return self.elastic.sized(self.store.job("j"), Supply(free={"any": free})).devices

    def decisions(self) -> list[EventRecord]:
        return [event for event in self.store.events("j") if event.kind == "decision"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.store.close()


def test_where_nothing_is_known_of_absences_the_job_shrinks_and_says_once_why(
    bench: Bench,
) -> None:
    assert bench.size(3) == 4  # a job that has not begun waits for all it wants
    bench.loses("n3", bench.now_s)
    assert bench.store.job("j").state is JobState.RECOVERING
    assert bench.size(4) == 4
    assert bench.size(3) == bench.size(3) == 3
    (decided,) = bench.decisions()
    assert (decided.data["choice"], decided.data["back_s"]) == ("shrink", 300)
    assert bench.size(1) == 4  # below its least


def test_nodes_that_were_always_back_at_once_are_waited_for_until_that_is_long_over(
    bench: Bench,
) -> None:
    for number in range(3):
        bench.absence(f"n{number}", bench.now_s - 1000, 8.0)
    bench.loses("n3", bench.now_s - 1)
    assert bench.size(3) == 4
    (waits,) = bench.decisions()
    assert (waits.data["choice"], waits.data["back_s"]) == ("wait", 7)
    bench.store.release("n3", "to be lost anew", bench.now_s)
    bench.store.quarantine("n3", "lost", bench.now_s - 500, None)
    assert bench.size(3) == 3  # away for far longer than usual
    assert [event.data["choice"] for event in bench.decisions()] == ["wait", "shrink"]


def test_a_job_without_a_least_degree_waits_without_a_decision(tmp_path: Path) -> None:
    bench = Bench(tmp_path, least=None)
    bench.loses("n3", bench.now_s)
    assert bench.size(3) == 4 and bench.decisions() == []
    asyncio.run(bench.elastic.tend())
    bench.store.close()
