"""Whose fault it was: what is held against a job, what is not, and what is done then."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.scheduler.records import AttemptRecord
from railweave.scheduler.verdict import Decision, Limits, Verdict, broken_attempts, judge

TYPE_ERROR = ("Traceback (most recent call last):", "ValueError: sample 17 has no label")
CHECKPOINT = "/ckpt/step-{:012d}.attempt-0001"


def attempt(number: int, node: str = "n0", *, start: int = 0, **cause: Any) -> AttemptRecord:
    """A broken attempt: rank 1 exits with code 1 where nothing else is told."""
    told = {
        "kind": "rank_exit",
        "message": f"rank 1 on node {node} ended with exit code 1",
        "node": node,
        "rank": 1,
        "exit_code": 1,
        **cause,
    }
    resumed = CHECKPOINT.format(start) if start else ""
    return AttemptRecord("j", number, {}, None, resumed, 0, 0, 1, 2, 3, 3, told)


def verdict(*attempts: AttemptRecord, **limits: Any) -> Verdict:
    return judge(broken_attempts(attempts), Limits(**{"max_restarts": 100, **limits}))


def lines(step: int, *others: str) -> tuple[str, ...]:
    return (f"step={step} loss=2.5 time_s=1700000000.0", *others)


def test_the_same_error_at_the_same_step_on_two_machines_is_the_jobs_fault() -> None:
    found = verdict(
        attempt(1, "n0", last_lines=lines(40, *TYPE_ERROR)),
        attempt(2, "n3", start=30, last_lines=lines(40, *TYPE_ERROR)),
    )
    assert found.decision is Decision.JOB_AT_FAULT and found.decision.final
    assert "after step 40 on n0 (attempt 1) and on n3 (attempt 2)" in found.why
    evidence = found.to_data()["evidence"]
    assert [(e["attempt"], e["node"], e["step"]) for e in evidence] == [
        (1, "n0", 40),
        (2, "n3", 40),
    ]
    assert all("ValueError" in e["error"] for e in evidence)


def test_the_same_error_at_two_steps_proves_nothing() -> None:
    found = verdict(
        attempt(1, "n0", last_lines=lines(40, *TYPE_ERROR)),
        attempt(2, "n3", last_lines=lines(41, *TYPE_ERROR)),
    )
    assert found.decision is Decision.RESTART


def test_two_errors_at_the_same_step_prove_nothing() -> None:
    found = verdict(
        attempt(1, "n0", last_lines=lines(40, *TYPE_ERROR)),
        attempt(2, "n3", last_lines=lines(40, "KeyError: 'label'")),
    )
    assert found.decision is Decision.RESTART


def test_an_error_that_comes_twice_on_one_machine_is_tried_elsewhere() -> None:
    broken = [attempt(number, "n0", step=40) for number in (1, 2)]
    found = verdict(*broken)
    assert (found.decision, found.avoid) == (Decision.ELSEWHERE, ("n0",))
    assert verdict(*broken, attempt(3, "n1", step=40)).decision is Decision.JOB_AT_FAULT
    assert verdict(*broken, attempt(3, "n1", step=50)).decision is Decision.RESTART


def test_numbers_and_addresses_in_an_error_do_not_make_it_another() -> None:
    found = verdict(
        attempt(
            1, "n0", step=4, last_lines=["RuntimeError: at 0x7f12ab: 1024 MiB asked, 3.5 free"]
        ),
        attempt(2, "n1", step=4, last_lines=["RuntimeError: at 0x55e0: 512 MiB asked, 7.25 free"]),
    )
    assert found.decision is Decision.JOB_AT_FAULT


@pytest.mark.parametrize(
    "cause",
    [
        {"kind": "node_lost", "node_at_fault": True},
        {"kind": "rank_exit", "node_at_fault": True},
        {"kind": "rank_signal", "exit_code": None, "signal": 9},
        {"kind": "rank_signal", "exit_code": None, "signal": 15},
        {"kind": "part_stopped"},
        {"kind": "device_error"},
        {"kind": "a kind that is not known yet"},
        {"last_lines": ["RuntimeError: Connection closed by peer [10.0.0.7]:4242"]},
        {"last_lines": ["torch.distributed.DistBackendError: NCCL error, unhandled system error"]},
        {"last_lines": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"]},
    ],
)
def test_what_machines_and_others_do_is_never_held_against_the_job(cause: dict[str, Any]) -> None:
    found = verdict(*(attempt(n, f"n{n}", step=40, **cause) for n in range(1, 30)))
    assert (found.decision, found.fruitless, found.pause_s) == (Decision.RESTART, 0, 0.0)


@pytest.mark.parametrize(
    "cause",
    [
        {"kind": "rank_signal", "exit_code": None, "signal": 11},
        {"kind": "out_of_memory"},
        {"kind": "nan_loss"},
        {"kind": "rank_hung"},
    ],
)
def test_a_crash_of_its_own_at_the_same_step_is_held_against_the_job(cause: dict[str, Any]) -> None:
    found = verdict(attempt(1, "n0", step=40, **cause), attempt(2, "n1", step=40, **cause))
    assert found.decision is Decision.JOB_AT_FAULT


def test_without_steps_the_same_words_from_the_same_beginning_are_needed() -> None:
    def two(start: int, told: tuple[str, ...]) -> Decision:
        first = attempt(1, "n0", last_lines=told)
        return verdict(first, attempt(2, "n1", start=start, last_lines=told)).decision

    assert two(0, TYPE_ERROR) is Decision.JOB_AT_FAULT
    assert two(20, TYPE_ERROR) is Decision.RESTART
    assert two(0, ("it went wrong",)) is Decision.RESTART  # a bare code says too little


def test_a_program_that_is_on_no_machine_is_the_jobs_fault() -> None:
    found = verdict(
        *(
            attempt(
                number,
                node,
                kind="rank_start",
                exit_code=None,
                message=f"rank {number} on node {node} could not be started: no file 'trian.py'",
            )
            for number, node in ((1, "n0"), (2, "n1"))
        )
    )
    assert found.decision is Decision.JOB_AT_FAULT


def test_restarts_without_progress_have_a_limit_of_their_own() -> None:
    broken = [attempt(number) for number in range(1, 5)]
    assert verdict(*broken[:3], fruitless=3).decision is Decision.RESTART
    found = verdict(*broken, fruitless=3)
    assert found.decision is Decision.NO_PROGRESS
    assert "4 attempts in a row" in found.why and len(found.evidence) == 4


def test_a_new_step_or_a_newer_checkpoint_is_progress() -> None:
    stuck = [attempt(1, step=10), attempt(2, step=10), attempt(3, step=9)]
    assert verdict(*stuck).fruitless == 2
    assert verdict(*stuck, attempt(4, step=11)).fruitless == 0
    assert verdict(*stuck, attempt(4, start=10)).fruitless == 1
    assert verdict(attempt(1), attempt(2, start=10), attempt(3, start=20)).fruitless == 1


def test_the_jobs_own_limit_counts_every_fault() -> None:
    lost = [attempt(n, kind="node_lost", node_at_fault=True) for n in (1, 2)]
    assert verdict(lost[0], max_restarts=1).decision is Decision.RESTART
    found = verdict(*lost, max_restarts=1)
    assert found.decision is Decision.SPENT
    assert found.to_data()["faults"] == 2 and found.to_data()["max_restarts"] == 1


def test_the_first_restart_is_at_once_and_pauses_grow_up_to_their_cap() -> None:
    pauses = [
        verdict(*(attempt(n) for n in range(1, count + 1)), fruitless=100, longest_pause_s=10)
        for count in range(1, 8)
    ]
    assert [each.pause_s for each in pauses] == [0, 1, 2, 4, 8, 10, 10]
    assert "after 4 s" in pauses[3].why


def test_attempts_that_were_called_off_are_no_evidence() -> None:
    called_off = AttemptRecord("j", 1, {}, None, "", 0, 0, None, None, None, 1, None)
    assert broken_attempts([called_off]) == []
    with pytest.raises(ValueError, match="before something broke"):
        judge([], Limits())
