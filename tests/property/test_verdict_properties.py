"""Verdicts over any history of faults: limits are kept; no machine fails a job early."""

from __future__ import annotations

from dataclasses import replace

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.scheduler.verdict import Broken, Decision, Limits, judge

FAULTS = st.builds(
    lambda of_job, error, node, step, start: Broken(
        0, "rank_exit", error if of_job else "", node, of_job, start, step, of_job, "it broke"
    ),
    st.booleans(),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["n0", "n1", "n2"]),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 3),
)
HISTORIES = st.lists(FAULTS, min_size=1, max_size=12).map(
    lambda faults: [replace(each, attempt=n) for n, each in enumerate(faults, 1)]
)
LIMITS = st.builds(
    Limits, st.integers(0, 12), st.integers(0, 6), st.just(1.0), st.sampled_from([0.0, 3.0, 300.0])
)


@settings(max_examples=examples(200), deadline=None)
@given(HISTORIES, LIMITS)
def test_every_verdict_keeps_its_promises(broken: list[Broken], limits: Limits) -> None:
    found = judge(broken, limits)
    last = broken[-1]
    assert found == judge(broken, limits)
    assert 0 <= found.fruitless <= sum(each.of_job for each in broken)
    assert found.restarts == len(broken)
    if not found.decision.final:
        assert len(broken) <= limits.max_restarts and found.fruitless <= limits.fruitless
        assert 0 <= found.pause_s <= limits.longest_pause_s
        assert found.pause_s == 0 or found.fruitless >= 2
    if found.decision is Decision.JOB_AT_FAULT:
        assert last.of_job
        assert len({each.node for each in found.evidence}) > 1
        assert len({(each.error, each.step) for each in found.evidence}) == 1
    if found.decision is Decision.ELSEWHERE:
        assert found.avoid == (last.node,)
    assert (found.decision is Decision.ELSEWHERE) == bool(found.avoid)


@settings(max_examples=examples(100), deadline=None)
@given(HISTORIES)
def test_faults_of_machines_alone_only_use_up_restarts(broken: list[Broken]) -> None:
    of_machines = [replace(each, of_job=False, error="") for each in broken]
    limits = Limits(max_restarts=len(broken) - 1, fruitless=0)
    assert judge(of_machines, limits).decision is Decision.SPENT
    enough = judge(of_machines, Limits(max_restarts=len(broken), fruitless=0))
    assert (enough.decision, enough.pause_s) == (Decision.RESTART, 0.0)


@settings(max_examples=examples(100), deadline=None)
@given(HISTORIES, st.integers(1, 12), st.integers(0, 5))
def test_more_restarts_never_end_a_job_sooner(broken: list[Broken], few: int, more: int) -> None:
    def restarts(limits: Limits) -> int:
        """How many of the faults are followed by another attempt."""
        ends = (n for n in range(1, len(broken) + 1) if judge(broken[:n], limits).decision.final)
        return next(ends, len(broken) + 1)

    assert restarts(Limits(few, few)) <= restarts(Limits(few + more, few + more))
