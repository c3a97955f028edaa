"""TCP probes between two nodes: round trips, and bandwidth in each direction, on real sockets.

The listener is told to expect one probe and gives a port and a one-time nonce; the connector is
told both. Whoever connects without the nonce is dropped. Everything has a bound in bytes and time.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

_HELLO_BYTES = 32
_HELLO_WAIT_S = 1.0
_PING = struct.Struct("!Q")
_FRAME = struct.Struct("!I")
_LAST_PING = 2**64 - 1
_END, _MARK = 0, 0xFFFFFFFF
_FRAME_BYTES = 256 * 1024
_REPORT_BYTES = 4096
_WARM_PART = 0.25
"""Part of a transfer that is not counted, while TCP finds the rate."""


class ProbeFailed(RuntimeError):
    """A probe came to nothing; the message says between whom, and how far it got."""


class Budget(BaseModel):
    """What one probe may cost: bytes and seconds in each direction, and round trips."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    transfer_bytes: int = Field(default=32 * 2**20, ge=1, le=2**36)
    transfer_s: float = Field(default=1.0, gt=0, le=60)
    pings: int = Field(default=50, ge=1, le=10_000)
    connect_s: float = Field(default=5.0, gt=0, le=60)

    @property
    def deadline_s(self) -> float:
        """By when a probe is over or has failed."""
        return 2 * self.connect_s + 4 * self.transfer_s + 5.0


class Opening(BaseModel):
    """Where a listener expects a probe, and what the connector must know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int
    nonce: str


class PathMeasurement(BaseModel):
    """What one probe measured between two nodes, seen from the one that connected.

    `spread_s` is the range of the middle half of the round trips. `there_bytes_per_s` is from the
    connector to the listener, `back_bytes_per_s` the other way, both as the receiver counted them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round_trip_min_s: float = Field(gt=0)
    round_trip_median_s: float = Field(gt=0)
    spread_s: float = Field(ge=0)
    pings: int
    there_bytes_per_s: float = Field(gt=0)
    back_bytes_per_s: float = Field(gt=0)
    moved_bytes: int
    took_s: float


class Listener:
    """Waits for one probe on `host` in a thread of its own, then closes, whatever happened."""

    def __init__(self, host: str, budget: Budget) -> None:
        self._budget = budget
        self._nonce = secrets.token_hex(_HELLO_BYTES // 2)
        self._socket = socket.create_server((host, 0), family=_family(host), backlog=16)
        self.opening = Opening(host=host, port=self._socket.getsockname()[1], nonce=self._nonce)
        self._thread = threading.Thread(target=self._serve, name="probe-listener", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the listener has closed, after at most `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        deadline = time.monotonic() + self._budget.deadline_s
        with self._socket:
            while (left_s := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                with connection:
                    if self._knows_nonce(connection):
                        self._socket.close()
                        with contextlib.suppress(OSError, ProbeFailed):
                            _answer(_Line(connection, deadline), self._budget)
                        return

    def _knows_nonce(self, connection: socket.socket) -> bool:
        try:
            hello = _Line(connection, time.monotonic() + _HELLO_WAIT_S).receive(_HELLO_BYTES)
        except (OSError, ProbeFailed):
            return False
        return hmac.compare_digest(hello, self._nonce.encode())


def connect(opening: Opening, budget: Budget) -> PathMeasurement:
    """Probe the path to a listener. Raises ProbeFailed."""
    where = f"{opening.host}:{opening.port}"
    began = time.monotonic()
    step = "connecting"
    try:
        with socket.create_connection((opening.host, opening.port), budget.connect_s) as connection:
            line = _Line(connection, began + budget.deadline_s)
            line.send(opening.nonce.encode())
            step = "round trips"
            trips = sorted(_ping(line, number) for number in range(budget.pings))
            line.send(_PING.pack(_LAST_PING))
            step = "sending"
            _push(line, budget)
            report = json.loads(line.receive(_FRAME.unpack(line.receive(_FRAME.size))[0]))
            there = _Transfer(int(report["counted_bytes"]), float(report["counted_s"]))
            step = "receiving"
            back = _pull(line, budget)
            moved = int(report["moved_bytes"]) + back.moved_bytes
        return PathMeasurement(
            round_trip_min_s=trips[0],
            round_trip_median_s=statistics.median(trips),
            spread_s=trips[(3 * len(trips)) // 4] - trips[len(trips) // 4],
            pings=len(trips),
            there_bytes_per_s=there.bytes_per_s,
            back_bytes_per_s=back.bytes_per_s,
            moved_bytes=moved,
            took_s=time.monotonic() - began,
        )
    except (OSError, ValueError, KeyError, ZeroDivisionError, ProbeFailed) as error:
        raise ProbeFailed(
            f"probe to {where} failed while {step} after {time.monotonic() - began:.2f} s: "
            f"{error or type(error).__name__}"
        ) from error


@dataclass(frozen=True)
class _Transfer:
    counted_bytes: int
    counted_s: float
    moved_bytes: int = 0

    @property
    def bytes_per_s(self) -> float:
        return self.counted_bytes / self.counted_s


class _Line:
    """A connection on which every operation ends by one deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Keeps what waits to be sent small, so that a slow path does not drain for long afterwards.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _FRAME_BYTES)

    def _limit(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("out of time")
        self._connection.settimeout(left_s)

    def send(self, data: bytes | memoryview) -> None:
        self._limit()
        self._connection.sendall(data)

    def receive_into(self, buffer: memoryview) -> None:
        filled = 0
        while filled < len(buffer):
            self._limit()
            count = self._connection.recv_into(buffer[filled:])
            if count == 0:
                raise ProbeFailed("the other end closed the connection")
            filled += count

    def receive(self, count: int) -> bytes:
        if count > _REPORT_BYTES:
            raise ProbeFailed(f"the other end announced {count} bytes, more than a report has")
        buffer = bytearray(count)
        self.receive_into(memoryview(buffer))
        return bytes(buffer)


def _ping(line: _Line, number: int) -> float:
    began = time.perf_counter()
    line.send(_PING.pack(number))
    echoed = _PING.unpack(line.receive(_PING.size))[0]
    took_s = time.perf_counter() - began
    if echoed != number:
        raise ProbeFailed(f"round trip {number} came back as {echoed}")
    return took_s


def _answer(line: _Line, budget: Budget) -> None:
    """The listener's part of a probe, once the nonce was right."""
    for _ in range(budget.pings + 1):
        ping = line.receive(_PING.size)
        if _PING.unpack(ping)[0] == _LAST_PING:
            break
        line.send(ping)
    there = _pull(line, budget)
    report = json.dumps(there.__dict__).encode()
    line.send(_FRAME.pack(len(report)) + report)
    _push(line, budget)


def _push(line: _Line, budget: Budget) -> None:
    """Send frames until the bytes or the seconds are used up, marking where counting starts."""
    size = min(_FRAME_BYTES, max(1, budget.transfer_bytes // 8))
    frame = memoryview(_FRAME.pack(size) + bytes(size))
    began = time.monotonic()
    sent = counted = 0
    marked = False
    while True:
        used = max(sent / budget.transfer_bytes, (time.monotonic() - began) / budget.transfer_s)
        if not marked and used >= _WARM_PART:
            line.send(_FRAME.pack(_MARK))
            marked = True
        elif counted and used >= 1:
            break
        line.send(frame)
        sent += size
        counted += size if marked else 0
    line.send(_FRAME.pack(_END))


def _pull(line: _Line, budget: Budget) -> _Transfer:
    """Receive frames until the end; what came after the mark, and how long that took."""
    most = 2 * budget.transfer_bytes + 2 * _FRAME_BYTES
    buffer = memoryview(bytearray(_FRAME_BYTES))
    moved = counted = 0
    marked_at: float | None = None
    while True:
        size = _FRAME.unpack(line.receive(_FRAME.size))[0]
        if size == _MARK:
            marked_at = time.perf_counter()
            continue
        if size == _END:
            break
        if size > len(buffer) or moved + size > most:
            raise ProbeFailed(f"the other end sent more than the budget of {most} bytes")
        line.receive_into(buffer[:size])
        moved += size
        counted += size if marked_at is not None else 0
    if marked_at is None:
        raise ProbeFailed("the other end sent nothing that counts")
    return _Transfer(counted, max(time.perf_counter() - marked_at, 1e-9), moved)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
