"""What counts as having noticed a fault that was brought about on purpose."""

from __future__ import annotations

from typing import Any

from railweave.scheduler.chaos.evidence import Done, Finding, History, Outcome, judge
from railweave.scheduler.chaos.kinds import Kind
from railweave.scheduler.chaos.schedule import Injection
from railweave.scheduler.records import AttemptRecord, EventRecord

JOB = "job-1"


def attempt(
    number: int, cause: str | None, seen_s: float | None, *nodes: str, started_s: float = 0.0
) -> AttemptRecord:
    return AttemptRecord(
        job_id=JOB,
        number=number,
        placement={"devices": [[node, 0] for node in nodes or ("n0",)]},
        plan=None,
        resumed_from="",
        moved_ranks=0,
        started_s=started_s,
        running_s=started_s + 1,
        fault_seen_s=seen_s,
        stopped_s=None if seen_s is None else seen_s + 1,
        ended_s=None if seen_s is None else seen_s + 1,
        cause=None if cause is None else {"kind": cause, "message": f"it was {cause}"},
    )


def event(kind: str, time_s: float, number: int | None = None, **data: Any) -> EventRecord:
    return EventRecord(1, JOB, time_s, kind, number, f"{kind} told", data)


def done(kind: Kind, at_s: float, number: int = 1, node: str = "n0", **more: Any) -> Done:
    return Done(Injection(kind=kind, job="j"), JOB, number, node, at_s, **more)


def what_came(
    faults: list[Done], history: History, cluster: list[EventRecord] | None = None
) -> tuple[list[Finding], tuple[str, ...]]:
    report = judge(faults, {JOB: history}, cluster or [])
    return list(report.findings), report.unexplained


def test_the_right_cause_is_noticed_with_its_times() -> None:
    history = History([attempt(1, "rank_signal", 10.5), attempt(2, None, None)], [], {2: 14.0})
    [found], unexplained = what_came([done(Kind.RANK_KILL, 10.0)], history)
    assert (found.outcome, found.detect_s, found.recover_s) == (Outcome.NOTICED, 0.5, 3.5)
    assert unexplained == ()


def test_a_wrong_cause_or_none_is_missed_and_its_attempt_is_unexplained() -> None:
    broken = History([attempt(1, "rank_exit", 10.5)], [])
    [found], unexplained = what_came([done(Kind.RANK_KILL, 10.0)], broken)
    assert found.outcome is Outcome.MISSED and "found rank_exit" in found.told
    assert unexplained == ("attempt 1 of job-1: rank_exit: it was rank_exit",)
    [found], _ = what_came([done(Kind.RANK_KILL, 10.0)], History([attempt(1, None, None)], []))
    assert (found.outcome, found.told) == (Outcome.MISSED, "the attempt did not break")


def test_a_cause_of_before_the_fault_is_none_of_it() -> None:
    history = History([attempt(1, "rank_signal", 5.0)], [])
    [found], unexplained = what_came([done(Kind.RANK_KILL, 10.0)], history)
    assert found.outcome is Outcome.MISSED and len(unexplained) == 1


def test_of_two_faults_at_once_the_one_that_was_first_masks_the_other() -> None:
    history = History([attempt(1, "rank_signal", 10.1)], [])
    faults = [done(Kind.RANK_KILL, 10.0), done(Kind.RANK_STOP, 10.0)]
    findings, unexplained = what_came(faults, history)
    assert [each.outcome for each in findings] == [Outcome.NOTICED, Outcome.MASKED]
    assert unexplained == ()


def test_a_lost_node_explains_the_attempts_of_other_jobs_on_it_and_only_those() -> None:
    lost = Done(Injection(kind=Kind.NODE_POWER, job="k"), "job-2", 4, "n3", 10.0, until_s=11.0)
    here = History([attempt(1, "node_lost", 12.0, "n0", "n3")], [])
    _, unexplained = what_came([lost], here)
    assert unexplained == ()
    _, unexplained = what_came([lost], History([attempt(1, "node_lost", 12.0, "n0", "n4")], []))
    assert len(unexplained) == 1
    _, unexplained = what_came([lost], History([attempt(1, "rank_exit", 12.0, "n0", "n3")], []))
    assert len(unexplained) == 1


def test_what_breaks_nothing_needs_its_event_at_its_time_and_node() -> None:
    fault, fine = done(Kind.AGENT_KILL, 10.0), History([attempt(1, None, None)], [])
    for told, outcome in (
        ([event("agent_restarted", 11.0, node="n0")], Outcome.NOTICED),
        ([event("agent_restarted", 11.0, node="n1")], Outcome.MISSED),
        ([event("agent_restarted", 2.0, node="n0")], Outcome.MISSED),
        ([event("daemon", 11.0)], Outcome.MISSED),
    ):
        [found], _ = what_came([fault], fine, told)
        assert found.outcome is outcome, told


def test_what_a_node_tells_once_may_be_lost_with_the_head() -> None:
    fault, fine = done(Kind.AGENT_KILL, 10.0), History([attempt(1, None, None)], [])
    head = done(Kind.HEAD_KILL, 12.0, node="head", until_s=17.0)
    told = [event("daemon", 25.0)]
    findings, unexplained = what_came([fault, head], fine, told)
    assert [each.outcome for each in findings] == [Outcome.MASKED, Outcome.NOTICED]
    assert findings[1].detect_s == 13.0 and unexplained == ()
    broken = History([attempt(1, "node_lost", 14.0)], [])
    _, unexplained = what_came([head], broken, told)
    assert len(unexplained) == 1  # no attempt may break by it


def test_what_may_break_nothing_and_has_no_event_is_borne_or_shows_as_unexplained() -> None:
    fault = done(Kind.AGENT_STOP, 10.0, until_s=13.0)
    [found], unexplained = what_came([fault], History([attempt(1, None, None)], []))
    assert found.outcome is Outcome.BORNE and unexplained == ()
    _, unexplained = what_came([fault], History([attempt(1, "node_lost", 12.0)], []))
    assert len(unexplained) == 1


def test_a_full_disk_of_a_job_that_ends_meanwhile_cannot_show() -> None:
    fault = done(Kind.DISK_FULL, 10.0, until_s=18.0)
    [found], _ = what_came([fault], History([attempt(1, "rank_signal", 11.0)], []))
    assert found.outcome is Outcome.MASKED
    [found], _ = what_came([fault], History([attempt(1, "rank_signal", 30.0)], []))
    assert found.outcome is Outcome.MISSED


def test_a_damaged_checkpoint_must_be_passed_over_and_never_be_resumed() -> None:
    fault = done(
        Kind.CHECKPOINT_FLIPPED, 10.0, detail={"path": "/c/step-000010.attempt-1/shard-000000.raw"}
    )
    attempts = [attempt(1, "rank_signal", 10.1), attempt(2, None, None)]
    folder = "/c/step-000010.attempt-1"
    passed = event("resume", 12.0, 2, path="/c/older", passed_over=[[folder, "wrong content"]])
    chosen = event("resume", 12.0, 2, path=folder, passed_over=[])
    silent = event("resume", 12.0, 2, path="/c/older", passed_over=[])
    for told, outcome in (
        (passed, Outcome.NOTICED),
        (chosen, Outcome.MISSED),
        (silent, Outcome.MISSED),
    ):
        [found], _ = what_came([fault], History(attempts, [told]))
        assert found.outcome is outcome, found.told


def test_what_could_not_be_done_counts_as_that_and_explains_nothing() -> None:
    fault = done(Kind.RANK_KILL, 0.0, error="its job was over before")
    [found], unexplained = what_came([fault], History([attempt(1, "rank_signal", 5.0)], []))
    assert (found.outcome, found.told) == (Outcome.NOT_DONE, "its job was over before")
    assert len(unexplained) == 1


def test_a_summary_has_counts_medians_and_the_longest() -> None:
    attempts = [attempt(n, "rank_signal", 10.0 * n + d) for n, d in ((1, 0.2), (2, 0.4), (3, 0.9))]
    faults = [done(Kind.RANK_KILL, 10.0 * n, n) for n in (1, 2, 3)]
    report = judge(faults, {JOB: History(attempts, [], {2: 13.2})}, [])
    [summary] = report.by_kind()
    assert summary.outcomes == {Outcome.NOTICED: 3}
    assert summary.detect_s is not None and abs(summary.detect_s - 0.4) < 1e-9
    assert summary.longest_recover_s is not None and abs(summary.longest_recover_s - 3.0) < 1e-9


def test_what_broke_before_the_run_is_not_to_be_explained() -> None:
    history = History([attempt(1, "rank_exit", 5.0), attempt(2, "rank_signal", 20.5)], [])
    report = judge([done(Kind.RANK_KILL, 20.0, 2)], {JOB: history}, [], since_s=10.0)
    assert report.unexplained == () and report.findings[0].outcome is Outcome.NOTICED
