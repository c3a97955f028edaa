"""The store: nothing is forgotten, nothing is booked twice, and the older daemon is fenced off."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from railweave.scheduler import tables
from railweave.scheduler.database import StoreUnusable
from railweave.scheduler.lifecycle import JobEvent, JobState, Outcome
from railweave.scheduler.records import DoubleBooking, NewAttempt, NewJob, UnknownJob
from railweave.scheduler.store import FencedOff, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store.open(tmp_path / "store.db")
    opened.take_epoch(0.0, "test")
    return opened


def job(name: str, priority: int = 0, devices: int = 2) -> NewJob:
    return NewJob(name, name, f'{{"name": "{name}"}}', devices, {}, priority)


def launch(*devices: tuple[str, int]) -> NewAttempt:
    return NewAttempt({"format": "railweave.placement/1"}, devices)


def start(store: Store, job_id: str, *devices: tuple[str, int], attempt: int = 1) -> None:
    taken = store.advance(
        job_id,
        JobEvent.LAUNCH,
        attempt=attempt,
        launch=launch(*devices),
        now_s=1.0,
        message="placed",
    )
    assert taken.outcome is Outcome.CHANGED


def test_a_job_is_back_after_reopening_with_all_that_happened(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    first = Store.open(path)
    first.take_epoch(0.0, "first")
    first.add_job(job("a"), 1.0)
    start(first, "a", ("n0", 0), ("n1", 1))
    first.advance("a", JobEvent.RUNNING, attempt=1, now_s=2.0, message="running")
    first.set_plan("a", 1, {"master_port": 29500}, "step-10")
    first.close()

    again = Store.open(path)
    record = again.job("a")
    assert (record.state, record.life.attempt) == (JobState.RUNNING, 1)
    assert set(again.held()) == {("n0", 0), ("n1", 1)}
    attempt = again.attempt("a", 1)
    assert attempt is not None
    assert (attempt.running_s, attempt.resumed_from) == (2.0, "step-10")
    assert [event.kind for event in again.events("a")] == ["submitted", "launch", "running"]
    assert again.spec("a") == '{"name": "a"}'


def test_a_device_cannot_be_booked_twice(store: Store) -> None:
    store.add_job(job("a"), 0.0)
    store.add_job(job("b"), 0.0)
    start(store, "a", ("n0", 0), ("n0", 1))
    with pytest.raises(DoubleBooking, match="attempt 1 of b"):
        start(store, "b", ("n1", 0), ("n0", 1))
    assert store.job("b").state is JobState.PENDING
    assert store.attempts("b") == []
    assert {device: held.job_id for device, held in store.held().items()} == {
        ("n0", 0): "a",
        ("n0", 1): "a",
    }


def test_devices_are_free_again_once_the_attempt_is_gone(store: Store) -> None:
    store.add_job(job("a"), 0.0)
    start(store, "a", ("n0", 0))
    cause = {"kind": "rank_exit", "rank": 0}
    store.advance("a", JobEvent.FAULT, attempt=1, now_s=5.0, message="rank 0 exit 1", cause=cause)
    assert set(store.held()) == {("n0", 0)}
    store.advance(
        "a", JobEvent.STOPPED, attempt=1, now_s=7.0, happened_s=6.0, message="all ranks are gone"
    )
    assert store.held() == {}
    (attempt,) = store.attempts("a")
    assert (attempt.fault_seen_s, attempt.stopped_s, attempt.ended_s) == (5.0, 6.0, 6.0)
    assert attempt.cause == cause
    assert store.job("a").reason == "rank 0 exit 1"


def test_the_root_cause_takes_the_place_of_the_first_sign(store: Store) -> None:
    store.add_job(job("a"), 0.0)
    start(store, "a", ("n0", 0))
    first = {"kind": "rank_exit", "message": "rank 0 exit 1"}
    root = {"kind": "node_lost", "message": "node n1 is lost"}
    store.advance("a", JobEvent.FAULT, attempt=1, now_s=5.0, message="rank 0 exit 1", cause=first)
    store.advance("a", JobEvent.STOPPED, attempt=1, now_s=6.0, message="stopped", cause=root)
    (attempt,) = store.attempts("a")
    assert (attempt.cause, attempt.fault_seen_s) == (root, 5.0)
    assert store.job("a").reason == "node n1 is lost"


def test_an_event_that_changes_nothing_writes_nothing(store: Store) -> None:
    store.add_job(job("a"), 0.0)
    start(store, "a", ("n0", 0))
    before = store.events()
    stale = store.advance("a", JobEvent.FAULT, attempt=0, now_s=9.0, message="late")
    refused = store.advance("a", JobEvent.STOPPED, attempt=1, now_s=9.0, message="wrong")
    assert (stale.outcome, refused.outcome) == (Outcome.UNCHANGED, Outcome.REFUSED)
    assert store.events() == before


def test_the_older_of_two_daemons_can_change_nothing(tmp_path: Path) -> None:
    older, newer = Store.open(tmp_path / "s.db"), Store.open(tmp_path / "s.db")
    older.take_epoch(0.0, "older")
    older.add_job(job("a"), 0.0)
    newer.take_epoch(1.0, "newer")
    for change in (
        lambda: older.add_job(job("b"), 2.0),
        lambda: older.advance("a", JobEvent.CANCEL, now_s=2.0, message="cancel"),
        lambda: older.quarantine("n0", "lost", 2.0, None),
        lambda: older.put_document("cluster", {}, 2.0),
        lambda: older.add_event("note", "hello", now_s=2.0),
    ):
        with pytest.raises(FencedOff, match="another daemon has taken over"):
            change()
    assert newer.job("a").state is JobState.PENDING
    with pytest.raises(FencedOff):
        Store.open(tmp_path / "s.db").add_job(job("c"), 3.0)


def test_submitting_the_same_job_twice_queues_it_once(store: Store) -> None:
    first = store.add_job(job("a"), 0.0)
    assert store.add_job(job("a"), 5.0) == first
    with pytest.raises(ValueError, match="taken by another job"):
        store.add_job(NewJob("a", "a", "{}", 1), 6.0)
    assert len(store.jobs()) == 1


def test_a_job_waits_exactly_while_it_holds_no_device_and_is_not_over(store: Store) -> None:
    for name in "abc":
        store.add_job(job(name), 0.0)
    start(store, "a", ("n0", 0))
    store.advance("c", JobEvent.CANCEL, now_s=2.0, message="cancelled")
    assert [record.job_id for record in store.waiting()] == ["b"]
    store.advance("a", JobEvent.FAULT, attempt=1, now_s=2.0, message="broke")
    assert [record.job_id for record in store.waiting()] == ["b"]
    assert [record.job_id for record in store.holding()] == ["a"]
    store.advance("a", JobEvent.STOPPED, attempt=1, now_s=3.0, message="gone")
    assert [record.job_id for record in store.waiting()] == ["a", "b"]
    assert store.holding() == []


def test_ten_thousand_queued_jobs_are_read_in_well_under_a_second(store: Store) -> None:
    # Time of this process, so that a busy machine does not matter.
    with store._write() as connection:
        rows = [
            {
                "id": f"job-{i}",
                "name": "x",
                "priority": i % 7,
                "devices": 8,
                "kinds": {},
                "state": "PENDING",
                "attempt": 0,
                "faults": 0,
                "max_restarts": 3,
                "holds_devices": False,
                "reason": "",
                "submitted_s": 0.0,
                "updated_s": 0.0,
            }
            for i in range(10_000)
        ]
        connection.execute(tables.jobs.insert(), rows)
    took_s = []
    for _ in range(3):
        before_s = time.process_time()
        waiting = store.waiting()
        took_s.append(time.process_time() - before_s)
    assert len(waiting) == 10_000
    assert min(took_s) < 5, took_s
    before_s = time.process_time()
    store.advance("job-5000", JobEvent.CANCEL, now_s=1.0, message="cancelled")
    assert time.process_time() - before_s < 2


def test_quarantine_keeps_the_first_reason_and_ends_once(store: Store) -> None:
    store.quarantine("n1", "its raylet died", 1.0, None)
    store.quarantine("n1", "silent", 2.0, 60.0)
    found = store.quarantined()["n1"]
    assert (found.reason, found.since_s, found.until_s) == ("its raylet died", 1.0, 60.0)
    assert store.release("n1", "it is back", 70.0)
    assert not store.release("n1", "it is back", 71.0)
    assert store.quarantined() == {}
    assert [event.kind for event in store.events()] == ["daemon", "quarantined", "released"]


def test_documents_replace_each_other(store: Store) -> None:
    assert store.document("cluster") is None
    store.put_document("cluster", {"nodes": [1]}, 1.0)
    store.put_document("cluster", {"nodes": [2]}, 2.0)
    assert store.document("cluster") == {"nodes": [2]}


def test_an_unknown_job_is_named(store: Store) -> None:
    with pytest.raises(UnknownJob, match="'nope'"):
        store.job("nope")
    with pytest.raises(UnknownJob):
        store.advance("nope", JobEvent.CANCEL, now_s=0.0, message="")


def test_a_damaged_file_is_told_apart_from_a_foreign_one(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("this is a text file, long enough to hold a header of some kind\n" * 20)
    with pytest.raises(StoreUnusable, match="not a SQLite file"):
        Store.open(text)

    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER)")
    connection.close()
    with pytest.raises(StoreUnusable, match="not a Railweave store"):
        Store.open(foreign)

    damaged = tmp_path / "damaged.db"
    whole = Store.open(damaged)
    whole.take_epoch(0.0, "test")
    for index in range(200):
        whole.add_job(job(f"job-{index}"), 0.0)
    whole.close()
    data = bytearray(damaged.read_bytes())
    data[4096 * 2 : 4096 * 12] = os.urandom(4096 * 10)
    damaged.write_bytes(data)
    with pytest.raises(StoreUnusable, match="damaged"):
        Store.open(damaged)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE railweave_meta SET value='99' WHERE key='schema_version'")
    connection.close()
    with pytest.raises(StoreUnusable, match="schema version 99; this Railweave knows 1"):
        Store.open(path)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("sqlite://", "names no file"),
        ("nonsense://x", "cannot use nonsense"),
        ("/nowhere/at/all/store.db", "its folder does not exist"),
    ],
)
def test_a_store_that_cannot_be_opened_says_why(location: str, message: str) -> None:
    with pytest.raises(StoreUnusable, match=message):
        Store.open(location)


def test_a_password_in_the_url_is_never_shown() -> None:
    with pytest.raises(StoreUnusable) as caught:
        Store.open("nonsense://user:secret@host/x")
    assert "secret" not in str(caught.value)


WRITER = """
import sys
from railweave.scheduler.store import Store
from railweave.scheduler.records import NewJob, NewAttempt
from railweave.scheduler.lifecycle import JobEvent
store = Store.open(sys.argv[1])
store.take_epoch(0.0, "writer")
number = 0
while True:
    number += 1
    name = f"job-{number}"
    store.add_job(NewJob(name, name, "{}", 1), 0.0)
    devices = NewAttempt({}, ((f"n{number}", 0),))
    store.advance(name, JobEvent.LAUNCH, attempt=1, launch=devices, now_s=0.0, message="")
    print(number, flush=True)
"""


def test_a_daemon_killed_at_any_moment_leaves_every_told_transition_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        told += [int(line) for line in writer.stdout.read().split()]
    store = Store.open(path)
    jobs = {record.job_id: record for record in store.jobs()}
    assert len(jobs) - told[-1] in (0, 1)
    for number in told:
        assert jobs[f"job-{number}"].state is JobState.LAUNCHING
    for record in jobs.values():
        holds = record.job_id in {held.job_id for held in store.held().values()}
        assert record.life.holds_devices == holds
        assert len(store.attempts(record.job_id)) == record.life.attempt


def test_spares_are_those_of_attempts_under_way_of_other_jobs(store: Store) -> None:
    for number, name in enumerate(("a", "b", "c")):
        store.add_job(job(name), 1.0)
        placement = {"devices": [[name, 0]], **({"spares": [f"s{name}"]} if name != "c" else {})}
        launched = NewAttempt(placement, ((name, 0),))
        store.advance(
            name, JobEvent.LAUNCH, now_s=2.0 + number, message="", attempt=1, launch=launched
        )
    assert store.kept_spares(but="") == {"sa", "sb"}
    assert store.kept_spares(but="a") == {"sb"}
    store.advance("b", JobEvent.CALL_OFF, now_s=9.0, message="", attempt=1)
    assert store.kept_spares(but="a") == set()
