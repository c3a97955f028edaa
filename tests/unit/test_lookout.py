"""What guards find wrong with their ranks, with real processes: bad losses, memory running out."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_bench import NodeBench, node_bench
from railweave.agents.attempt import NodeStatus
from railweave.scheduler.fault import Fault, FaultKind, part_fault
from waiting import wait_until

LOSSES = """
import math, sys, time
from railweave.agents import report
for step in range(int(sys.argv[1])):
    report(step, loss=math.nan if step >= int(sys.argv[2]) else 1.0)
open("reported", "w").write("yes\\n")
time.sleep(1000)
"""
# Joins a cgroup, waits until its guard can have seen it there, and fills its memory.
GREEDY = """
import os, sys, time
for path in sys.argv[1:]:
    open(path, "w").write(str(os.getpid()))
open("joined", "w").write("yes\\n")
while not os.path.exists("go"):
    time.sleep(0.01)
held = [bytearray(b"x" * 2**20) for _ in range(400)]
time.sleep(1000)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as bench:
        yield bench


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup for 100 MB of memory."""
    root = Path("/sys/fs/cgroup")
    if (root / "memory").is_dir():
        folder, limits = root / "memory", ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    else:
        folder, limits = root, ("memory.max", "memory.swap.max")
    folder = folder / f"railweave-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
        for name, limit in zip(limits, (100_000_000, 100_000_000), strict=True):
            if (folder / name).exists():
                (folder / name).write_text("0" if "swap.max" in name else str(limit))
        assert (folder / limits[0]).exists()
    except (OSError, AssertionError):
        if folder.is_dir():
            folder.rmdir()
        pytest.skip("no memory cgroup can be made here")
    yield folder
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), 30, "the cgroup is empty")
    folder.rmdir()


def fault_of(bench: NodeBench) -> Fault:
    def found() -> Fault | None:
        return part_fault(bench.runner.status("job", 1), 0.0)

    return wait_until(found, 30, "something is found wrong")


def losses(bench: NodeBench, steps: int, bad_from: int, **env: str) -> NodeStatus:
    more = {**bench.launch_of("true").env, **env}
    command = (sys.executable, "-c", LOSSES, str(steps), str(bad_from))
    bench.launch(*command, env=more)
    bench.wait_for_file("reported")
    return bench.runner.status("job", 1)


def test_ten_losses_in_a_row_that_are_no_numbers_are_found_with_the_first_step(
    node: NodeBench,
) -> None:
    losses(node, 40, 30)
    fault = fault_of(node)
    assert (fault.kind, fault.rank, fault.step) == (FaultKind.NAN_LOSS, 0, 30)
    assert "no finite loss for 10 steps in a row, after step 30" in fault.message
    assert fault.happened_s is not None


@pytest.mark.parametrize(("bad_from", "limit"), [(31, ""), (0, "0"), (0, "41")])
def test_fewer_bad_losses_than_the_limit_are_borne(
    node: NodeBench, bad_from: int, limit: str
) -> None:
    before = losses(node, 40, bad_from, **({"RAILWEAVE_NAN_LOSS_LIMIT": limit} if limit else {}))

    def looked_at() -> NodeStatus | None:
        status = node.runner.status("job", 1)
        ages = [each.report_age_s or 0.0 for each in status.rank_vitals()]
        return status if ages and ages[0] > 1.5 else None

    status = wait_until(looked_at, 30, "the guard has looked twice since the last report")
    assert part_fault(status, 0.0) is None
    assert status.seq == before.seq


def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_told_from_others(
    node: NodeBench, small_cgroup: Path
) -> None:
    node.launch(sys.executable, "-S", "-c", GREEDY, str(small_cgroup / "cgroup.procs"))
    node.wait_for_file("joined")
    # Two looks later the guard knows its cgroup.
    wait_until(
        lambda: [v for v in node.runner.status("job", 1).rank_vitals() if v.quiet_s > 2.5],
        30,
        "the guard has looked twice",
    )
    (node.folder / "go").touch()
    fault = fault_of(node)
    assert (fault.kind, fault.rank) == (FaultKind.OUT_OF_MEMORY, 0)
    assert "killed for want of memory: the kernel killed 1 in its cgroup" in fault.message
    assert "the limit is 0.09 GiB" in fault.message
    assert node.ended().ranks[0].signal == signal.SIGKILL


def test_another_sigkill_is_a_signal(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    (rank,) = node.runner.status("job", 1).ranks
    assert rank.pid
    os.kill(rank.pid, signal.SIGKILL)
    assert fault_of(node).kind is FaultKind.RANK_SIGNAL


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.", "out_of_memory"),
        ("RuntimeError: CUDA error: out of memory", "out_of_memory"),
        ("MemoryError", "out_of_memory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory"),
        ("ValueError: the batch is out of memory order", "rank_exit"),
        ("RuntimeError: Connection reset by peer", "rank_exit"),
    ],
)
def test_a_rank_that_says_that_memory_ran_out_is_believed(said: str, kind: str) -> None:
    rank = {"rank": 3, "pid": 9, "exited_s": 5.0, "exit_code": 1, "last_lines": ("Traceback", said)}
    status = NodeStatus.model_validate(
        {"job_id": "job", "attempt": 1, "node": "n0", "phase": "ended", "ranks": [rank]}
    )
    fault = part_fault(status, 6.0)
    assert fault is not None
    assert (fault.kind, fault.exit_code) == (FaultKind(kind), 1)
    if kind == "out_of_memory":
        assert said in fault.message
