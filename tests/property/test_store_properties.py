"""The store agrees with the lifecycle and books every device at most once, whatever is asked."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from railweave.scheduler.lifecycle import JobEvent, Life, Outcome, step
from railweave.scheduler.records import DoubleBooking, NewAttempt, NewJob
from railweave.scheduler.store import Store

NAMES = st.sampled_from(["a", "b", "c"])
DEVICES = st.lists(
    st.tuples(st.sampled_from(["n0", "n1"]), st.integers(0, 2)), min_size=1, max_size=3, unique=True
)
REPORTS = [e for e in JobEvent if e is not JobEvent.LAUNCH]


class Stored(RuleBasedStateMachine):
    """Several jobs in a real SQLite file beside a plain model of them."""

    @initialize()
    def start(self) -> None:
        # In memory where that can be had: every write is synced, which says nothing here.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.path = Path(self.folder.name) / "store.db"
        self.store = Store.open(self.path)
        self.store.take_epoch(0.0, "test")
        self.lives: dict[str, Life] = {}
        self.books: dict[tuple[str, int], str] = {}
        self.logged = 1
        for name in ("a", "b", "c"):
            self.store.add_job(NewJob(name, name, "{}", 1, max_restarts=1), 0.0)
            self.lives[name] = Life(max_restarts=1)
            self.logged += 1

    @rule(name=NAMES, devices=DEVICES)
    def launch(self, name: str, devices: list[tuple[str, int]]) -> None:
        number = self.lives[name].attempt + 1
        expected = step(self.lives[name], JobEvent.LAUNCH, number)
        taken = any(device in self.books for device in devices)
        try:
            found = self.store.advance(
                name,
                JobEvent.LAUNCH,
                attempt=number,
                launch=NewAttempt({}, tuple(devices)),
                now_s=1.0,
                message="",
            )
        except DoubleBooking:
            assert taken and expected.outcome is Outcome.CHANGED
            return
        assert found == expected
        if found.outcome is Outcome.CHANGED:
            assert not taken
            self.lives[name] = found.life
            self.books |= dict.fromkeys(devices, name)
            self.logged += 1

    @rule(name=NAMES, event=st.sampled_from(REPORTS), back=st.integers(0, 1))
    def report(self, name: str, event: JobEvent, back: int) -> None:
        number = self.lives[name].attempt - back
        expected = step(self.lives[name], event, number)
        found = self.store.advance(name, event, attempt=number, now_s=2.0, message="")
        assert found == expected
        self.lives[name] = found.life
        self.logged += found.outcome is Outcome.CHANGED
        if not found.life.holds_devices:
            self.books = {d: holder for d, holder in self.books.items() if holder != name}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open(self.path)
        self.store.take_epoch(3.0, "again")
        self.logged += 1

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        assert {r.job_id: r.life for r in self.store.jobs()} == self.lives
        assert {d: held.job_id for d, held in self.store.held().items()} == self.books
        assert len(self.store.events()) == self.logged
        for name, life in self.lives.items():
            assert [a.number for a in self.store.attempts(name)] == list(range(1, life.attempt + 1))

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestStored = Stored.TestCase
TestStored.settings = settings(max_examples=examples(10), stateful_step_count=30, deadline=None)
