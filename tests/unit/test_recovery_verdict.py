"""What the daemon does with a verdict: its job, its history and its queue; no Ray is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from railweave.scheduler import recovery as recovery_module
from railweave.scheduler.core import Core
from railweave.scheduler.fault import Fault, FaultKind
from railweave.scheduler.launcher import Launcher
from railweave.scheduler.lifecycle import JobEvent, JobState
from railweave.scheduler.messages import Happened, Report
from railweave.scheduler.nodes import Nodes
from railweave.scheduler.quarantine import NodeFault
from railweave.scheduler.records import EventRecord, NewAttempt, NewJob
from railweave.scheduler.recovery import Recovery
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store


class Bench:
    """A daemon's core, nodes and recovery over a real store."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.settings = Settings(state_dir=str(folder), **settings)
        self.restart()
        self.store.add_job(NewJob("j", "j", "{}", 1, max_restarts=50), 0.0)

    def restart(self) -> None:
        """A new daemon on the same store."""
        self.core = Core(self.settings, self.store)
        self.nodes = Nodes(self.core)
        self.recovery = Recovery(self.core, self.nodes, Launcher(self.core, self.nodes))

    def breaks(self, node: str, **fault: Any) -> JobState:
        """Run an attempt on a node until it breaks there and is stopped."""
        self.runs(node)
        for happened in (Happened.FAULT, Happened.STOPPED):
            report = self.told(happened, node, **fault)
            asyncio.run(self.recovery.report(report))
            asyncio.run(self.recovery.report(report))  # a repeated report changes nothing
        return self.store.job("j").state

    def runs(self, node: str) -> None:
        """Begin an attempt on a node."""
        number = self.store.job("j").life.attempt + 1
        launch = NewAttempt({"devices": [[node, 0]]}, ((node, 0),))
        self.core.advance("j", JobEvent.LAUNCH, "placed", attempt=number, launch=launch)
        self.core.advance("j", JobEvent.RUNNING, "runs", attempt=number)

    def told(self, happened: Happened, node: str, **fault: Any) -> Report:
        """What the controller tells of the attempt, which broke on a node."""
        usual: dict[str, Any] = {"kind": FaultKind.RANK_EXIT, "message": f"rank 0 on {node} broke"}
        fault = {**usual, "seen_s": self.core.now_s(), "node": node, "exit_code": 1, **fault}
        return Report(
            job_id="j",
            attempt=self.store.job("j").life.attempt,
            happened=happened,
            at_s=self.core.now_s(),
            fault=Fault.model_validate(fault),
        )

    def held_against(self, node: str) -> tuple[NodeFault, ...]:
        """What is held against a node."""
        return self.nodes.standings.records({node})[0].faults

    def events(self, kind: str) -> list[EventRecord]:
        return [event for event in self.store.events("j") if event.kind == kind]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    async def nothing_in_ray(name: str) -> None:
        assert name

    monkeypatch.setattr(recovery_module, "release", nothing_in_ray)
    monkeypatch.setattr(recovery_module, "_end", nothing_in_ray)
    made = Bench(tmp_path, fruitless_restarts=2, restart_pause_s=60.0)
    yield made
    made.store.close()


BUG = ("step=7 loss=1.5", "ValueError: sample 3 has no label")


def test_a_job_at_fault_fails_with_its_evidence_and_is_not_started_again(bench: Bench) -> None:
    assert bench.breaks("n0", last_lines=BUG) is JobState.RECOVERING
    assert bench.breaks("n1", last_lines=BUG) is JobState.FAILED
    job = bench.store.job("j")
    assert job.reason.startswith("the job's own fault") and not job.life.holds_devices
    assert bench.store.held() == {} and bench.store.waiting() == []
    (given_up,) = bench.events("give_up")
    assert given_up.data["decision"] == "job_at_fault"
    assert [each["node"] for each in given_up.data["evidence"]] == ["n0", "n1"]
    (first,) = bench.events("verdict")
    assert (first.data["decision"], first.data["faults"]) == ("restart", 1)


def test_a_job_without_progress_pauses_and_then_fails(bench: Bench) -> None:
    now_s = bench.core.now_s()
    assert bench.breaks("n0") is JobState.RECOVERING
    assert bench.core.paused(bench.store.job("j"), bench.core.now_s()) == ""
    assert bench.breaks("n0") is JobState.RECOVERING
    record = bench.store.job("j")
    assert "60 s" in bench.core.paused(record, bench.core.now_s())
    assert bench.core.paused(record, now_s + 120) == ""
    assert bench.breaks("n0") is JobState.FAILED
    assert bench.events("give_up")[-1].data["decision"] == "no_progress"
    assert [event.data["pause_s"] for event in bench.events("verdict")] == [0.0, 60.0]


def test_a_daemon_that_starts_anew_comes_to_the_same_verdict(bench: Bench, tmp_path: Path) -> None:
    for _ in range(2):
        bench.breaks("n0", last_lines=BUG)
    record = bench.store.job("j")
    told = bench.core.verdict(record)
    assert told is not None and told.avoid == ("n0",)
    again = Core(bench.core.settings, bench.store)
    assert again.verdict(record) == told
    assert bool(again.paused(record, again.now_s())) == bool(told.pause_s)


def test_faults_of_machines_fail_no_job_and_make_no_pause(bench: Bench) -> None:
    for number in range(10):
        lost = {"kind": FaultKind.NODE_LOST, "node_at_fault": True, "exit_code": None}
        assert bench.breaks(f"n{number}", **lost) is JobState.RECOVERING
        assert bench.core.paused(bench.store.job("j"), bench.core.now_s()) == ""


@pytest.mark.parametrize("before", ["verdict", "stopped"])
def test_a_fault_of_a_node_counts_once_also_where_the_daemon_is_killed_while_it_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    bench.runs("n0")
    report = bench.told(Happened.STOPPED, "n0", node_at_fault=True)

    class Killed(Exception):
        pass

    def killed(*what: Any, **_: Any) -> None:
        if before in what:
            raise Killed

    with monkeypatch.context() as while_it_dies:
        while_it_dies.setattr(bench.core, "note", killed)
        if before == "stopped":
            while_it_dies.setattr(bench.core.store, "advance", partial(killed, before))
        with pytest.raises(Killed):
            asyncio.run(bench.recovery.report(report))
    bench.restart()
    assert len(bench.held_against("n0")) == 1
    asyncio.run(bench.recovery.report(report))
    assert [fault.message for fault in bench.held_against("n0")] == ["rank 0 on n0 broke"]
    assert bench.store.job("j").state is JobState.RECOVERING
    assert len(bench.events("verdict")) == 1
    bench.breaks("n0", node_at_fault=True)
    assert len(bench.held_against("n0")) == 2  # of another attempt


def test_a_job_that_is_being_cancelled_gets_no_verdict(bench: Bench) -> None:
    launch = NewAttempt({"devices": [["n0", 0]]}, (("n0", 0),))
    bench.core.advance("j", JobEvent.LAUNCH, "placed", attempt=1, launch=launch)
    bench.core.advance("j", JobEvent.CANCEL, "cancelled")
    fault = Fault(kind=FaultKind.RANK_EXIT, message="rank 0 broke", seen_s=1.0, node="n0")
    report = Report(job_id="j", attempt=1, happened=Happened.STOPPED, at_s=2.0, fault=fault)
    asyncio.run(bench.recovery.report(report))
    assert bench.store.job("j").state is JobState.CANCELLED
    assert bench.events("verdict") == bench.events("give_up") == []
