"""Watching an attempt over several nodes, with real runners, guards and rank processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from node_bench import TOKEN, NodeBench, node_bench
from railweave.agents.attempt import NodeLaunch, NodePhase, NodeStatus, RankState, StopReport
from railweave.agents.runner import Runner
from railweave.scheduler.fault import FaultKind, earlier_faults, part_fault, root_cause
from railweave.scheduler.job import Job
from railweave.scheduler.launching import Attempt, launches
from railweave.scheduler.messages import AttemptPlan, Happened, Report
from railweave.scheduler.watch import NodeGone, Watch
from waiting import wait_until

# Every rank says that it is there, then does what its line of `deeds` says.
RANK = """
import os, sys, time, signal, pathlib
rank = int(os.environ["RANK"])
pathlib.Path(f"up-{rank}").touch()
print("rank", rank, "is up", flush=True)
deed = sys.argv[1 + rank]
while not all(os.path.exists(f"up-{r}") for r in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
exec(deed)
"""
STAY = "time.sleep(1000)"
UNTIL = "[time.sleep(0.01) for _ in iter(lambda: os.path.exists({!r}), True)]"


class RunnerPart:
    """A node's part, reached directly; `dead` makes it as unreachable as a lost node."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.dead = ""
        self.way = FaultKind.NODE_LOST

    async def _call(self, function: Callable[[], object]) -> object:
        if self.dead:
            raise NodeGone(self.dead, self.way)
        found = await asyncio.to_thread(function)
        if self.dead:
            raise NodeGone(self.dead, self.way)
        return found

    async def launch(self, launch: NodeLaunch) -> NodeStatus:
        return await self._call(lambda: self.runner.launch(launch))

    async def status(self, after_seq: int, wait_s: float) -> NodeStatus:
        wait_s = min(wait_s, 0.2)
        return await self._call(lambda: self.runner.status("job", 1, after_seq, wait_s))

    async def stop(self, grace_s: float) -> StopReport:
        return await self._call(lambda: self.runner.stop("job", 1, grace_s))


class Fabric:
    """Two nodes with two ranks each."""

    def __init__(self, benches: list[NodeBench], folder: Path) -> None:
        self.benches = benches
        self.folder = folder
        self.names = ["n0", "n1"]
        for name, bench in zip(self.names, benches, strict=True):
            bench.runner.node = name
        self.parts = {
            name: RunnerPart(bench.runner) for name, bench in zip(self.names, benches, strict=True)
        }
        self.reports: list[Report] = []

    def plan(
        self,
        *deeds: str,
        command: str = sys.executable,
        hang_timeout_s: float | None = None,
        straggler_ratio: float | None = None,
    ) -> AttemptPlan:
        lean = [] if any("railweave" in deed for deed in deeds) else ["-S"]
        job = Job(
            name="job",
            entrypoint=[command, *lean, "-c", RANK, *deeds],
            hang_timeout_s=hang_timeout_s,
            straggler_ratio=straggler_ratio,
            devices=4,
            working_dir=self.folder,
            env={TOKEN: self.benches[0].token},
            grace_s=0.5,
        )
        devices = [("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1)]
        attempt = Attempt("job", 1, 0, "127.0.0.1", 29500, "/tmp/none")
        return AttemptPlan(
            job_id="job",
            attempt=1,
            launches=tuple(launches(job, attempt, devices)),
            node_ids=dict.fromkeys(self.names, "id"),
        )

    def watch(self, plan: AttemptPlan, **how: bool) -> Watch:
        return Watch(plan, self.parts, self.reports.append, **how)

    def run(
        self,
        watch: Watch,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
        deadline_s: float = 30,
    ) -> list[Happened]:
        async def both() -> None:
            running = asyncio.create_task(watch.run())
            if meanwhile is not None:
                await asyncio.wait_for(meanwhile(), 30)
            await asyncio.wait_for(running, deadline_s)

        asyncio.run(both())
        return [report.happened for report in self.reports]

    async def told(self, happened: Happened) -> None:
        while happened not in [report.happened for report in self.reports]:
            await asyncio.sleep(0.01)

    def leave_running(self, plan: AttemptPlan) -> None:
        """Have a watch start the ranks and end without a word, as a controller that is killed."""

        async def first_watch() -> None:
            running = asyncio.create_task(self.watch(plan).run())
            await self.told(Happened.RUNNING)
            running.cancel()

        asyncio.run(first_watch())
        self.reports.clear()

    def nothing_is_left(self) -> bool:
        phases = [bench.runner.status("job", 1).phase for bench in self.benches]
        ended = (NodePhase.ENDED, NodePhase.STOPPED, NodePhase.UNKNOWN)
        return self.benches[0].alive() == [] and all(phase in ended for phase in phases)


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with ExitStack() as stack:
        benches = []
        for name in ("n0", "n1"):
            (tmp_path / name).mkdir()
            benches.append(stack.enter_context(node_bench(tmp_path / name)))
        benches[1].token = benches[0].token
        yield Fabric(benches, tmp_path)


def test_an_attempt_whose_ranks_all_end_well_succeeds(fabric: Fabric) -> None:
    happened = fabric.run(fabric.watch(fabric.plan(*["sys.exit(0)"] * 4)))
    assert happened in ([Happened.RUNNING, Happened.SUCCEEDED], [Happened.SUCCEEDED])
    assert fabric.nothing_is_left()


def test_the_first_failing_rank_ends_all_and_is_named_with_its_last_lines(fabric: Fabric) -> None:
    plan = fabric.plan(STAY, STAY, "print('out of luck'); sys.exit(3)", STAY)
    happened = fabric.run(fabric.watch(plan))
    assert happened[-2:] == [Happened.FAULT, Happened.STOPPED]
    for report in fabric.reports[-2:]:
        assert report.fault is not None
        assert (report.fault.kind, report.fault.rank) == (FaultKind.RANK_EXIT, 2)
        assert (report.fault.node, report.fault.exit_code) == ("n1", 3)
        assert report.fault.last_lines[-1] == "out of luck"
        assert not report.fault.node_at_fault
    assert fabric.nothing_is_left()


def test_a_killed_rank_is_told_by_its_signal(fabric: Fabric) -> None:
    plan = fabric.plan(STAY, "os.kill(os.getpid(), signal.SIGKILL)", STAY, STAY)
    fabric.run(fabric.watch(plan))
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.signal, fault.rank) == (FaultKind.RANK_SIGNAL, 9, 1)
    assert "SIGKILL" in fault.message


REPORTING = (
    "from railweave.agents import report; [(report(s), time.sleep(0.02)) for s in range(1, 20)]; "
)


def test_a_stopped_rank_is_found_within_ten_seconds_and_named(fabric: Fabric) -> None:
    began_s = time.time()
    stop_itself = "print('going', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    watch = fabric.watch(fabric.plan(STAY, STAY, stop_itself, STAY))
    assert fabric.run(watch) == [Happened.RUNNING, Happened.FAULT, Happened.STOPPED]
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.rank, fault.node) == (FaultKind.RANK_STOPPED, 2, "n1")
    assert fault.seen_s - began_s < 10
    assert "in state T" in fault.message
    assert fault.last_lines[-1] == "going"
    assert not fault.node_at_fault
    assert fabric.nothing_is_left()


@pytest.mark.parametrize("hang", ["[0 for _ in iter(int, 1)]", "time.sleep(1000)"])
def test_ranks_that_make_no_step_are_found_hung(fabric: Fabric, hang: str) -> None:
    # Rank 1 hangs a step before the others, which then wait for it.
    hangs = REPORTING.replace("20", "19") + hang
    waits = REPORTING + STAY
    watch = fabric.watch(fabric.plan(waits, hangs, waits, waits, hang_timeout_s=2))
    assert fabric.run(watch) == [Happened.RUNNING, Happened.FAULT, Happened.STOPPED]
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.rank, fault.step) == (FaultKind.RANK_HUNG, 1, 18)
    assert "has made no step for" in fault.message
    assert "after step 18" in fault.message
    assert "set hang_timeout_s" in fault.message
    assert fault.last_lines in ((), ("rank 1 is up",))
    assert fabric.nothing_is_left()


def test_a_rank_that_computes_twice_as_long_is_found_within_twenty_steps(fabric: Fabric) -> None:
    # Every step takes 0.2 s on all ranks, as if they met in each; from step 10 on rank 2 is slow.
    step = "report(s, compute_s={}), time.sleep(0.2)"
    going = "from railweave.agents import report; [({}) for s in range(1, 1000)]"
    even = going.format(step.format("0.1"))
    slow = going.format(step.format("0.1 if s < 10 else 0.2"))
    watch = fabric.watch(fabric.plan(even, even, slow, even, straggler_ratio=1.8))
    assert fabric.run(watch) == [Happened.RUNNING, Happened.FAULT, Happened.STOPPED]
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.rank, fault.node) == (FaultKind.STRAGGLER, 2, "n1")
    assert fault.node_at_fault
    assert fault.step is not None and 10 <= fault.step <= 10 + 20 + 10  # ten: busy test machines
    assert "its 3 peers 0.1 s" in fault.message
    assert fabric.nothing_is_left()


@pytest.mark.soak
def test_nothing_is_called_broken_under_full_load(fabric: Fabric) -> None:
    seconds = float(os.environ.get("RAILWEAVE_SOAK_S", "1800"))
    compute = (
        "exec('''from railweave.agents import report\n"
        f"end = time.monotonic() + {seconds}\n"
        "s = 0\n"
        "while time.monotonic() < end:\n"
        "    began, s = time.monotonic(), s + 1\n"
        "    sum(range(2_000_000))\n"
        "    report(s, loss=1.0 / s, compute_s=time.monotonic() - began)\n"
        "''')"
    )
    hogs = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        watch = fabric.watch(fabric.plan(*[compute] * 4, straggler_ratio=1.8))
        happened = fabric.run(watch, deadline_s=seconds + 120)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert happened == [Happened.RUNNING, Happened.SUCCEEDED]


def test_the_last_reported_step_is_told_of_a_rank_that_fails(fabric: Fabric) -> None:
    watch = fabric.watch(fabric.plan(STAY, STAY, REPORTING + "sys.exit(7)", STAY))
    fabric.run(watch)
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.exit_code, fault.step) == (FaultKind.RANK_EXIT, 7, 19)
    assert fault.message.endswith("with exit code 7, after step 19")


def test_a_program_that_is_not_there_is_told_as_such(fabric: Fabric) -> None:
    fabric.run(fabric.watch(fabric.plan(*[STAY] * 4, command="no-such-program")))
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert fault.kind is FaultKind.RANK_START
    assert "no command 'no-such-program'" in fault.message


def test_stopping_on_request_counts_nothing_as_broken(fabric: Fabric) -> None:
    watch = fabric.watch(fabric.plan(*[STAY] * 4))

    async def ask() -> None:
        await fabric.told(Happened.RUNNING)
        watch.stop()

    assert fabric.run(watch, ask) == [Happened.RUNNING, Happened.STOPPED]
    assert fabric.reports[-1].fault is None
    assert fabric.reports[-1].killed == 4
    assert fabric.nothing_is_left()


def test_a_stop_during_the_launch_leaves_nothing_that_starts_later(fabric: Fabric) -> None:
    watch = fabric.watch(fabric.plan(*[STAY] * 4))

    async def ask() -> None:
        watch.stop()

    assert fabric.run(watch, ask)[-1] is Happened.STOPPED
    assert fabric.nothing_is_left()


@pytest.mark.parametrize("way", [FaultKind.NODE_LOST, FaultKind.NODE_HUNG, FaultKind.PARTITION])
def test_a_lost_node_is_the_cause_even_when_a_rank_elsewhere_fails_first(
    fabric: Fabric, way: FaultKind
) -> None:
    fabric.parts["n1"].way = way
    plan = fabric.plan(
        STAY,
        "[time.sleep(0.01) for _ in iter(lambda: os.path.exists('cut'), True)]; 1/0",
        STAY,
        STAY,
    )

    async def lose() -> None:
        await fabric.told(Happened.RUNNING)
        fabric.parts["n1"].dead = "Ray says it is dead"
        (fabric.folder / "cut").touch()

    happened = fabric.run(fabric.watch(plan), lose)
    assert happened == [Happened.RUNNING, Happened.FAULT, Happened.STOPPED]
    stopped = fabric.reports[-1]
    assert stopped.fault is not None
    assert (stopped.fault.kind, stopped.fault.node) == (way, "n1")
    assert stopped.fault.node_at_fault
    assert stopped.lost == {"n1": "Ray says it is dead"}
    assert fabric.benches[0].runner.status("job", 1).phase is NodePhase.STOPPED


def test_a_refused_launch_stops_the_nodes_that_had_started(fabric: Fabric) -> None:
    fabric.benches[1].runner.stop("job", 5, 0.0)  # fences every attempt below
    fabric.run(fabric.watch(fabric.plan(*[STAY] * 4)))
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.node) == (FaultKind.LAUNCH_REFUSED, "n1")
    assert fabric.nothing_is_left()


def test_a_second_watch_takes_a_running_attempt_up_and_starts_nothing_twice(
    fabric: Fabric,
) -> None:
    plan = fabric.plan(
        *["[time.sleep(0.01) for _ in iter(lambda: os.path.exists('go'), True)]"] * 4
    )
    fabric.leave_running(plan)
    before = [p.pid for bench in fabric.benches for p in bench.runner.status("job", 1).ranks]

    async def let_them_end() -> None:
        (fabric.folder / "go").touch()

    assert fabric.run(fabric.watch(plan, started=True), let_them_end) == [Happened.SUCCEEDED]
    after = [p.pid for bench in fabric.benches for p in bench.runner.status("job", 1).ranks]
    assert before == after


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_what_broke_is_told_though_the_watch_before_was_killed_while_it_stopped_the_rest(
    fabric: Fabric, node: str
) -> None:
    plan = fabric.plan(*[STAY] * 4)
    fabric.leave_running(plan)
    victim = fabric.parts[node].runner.status("job", 1).ranks[1]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(
        lambda: fabric.parts[node].runner.status("job", 1).ranks[1].failed, 30, "it is known"
    )
    for part in fabric.parts.values():
        part.runner.stop("job", 1, 0.5)
    happened = fabric.run(fabric.watch(plan, started=True))
    assert happened == [Happened.FAULT, Happened.STOPPED]
    fault = fabric.reports[-1].fault
    assert fault is not None and (fault.kind, fault.node) == (FaultKind.RANK_SIGNAL, node)
    assert (fault.rank, fault.signal) == (victim.rank, signal.SIGKILL) and not fault.follows


def test_parts_that_somebody_else_had_stopped_are_told_as_such(fabric: Fabric) -> None:
    plan = fabric.plan(*[STAY] * 4)
    fabric.leave_running(plan)
    fabric.parts["n1"].runner.stop("job", 1, 0.5)
    fabric.run(fabric.watch(plan, started=True))
    fault = fabric.reports[-1].fault
    assert fault is not None and (fault.kind, fault.node) == (FaultKind.PART_STOPPED, "n1")


def test_taking_up_an_attempt_that_a_node_has_forgotten_is_a_fault(fabric: Fabric) -> None:
    happened = fabric.run(fabric.watch(fabric.plan(*[STAY] * 4), started=True))
    assert happened == [Happened.FAULT, Happened.STOPPED]
    assert fabric.reports[-1].fault is not None
    assert fabric.reports[-1].fault.kind is FaultKind.PART_FORGOTTEN


def test_taking_up_an_attempt_that_was_being_stopped_only_stops_it(fabric: Fabric) -> None:
    happened = fabric.run(fabric.watch(fabric.plan(*[STAY] * 4), stopping=True))
    assert happened == [Happened.STOPPED]
    assert fabric.nothing_is_left()


def test_a_broken_device_breaks_the_attempt_that_uses_it_and_explains_ranks_that_fail(
    fabric: Fabric,
) -> None:
    plan = fabric.plan(STAY, STAY, STAY, UNTIL.format("gone") + "; 1/0")
    watch = fabric.watch(plan)

    async def break_down() -> None:
        await fabric.told(Happened.RUNNING)
        watch.device_broken("n1", 7, "device 7 reports Xid 79")  # not one of this attempt's
        (fabric.folder / "gone").touch()
        watch.device_broken("n1", 1, "device 1 reports Xid 79")

    fabric.run(watch, break_down)
    fault = fabric.reports[-1].fault
    assert fault is not None
    assert (fault.kind, fault.node, fault.rank) == (FaultKind.DEVICE_ERROR, "n1", 3)
    assert fault.message == "device 1 reports Xid 79, on node n1 under rank 3"
    assert fault.node_at_fault and fabric.nothing_is_left()


HOUR_S = 3600.0


def ended(node: str, clock_s: float, *ranks: RankState) -> NodeStatus:
    return NodeStatus(
        job_id="job", attempt=1, node=node, phase=NodePhase.RUNNING, ranks=ranks, now_s=clock_s
    )


def test_the_first_of_two_failed_ranks_is_named_though_a_nodes_clock_is_an_hour_ahead() -> None:
    first = RankState(rank=2, pid=1, exited_s=1000.0 + HOUR_S, exit_code=3)
    second = RankState(rank=0, pid=1, exited_s=1000.5, exit_code=1)
    found = part_fault(ended("n1", 1001.0 + HOUR_S, first), now_s=1001.0)
    other = part_fault(ended("n0", 1001.0, second), now_s=1001.0)
    assert found is not None and other is not None
    assert root_cause(other, [found]).rank == 2


def test_a_rank_that_fails_while_it_is_stopped_is_no_cause_whatever_its_clock_says() -> None:
    stopped = RankState(rank=0, pid=1, exited_s=999.0, exit_code=1, stopping=True)
    behind = RankState(rank=1, pid=1, exited_s=1000.5 - HOUR_S, exit_code=1)
    earlier = RankState(rank=2, pid=1, exited_s=999.5 - HOUR_S, exit_code=1)
    status = ended("n0", 1001.0 - HOUR_S, stopped, behind, earlier)
    assert [fault.rank for fault in earlier_faults(status, 1000.0, 1001.0)] == [2]
