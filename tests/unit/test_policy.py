"""Jobs start in order, only on free devices, and every job that waits says for what."""

from __future__ import annotations

import time

from railweave.placement import Cluster
from railweave.scheduler.ledger import Ledger, Supply
from railweave.scheduler.lifecycle import Life
from railweave.scheduler.policy import in_order, look
from railweave.scheduler.records import Holding, JobRecord


def job(
    name: str, devices: int, priority: int = 0, number: int = 0, kinds: dict[str, int] | None = None
) -> JobRecord:
    return JobRecord(name, number, name, priority, devices, kinds or {}, Life(), "", 0, 0, None)


def cluster(*nodes: dict[str, object]) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "test",
            "tiers": [{"name": "spine", "bandwidth": 1e9, "latency": 1e-5}],
            "nodes": [{"accelerator": "cpu", "devices": 2, **node} for node in nodes],
        }
    )


def test_the_queue_is_ordered_by_priority_then_submission() -> None:
    jobs = [job("d", 1, 0, 4), job("a", 1, 0, 1), job("c", 1, 5, 3), job("b", 1, 5, 2)]
    assert [each.job_id for each in in_order(jobs)] == ["b", "c", "a", "d"]


def test_a_job_starts_only_when_all_of_its_devices_are_free() -> None:
    supply = Supply({"cpu": 8}, {"cpu": 4})
    assert look([job("a", 4)], supply, {}).start == "a"
    assert look([job("a", 5)], supply, {}).start is None


def test_a_waiting_job_says_what_it_needs_and_who_has_it() -> None:
    supply = Supply(
        {"cpu": 12}, {"cpu": 4}, {"small": 2, "large": 4}, {"n3": (2, "its raylet died")}
    )
    assert look([job("a", 8)], supply, {}).waits == {
        "a": "needs 8 devices, 4 of 12 are free: large holds 4; small holds 2; "
        "node n3 with 2 is set aside (its raylet died)"
    }


def test_a_large_job_is_not_starved_by_small_ones_behind_it() -> None:
    supply = Supply({"cpu": 8}, {"cpu": 4})
    found = look([job("large", 8), job("small", 1)], supply, {})
    assert found.start is None
    assert found.waits["small"] == "behind large in the queue"


def test_a_waiting_job_holds_back_only_those_that_want_its_devices() -> None:
    supply = Supply({"H800": 8, "A100": 8}, {"H800": 0, "A100": 8})
    waiting = job("h", 4, kinds={"H800": 4})
    other = job("a", 4, kinds={"A100": 4})
    anything = job("x", 4)
    assert look([waiting, other], supply, {}).start == "a"
    assert look([waiting, anything], supply, {}).start is None
    assert look([anything, waiting], supply, {}).waits["h"].startswith("needs 4 H800 devices, 0")


def test_what_the_whole_cluster_cannot_hold_is_impossible_and_blocks_nobody() -> None:
    supply = Supply({"cpu": 8}, {"cpu": 8})
    found = look([job("huge", 9), job("rare", 1, kinds={"H800": 1}), job("ok", 8)], supply, {})
    assert found.impossible == {
        "huge": "needs 9 devices, 8 are there in the whole cluster",
        "rare": "needs 1 H800 device, 0 are there in the whole cluster",
    }
    assert found.start == "ok"


def test_while_nodes_are_joining_a_job_too_large_for_those_there_waits() -> None:
    supply = Supply({"cpu": 8}, {"cpu": 8})
    found = look([job("huge", 9), job("ok", 8)], supply, {}, settled=False)
    assert found.impossible == {}
    assert found.waits["huge"].startswith("needs 9 devices, 8 are there so far")
    assert found.start == "ok"


def test_a_job_that_the_solver_cannot_place_now_waits_with_the_solvers_reason() -> None:
    supply = Supply({"cpu": 8}, {"cpu": 8})
    found = look([job("a", 4), job("b", 4)], supply, {"a": "no pod has 4 free devices"})
    assert found.start is None
    assert found.waits["a"] == "no pod has 4 free devices"


def test_the_time_of_a_pass_over_ten_thousand_jobs_does_not_explode() -> None:
    supply = Supply({"cpu": 16_000}, {"cpu": 100})
    jobs = [job(f"j{i}", 101 + i % 64, i % 5, i) for i in range(10_000)]
    before_s = time.process_time()
    found = look(in_order(jobs), supply, {})
    assert time.process_time() - before_s < 5
    assert len(found.waits) == 10_000


def test_held_devices_and_nodes_set_aside_are_not_free() -> None:
    ledger = Ledger(
        cluster({"name": "n0"}, {"name": "n1"}, {"name": "n2", "state": "drained"}, {"name": "n3"}),
        {("n0", 1): Holding("a", 1, 0)},
        {"n1": "silent for 5 s"},
    )
    assert {node.name: node.usable_devices for node in ledger.available().nodes} == {
        "n0": (0,),
        "n1": (),
        "n2": (),
        "n3": (0, 1),
    }
    supply = ledger.supply()
    assert (supply.total, supply.free) == ({"cpu": 8}, {"cpu": 3})
    assert supply.held == {"a": 1}
    assert supply.away == {"n1": (2, "silent for 5 s"), "n2": (2, "drained")}
    assert all(len(node.usable_devices) == 2 for node in ledger.whole().nodes)
