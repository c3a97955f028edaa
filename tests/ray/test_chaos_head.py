"""The head, or Ray's control store, is killed on purpose: noticed, and no job breaks by it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chaos_bench import Ledger, submit
from job_bench import Bench
from railweave.scheduler.chaos.driver import Driver
from railweave.scheduler.chaos.evidence import Outcome
from railweave.scheduler.chaos.histories import judged, last_event
from railweave.scheduler.chaos.kinds import Kind
from railweave.scheduler.chaos.machines import EmbeddedMachines
from railweave.scheduler.chaos.schedule import Injection, Schedule, Target, drawn
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_killed_head_and_a_killed_store_break_no_job_and_others_break_it_as_ever(
    durable: EmbeddedCluster, tmp_path: Path
) -> None:
    schedule = Schedule(
        faults=(
            Injection(kind=Kind.HEAD_KILL, job="one", at_step=20),
            Injection(kind=Kind.RANK_KILL, job="one", rank=1, at_step=60),
            Injection(kind=Kind.GCS_KILL, job="one", at_step=100),
            Injection(kind=Kind.RANK_KILL, job="two", at_step=15),
            Injection(kind=Kind.HEAD_KILL, job="two", at_step=180, for_s=1.0),
        )
    )
    with Client() as client:
        bench = Bench(client, tmp_path)
        ledger = Ledger(bench)
        victims = {name: submit(bench, tmp_path / name, name, 60) for name in schedule.jobs}
        jobs = {name: victim.handle.id for name, victim in victims.items()}
        after = last_event(client)
        with Driver(client, schedule, jobs, machines=EmbeddedMachines(durable)) as driver:
            done = driver.run()
            for victim in victims.values():
                victim.finish()
                assert victim.handle.wait(300) is JobState.SUCCEEDED, victim.handle.explain()
                assert victim.wrong_results(2) == []
                ledger.look()
        assert driver.unmended == [] and durable.head_runs
        report = judged(client, done, [victim.handle for victim in victims.values()], after)
        for each in report.findings:
            sys.stdout.write(f"{each.outcome} {each.done.fault.text()}: {each.told}\n")
        assert {each.outcome for each in report.findings} == {Outcome.NOTICED}
        assert report.unexplained == () and ledger.wrong == [] and bench.alive() == []
        assert [len(victim.handle.attempts) for victim in victims.values()] == [2, 2]


KINDS = (
    *(Kind.RANK_KILL, Kind.RANK_STOP, Kind.RANK_EXIT, Kind.RANK_NAN, Kind.GUARD_KILL),
    *(Kind.AGENT_KILL, Kind.AGENT_CLOCK, Kind.CONTROLLER_KILL, Kind.DAEMON_KILL, Kind.NODE_POWER),
    *(Kind.CHECKPOINT_TORN, Kind.GCS_STOP, Kind.GCS_KILL, Kind.HEAD_KILL, Kind.HEAD_KILL),
)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [71, 72])
def test_among_faults_of_every_other_part_the_head_is_killed_again_and_again(
    durable: EmbeddedCluster, tmp_path: Path, seed: int
) -> None:
    names = ("one", "two", "three")
    with Client() as client:
        bench = Bench(client, tmp_path)
        ledger = Ledger(bench)
        victims = {name: submit(bench, tmp_path / name, name, 60) for name in names}
        jobs = {name: victim.handle.id for name, victim in victims.items()}
        after = last_event(client)
        schedule = drawn(seed, 30, KINDS, [Target(name, 2, 8, 200) for name in names])
        with Driver(client, schedule, jobs, machines=EmbeddedMachines(durable)) as driver:
            done = driver.run()
            driver.settle(240)
            for victim in victims.values():
                victim.finish()
                victim.handle.wait(300)
                ledger.look()
        assert driver.unmended == [] and durable.head_runs
        report = judged(client, done, [victim.handle for victim in victims.values()], after)
        for each in report.findings:
            sys.stdout.write(f"{each.outcome} {each.done.fault.text()}: {each.told}\n")
        for victim in victims.values():
            assert victim.handle.state is JobState.SUCCEEDED, victim.handle.explain()
            assert victim.wrong_results(2) == []
        outcomes = {each.outcome for each in report.findings}
        assert outcomes <= {Outcome.NOTICED, Outcome.BORNE, Outcome.MASKED}
        assert report.unexplained == () and ledger.wrong == [] and bench.alive() == []
