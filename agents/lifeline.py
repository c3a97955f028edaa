"""A line between the daemon and each node that tells a dead machine from a busy or a hung one.

The daemon sends a byte a few times a second. The machine's kernel acknowledges it, however busy its
processes are, and however they were stopped; a thread of the node's agent sends it back. So no
acknowledgement means that the machine or the way to it is gone, and no echo that its processes
hang. The kernel sends lost bytes again, so that one lost packet is no alarm; nor is a process at
either end that stands still for a while.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from .bound_socket import family, listening

BEAT_S = 0.25
"""How often a byte is sent on each line."""
UNREACHABLE_S = 1.8
"""How long nothing must have been acknowledged; TCP sends it again a few times meanwhile."""
_MOST_BEATS_PER_S = 4000
_MOST_CALLERS = 64
_CHUNK = 4096
_CONNECT_S = 2.0
_UNACKED_BEATS = 4
# `struct tcp_info` of linux/tcp.h: tcpi_unacked, and tcpi_last_ack_recv in milliseconds.
_INFO_BYTES = 104
_UNACKED_AT, _LAST_ACK_AT = 24, 56
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


class Break(StrEnum):
    """How a line broke."""

    OUT_OF_REACH = "out_of_reach"
    """Nothing was acknowledged any more: the machine has no power, or the way to it is cut."""
    ENDED = "ended"
    """The machine answered that the process at its end is gone."""


class LifelineEnd:
    """The agent's end: sends back what comes, from a thread of its own."""

    def __init__(self, address: str) -> None:
        self._server = listening(address, None, backlog=_MOST_CALLERS)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._waker, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="lifeline", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on everybody."""
        self._waker.close()
        self._thread.join()

    def _serve(self) -> None:
        callers: set[socket.socket] = set()
        with selectors.DefaultSelector() as selector, self._woken:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._server, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    caller = key.fileobj
                    assert isinstance(caller, socket.socket)
                    if caller is self._woken:
                        for each in (*callers, self._server):
                            each.close()
                        return
                    if caller is self._server:
                        self._take(selector, callers)
                    elif not _sent_back(caller):
                        selector.unregister(caller)
                        callers.discard(caller)
                        caller.close()

    def _take(self, selector: selectors.BaseSelector, callers: set[socket.socket]) -> None:
        with contextlib.suppress(OSError):
            caller, _ = self._server.accept()
            if len(callers) >= _MOST_CALLERS:
                caller.close()
                return
            caller.setblocking(False)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A daemon whose machine is gone must not keep its place for ever.
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            callers.add(caller)
            selector.register(caller, selectors.EVENT_READ)


def _sent_back(caller: socket.socket) -> bool:
    try:
        told = caller.recv(_CHUNK)
        if told:
            caller.send(told[-1:])  # what piled up while this process hung is one sign of life
    except BlockingIOError:
        return True
    except OSError:
        return False
    return bool(told)


def reaches(address: str, port: int, timeout_s: float, *, listening: bool = False) -> bool:
    """Whether the machine at `address` answers at all, be it that nobody listens on the port.

    listening: whether somebody must listen there; the kernel takes calls also for who hangs.
    """
    try:
        with socket.create_connection((address, port), timeout=timeout_s):
            return True
    except ConnectionRefusedError:
        return not listening
    except OSError:
        return False


@dataclass
class _Line:
    """One line.

    heard_at: the last echo, monotonic seconds; at first when it was made. unacked_beats: how many
    beats in a row found that nothing had been acknowledged since the one before.
    """

    node: str
    port: int
    socket: socket.socket
    heard_at: float
    unacked_beats: int = 0

    def unacknowledged_s(self) -> float | None:
        """How long nothing has been acknowledged; None when nothing is outstanding."""
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        (unacked,) = struct.unpack_from("I", info, _UNACKED_AT)
        (last_ack_ms,) = struct.unpack_from("I", info, _LAST_ACK_AT)
        return last_ack_ms / 1000 if unacked else None


class Lifelines:
    """The daemon's ends, by node, served by one thread.

    broke: called in that thread with the node, how its line broke, and the port that it led to;
    the line is dropped before.
    """

    def __init__(
        self,
        broke: Callable[[str, Break, int], None],
        *,
        beat_s: float = BEAT_S,
        unreachable_s: float = UNREACHABLE_S,
    ) -> None:
        self._broke = broke
        self._beat_s = beat_s
        self._unreachable_s = unreachable_s
        self._lines: dict[str, _Line] = {}
        self._mutex = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lifelines", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hang up on every node."""
        self._closed.set()
        self._thread.join()
        for node in list(self._lines):
            self.drop(node)

    def watch(self, node: str, address: str, port: int) -> bool:
        """Have a line to a node's agent, unless there is one to this port; blocks for 2 s at most.

        False where it cannot be made.
        """
        if self.port(node) == port:
            return True
        made = socket.socket(family(address), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            made.settimeout(_CONNECT_S)
            made.connect((address, port))
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            made.close()
            return False
        self.drop(node)
        with self._mutex:
            self._lines[node] = _Line(node, port, made, time.monotonic())
        return True

    def drop(self, node: str) -> None:
        """Hang up on a node, if there is a line to it."""
        with self._mutex:
            line = self._lines.pop(node, None)
        if line is not None:
            line.socket.close()

    def port(self, node: str) -> int | None:
        """Where the line to a node leads; None where there is none."""
        with self._mutex:
            line = self._lines.get(node)
            return None if line is None else line.port

    def heard_at(self, node: str) -> float | None:
        """When a node's agent last sent something back, in monotonic seconds; None without line."""
        with self._mutex:
            line = self._lines.get(node)
            return None if line is None else line.heard_at

    def _run(self) -> None:
        while True:
            with self._mutex:
                lines = list(self._lines.values())
            pause_s = max(self._beat_s, len(lines) / _MOST_BEATS_PER_S)
            if self._closed.wait(pause_s):
                return
            for line in lines:
                how = self._beaten(line)
                if how is not None:
                    with self._mutex:
                        ours = self._lines.get(line.node) is line
                    if ours:
                        self.drop(line.node)
                        self._broke(line.node, how, line.port)

    def _beaten(self, line: _Line) -> Break | None:
        """Take what came back on a line and send the next byte; how it broke, if it did."""
        try:
            with contextlib.suppress(BlockingIOError):
                if not line.socket.recv(_CHUNK):
                    return Break.ENDED
                line.heard_at = time.monotonic()
            silent_s = line.unacknowledged_s()
            if silent_s is None or silent_s < 0.8 * self._beat_s:
                line.unacked_beats = 0
            else:
                # Beats are counted as well: this thread may have stood still, and sent nothing.
                line.unacked_beats += 1
                if silent_s >= self._unreachable_s and line.unacked_beats >= _UNACKED_BEATS:
                    return Break.OUT_OF_REACH
            # A buffer that is full holds what is to be acknowledged.
            with contextlib.suppress(BlockingIOError):
                line.socket.send(b".")
        except OSError as error:
            return Break.OUT_OF_REACH if error.errno in _UNREACHABLE else Break.ENDED
        return None
