"""Faults as values: written down, replayed, drawn by chance that can be had again."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from railweave.placement.errors import InvalidInput
from railweave.scheduler.chaos.kinds import DAMAGES, FACTS, Kind, Where
from railweave.scheduler.chaos.schedule import Injection, Schedule, Target, drawn

TARGETS = [Target("a", 2, 5, 200), Target("b", 4, 10, 300), Target("c", 1, 0, 150)]


def test_a_schedule_is_the_same_after_writing_and_reading() -> None:
    schedule = drawn(3, 25, list(Kind), TARGETS)
    assert Schedule.parse(schedule.to_json()) == schedule
    assert schedule.jobs == ("a", "b", "c")


@given(seed=some.integers(0, 2**31), count=some.integers(1, 30))
def test_the_same_seed_draws_the_same_faults_within_their_jobs_steps(seed: int, count: int) -> None:
    schedule = drawn(seed, count, list(Kind), TARGETS)
    assert schedule == drawn(seed, count, list(Kind), TARGETS)
    assert len(schedule.faults) == count
    for target in TARGETS:
        own = [fault for fault in schedule.faults if fault.job == target.job]
        steps = [fault.at_step for fault in own if fault.at_step is not None]
        assert len(steps) == len(own) and steps == sorted(steps)
        assert all(target.first <= step <= target.last for step in steps)
        assert all(0 <= fault.rank < target.ranks for fault in own)
        once = Counter(fault.kind for fault in own if FACTS[fault.kind].of_job)
        assert max(once.values(), default=0) <= 1
        assert all(fault.rank == 0 for fault in own if fault.kind in DAMAGES)


def test_every_kind_comes_as_often_as_every_other_where_jobs_allow_it() -> None:
    targets = [Target(f"job-{index}", 2, 10, 400) for index in range(12)]
    kinds = [kind for kind in Kind if FACTS[kind].where is not Where.NETWORK]
    counts = Counter(fault.kind for fault in drawn(1, 200, kinds, targets).faults)
    assert set(counts) == set(kinds)
    assert max(counts.values()) - min(counts.values()) <= 2


def test_every_kind_has_its_facts_and_damages_kill_the_rank_that_commits() -> None:
    assert set(FACTS) == set(Kind)
    assert all(FACTS[kind].where is Where.STORAGE and FACTS[kind].breaks for kind in DAMAGES)
    assert len([kind for kind in Kind if FACTS[kind].breaks]) >= 15


@pytest.mark.parametrize(
    ("fields", "place", "found"),
    [
        ({"kind": "rank-kill", "at_step": 1, "after_s": 2.0}, "after_s", "beside at_step"),
        ({"kind": "rank-kill", "for_s": 2.0}, "for_s", "no duration"),
        ({"kind": "rank-kill", "signal": "SIGSEGV"}, "signal", "none to choose"),
        ({"kind": "rank-signal", "signal": "SIGKILL"}, "signal", "'SIGKILL'"),
        ({"kind": "rank-exit", "value": 0.0}, "value", "no exit code"),
        ({"kind": "rank-slow", "value": 0.5}, "value", "times slower"),
        ({"kind": "gcs-stop", "value": 1.0}, "value", "takes none"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_its_place(
    fields: dict[str, object], place: str, found: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Schedule.parse({"format": "railweave.chaos/1", "faults": [{"job": "a", **fields}]})
    [problem] = refused.value.problems
    assert problem.place == f"faults[0].{place}" and found in problem.found


def test_more_faults_than_steps_or_kinds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="draw fewer, or give it more steps"):
        drawn(1, 9, [Kind.RANK_KILL], [Target("a", 1, 1, 3)], together=0.0)
    with pytest.raises(InvalidInput, match="give more jobs or kinds"):
        drawn(1, 2, [Kind.RANK_EXIT], [Target("a", 1, 1, 30)])
    with pytest.raises(InvalidInput, match="give kinds, jobs and a count"):
        drawn(1, 0, [Kind.RANK_EXIT], [Target("a", 1, 1, 30)])


def test_a_fault_says_what_it_does_and_when() -> None:
    fault = Injection(kind=Kind.RANK_STOP, job="train", rank=3, at_step=7, for_s=9.0)
    assert fault.text() == "rank-stop for 9 s at rank 3 of train at step 7"
    assert Injection(kind=Kind.RANK_EXIT, job="a", value=9, after_s=2.0).text() == (
        "rank-exit (9) at rank 0 of a after 2 s"
    )


def test_the_example_of_the_page_is_a_schedule() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
    [text] = re.findall(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert [fault.kind for fault in Schedule.parse(text).faults] == [
        Kind.RANK_KILL,
        Kind.RANK_STOP,
        Kind.DAEMON_KILL,
    ]
