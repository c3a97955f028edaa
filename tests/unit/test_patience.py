"""A job waits for a node that is soon back where that costs less than a slower place until then."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.placement import Cluster, Placement
from railweave.scheduler.core import Core
from railweave.scheduler.decision import Choice, move_or_wait
from railweave.scheduler.job import Job
from railweave.scheduler.ledger import Ledger
from railweave.scheduler.lifecycle import JobEvent
from railweave.scheduler.patience import Patience
from railweave.scheduler.placing import find_placement
from railweave.scheduler.quarantine import Why
from railweave.scheduler.records import Holding, NewAttempt, NewJob
from railweave.scheduler.settings import Settings
from railweave.scheduler.standings import Standings
from railweave.scheduler.store import Store

# A pod of two nodes and one far away, behind links that are ten times slower.
CLUSTER = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "far",
        "tiers": [
            {"name": "pod", "bandwidth": 1e9, "latency": 1e-5},
            {"name": "spine", "bandwidth": 1e8, "latency": 1e-4},
        ],
        "nodes": [
            {"name": name, "accelerator": "cpu", "devices": 1, "domains": {"pod": pod}}
            for name, pod in [("n0", "near"), ("n1", "near"), ("far", "far")]
        ],
    }
)
MANY_STEPS = {"start_s": 30.0, "horizon_s": 36000.0}


def test_waiting_is_weighed_against_every_step_that_would_take_longer() -> None:
    seldom = move_or_wait(8, back_s=120.0, step_s=2.0, slower_s=0.1, **MANY_STEPS)
    assert seldom.chosen.choice is Choice.WAIT and seldom.chosen.cost_s == 150.0
    move = seldom.options[0]
    assert (move.choice, move.devices) == (Choice.MOVE, 8)
    assert move.cost_s == pytest.approx(30.0 + 36000.0 * 0.1 / 2.1)
    often = move_or_wait(8, back_s=120.0, start_s=30.0, horizon_s=600.0, step_s=2.0, slower_s=0.1)
    assert often.chosen.choice is Choice.MOVE
    assert often.to_data()["slower_s"] == 0.1 and often.to_data()["horizon_s"] == 600.0


@given(
    back_s=st.floats(0, 1e5),
    horizon_s=st.floats(0, 1e7),
    step_s=st.floats(1e-3, 1e3),
    slower_s=st.floats(1e-6, 1e3),
)
def test_no_more_is_ever_waited_than_the_slower_place_would_cost(
    back_s: float, horizon_s: float, step_s: float, slower_s: float
) -> None:
    decided = move_or_wait(
        8, back_s=back_s, start_s=30.0, horizon_s=horizon_s, step_s=step_s, slower_s=slower_s
    )
    assert decided.chosen.cost_s == min(option.cost_s for option in decided.options)
    if decided.chosen.choice is Choice.WAIT:
        assert back_s < horizon_s


class Bench:
    """A daemon's parts over a real store: a job of two ranks whose second node was lost."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.core = Core(Settings(state_dir=str(folder)), self.store)
        self.now_s = 1.7e9
        self.core.now_s = lambda: self.now_s  # type: ignore[method-assign]
        self.standings = Standings(self.core)
        nodes: Any = SimpleNamespace(standings=self.standings)
        self.patience = Patience(self.core, nodes)
        self.job = Job(name="j", entrypoint="true", devices=2)
        self.store.add_job(NewJob("j", "j", self.job.to_json(), 2, max_restarts=9), 0.0)
        self.before = self.found(Ledger(CLUSTER, {}, {}), None)
        assert {node for node, _ in self.before.devices} == {"n0", "n1"}

    def found(self, ledger: Ledger, before: Placement | None) -> Placement:
        placement = find_placement(self.job, ledger, before).placement
        assert placement is not None
        return placement

    def was_away(self, node: str, for_s: float) -> None:
        """A node was lost once and came back."""
        self.standings.fault(node, Why.LOST, "no sign of life", 3)
        self.now_s += for_s
        self.standings.let_back(node, "well again")

    def trains(self, step_s: float) -> None:
        """An attempt that saves every ten steps, and then breaks with its second node."""
        devices = [(node, device) for node, device in self.before.devices]
        launch = NewAttempt(self.before.to_data(), tuple(devices))
        self.core.advance("j", JobEvent.LAUNCH, "placed", attempt=1, launch=launch)
        self.core.advance("j", JobEvent.RUNNING, "runs", attempt=1)
        for step in (10, 20, 30):
            self.now_s += 10 * step_s
            self.core.note("checkpoint", "saved", job_id="j", attempt=1, data={"step": step})
        self.core.advance("j", JobEvent.FAULT, "broke", attempt=1)
        self.core.advance("j", JobEvent.STOPPED, "stopped", attempt=1)
        self.standings.fault("n1", Why.LOST, "no sign of life", 3)

    def waits(self, held: dict[tuple[str, int], Holding] | None = None) -> bool:
        ledger = Ledger(CLUSTER, held or {}, {"n1": "lost"})
        record = self.store.job("j")
        free = Ledger(CLUSTER, {}, {"n1": "lost"})
        found = self.found(free, self.before)
        assert ("far", 0) in [tuple(device) for device in found.devices]
        return asyncio.run(self.patience.waits(record, self.job, ledger, self.before, found))

    def choices(self) -> list[str]:
        return [e.data["choice"] for e in self.store.events("j") if e.kind == "decision"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.store.close()


def test_a_node_that_only_reboots_is_waited_for_and_no_longer_than_it_takes(bench: Bench) -> None:
    bench.was_away("n1", 60.0)
    bench.trains(step_s=0.02)
    bench.now_s += 10.0
    assert bench.waits() and bench.waits()
    refusal = bench.core.unplaceable["j"]
    assert refusal.why.startswith("waits 50 s for n1: wait: ")
    assert refusal.until_s <= bench.core.tick_s() + 50.0 and refusal.devices == 0
    (told,) = [each for each in bench.store.events("j") if each.kind == "decision"]
    assert (told.data["choice"], told.data["nodes"], told.data["back_s"]) == ("wait", ["n1"], 50.0)
    assert told.data["step_s"] == 0.02 and 0 < told.data["slower_s"] < 1
    bench.now_s += 60.0  # away for longer than nodes are: it may be broken
    assert not bench.waits()


def test_where_steps_are_long_the_slower_place_is_taken(bench: Bench) -> None:
    bench.was_away("n1", 3e6)
    bench.trains(step_s=3000.0)
    assert not bench.waits() and bench.choices() == ["move"]


def test_nothing_is_waited_for_that_is_not_known_to_come_back(bench: Bench) -> None:
    bench.trains(step_s=0.02)
    assert not bench.waits() and bench.choices() == []


def test_nothing_is_waited_for_while_another_has_what_was_before(bench: Bench) -> None:
    bench.was_away("n1", 60.0)
    bench.trains(step_s=0.02)
    assert not bench.waits({("n1", 0): Holding("other", 1, 0)}) and bench.choices() == []
    assert bench.waits()


def test_a_node_that_is_set_aside_for_its_faults_is_not_waited_for(bench: Bench) -> None:
    bench.was_away("n1", 60.0)
    bench.trains(step_s=0.02)
    bench.standings.let_back("n1", "well again")
    bench.standings.fault("n1", Why.FAULT, "it refused the launch", 3)
    assert not bench.waits() and bench.choices() == []


def test_a_job_that_has_not_shown_how_long_a_step_takes_starts_at_once(bench: Bench) -> None:
    bench.was_away("n1", 60.0)
    launch = NewAttempt(bench.before.to_data(), (("n0", 0), ("n1", 0)))
    bench.core.advance("j", JobEvent.LAUNCH, "placed", attempt=1, launch=launch)
    bench.core.advance("j", JobEvent.FAULT, "broke", attempt=1)
    bench.core.advance("j", JobEvent.STOPPED, "stopped", attempt=1)
    bench.standings.fault("n1", Why.LOST, "no sign of life", 3)
    assert not bench.waits() and bench.choices() == []
