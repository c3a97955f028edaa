"""The account of a job's time: it adds up, and a simulated month is what the closed form says."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.agents.checkpoint_pace import best_interval_s
from railweave.scheduler.effective import EffectiveTime, Part, effective_time, expected_ratio
from railweave.scheduler.lifecycle import JobState, Life
from railweave.scheduler.progress import Progress, Sample, Saved, Stalled, read_progress
from railweave.scheduler.records import AttemptRecord, JobRecord

MONTH_S = 30 * 86400.0
KINDS = ("node_lost", "rank_exit", "device_error")


@dataclass
class Simulated:
    """A job over a time in which faults come at random, told as its records and its log tell it."""

    seed: int = 0
    length_s: float = MONTH_S
    mtbf_s: float = 6 * 3600.0
    step_s: float = 60.0
    every_steps: int = 30
    stall_s: float = 20.0
    queue_s: float = 100.0
    detect_s: float = 60.0
    stop_s: float = 30.0
    place_s: float = 30.0
    launch_s: float = 60.0
    start_s: float = 180.0
    attempts: list[AttemptRecord] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    saves: list[Saved] = field(default_factory=list)
    stalls: list[Stalled] = field(default_factory=list)
    resumed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        now_s, saved = self.queue_s, 0
        while now_s < self.length_s:
            fault_s = now_s + chance.expovariate(1 / self.mtbf_s)
            saved = self._attempt(now_s, fault_s, saved, chance.choice(KINDS))
            now_s = fault_s + self.detect_s + self.stop_s + self.place_s

    def _attempt(self, began_s: float, fault_s: float, saved: int, kind: str) -> int:
        """One attempt until its fault or the end of time; the step it has saved."""
        number = len(self.attempts) + 1
        self.resumed[number] = saved
        until_s = min(fault_s, self.length_s)
        running_s = began_s + self.launch_s
        at_s, step = running_s + self.start_s, saved
        while at_s + self.step_s <= until_s:
            at_s, step = at_s + self.step_s, step + 1
            self.samples.append(Sample(number, step, None, at_s))
            if step % self.every_steps == 0:
                at_s += self.stall_s
                if at_s > until_s:
                    break
                saved = step
                self.saves.append(Saved(number, step, at_s))
                self.stalls.append(Stalled(number, step, self.stall_s))
        seen_s, stopped_s = fault_s + self.detect_s, fault_s + self.detect_s + self.stop_s
        cause = {"kind": kind, "message": "it broke", "node": "n0", "happened_s": fault_s}
        self.attempts.append(
            AttemptRecord(
                job_id="j",
                number=number,
                placement={},
                plan=None,
                resumed_from="",
                moved_ranks=0,
                started_s=began_s,
                running_s=running_s if running_s <= until_s else None,
                fault_seen_s=seen_s if seen_s <= self.length_s else None,
                stopped_s=stopped_s if stopped_s <= self.length_s else None,
                ended_s=stopped_s if stopped_s <= self.length_s else None,
                cause=cause if seen_s <= self.length_s else None,
            )
        )
        return saved

    def account(self) -> EffectiveTime:
        life = Life(JobState.RUNNING, len(self.attempts), 0, 10**6, True)
        job = JobRecord("j", 1, "j", 0, 8, {}, life, "", 0.0, 0.0, None)
        progress = Progress(
            tuple(self.samples), tuple(self.saves), self.resumed, tuple(self.stalls)
        )
        return effective_time(job, self.attempts, progress, [], self.length_s)

    @property
    def expected(self) -> float:
        return expected_ratio(
            self.every_steps * self.step_s,
            self.stall_s,
            self.mtbf_s,
            self.launch_s + self.start_s,
            self.detect_s + self.stop_s + self.place_s,
        )

    @property
    def measured(self) -> float:
        """The account's ratio; an attempt's first step, which it counts as its start, put back."""
        found = self.account()
        first = {sample.attempt for sample in self.samples}
        return found.ratio + self.step_s * len(first) / found.wall_s


def test_a_simulated_month_of_faults_is_what_the_closed_form_says() -> None:
    months = [Simulated(seed) for seed in range(8)]
    measured = [month.measured for month in months]
    spread = stdev(measured)
    expected = months[0].expected
    assert 0.9 < expected < 0.95 and spread < 0.01
    assert abs(fmean(measured) - expected) < 3 * spread / len(measured) ** 0.5
    assert all(abs(each - expected) < 4 * spread for each in measured)
    for month in months:
        found = month.account()
        assert sum(found.parts.values()) == pytest.approx(MONTH_S, rel=1e-9)
        assert found.wall_s == pytest.approx(MONTH_S, rel=1e-9)
        assert min(found.parts.values()) > 0


def test_each_part_of_a_month_is_as_long_as_it_was_made() -> None:
    month = Simulated()
    found = month.account()
    faults = sum(each.fault_seen_s is not None for each in month.attempts)
    assert found.parts[Part.QUEUE] == 100
    assert found.parts[Part.DETECTION] == pytest.approx(60 * faults)
    assert found.parts[Part.STALL] == pytest.approx(20 * len(month.saves), rel=0.01)
    assert sum(cost.count for cost in found.kinds) == faults
    assert {cost.kind for cost in found.kinds} == set(KINDS)
    for cost in found.kinds:
        assert cost.detect_s == pytest.approx(60)
        # To the next attempt's first step, or, where that broke before, its launch.
        assert cost.recover_s is not None and 250 < cost.recover_s <= 30 + 30 + 60 + 180 + 60
        assert cost.lost_steps > 0


def test_the_best_interval_is_the_best_of_the_closed_form() -> None:
    for stall_s, mtbf_s in ((1.0, 3600.0), (20.0, 6 * 3600.0), (120.0, 86400.0)):
        best_s = best_interval_s(stall_s, mtbf_s)
        best = expected_ratio(best_s, stall_s, mtbf_s, 300)
        for factor in (0.5, 0.8, 1.25, 2):
            assert expected_ratio(best_s * factor, stall_s, mtbf_s, 300) < best


def test_the_closed_form_of_a_job_without_faults_is_the_stall_alone() -> None:
    assert expected_ratio(90, 10, 1e15, 300, 60) == pytest.approx(0.9)
    assert expected_ratio(1e9, 10, 60, 300, 60) == 0.0
    with pytest.raises(ValueError, match=r"interval 0 s .* must be above 0"):
        expected_ratio(0, 10, 60, 300)


def test_stalls_are_read_from_the_log() -> None:
    log = "step=10 loss=2\nstalled step=10 stall_s=0.25\nstalled step=11\nstalled stall_s=1\n"
    assert read_progress({2: log}).stalls == (Stalled(2, 10, 0.25),)


_SECONDS = st.floats(0, 50)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Simulated,
        seed=st.integers(0, 10**6),
        length_s=st.floats(1, 3000),
        mtbf_s=st.floats(100, 2000),
        step_s=st.floats(5, 50),
        every_steps=st.integers(1, 20),
        stall_s=_SECONDS,
        queue_s=_SECONDS,
        detect_s=st.floats(0.1, 50),
        stop_s=_SECONDS,
        place_s=_SECONDS,
        launch_s=_SECONDS,
        start_s=_SECONDS,
    )
)
def test_the_parts_always_add_up_to_the_whole_time(simulated: Simulated) -> None:
    found = simulated.account()
    assert sum(found.parts.values()) == pytest.approx(simulated.length_s, rel=1e-6)
    assert all(seconds >= 0 for seconds in found.parts.values())
    assert 0 <= found.ratio <= 1
