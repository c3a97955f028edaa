"""What the daemon reckons with when a job is to shrink: absences of nodes as its history tells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from railweave.placement import AtMost, Cluster, Constraints
from railweave.scheduler.core import Core, Refusal
from railweave.scheduler.elastic import Elastic
from railweave.scheduler.job import Job
from railweave.scheduler.launcher import Launcher
from railweave.scheduler.ledger import Ledger, Supply
from railweave.scheduler.lifecycle import JobEvent, JobState
from railweave.scheduler.nodes import Nodes
from railweave.scheduler.records import Device, EventRecord, Holding, NewAttempt, NewJob
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store

DEVICES = tuple((f"n{number}", 0) for number in range(4))


class Bench:
    """A job of four devices that has lost the node of one."""

    def __init__(
        self, folder: Path, least: int | None = 2, constraints: Constraints | None = None
    ) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.core = Core(Settings(state_dir=str(folder)), self.store)
        self.nodes = Nodes(self.core)
        self.stopped: list[str] = []
        launcher = Launcher(self.core, self.nodes)
        self.elastic = Elastic(self.core, self.nodes, self._stop, launcher.fits)
        job = Job(
            name="j",
            entrypoint="true",
            devices=4,
            min_data_parallel=least,
            constraints=constraints,
        )
        self.store.add_job(NewJob("j", "j", job.to_json(), 4, max_restarts=9), 0.0)
        self.now_s = 1.7e9
        self.core.now_s = lambda: self.now_s  # type: ignore[method-assign]

    async def _stop(self, job_id: str) -> None:
        self.stopped.append(job_id)

    def loses(self, node: str, since_s: float) -> None:
        self.runs_on(*DEVICES)
        self.core.advance("j", JobEvent.FAULT, "broke", attempt=1)
        self.core.advance("j", JobEvent.STOPPED, "stopped", attempt=1)
        self.store.quarantine(node, "lost", since_s, None)

    def runs_on(self, *devices: Device) -> None:
        """Its next attempt."""
        number = self.store.job("j").life.attempt + 1
        launch = NewAttempt({"devices": [list(device) for device in devices]}, devices)
        self.core.advance("j", JobEvent.LAUNCH, "placed", attempt=number, launch=launch)
        self.core.advance("j", JobEvent.RUNNING, "runs", attempt=number)

    def absence(self, node: str, began_s: float, away_s: float) -> None:
        self.store.quarantine(node, "lost", began_s, None)
        self.store.release(node, "well again", began_s + away_s)

    def size(self, free: int) -> int:
        return self.elastic.sized(self.store.job("j"), Supply(free={"any": free})).devices

    def waits_at(self, devices: int) -> str:
        """Why it is not to be placed on so many devices just now; empty where nothing is known."""
        queue = [replace(self.store.job("j"), devices=devices)]
        return self.core.believed_unplaceable(queue).get("j", "")

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


def test_where_a_size_has_no_place_the_next_smaller_one_is_tried(bench: Bench) -> None:
    bench.loses("n3", bench.now_s)
    assert bench.size(3) == 3
    core = bench.core
    core.unplaceable["j"] = Refusal("no two devices in one pod", core.tick_s() + 300.0, 3)
    assert bench.size(3) == 2 and bench.waits_at(2) == ""
    assert bench.waits_at(3) == bench.waits_at(4) == "no two devices in one pod"
    core.unplaceable["j"] = Refusal("nor here", core.tick_s() + 300.0, 2)
    assert bench.size(3) == 4 and bench.waits_at(4) == "nor here"  # what is left is to wait
    assert [event.data.get("refused") for event in bench.decisions()] == [None, 3, 2]
    core.unplaceable["j"] = Refusal("nor here", core.tick_s(), 2)
    assert bench.size(3) == 3  # believed for a time only
    core.unplaceable["j"] = Refusal("the disk is full", core.tick_s() + 10.0)
    assert bench.size(3) == 3 and bench.waits_at(3) == "the disk is full"


def test_a_job_that_has_no_place_although_enough_is_free_shrinks_too(bench: Bench) -> None:
    bench.loses("n3", bench.now_s)
    assert bench.size(4) == 4
    bench.core.unplaceable["j"] = Refusal("spread", bench.core.tick_s() + 300.0, 4)
    assert bench.size(4) == 3


PODS = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "pods",
        "tiers": [
            {"name": "pod", "bandwidth": 1e9, "latency": 1e-5},
            {"name": "spine", "bandwidth": 1e9, "latency": 1e-5},
        ],
        "nodes": [
            {"name": name, "accelerator": "cpu", "devices": 2, "domains": {"pod": pod}}
            for name, pod in [("n0", 0), ("n1", 0), ("n2", 1), ("n3", 1)]
        ],
    }
)


def test_a_job_does_not_grow_where_all_that_it_wants_is_free_but_has_no_place(
    tmp_path: Path,
) -> None:
    one_a_pod = Constraints(at_most=AtMost(nodes=1, tier="pod"))
    bench = Bench(tmp_path, constraints=one_a_pod)
    held: dict[Device, Holding] = {("n2", 0): Holding("other", 1, 0), ("n3", 0): Holding("x", 1, 0)}
    nodes: Any = SimpleNamespace(ledger=lambda: Ledger(PODS, {**held, **bench.store.held()}, {}))
    elastic = Elastic(bench.core, nodes, bench._stop, Launcher(bench.core, nodes).fits)
    bench.loses("n2", bench.now_s)
    bench.runs_on(("n0", 0), ("n0", 1))
    bench.now_s += 3600
    asyncio.run(elastic.tend())
    bench.core.tick_s = lambda: 1e9  # type: ignore[method-assign] # no checkpoint for long enough
    asyncio.run(elastic.tend())
    assert [event.data["choice"] for event in bench.decisions()] == ["grow"]
    assert bench.stopped == [] and bench.core.refused_size("j") == 4
    held.clear()
    bench.core.unplaceable.clear()
    asyncio.run(elastic.tend())
    assert bench.stopped == ["j"] and bench.store.job("j").state is JobState.RECOVERING
    bench.store.close()


def test_a_job_without_a_least_degree_waits_without_a_decision(tmp_path: Path) -> None:
    bench = Bench(tmp_path, least=None)
    bench.loses("n3", bench.now_s)
    assert bench.size(3) == 4 and bench.decisions() == []
    asyncio.run(bench.elastic.tend())
    bench.store.close()
