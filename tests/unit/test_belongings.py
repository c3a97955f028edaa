"""Nothing of an attempt outlives it: processes however they hide, shared memory, ports, devices."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from node_bench import TOKEN, NodeBench, node_bench
from railweave.agents.belongings import Belongings
from railweave.agents.processes import process
from waiting import wait_until

# Shared memory of both kinds, a port, and a process that nobody can tell by its environment.
LEAVES = """
import ctypes, mmap, os, socket, sys, time
name = sys.argv[1]
handle = os.open(f"/dev/shm/{name}", os.O_CREAT | os.O_RDWR, 0o600)
os.ftruncate(handle, 4096)
kept = mmap.mmap(handle, 4096)
os.close(handle)
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0, 4096, 0o1600)
assert segment >= 0 and libc.shmat(segment, None, 0)
server = socket.create_server(("127.0.0.1", 0))
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.set_inheritable(writing, True)
        code = f"import os, time; os.write({writing}, str(os.getpid()).encode()); time.sleep(1000)"
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    os._exit(0)
hidden = os.read(reading, 100).decode()
with open("told.part", "w") as stream:
    stream.write(f"{segment} {server.getsockname()[1]} {hidden}")
os.rename("told.part", "told")
time.sleep(1000)
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as found:
        yield found


@pytest.fixture
def name() -> Iterator[str]:
    found = f"railweave-test-{os.getpid()}"
    yield found
    for each in (found, f"{found}-foreign"):
        Path("/dev/shm", each).unlink(missing_ok=True)


def started(bench: NodeBench, name: str) -> tuple[int, int, int]:
    """The segment, the port and the hidden process of an attempt that runs."""
    bench.launch(sys.executable, "-S", "-c", LEAVES, name)
    told = bench.folder / "told"
    wait_until(told.exists, 30, "the rank has made all of it")
    segment, port, hidden = map(int, told.read_text().split())
    assert process(hidden) is not None and TOKEN.encode() not in environment(hidden)
    return segment, port, hidden


def environment(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def segments() -> set[int]:
    rows = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(row.split()[1]) for row in rows}


def gone(pid: int) -> bool:
    found = process(pid)
    return found is None or found.state == "Z"


def test_a_stop_leaves_neither_a_hidden_process_nor_shared_memory(
    bench: NodeBench, name: str
) -> None:
    foreign = Path("/dev/shm", f"{name}-foreign")
    foreign.write_text("was there before")
    segment, _, hidden = started(bench, name)
    done = bench.runner.stop("job", 1, 0.2)
    assert done.survivors == done.kept == done.held == () and gone(hidden)
    assert set(done.freed) == {f"/dev/shm/{name}", f"System V segment {segment}"}
    assert not Path("/dev/shm", name).exists() and segment not in segments()
    assert foreign.exists()
    assert bench.runner.status("job", 1).freed == done.freed


def test_what_a_killed_guard_leaves_is_found_though_it_hides(bench: NodeBench, name: str) -> None:
    segment, port, hidden = started(bench, name)
    folder = bench.state_dir / "jobs" / "job" / "attempt-1"

    def noted() -> bool:
        found = Belongings.load(folder)
        return hidden in found.processes and port in found.ports.values()

    wait_until(noted, 60, "the guard has noted what its rank has")
    guard = bench.guard_pid()
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: gone(guard), 30, "the guard is dead")
    done = bench.runner.stop("job", 1, 0.2)
    assert done.survivors == () and gone(hidden)
    wait_until(lambda: bench.runner.status("job", 1).phase == "stopped", 30, "it is closed")
    assert set(bench.runner.status("job", 1).freed) == {
        f"/dev/shm/{name}",
        f"System V segment {segment}",
    }
    assert segment not in segments()


def test_shared_memory_that_others_use_is_left_to_them_and_told(
    bench: NodeBench, name: str
) -> None:
    started(bench, name)
    with Path("/dev/shm", name).open():
        done = bench.runner.stop("job", 1, 0.2)
        assert done.kept == (f"/dev/shm/{name} is used by process {os.getpid()}",)
        assert Path("/dev/shm", name).exists()
    assert f"/dev/shm/{name}" not in done.freed


def test_a_full_disk_keeps_no_attempt_from_being_stopped(bench: NodeBench, name: str) -> None:
    *_, hidden = started(bench, name)
    limits = resource.prlimit(bench.guard_pid(), resource.RLIMIT_FSIZE)
    resource.prlimit(bench.guard_pid(), resource.RLIMIT_FSIZE, (0, limits[1]))
    guard = bench.guard_pid()
    try:
        bench.runner.stop("job", 1, 0.2)
        assert gone(hidden) and not Path("/dev/shm", name).exists()
    finally:
        if not gone(guard):
            resource.prlimit(guard, resource.RLIMIT_FSIZE, limits)
    wait_until(lambda: bench.runner.status("job", 1).phase == "stopped", 60, "it is written")


class NvmlError(Exception):
    """What the driver refuses."""


def test_a_device_that_is_not_free_after_the_stop_is_told_with_who_holds_it(
    bench: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [SimpleNamespace(pid=4711)]
    bench.runner._nvml = SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(free=2**30, total=2**30),
        nvmlDeviceGetComputeRunningProcesses=lambda handle: used,
    )
    monkeypatch.setattr("railweave.agents.runner._DEVICES_FREE_S", 0.3)
    bench.launch("sleep", "1000")
    done = bench.runner.stop("job", 1, 0.0)
    assert done.held == ("device 0 has 1.0 of 1.0 GiB of memory free, process 4711 uses it",)
    used.clear()
    assert bench.runner.stop("job", 1, 0.0).held == ()
