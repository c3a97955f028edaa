"""Keeper: a small process that holds the nodes of an embedded cluster and leaves nothing behind.

Below it stands one holder a node: a subreaper, so that every process of the node stays below it
however it was detached. Killing what is below a holder is the node's power loss. The keeper ends
everything when it is told to, when its owner goes away (its standard input closes), or on SIGTERM;
a holder ends its node when the keeper goes away. Runs on the standard library only.

Spoken over a Unix socket, one JSON object a line each way; see `_Keeper.answer`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..agents import processes
from ..agents.processes import Process

SOCKET_NAME = "keeper.sock"
_END_DEADLINE_S = 20.0
_TERMINATING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class _Node:
    """A held node: its holder, the pipe that keeps the holder waiting, and the command it ran."""

    holder: Process
    lifeline: int
    command: Process

    def below(self) -> list[Process]:
        found = processes.below([self.holder.pid], processes.table())
        return [entry for entry in found if entry.state != "Z"]


class _Wakeup:
    """A file descriptor that becomes readable with each signal, so that select sees them."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self.reader, writer = os.pipe()
        for end in (self.reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

    def drain(self) -> set[int]:
        """The signals that came since the last call."""
        with contextlib.suppress(BlockingIOError):
            return set(os.read(self.reader, 4096))
        return set()


def main(arguments: list[str]) -> int:
    """Keep nodes for the directory `arguments[0]`, which is removed at the end."""
    directory = Path(arguments[0])
    processes.set_name("rw-keeper")
    keeper = _Keeper(directory)
    try:
        keeper.serve()
    finally:
        survivors = keeper.end_all()
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if survivors else 0


class _Keeper:
    """Holds nodes by name until it ends."""

    def __init__(self, directory: Path) -> None:
        self.nodes: dict[str, _Node] = {}
        self.owner: int | None = sys.stdin.fileno()
        self.ended = False
        self.wakeup = _Wakeup(signal.SIGCHLD, *_TERMINATING)
        self.listener = socket.socket(socket.AF_UNIX)
        # Who finds the socket by its name finds it listening.
        fresh = directory / f"{SOCKET_NAME}.new"
        self.listener.bind(os.fspath(fresh))
        self.listener.listen(8)
        fresh.rename(directory / SOCKET_NAME)

    def serve(self) -> None:
        """Answer until told to end, the owner is gone, or a terminating signal comes."""
        while not self.ended:
            watched = [self.listener.fileno(), self.wakeup.reader]
            watched += [] if self.owner is None else [self.owner]
            ready, _, _ = select.select(watched, [], [])
            if self.wakeup.reader in ready and self.wakeup.drain() & set(_TERMINATING):
                return
            if self.owner in ready and not os.read(self.owner or 0, 4096):
                return
            self.reap()
            if self.listener.fileno() in ready:
                self._converse()

    def _converse(self) -> None:
        connection, _ = self.listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            with connection.makefile("rw", encoding="utf-8") as stream:
                line = stream.readline()
                try:
                    reply = self.answer(json.loads(line))
                except (KeyError, TypeError, ValueError, OSError) as error:
                    reply = {"error": f"{type(error).__name__}: {error}"}
                stream.write(json.dumps(reply) + "\n")

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a request comes to.

        start {name, argv, env, log}: run a node; kill {name}: SIGKILL all of it at once;
        stop, resume {name}: SIGSTOP, SIGCONT all of it; status: which nodes' commands run;
        detach: stay when the owner goes; end: end every node and then the keeper.
        """
        verb = request["verb"]
        if verb == "start":
            return self.start(request["name"], request["argv"], request["env"], request["log"])
        if verb == "kill":
            node = self.nodes.pop(request["name"])
            return {"killed": _freeze(node), "survivors": _end(node)}
        if verb == "stop":
            return {"stopped": _freeze(self.nodes[request["name"]])}
        if verb == "resume":
            entries = self.nodes[request["name"]].below()
            return {"resumed": sum(processes.send_signal(e, signal.SIGCONT) for e in entries)}
        if verb == "status":
            self.reap()
            return {"running": {name: _alive(node.command) for name, node in self.nodes.items()}}
        if verb == "detach":
            self.owner = None
            return {}
        if verb == "end":
            self.ended = True
            return {"survivors": self.end_all()}
        raise ValueError(f"no verb {verb!r}")

    def start(self, name: str, argv: list[str], env: dict[str, str], log: str) -> dict[str, Any]:
        """Fork a holder that runs `argv`; refuses a name that is held already."""
        if name in self.nodes:
            raise ValueError(f"node {name!r} runs already")
        lifeline_read, lifeline_write = os.pipe()
        told_read, told_write = os.pipe()
        holder = os.fork()
        if holder == 0:
            os.close(told_read)
            os.close(lifeline_write)
            self.listener.close()
            for node in self.nodes.values():
                os.close(node.lifeline)
            _hold(name, argv, env, log, lifeline_read, told_write)
        os.close(lifeline_read)
        os.close(told_write)
        with os.fdopen(told_read) as stream:
            told = stream.read()
        held = processes.process(holder)
        if held is None or not told:
            os.close(lifeline_write)
            raise OSError(f"node {name!r} could not be started; its log says why")
        # From the holder, for whom a command that has ended already is still there.
        command = Process(*json.loads(told))
        self.nodes[name] = _Node(held, lifeline_write, command)
        return {"pid": command.pid}

    def reap(self) -> None:
        """Collect holders whose nodes ended by themselves; their names become free."""
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                for name, node in list(self.nodes.items()):
                    if node.holder.pid == pid:
                        os.close(node.lifeline)
                        del self.nodes[name]

    def end_all(self) -> list[int]:
        """End every node, workers' nodes before the first one; the pids that could not be."""
        held, self.nodes = list(self.nodes.values()), {}
        for node in reversed(held):
            _freeze(node)
        return [pid for node in reversed(held) for pid in _end(node)]


def _alive(entry: Process) -> bool:
    found = processes.process(entry.pid)
    return found is not None and found.start_ticks == entry.start_ticks and found.state != "Z"


def _freeze(node: _Node) -> int:
    """SIGSTOP everything below the holder until nothing new appears; how many there are."""
    stopped: set[tuple[int, int]] = set()
    while new := [e for e in node.below() if (e.pid, e.start_ticks) not in stopped]:
        for entry in new:
            processes.send_signal(entry, signal.SIGSTOP)
            stopped.add((entry.pid, entry.start_ticks))
    return len(stopped)


def _end(node: _Node) -> list[int]:
    """SIGKILL everything below the holder, then see the holder itself end."""
    _, survivors = processes.end_all(node.below, _END_DEADLINE_S)
    os.close(node.lifeline)
    for _ in _until(_END_DEADLINE_S):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(node.holder.pid, os.WNOHANG)[0] == 0:
                continue
        break
    return list(survivors)


def _until(deadline_s: float) -> Iterator[None]:
    give_up = time.monotonic() + deadline_s
    while time.monotonic() < give_up:
        yield
        time.sleep(0.005)


def _hold(
    name: str, argv: list[str], env: dict[str, str], log: str, lifeline: int, told: int
) -> None:
    """The holder: run the node's command and outlast everything below; never returns."""
    try:
        os.setsid()
        processes.become_subreaper()
        processes.set_name(f"rw-{name}")
        wakeup = _Wakeup(signal.SIGCHLD)
        for number in _TERMINATING:
            signal.signal(number, signal.SIG_IGN)
        command = processes.process(_spawn(argv, env, log))
        if command is not None:
            os.write(told, json.dumps(astuple(command)).encode())
        os.close(told)
        _outlast(lifeline, wakeup)
    except OSError as error:
        Path(log).write_text(f"{argv[0]} could not be run: {error}\n", encoding="utf-8")
    finally:
        os._exit(0)


def _spawn(argv: list[str], env: dict[str, str], log: str) -> int:
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    # Python ignores SIGPIPE, and what is ignored stays ignored across exec.
    defaults = (*_TERMINATING, signal.SIGPIPE, signal.SIGXFSZ)
    return os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=defaults)


def _outlast(lifeline: int, wakeup: _Wakeup) -> None:
    """Reap until nothing is left below; end it all when the keeper is gone."""
    while _something_left():
        ready, _, _ = select.select([lifeline, wakeup.reader], [], [], 1.0)
        wakeup.drain()
        if lifeline in ready:
            processes.end_all(_below_this, 1.0)


def _below_this() -> list[Process]:
    return processes.below([os.getpid()], processes.table())


def _something_left() -> bool:
    """Reap what has ended; whether this process still has any child, zombies aside."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
