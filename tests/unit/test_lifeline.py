"""What the line between the daemon and a node tells, on one machine; cut cables: tests/fabric."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from railweave.agents.lifeline import Break, LifelineEnd, Lifelines, reaches
from waiting import wait_until

AGENT = """
import sys
from railweave.agents.lifeline import LifelineEnd
print(LifelineEnd("127.0.0.1").port, flush=True)
sys.stdin.read()
"""


class Daemon:
    """The daemon's ends, and how they broke."""

    def __init__(self) -> None:
        self.broken: queue.Queue[tuple[str, Break, int]] = queue.Queue()
        self.lines = Lifelines(lambda *told: self.broken.put(told), beat_s=0.02)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    yield found
    found.lines.close()


@pytest.fixture
def agent() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    yield process, int(process.stdout.readline())
    process.kill()
    process.communicate()


def test_an_agent_that_lives_is_heard_again_and_again(daemon: Daemon) -> None:
    end = LifelineEnd("127.0.0.1")
    assert daemon.lines.watch("n0", "127.0.0.1", end.port)
    assert daemon.lines.port("n0") == end.port
    first = daemon.lines.heard_at("n0")
    for _ in range(3):
        before = daemon.lines.heard_at("n0")
        assert before is not None
        wait_until(lambda: daemon.lines.heard_at("n0") > before, 30, "it is heard")  # noqa: B023
    assert first is not None and daemon.broken.empty()
    end.close()
    assert daemon.broken.get(timeout=30) == ("n0", Break.ENDED, end.port)
    assert daemon.lines.heard_at("n0") is None


def test_a_kernel_takes_connections_for_a_process_that_hangs_and_for_none_that_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody_accepts:
        port = nobody_accepts.getsockname()[1]
        assert reaches("127.0.0.1", port, 10.0, listening=True)
    assert not reaches("127.0.0.1", port, 10.0, listening=True)


def test_a_stopped_agent_is_silent_on_a_line_that_holds_and_is_heard_when_it_goes_on(
    daemon: Daemon, agent: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = agent
    lines = daemon.lines
    assert lines.watch("n0", "127.0.0.1", port)
    start = lines.heard_at("n0")
    wait_until(lambda: lines.heard_at("n0") != start, 30, "it is heard")
    os.kill(process.pid, signal.SIGSTOP)
    # Far longer than the kernel's patience with a machine that does not acknowledge.
    seen = wait_until(lambda: _silent_for(lines, 3.0), 60, "it is silent")
    assert daemon.broken.empty() and lines.port("n0") == port
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: lines.heard_at("n0") > seen, 30, "it is heard again")
    assert daemon.broken.empty()


def _silent_for(lines: Lifelines, silent_s: float) -> float | None:
    import time

    heard_at = lines.heard_at("n0")
    assert heard_at is not None
    return heard_at if time.monotonic() - heard_at > silent_s else None


def test_a_killed_agent_is_told_from_a_machine_out_of_reach(
    daemon: Daemon, agent: tuple[subprocess.Popen[str], int]
) -> None:
    process, port = agent
    assert daemon.lines.watch("n0", "127.0.0.1", port)
    process.kill()
    assert daemon.broken.get(timeout=30) == ("n0", Break.ENDED, port)
    process.wait()
    assert not daemon.lines.watch("n0", "127.0.0.1", port)
    assert reaches("127.0.0.1", port, 10.0)  # the machine says that nobody listens there


def test_a_line_to_an_agents_next_port_replaces_the_last_without_an_alarm(daemon: Daemon) -> None:
    first, second = LifelineEnd("127.0.0.1"), LifelineEnd("127.0.0.1")
    assert daemon.lines.watch("n0", "127.0.0.1", first.port)
    assert daemon.lines.watch("n0", "127.0.0.1", second.port)
    first.close()
    at = daemon.lines.heard_at("n0")
    wait_until(lambda: daemon.lines.heard_at("n0") != at, 30, "the second is heard")
    daemon.lines.drop("n0")
    second.close()
    assert daemon.broken.empty()


def test_strangers_take_no_more_than_their_share_of_an_agents_connections() -> None:
    end = LifelineEnd("127.0.0.1")
    callers = [socket.create_connection(("127.0.0.1", end.port), 10) for _ in range(65)]
    callers[-1].settimeout(30)
    assert callers[-1].recv(1) == b""
    callers[0].sendall(b"x" * 1000)
    callers[0].settimeout(30)
    assert set(callers[0].recv(1000)) == {ord("x")}
    for caller in callers:
        caller.close()
    end.close()
