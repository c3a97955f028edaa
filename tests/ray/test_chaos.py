"""Faults of every kind over several jobs at once, on a real cluster: noticed, mended, survived.

The short form is in every run; `make soak` brings 200 about.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from chaos_bench import Ledger, Victim, small_disk, submit
from job_bench import Bench, all_used
from railweave.scheduler.chaos.driver import Driver
from railweave.scheduler.chaos.evidence import Done, Outcome, Report
from railweave.scheduler.chaos.histories import judged, last_event
from railweave.scheduler.chaos.kinds import Kind
from railweave.scheduler.chaos.machines import EmbeddedMachines
from railweave.scheduler.chaos.schedule import Injection, Schedule, Target, drawn
from railweave.scheduler.cli.main import run as command
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from waiting import wait_until

RANKS = 2
QUICK = (
    *(Kind.RANK_KILL, Kind.RANK_SIGNAL, Kind.RANK_STOP, Kind.RANK_EXIT, Kind.RANK_EXCEPTION),
    *(Kind.RANK_MEMORY, Kind.RANK_NAN, Kind.RANK_CLOCK, Kind.GUARD_KILL, Kind.AGENT_KILL),
    *(Kind.AGENT_CLOCK, Kind.CONTROLLER_KILL, Kind.DAEMON_KILL, Kind.NODE_POWER, Kind.DISK_FULL),
    *(Kind.CHECKPOINT_TORN, Kind.CHECKPOINT_FLIPPED, Kind.MANIFEST_TORN),
)
SLOW = (
    *(Kind.RANK_GIL, Kind.RANK_SLOW, Kind.GUARD_STOP, Kind.AGENT_STOP, Kind.CONTROLLER_STOP),
    *(Kind.DAEMON_STOP, Kind.GCS_STOP, Kind.NODE_HANG),
)


class Run:
    """Jobs with faults drawn for them, in folders of their own."""

    def __init__(self, bench: Bench, cluster: EmbeddedCluster) -> None:
        self.bench = bench
        self.cluster = cluster
        self.ledger = Ledger(bench)
        self.done: list[Done] = []

    def of(self, schedule: Schedule, victims: dict[str, Victim]) -> Report:
        """Bring the faults about, wait for the jobs, and see what came of it."""
        client = self.bench.client
        after = last_event(client)
        jobs = {name: victim.handle.id for name, victim in victims.items()}
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(over,))
        watch.start()
        try:
            with Driver(client, schedule, jobs, machines=EmbeddedMachines(self.cluster)) as driver:
                self.done = driver.run()
                # What lasts is mended only when all is over: a stopped rank must be found.
                for victim in victims.values():
                    victim.finish()
                    victim.handle.wait(300)
        finally:
            over.set()
            watch.join()
        assert driver.unmended == []
        report = judged(client, self.done, [v.handle for v in victims.values()], after)
        sys.stdout.write(text_of(report))
        return report

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(0.5):
            self.ledger.look()


def text_of(report: Report) -> str:
    """Every fault and what came of it, a line each, for whoever reads a failed run."""
    return "".join(
        f"{each.outcome:9} {each.done.fault.text()}: attempt {each.done.attempt} on "
        f"{each.done.node} at {each.done.at_s:.1f}, step {each.done.step}, seen after "
        f"{each.detect_s}, going after {each.recover_s}: {each.told[:200]}\n"
        for each in report.findings
    )


@pytest.fixture
def run(bench: Bench, cluster: EmbeddedCluster) -> Iterator[Run]:
    yield Run(bench, cluster)
    wait_until(lambda: all_used(bench.client), 120, "every node is well again")


def check(report: Report, run: Run, victims: dict[str, Victim]) -> None:
    """What holds after every run, whatever was broken."""
    for victim in victims.values():
        job = victim.handle
        assert job.state is JobState.SUCCEEDED, job.explain()
        assert victim.wrong_results(RANKS) == []
    assert run.ledger.wrong == []
    assert [f"{each.done}: {each.told}" for each in report.missed] == []
    assert list(report.unexplained) == []
    assert [each.told for each in report.findings if each.outcome is Outcome.NOT_DONE] == []
    assert run.bench.alive() == []


def victims_of(
    run: Run, folder: Path, stack: contextlib.ExitStack, names: Sequence[str], steps: int
) -> tuple[dict[str, Victim], bool]:
    """Jobs, each with a small disk of its own for its checkpoints, and whether that could be."""
    disks = [stack.enter_context(small_disk(folder / name / "checkpoints")) for name in names]
    found = {name: submit(run.bench, folder / name, name, steps) for name in names}
    return found, all(disks)


@pytest.mark.timeout(600)
def test_twenty_faults_of_eighteen_kinds_over_three_jobs(run: Run, tmp_path: Path) -> None:
    names, steps = ("first", "second", "third"), 60
    with contextlib.ExitStack() as stack:
        victims, disks = victims_of(run, tmp_path, stack, names, steps)
        kinds = [kind for kind in QUICK if disks or kind is not Kind.DISK_FULL]
        targets = [Target(name, RANKS, 8, steps) for name in names]
        schedule = drawn(6, 20, kinds, targets)
        report = run.of(schedule, victims)
        check(report, run, victims)


@pytest.mark.timeout(400)
def test_the_command_says_what_it_would_do_and_then_reports_what_was_noticed(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = submit(run.bench, tmp_path / "job", "job", steps=40)
    run.bench.until(victim.handle, JobState.RUNNING, 120)
    words = ["chaos", victim.handle.id, "--kind", "rank-kill", "--kind", "rank-exit"]
    words += ["--count", "2", "--over", "40", "--seed", "4", "--json"]
    assert command([*words, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert len(planned) == 2 and [fault["refused"] for fault in planned] == [None, None]
    assert len(victim.handle.attempts) == 1
    kept = tmp_path / "faults.json"
    assert command([*words, "--yes", "--write", str(kept)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [fault["outcome"] for fault in told["faults"]] == ["noticed", "noticed"]
    assert told["settled"] is True and told["unexplained"] == []
    assert {fault["fault"]["kind"] for fault in told["faults"]} == {"rank-kill", "rank-exit"}
    assert len(Schedule.load(kept).faults) == 2
    assert len(victim.handle.attempts) == 3
    victim.finish()
    assert victim.handle.wait(150) is JobState.SUCCEEDED
    assert victim.wrong_results(RANKS) == []
    assert command([*words, "--yes"]) == 1
    assert "is over; break jobs that run" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_node_that_hangs_while_its_agent_is_gone_is_not_taken_for_lost(
    run: Run, tmp_path: Path
) -> None:
    victim = submit(run.bench, tmp_path / "job", "job", steps=60)
    faults = [
        Injection(kind=kind, job="job", rank=0, at_step=10)
        for kind in (Kind.AGENT_KILL, Kind.NODE_HANG)
    ]
    report = run.of(Schedule(faults=tuple(faults)), {"job": victim})
    assert victim.handle.state is JobState.SUCCEEDED, victim.handle.explain()
    assert report.missed == () and report.unexplained == (), text_of(report)


BATCHES, AT_ONCE, FAULTS = 4, 4, 50


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_two_hundred_faults_over_several_jobs_at_once(
    run: Run, tmp_path: Path, batch: int, record_property: Callable[[str, object], None]
) -> None:
    """Each batch is a quarter of them; one job more has a fault of its own and must fail by it."""
    names = [f"soak-{batch}-{index}" for index in range(AT_ONCE)]
    with contextlib.ExitStack() as stack:
        victims, disks = victims_of(run, tmp_path, stack, names, 40)
        kinds = [kind for kind in (*QUICK, *SLOW) if disks or kind is not Kind.DISK_FULL]
        targets = [Target(name, RANKS, 10, 40 + 25 * FAULTS // AT_ONCE) for name in names]
        own = submit(run.bench, tmp_path / "own", "own", steps=40, ranks=1, bug_at=25)
        report = run.of(drawn(600 + batch, FAULTS, kinds, targets), victims)
        record_property("report", text_of(report))
        check(report, run, victims)
        assert own.handle.wait(300) is JobState.FAILED, own.handle.explain()
        assert own.handle.record.reason.startswith(
            "the job's own fault, the same error after step 24"
        )
        assert {each.done.fault.kind for each in report.done} == set(kinds)
