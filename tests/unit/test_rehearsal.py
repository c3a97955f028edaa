"""A rehearsed program does to itself what it is told, at the step, and else runs as always."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from railweave.agents import processes, progress
from railweave.agents.rehearsal import socket_name
from waiting import wait_until

LOOP = """
import os, sys, time
from railweave.agents import report
step = 0
while step < int(sys.argv[1]):
    step += 1
    began = time.monotonic()
    total = sum(sum(range(1000)) for _ in range(300))
    report(step, loss=1.0, compute_s=time.monotonic() - began)
    print("step", step, time.time(), flush=True)
    time.sleep(0.01)
print("end", *sys.argv[1:])
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the loop under rehearsal; it reports into `tmp_path / "progress"`."""
    started = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        where = tmp_path / "progress"
        assert progress.create(where)
        child = subprocess.Popen(
            [sys.executable, "-m", "railweave.agents.rehearsal", *arguments],
            env={**os.environ, progress.VARIABLE: str(where)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(child)
        return child

    yield begin
    for child in started:
        child.kill()
        child.communicate()


def told(path: Path) -> progress.Progress | None:
    return progress.read(path / "progress")


def order(pid: int, **fields: Any) -> dict[str, Any]:
    def connected() -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(socket_name(pid))
        except ConnectionRefusedError:
            connection.close()
            return None
        return connection

    with wait_until(connected, 60, "the process takes orders") as connection:
        connection.settimeout(60)
        connection.sendall(json.dumps(fields).encode() + b"\n")
        with connection.makefile("rb") as stream:
            found: dict[str, Any] = json.loads(stream.readline())
            return found


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = child.communicate(timeout=60)
    return child.returncode, said


def test_without_an_order_the_program_runs_as_always(start: Start, tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    for words in (["loop.py", "3", "more"], ["-m", "loop", "3", "more"], ["-c", LOOP, "3", "more"]):
        said, wrong = start(*words).communicate(timeout=60)
        assert said.splitlines()[-1] == "end 3 more" and wrong == ""
        found = told(tmp_path)
        assert found is not None and found.step == 3


def test_an_exit_code_and_an_exception_come_at_their_step(start: Start, tmp_path: Path) -> None:
    child = start("-c", LOOP, "100000")
    answer = order(child.pid, do="exit", at_step=40, value=7)
    assert answer["step"] >= 40
    assert ended(child)[0] == 7
    found = told(tmp_path)
    assert found is not None and found.step == answer["step"]
    child = start("-c", LOOP, "100000")
    order(child.pid, do="raise", text="for the test")
    code, said = ended(child)
    assert code == 1
    assert said.splitlines()[-1] == "railweave.agents.rehearsal.InjectedFault: for the test" or (
        said.splitlines()[-1] == "InjectedFault: for the test"
    )


def test_memory_runs_out_as_it_does_in_python(start: Start) -> None:
    child = start("-c", LOOP, "100000")
    order(child.pid, do="memory")
    code, said = ended(child)
    assert code == 1 and said.splitlines()[-1].startswith("MemoryError")


def test_the_lock_is_held_from_inside(start: Start, tmp_path: Path) -> None:
    child = start("-c", LOOP, "100000")
    assert "at_s" in order(child.pid, do="gil", value=500)
    found = processes.process(child.pid)
    assert found is not None and found.state in "SR"
    child.send_signal(signal.SIGTERM)
    assert ended(child)[0] == -signal.SIGTERM


def test_a_loss_is_no_number_any_more_from_its_step_on(start: Start, tmp_path: Path) -> None:
    child = start("-c", LOOP, "100000")
    order(child.pid, do="nan")

    def bad() -> int:
        found = told(tmp_path)
        return found.bad_losses if found is not None else 0

    wait_until(lambda: bad() >= 10, 60, "ten losses in a row are none")


def test_computing_takes_many_times_as_long(start: Start, tmp_path: Path) -> None:
    child = start("-c", LOOP, "100000")
    # After every 2 ms of work it is held up for a second.
    order(child.pid, do="slow", value=501)

    def held_up() -> bool:
        found = told(tmp_path)
        entries = found.entries if found is not None else ()
        return any((entry.compute_s or 0.0) >= 0.99 for entry in entries)

    wait_until(held_up, 60, "a step takes a second")


def test_the_wall_clock_jumps_for_the_program_alone(start: Start) -> None:
    child = start("-c", LOOP, "100000")
    assert child.stdout is not None
    at_s = order(child.pid, do="clock", value=86400)["at_s"]
    times = (float(line.split()[2]) for line in child.stdout)
    assert next(time_s for time_s in times if time_s > at_s + 80000) < at_s + 90000


@pytest.mark.parametrize("line", [b"", b"no json\n", b"[]\n", b'{"do": "dance"}\n', b'{"at": 1}\n'])
def test_what_is_no_order_is_refused_and_the_program_goes_on(start: Start, line: bytes) -> None:
    child = start("-c", LOOP, "100000")
    assert "at_s" in order(child.pid, do="clock", value=0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(socket_name(child.pid))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            assert "no order" in json.loads(stream.readline())["error"]
    assert "at_s" in order(child.pid, do="clock", value=0)


def test_an_order_whose_sender_has_gone_is_none_any_more(start: Start) -> None:
    child = start("-c", LOOP, "60")
    assert "at_s" in order(child.pid, do="clock", value=0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(socket_name(child.pid))
        connection.sendall(b'{"do": "exit", "value": 3, "at_step": 50}\n')
    assert ended(child)[0] == 0
