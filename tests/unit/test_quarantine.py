"""Which nodes are kept out, for how long, and that no job can empty the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from railweave.scheduler.core import Core
from railweave.scheduler.quarantine import (
    NodeFault,
    NodeRecord,
    Rules,
    Ruling,
    Standing,
    Why,
    let_back,
    returned,
    ruled,
    suspects,
)
from railweave.scheduler.settings import Settings
from railweave.scheduler.standings import Standings
from railweave.scheduler.store import Store
from railweave.scheduler.verdict import Broken

RULES = Rules(
    expiry_s=1000, probation_s=30, set_aside_s=60, longest_s=150, trial_s=300, suspicions=3
)


def take(
    standing: Standing, why: Why, now_s: float, job: str = "j", out: int = 0, nodes: int = 8
) -> Ruling:
    return ruled(standing, NodeFault(now_s, why, "it failed", job), now_s, RULES, out, nodes)


def test_each_further_fault_keeps_a_node_out_for_longer_up_to_the_cap() -> None:
    standing, spans = Standing(), []
    for now_s in (0, 100, 200, 300):
        ruling = take(standing, Why.FAULT, now_s)
        assert ruling.set_aside and ruling.until_s is not None
        spans.append(ruling.until_s - now_s)
        standing = let_back(ruling.standing, now_s, RULES)
    assert spans == [60, 120, 150, 150]


def test_faults_expire() -> None:
    first = let_back(take(Standing(), Why.FAULT, 0).standing, 60, RULES)
    late = take(first, Why.FAULT, 1000)
    assert (late.until_s, late.numbers["faults"]) == (1060, 1)


def test_a_lost_node_is_out_until_its_return_and_then_longer_after_each_loss() -> None:
    once = take(Standing(), Why.LOST, 0)
    assert once.set_aside and once.until_s is None
    assert take(once.standing, Why.LOST, 1).standing == once.standing  # told twice, counted once
    assert returned(once.standing, 10, RULES) == 40
    twice = take(let_back(once.standing, 40, RULES), Why.LOST, 50)
    assert returned(twice.standing, 60, RULES) == 120


def test_a_node_is_suspected_when_several_jobs_succeeded_without_it() -> None:
    standing = Standing()
    for number, job in enumerate(["a", "a", "b"]):
        ruling = take(standing, Why.SUSPECTED, number, job)
        assert not ruling.set_aside
        standing = ruling.standing
    last = take(standing, Why.SUSPECTED, 5, "c")
    assert (last.set_aside, last.until_s, last.standing.out) == (True, 65, Why.SUSPECTED)


def test_on_probation_one_suspicion_is_enough() -> None:
    back = let_back(take(Standing(), Why.FAULT, 0).standing, 60, RULES)
    assert take(back, Why.SUSPECTED, 359).set_aside
    assert not take(back, Why.SUSPECTED, 360).set_aside


@pytest.mark.parametrize(("nodes", "most"), [(1, 0), (2, 1), (4, 1), (7, 1), (8, 2), (100, 25)])
def test_only_a_share_of_the_cluster_is_out_for_faults(nodes: int, most: int) -> None:
    assert RULES.most_out(nodes) == most
    for why in (Why.FAULT, Why.SURVIVORS, Why.LOST):
        ruling = take(Standing(), why, 0, out=most, nodes=nodes)
        capped = why is Why.FAULT
        assert (ruling.capped, ruling.set_aside) == (capped, not capped)
        assert len(ruling.standing.faults) == 1
    if most:
        assert take(Standing(), Why.FAULT, 0, out=most - 1, nodes=nodes).set_aside


def test_what_the_operator_set_aside_no_fault_brings_back() -> None:
    standing = Standing(out=Why.OPERATOR)
    for why in (Why.LOST, Why.FAULT, Why.SURVIVORS):
        ruling = take(standing, why, 0)
        assert not ruling.set_aside and ruling.standing.out is Why.OPERATOR


def test_only_nodes_that_a_job_succeeded_without_are_suspected() -> None:
    def broken(node: str, of_job: bool = True) -> Broken:
        return Broken(1, "rank_exit", "error", node, of_job, message=f"broke on {node}")

    found = suspects([broken("n0"), broken("n1"), broken("n2", of_job=False)], ["n1", "n3"])
    assert found == {"n0": "broke on n0"}


class Bench:
    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.settings = Settings(state_dir=str(folder), probation_s=0, set_aside_s=600)
        self.restart()

    def restart(self) -> None:
        self.standings = Standings(Core(self.settings, self.store))

    def record(self, node: str) -> NodeRecord:
        (found,) = [each for each in self.standings.records({node}) if each.name == node]
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_what_is_held_against_a_node_outlives_the_daemon(bench: Bench) -> None:
    bench.standings.fault("n0", Why.FAULT, "it refused the launch", 8, "j")
    before = bench.record("n0")
    bench.restart()
    assert bench.record("n0") == before
    assert before.out is Why.FAULT and before.until_s is not None and len(before.faults) == 1


def test_what_is_written_of_a_fault_is_written_whole_or_not_at_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as while_it_is_full:
        while_it_is_full.setattr(bench.store, "quarantine", full)
        with pytest.raises(OSError, match="full"):
            bench.standings.fault("n0", Why.FAULT, "it refused the launch", 8, "j", "attempt 1")
        assert bench.record("n0").faults == ()
    bench.restart()
    assert bench.record("n0").faults == ()
    for _ in range(2):
        bench.standings.fault("n0", Why.FAULT, "it refused the launch", 8, "j", "attempt 1")
    assert len(bench.record("n0").faults) == 1 and "n0" in bench.store.quarantined()


def test_a_fault_that_the_cap_lets_pass_is_in_the_history_with_its_numbers(bench: Bench) -> None:
    for node in ("n0", "n1", "n2"):
        bench.standings.fault(node, Why.FAULT, "its device broke", 8)
    assert sorted(bench.store.quarantined()) == ["n0", "n1"]
    (event,) = [each for each in bench.store.events() if each.kind == "node_fault"]
    assert "2 nodes are set aside for faults, 2 of 8 may be" in event.message
    assert (event.data["node"], event.data["out"], event.data["most_out"]) == ("n2", 2, 2)


def test_a_release_on_request_forgets_the_faults(bench: Bench) -> None:
    bench.standings.fault("n0", Why.FAULT, "its device broke", 8)
    assert bench.standings.release("n0")
    assert not bench.standings.release("n0")
    assert bench.record("n0").faults == () and bench.record("n0").trial_until_s == 0
    assert bench.store.quarantined() == {}


def test_setting_aside_on_request_lasts_until_it_is_lifted(bench: Bench) -> None:
    bench.standings.fault("n0", Why.FAULT, "its device broke", 8)
    bench.standings.set_aside("n0", "new firmware", None)
    bench.standings.fault("n0", Why.LOST, "it was switched off", 8)
    bench.standings.back("n0")
    found = bench.record("n0")
    assert (found.out, found.reason, found.until_s) == (Why.OPERATOR, "new firmware", None)
    assert bench.standings.release("n0")


def test_a_lost_node_that_is_back_is_used_again_and_on_probation(bench: Bench) -> None:
    bench.standings.fault("n0", Why.LOST, "no sign of life", 1)
    bench.standings.fault("n0", Why.LOST, "its raylet died", 1)
    assert len(bench.record("n0").faults) == 1 and bench.record("n0").until_s is None
    bench.standings.back("n0")
    assert bench.record("n0").until_s is not None
    bench.standings.let_back("n0", "well again")
    found = bench.record("n0")
    assert found.out is None and found.trial_until_s > found.faults[0].time_s
