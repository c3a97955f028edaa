"""Whatever happens to a job, in whatever order: the promises of the lifecycle hold."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from railweave.scheduler.lifecycle import JobEvent, JobState, Life, Outcome, Step, step

HOLDING = (JobState.LAUNCHING, JobState.RUNNING, JobState.STOPPING)
REPORTS = [
    JobEvent.CALL_OFF,
    JobEvent.RUNNING,
    JobEvent.FAULT,
    JobEvent.STOPPED,
    JobEvent.SUCCEED,
    JobEvent.GIVE_UP,
]


class JobLife(RuleBasedStateMachine):
    """Drives one job with true, late, repeated and wrong events, and books its devices beside."""

    life = Life()
    stopped_attempts: set[int]

    @initialize(max_restarts=st.integers(0, 3))
    def start(self, max_restarts: int) -> None:
        self.life = Life(max_restarts=max_restarts)
        self.stopped_attempts = set()

    def take(self, event: JobEvent, attempt: int | None) -> Step:
        before = self.life
        taken = step(before, event, attempt)
        after = taken.life
        if taken.outcome is not Outcome.CHANGED:
            assert after == before
            assert taken.why
        assert after.attempt - before.attempt == (
            1 if event is JobEvent.LAUNCH and taken.outcome is Outcome.CHANGED else 0
        )
        assert before.faults <= after.faults <= before.faults + 1
        if before.state.final:
            assert after == before
        if before.holds_devices and not after.holds_devices:
            assert event in (JobEvent.STOPPED, JobEvent.SUCCEED, JobEvent.CALL_OFF)
            self.stopped_attempts.add(before.attempt)
        self.life = after
        return taken

    @rule(attempt=st.integers(0, 6))
    def launch(self, attempt: int) -> None:
        taken = self.take(JobEvent.LAUNCH, attempt)
        if taken.outcome is Outcome.CHANGED:
            assert taken.life.attempt == attempt
            assert set(range(1, attempt)) <= self.stopped_attempts

    @rule()
    def launch_the_next(self) -> None:
        self.take(JobEvent.LAUNCH, self.life.attempt + 1)

    @rule(event=st.sampled_from(REPORTS), attempt=st.none() | st.integers(0, 6))
    def report(self, event: JobEvent, attempt: int | None) -> None:
        taken = self.take(event, attempt)
        if attempt is None or attempt != self.life.attempt:
            assert taken.outcome is not Outcome.CHANGED

    @precondition(lambda self: self.life.attempt > 0)
    @rule(event=st.sampled_from(REPORTS))
    def report_of_the_newest_attempt(self, event: JobEvent) -> None:
        taken = self.take(event, self.life.attempt)
        again = step(taken.life, event, taken.life.attempt)
        if event is not JobEvent.CALL_OFF and taken.outcome is Outcome.CHANGED:
            assert again.outcome is Outcome.UNCHANGED

    @rule(event=st.sampled_from([JobEvent.CANCEL, JobEvent.REJECT]))
    def ask(self, event: JobEvent) -> None:
        taken = self.take(event, None)
        assert taken.outcome is not Outcome.REFUSED
        assert taken.life.state.final or taken.life.state is JobState.STOPPING

    @invariant()
    def fields_agree(self) -> None:
        self.life.check()
        assert self.life.holds_devices == (
            self.life.state in HOLDING
            or (
                self.life.state is JobState.RECOVERING
                and self.life.attempt not in self.stopped_attempts
            )
        )


TestJobLife = JobLife.TestCase
