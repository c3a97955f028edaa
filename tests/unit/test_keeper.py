"""The keeper's promises, with plain processes in place of Ray's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from railweave.agents import processes
from railweave.scheduler.embedded import EmbeddedCluster, EmbeddedNode
from railweave.scheduler.keeper import SOCKET_NAME
from waiting import wait_until

# A node whose processes try to get away: one in a session of its own, one with a dead parent.
NODE = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "601"])
    os._exit(0)
os.wait()
print("ready", flush=True)
time.sleep(600)
"""


class Keeper:
    """A keeper process and the test's end of its socket and lifeline."""

    def __init__(self, logs: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="rwk-", dir="/tmp"))
        self.logs = logs
        self.child = subprocess.Popen(
            [sys.executable, "-m", "railweave.scheduler.keeper", str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        wait_until((self.directory / SOCKET_NAME).exists, 30, "the keeper's socket is there")

    def ask(self, **request: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(self.directory / SOCKET_NAME))
            with connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                reply: dict[str, Any] = json.loads(stream.readline())
        return reply

    def start_node(self, name: str) -> list[processes.Process]:
        """Start a node; its processes once all of them are there."""
        log = self.logs / f"{name}.log"
        before = {entry.pid for entry in self.below()}
        argv = [sys.executable, "-c", NODE]
        assert "pid" in self.ask(
            verb="start", name=name, argv=argv, env=dict(os.environ), log=str(log)
        )
        wait_until(lambda: log.exists() and "ready" in log.read_text(), 30, f"{name} is ready")
        return [entry for entry in self.below() if entry.pid not in before]

    def below(self) -> list[processes.Process]:
        return processes.below([self.child.pid], processes.table())


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    held = Keeper(tmp_path)
    below: list[processes.Process] = []
    try:
        yield held
        below = held.below()
    finally:
        assert held.child.stdin is not None
        held.child.stdin.close()
        held.child.wait(20)
        gone(below)
        if held.child.returncode == -signal.SIGKILL:
            shutil.rmtree(held.directory)
        assert not held.directory.exists()


def alive(entry: processes.Process) -> bool:
    found = processes.process(entry.pid)
    return found is not None and found.start_ticks == entry.start_ticks and found.state != "Z"


def gone(entries: list[processes.Process]) -> None:
    wait_until(lambda: not any(map(alive, entries)), 30, "every process is gone")


def test_power_loss_takes_detached_processes_too_and_no_other_node(keeper: Keeper) -> None:
    first, second = keeper.start_node("a"), keeper.start_node("b")
    assert len(first) == len(second) == 4  # the holder, the command and two that ran away
    assert keeper.ask(verb="kill", name="a") == {"killed": 3, "survivors": []}
    assert not any(map(alive, first))
    assert all(map(alive, second))


def test_a_killed_node_can_be_started_again_under_its_name(keeper: Keeper) -> None:
    keeper.start_node("a")
    keeper.ask(verb="kill", name="a")
    assert all(map(alive, keeper.start_node("a")))


def test_a_name_is_held_once(keeper: Keeper) -> None:
    keeper.start_node("a")
    reply = keeper.ask(verb="start", name="a", argv=["/bin/true"], env={}, log=os.devnull)
    assert "'a' runs already" in reply["error"]


def test_a_stopped_node_stands_still_until_resumed(keeper: Keeper) -> None:
    _, *node = keeper.start_node("a")
    assert keeper.ask(verb="stop", name="a")["stopped"] == 3

    def states() -> set[str]:
        found = [processes.process(entry.pid) for entry in node]
        return {entry.state for entry in found if entry is not None}

    wait_until(lambda: states() == {"T"}, 30, "all are stopped")
    assert keeper.ask(verb="resume", name="a")["resumed"] == 3
    wait_until(lambda: "T" not in states(), 30, "none is stopped")


def test_a_stopped_node_can_lose_power(keeper: Keeper) -> None:
    node = keeper.start_node("a")
    keeper.ask(verb="stop", name="a")
    assert keeper.ask(verb="kill", name="a")["survivors"] == []
    assert not any(map(alive, node))


def test_a_command_that_cannot_run_is_an_error_with_its_reason_in_the_log(keeper: Keeper) -> None:
    log = keeper.logs / "x.log"
    reply = keeper.ask(verb="start", name="x", argv=["/no/such"], env={}, log=str(log))
    assert "could not be started" in reply["error"]
    assert "/no/such could not be run" in log.read_text()


def test_a_command_that_ends_at_once_was_started_all_the_same(keeper: Keeper) -> None:
    for number in range(20):
        reply = keeper.ask(
            verb="start", name=f"a{number}", argv=["/bin/true"], env={}, log=os.devnull
        )
        assert reply.keys() == {"pid"}


def test_status_tells_a_node_that_ended_by_itself(keeper: Keeper) -> None:
    keeper.ask(verb="start", name="a", argv=["/bin/true"], env={}, log=os.devnull)
    keeper.start_node("b")
    wait_until(
        lambda: keeper.ask(verb="status")["running"] == {"b": True}, 30, "a's end has been noticed"
    )


@pytest.mark.parametrize("how", ["owner gone", "SIGTERM", "told to", "keeper killed"])
def test_nothing_is_left_however_it_ends(keeper: Keeper, how: str) -> None:
    keeper.start_node("a")
    keeper.start_node("b")
    everything = keeper.below()
    assert len(everything) == 8
    if how == "owner gone":
        assert keeper.child.stdin is not None
        keeper.child.stdin.close()
    elif how == "SIGTERM":
        keeper.child.terminate()
    elif how == "told to":
        assert keeper.ask(verb="end") == {"survivors": []}
    else:
        keeper.child.kill()
    gone(everything)
    keeper.child.wait(10)
    assert keeper.directory.exists() == (how == "keeper killed")


def test_a_detached_keeper_outlives_its_owner(keeper: Keeper) -> None:
    node = keeper.start_node("a")
    assert keeper.ask(verb="detach") == {}
    assert keeper.child.stdin is not None
    keeper.child.stdin.close()
    assert keeper.ask(verb="status") == {"running": {"a": True}}
    assert all(map(alive, node))
    keeper.child.terminate()
    gone(node)


@pytest.mark.parametrize(
    "request_", [{"verb": "no"}, {"verb": "kill", "name": "?"}, {}, {"verb": "start"}]
)
def test_a_wrong_request_is_answered_and_changes_nothing(
    keeper: Keeper, request_: dict[str, Any]
) -> None:
    node = keeper.start_node("a")
    assert "error" in keeper.ask(**request_)
    assert all(map(alive, node))


def test_a_cluster_that_was_stopped_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a node says when it is up, without the seconds that Ray takes for it.
    command = ["/bin/sh", "-c", "echo Ray runtime started; exec sleep 600"]
    monkeypatch.setattr("railweave.scheduler.embedded.start_command", lambda *_: command)
    cluster = EmbeddedCluster([EmbeddedNode("a", 1)])
    for _ in range(2):
        with cluster:
            assert cluster.node_names == ("a",)
            token = Path(cluster.environment()["RAY_AUTH_TOKEN_PATH"])
            assert token.exists()
        assert cluster.node_names == ()
        assert not token.exists() and not cluster.state_dir.exists()
        cluster.stop()
