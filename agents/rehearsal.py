"""Runs a training program so that faults can be brought about inside of it, at a step.

    python -m railweave.agents.rehearsal train.py --its --options
    python -m railweave.agents.rehearsal -m package.train
    python -m railweave.agents.rehearsal -c "code"

What cannot be done to a process from outside is done here: an exception, an exit code, memory that
runs out, an interpreter lock that is held, slow computing, a loss that is no number, a clock that
jumps. Orders come over a socket that only this user and this machine can reach, and are carried
out within the program's next `railweave.agents.report`, in its main thread. Without an order the
program runs as it would without this. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, SupportsFloat, SupportsIndex, cast

from .. import agents
from . import progress

WORK_S = 0.002
"""How long a slow rank computes before it is held up again."""
_SPARE_BYTES = 48 << 20
_LINE_BYTES = 4096
_real_time = time.time
_KINDS = frozenset({"exit", "raise", "memory", "gil", "slow", "nan", "clock"})


def socket_name(pid: int) -> str:
    """The abstract Unix socket on which a rehearsed process takes orders."""
    return f"\0railweave-rehearsal-{pid}"


class InjectedFault(RuntimeError):
    """Raised in the program because somebody asked for it."""


@dataclass
class Order:
    """Something to do. do: one of _KINDS. at_step: once that step has been reported.

    value: an exit code; seconds to hold the lock; how many times slower; seconds that the clock
    jumps. text: of the exception.
    """

    do: str
    at_step: int | None
    value: float
    text: str
    connection: socket.socket

    def due(self, step: int) -> bool:
        """Whether its step is there."""
        return self.at_step is None or step >= self.at_step

    def answer(self, told: dict[str, Any]) -> bool:
        """Tell who asked what becomes of it; False when they are gone."""
        try:
            self.connection.sendall(json.dumps(told).encode() + b"\n")
        except OSError:
            return False
        finally:
            self.connection.close()
        return True


class Rehearsal:
    """The orders of this process, and what stays in force of those carried out."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._orders: list[Order] = []
        self._nan = False
        self._report = progress.report

    def listen(self) -> None:
        """Take orders from now on, in a thread."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(socket_name(os.getpid()))
        listener.listen(8)
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            if _of_this_user(connection):
                self._take(connection)
            else:
                connection.close()

    def _take(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(5.0)
            order = _read(connection)
        except (OSError, ValueError, TypeError, KeyError) as error:
            with suppress(OSError):
                connection.sendall(json.dumps({"error": f"no order: {error!r}"}).encode() + b"\n")
            connection.close()
            return
        with self._mutex:
            self._orders.append(order)

    def report(
        self,
        step: SupportsIndex,
        loss: SupportsFloat | None = None,
        compute_s: SupportsFloat | None = None,
    ) -> None:
        """In place of `railweave.agents.report`: report the step, then do what is due."""
        number = step.__index__()
        self._report(number, math.nan if self._nan and loss is not None else loss, compute_s)
        for order in self._due(number):
            if order.do == "nan" and loss is None:
                order.answer({"error": "it reports no loss, so none can be NaN"})
            elif order.answer({"at_s": _real_time(), "step": number}):
                # An order of somebody who has gone away meanwhile is none any more.
                self._nan = self._nan or order.do == "nan"
                _do(order)

    def _due(self, step: int) -> list[Order]:
        with self._mutex:
            due = [order for order in self._orders if order.due(step)]
            self._orders = [order for order in self._orders if not order.due(step)]
        return due


def _read(connection: socket.socket) -> Order:
    with connection.makefile("rb") as stream:
        told = json.loads(stream.readline(_LINE_BYTES))
    if told["do"] not in _KINDS:
        raise ValueError(f"{told['do']!r} is none of {', '.join(sorted(_KINDS))}")
    at_step = told.get("at_step")
    return Order(
        do=told["do"],
        at_step=None if at_step is None else int(at_step),
        value=float(told.get("value", 0.0)),
        text=str(told.get("text", "")),
        connection=connection,
    )


def _of_this_user(connection: socket.socket) -> bool:
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", told)[1] == os.geteuid())


def _do(order: Order) -> None:
    """Carry an order out, in the main thread."""
    if order.do == "exit":
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(int(order.value))
    if order.do == "raise":
        raise InjectedFault(order.text or "a fault that was asked for")
    if order.do == "memory":
        _run_out_of_memory()
    if order.do == "gil":
        # Unlike other calls of C functions, one through PyDLL keeps the interpreter's lock.
        ctypes.PyDLL(None).sleep(math.ceil(order.value))
    if order.do == "slow":
        _slow_down(order.value)
    if order.do == "clock":
        vars(time)["time"] = lambda: _real_time() + order.value


def _run_out_of_memory() -> None:
    """Ask for memory beyond a limit that is set for this process; raises MemoryError."""
    with open("/proc/self/statm") as stream:
        used_bytes = int(stream.read().split()[0]) * os.sysconf("SC_PAGESIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + _SPARE_BYTES, hard))
    kept = []
    try:
        while True:
            kept.append(bytearray(1 << 20))
    finally:
        kept.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _slow_down(times: float) -> None:
    """Hold the main thread up after every WORK_S of work, so that it is so many times slower."""

    def hold_up(*_: object) -> None:
        time.sleep(WORK_S * max(0.0, times - 1))
        signal.setitimer(signal.ITIMER_REAL, WORK_S)

    signal.signal(signal.SIGALRM, hold_up)
    signal.setitimer(signal.ITIMER_REAL, WORK_S)


def main(arguments: Sequence[str]) -> None:
    """Run the program that the arguments name, under rehearsal."""
    if not arguments:
        raise SystemExit("give a program: python -m railweave.agents.rehearsal PROGRAM ...")
    rehearsal = Rehearsal()
    progress.report = cast(Any, rehearsal.report)
    agents.report = cast(Any, rehearsal.report)
    rehearsal.listen()
    first, *rest = arguments
    if first == "-m":
        sys.argv = rest
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, os.getcwd())
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
