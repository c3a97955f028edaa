"""When an attempt counts as hung, and when it must not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.attempt import NodePhase, NodeStatus, RankState, Vitals
from railweave.placement.errors import InvalidInput
from railweave.scheduler.fault import Fault, FaultKind
from railweave.scheduler.hang import LEAST_S, UNREPORTED_S, hung, limit_s
from railweave.scheduler.job import Job

NOW_S = 5000.0
STEADY: dict[str, Any] = {"reports": 50, "step": 50, "typical_s": 1.0, "longest_s": 2.0}


def still(quiet_s: float, **more: Any) -> dict[str, Any]:
    """A rank that has reported steps of a second and then been still."""
    return {**STEADY, "state": "S", "quiet_s": quiet_s, "report_age_s": quiet_s} | more


def statuses(*ranks: dict[str, Any]) -> dict[str, NodeStatus]:
    """One rank a node."""
    return {
        f"n{rank}": NodeStatus(
            job_id="job",
            attempt=1,
            node=f"n{rank}",
            phase=NodePhase.RUNNING,
            ranks=(RankState(rank=rank, pid=100 + rank, started_s=0.0),),
            vitals=({"rank": rank, **vitals},),
        )
        for rank, vitals in enumerate(ranks)
    }


def verdict(*ranks: dict[str, Any], timeout_s: float | None = None) -> Fault | None:
    found = statuses(*ranks)
    return hung(tuple(found), found, timeout_s, NOW_S)


def test_all_ranks_still_for_longer_than_the_limit_is_a_hang() -> None:
    fault = verdict(still(LEAST_S + 1), still(LEAST_S + 2))
    assert fault is not None
    assert (fault.kind, fault.rank, fault.step) == (FaultKind.RANK_HUNG, 1, 50)
    assert fault.happened_s == NOW_S - LEAST_S - 2
    assert "1 of the 1 other ranks stand still too" in fault.message


def test_ranks_that_wait_for_one_that_writes_a_checkpoint_do_not_hang() -> None:
    assert (
        verdict(still(2 * LEAST_S), still(2 * LEAST_S), still(2 * LEAST_S) | {"quiet_s": 1.0})
        is None
    )


def test_one_rank_among_others_that_go_on_is_found_later() -> None:
    assert verdict(still(0), still(2.9 * LEAST_S)) is None
    fault = verdict(still(0), still(3.1 * LEAST_S))
    assert fault is not None and fault.rank == 1
    assert "0 of the 1 other ranks" in fault.message


def test_the_rank_with_the_lowest_step_is_named() -> None:
    fault = verdict(still(400), still(390, step=49), still(400))
    assert fault is not None and fault.rank == 1


def test_the_rank_that_differs_from_all_that_wait_is_named() -> None:
    waiting = [still(400, cpu_share=0.0) for _ in range(3)]
    fault = verdict(*waiting, still(399.5, cpu_share=1.0))
    assert fault is not None and fault.rank == 3


def test_limits_follow_the_steps_that_were_seen() -> None:
    def limit(**vitals: Any) -> float:
        return limit_s(Vitals(rank=0, **vitals), None)

    assert limit(**STEADY) == LEAST_S
    assert limit(**{**STEADY, "typical_s": 60.0}) == 600
    assert limit(**{**STEADY, "longest_s": 400.0}) == 1200
    assert limit(reports=2, step=2) == UNREPORTED_S
    assert limit() == UNREPORTED_S
    assert limit_s(Vitals(rank=0, **STEADY), 7.0) == 7.0


def test_a_job_that_reports_nothing_hangs_when_nothing_at_all_is_seen_of_it() -> None:
    silent = {"state": "S", "quiet_s": UNREPORTED_S + 1, "cpu_share": 0.0}
    fault = verdict(silent, silent)
    assert fault is not None and "shows no output and no CPU time for 1801 s" in fault.message
    assert verdict(silent, {**silent, "quiet_s": 5.0}) is None


def test_a_limit_of_the_jobs_own_counts_steps_alone() -> None:
    prints = still(31) | {"quiet_s": 0.1}
    assert verdict(prints, prints) is None
    fault = verdict(prints, prints, timeout_s=30)
    assert fault is not None and "the limit is 30 s" in fault.message


def test_a_rank_that_cannot_be_seen_is_not_judged() -> None:
    found = statuses(still(9999), still(9999))
    assert hung(("n0", "n1", "n2"), found, None, NOW_S) is None
    found["n1"] = found["n1"].model_copy(update={"vitals": ()})
    assert hung(("n0", "n1"), found, None, NOW_S) is None


def test_ranks_that_have_ended_are_waited_for_by_nobody() -> None:
    found = statuses(still(400), still(0))
    done = RankState(rank=1, pid=101, exited_s=1.0, exit_code=0)
    found["n1"] = found["n1"].model_copy(update={"ranks": (done,), "vitals": ()})
    fault = hung(("n0", "n1"), found, None, NOW_S)
    assert fault is not None and fault.rank == 0


@given(st.lists(st.floats(0, LEAST_S - 1), min_size=1, max_size=8))
def test_no_rank_below_its_limit_is_ever_called_hung(ages: list[float]) -> None:
    assert verdict(*(still(age) for age in ages)) is None


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
def test_a_limit_that_is_no_time_is_refused(timeout_s: float) -> None:
    with pytest.raises((InvalidInput, ValueError), match="hang_timeout_s"):
        Job(name="job", entrypoint="true", devices=1, hang_timeout_s=timeout_s)


def test_a_fault_of_a_newer_version_is_taken_in() -> None:
    text = '{"kind":"gremlins","message":"m","seen_s":1,"colour":"green"}'
    assert Fault.model_validate_json(text).kind is FaultKind.UNKNOWN


def test_a_fault_without_a_step_reads_as_it_always_did() -> None:
    plain = Fault(kind=FaultKind.RANK_EXIT, message="m", seen_s=1.0)
    assert "step" not in plain.model_dump(mode="json")
    assert Fault.model_validate(plain.model_dump(mode="json")) == plain
    told = plain.model_copy(update={"step": 4})
    assert Fault.model_validate_json(told.model_dump_json()) == told
