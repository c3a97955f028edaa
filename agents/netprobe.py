"""TCP probes between two nodes: round trips, and bandwidth in each direction, on real sockets.

The listener is told to expect a probe and gives a port and a one-time nonce; the connector is told
both. Whoever connects without the nonce is dropped. A probe is one connection, or several one after
another where several paths are measured. Everything has a bound in bytes and time.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import random
import secrets
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from .bound_socket import ANYWHERE, Via, dial, listening
from .steady_rate import steady_bytes_per_s
from .tcp_account import Sent, least_round_trip_s, sent_on

_NONCE_BYTES = 32
_MORE, _NO_MORE = b"+", b"."
_BACKLOG = 128
_HELLO_WAIT_S = 1.0
_PING = struct.Struct("!Q")
_FRAME = struct.Struct("!I")
_LAST_PING = 2**64 - 1
_END = 0
_FRAME_BYTES = 64 * 1024
_WAITING_BYTES = 256 * 1024
_REPORT_BYTES = 4096
_HOSTS_S = 15e-6
"""Round trips below this are the time of interrupts and kernels at both ends, not the network's."""
_ARRIVALS_APART_S = 0.5e-3


class ProbeFailed(RuntimeError):
    """A probe came to nothing; the message says between whom, and how far it got."""


class Budget(BaseModel):
    """What one connection may cost: bytes and seconds in each direction, and round trips.

    transfer_bytes: 0 measures round trips only. both_ways: whether the listener sends as well.
    ping_gap_s: mean time between two round trips, so that they see more than one moment, and many
    pairs at once do not wait for the same processor.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    transfer_bytes: int = Field(default=32 * 2**20, ge=0, le=2**36)
    transfer_s: float = Field(default=1.0, gt=0, le=60)
    both_ways: bool = True
    pings: int = Field(default=50, ge=1, le=10_000)
    ping_gap_s: float = Field(default=0.002, ge=0, le=1)
    connect_s: float = Field(default=5.0, gt=0, le=60)

    @property
    def deadline_s(self) -> float:
        """By when a connection is over or has failed."""
        transfers_s = 4 * self.transfer_s if self.transfer_bytes else 0.0
        return 2 * self.connect_s + 2 * self.pings * self.ping_gap_s + transfers_s + 5.0

    @property
    def most_bytes(self) -> int:
        """What a connection may move, both directions together."""
        # The last frame is begun before the bytes are used up.
        most = _frame_bytes(self) + self.transfer_bytes if self.transfer_bytes else 0
        return (2 if self.both_ways else 1) * most


class Opening(BaseModel):
    """Where a listener expects a probe, and what the connector must know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: int
    nonce: str


class PathMeasurement(BaseModel):
    """What one probe measured between two nodes, seen from the one that connected.

    `round_trip_min_s` is the least that the kernel saw, which does not depend on how busy the nodes
    are; never below 15 us, which is the hosts' own time. `spread_s` is the range of the middle half
    of the round trips. `there_bytes_per_s` is from the connector to the listener,
    `back_bytes_per_s` the other way, both as the receiver counted them; None where the budget
    leaves them out. `loss` is the part of the segments with data, of both directions together,
    that had to be sent again; None where too few were sent to tell.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round_trip_min_s: float = Field(gt=0)
    round_trip_median_s: float = Field(gt=0)
    spread_s: float = Field(ge=0)
    pings: int
    there_bytes_per_s: float | None = Field(default=None, gt=0)
    back_bytes_per_s: float | None = Field(default=None, gt=0)
    loss: float | None = Field(default=None, ge=0, le=1)
    moved_bytes: int
    took_s: float


class Listener:
    """Waits for one probe on `host` in a thread of its own, then closes, whatever happened.

    device: the NIC it is to come through. connections: how many the probe may have. begin_s: how
    much later than the budget says the first may come.
    """

    def __init__(
        self,
        host: str,
        budget: Budget,
        *,
        device: str | None = None,
        connections: int = 1,
        begin_s: float = 0.0,
    ) -> None:
        self._budget = budget
        self._connections = connections
        self._begin_s = begin_s
        self._nonce = secrets.token_hex(_NONCE_BYTES // 2)
        self._socket = listening(host, device, _BACKLOG)
        self.opening = Opening(host=host, port=self._socket.getsockname()[1], nonce=self._nonce)
        self._thread = threading.Thread(target=self._serve, name="probe-listener", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the listener has closed, after at most `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        served = 0
        deadline = time.monotonic() + self._begin_s + self._budget.deadline_s
        with self._socket:
            while served < self._connections and (left_s := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                try:
                    connection, _ = self._socket.accept()
                except OSError:
                    return
                with connection:
                    greeting = self._greeting(connection)
                    if greeting is None:
                        continue
                    served += 1
                    if greeting == _NO_MORE:
                        self._socket.close()
                        served = self._connections
                    deadline = time.monotonic() + self._budget.deadline_s
                    with contextlib.suppress(OSError, ProbeFailed):
                        _answer(_Line(connection, deadline), self._budget)

    def _greeting(self, connection: socket.socket) -> bytes | None:
        """What says whether more connections are to come; None from a stranger."""
        try:
            line = _Line(connection, time.monotonic() + _HELLO_WAIT_S)
            nonce, more = line.receive(_NONCE_BYTES), line.receive(len(_MORE))
        except (OSError, ProbeFailed):
            return None
        known = hmac.compare_digest(nonce, self._nonce.encode())
        return more if known and more in (_MORE, _NO_MORE) else None


def connect(
    opening: Opening, budget: Budget, via: Via = ANYWHERE, *, more: bool = False
) -> PathMeasurement:
    """Probe the path to a listener, leaving as `via` says. Raises ProbeFailed.

    more: whether the listener is to expect another connection afterwards.
    """
    where = f"{opening.host}:{opening.port}"
    began = time.monotonic()
    step = "connecting"
    there = back = None
    sent = Sent()
    try:
        with dial(opening.host, opening.port, budget.connect_s, via) as connection:
            line = _Line(connection, began + budget.deadline_s)
            line.send(opening.nonce.encode() + (_MORE if more else _NO_MORE))
            step = "round trips"
            trips = sorted(_ping(line, number, budget) for number in range(budget.pings))
            line.send(_PING.pack(_LAST_PING))
            kernel_s = least_round_trip_s(connection)
            least_s = trips[0] if kernel_s is None else max(kernel_s, _HOSTS_S)
            if budget.transfer_bytes:
                step = "sending"
                _push(line, budget)
                there = _transfer(line)
                sent = line.sent()
            if budget.transfer_bytes and budget.both_ways:
                step = "receiving"
                back = _pull(line, budget)
                line.send(_PING.pack(_LAST_PING))
                sent += _others(line)
        return PathMeasurement(
            round_trip_min_s=least_s,
            round_trip_median_s=max(least_s, statistics.median(trips)),
            spread_s=trips[(3 * len(trips)) // 4] - trips[len(trips) // 4],
            pings=len(trips),
            there_bytes_per_s=there and there.bytes_per_s,
            back_bytes_per_s=back and back.bytes_per_s,
            loss=sent.loss,
            moved_bytes=sum(transfer.moved_bytes for transfer in (there, back) if transfer),
            took_s=time.monotonic() - began,
        )
    except (OSError, ValueError, TypeError, ProbeFailed) as error:
        raise ProbeFailed(
            f"probe to {where} failed while {step} after {time.monotonic() - began:.2f} s"
            f"{'' if via == ANYWHERE else f' (from {via})'}: {error or type(error).__name__}"
        ) from error


@dataclass(frozen=True)
class _Transfer:
    bytes_per_s: float
    moved_bytes: int


class _Line:
    """A connection on which every operation ends by one deadline."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Keeps what waits to be sent small, so that a slow path does not drain for long afterwards.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _WAITING_BYTES)

    def _limit(self) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("out of time")
        self._connection.settimeout(left_s)

    def acknowledge_at_once(self) -> None:
        """Have the kernel acknowledge what comes next without waiting for an answer to go with."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def send(self, data: bytes | memoryview) -> None:
        self._limit()
        self._connection.sendall(data)

    def receive_into(self, buffer: memoryview, note: Callable[[int], None] | None = None) -> None:
        """Fill a buffer; `note` is called with the bytes of each piece as it comes."""
        filled = 0
        while filled < len(buffer):
            self._limit()
            count = self._connection.recv_into(buffer[filled:])
            if count == 0:
                raise ProbeFailed("the other end closed the connection")
            filled += count
            if note is not None:
                note(count)

    def sent(self) -> Sent:
        """What was sent so far, all of which has arrived."""
        return sent_on(self._connection)

    def receive(self, count: int) -> bytes:
        if count > _REPORT_BYTES:
            raise ProbeFailed(f"the other end announced {count} bytes, more than a report has")
        buffer = bytearray(count)
        self.receive_into(memoryview(buffer))
        return bytes(buffer)


def _ping(line: _Line, number: int, budget: Budget) -> float:
    if number and budget.ping_gap_s:
        time.sleep(random.uniform(0, 2 * budget.ping_gap_s))
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
        line.acknowledge_at_once()
        ping = line.receive(_PING.size)
        if _PING.unpack(ping)[0] == _LAST_PING:
            break
        line.send(ping)
    if budget.transfer_bytes:
        _tell(line, _pull(line, budget).__dict__)
        if budget.both_ways:
            _push(line, budget)
            if _PING.unpack(line.receive(_PING.size))[0] == _LAST_PING:
                _tell(line, line.sent().__dict__)


def _tell(line: _Line, found: Mapping[str, float]) -> None:
    report = json.dumps(dict(found)).encode()
    line.send(_FRAME.pack(len(report)) + report)


def _report(line: _Line) -> dict[str, Any]:
    """What the other end tells. Raises ValueError for no report."""
    told = json.loads(line.receive(_FRAME.unpack(line.receive(_FRAME.size))[0]))
    if not isinstance(told, dict):
        raise ValueError(f"the other end reports {told!r}")
    return told


def _transfer(line: _Line) -> _Transfer:
    """What the other end says it has received. Raises ValueError or TypeError for no report."""
    transfer = _Transfer(**_report(line))
    if not 0 < transfer.bytes_per_s < math.inf or transfer.moved_bytes < 0:
        raise ValueError(f"the other end reports {transfer}")
    return transfer


def _others(line: _Line) -> Sent:
    """What the other end says it has sent. Raises ValueError or TypeError for no report."""
    sent = Sent(**_report(line))
    if not 0 <= sent.again <= sent.segments:
        raise ValueError(f"the other end reports {sent}")
    return sent


def _frame_bytes(budget: Budget) -> int:
    return min(_FRAME_BYTES, max(1, budget.transfer_bytes // 8))


def _push(line: _Line, budget: Budget) -> None:
    """Send frames until the bytes or the seconds are used up."""
    size = _frame_bytes(budget)
    frame = memoryview(_FRAME.pack(size) + bytes(size))
    began = time.monotonic()
    sent = 0
    while sent < budget.transfer_bytes and (
        not sent or time.monotonic() - began < budget.transfer_s
    ):
        line.send(frame)
        sent += size
    line.send(_FRAME.pack(_END))


def _pull(line: _Line, budget: Budget) -> _Transfer:
    """Receive frames until the end, and find how fast they came."""
    most = budget.transfer_bytes + _FRAME_BYTES
    buffer = memoryview(bytearray(_FRAME_BYTES))
    arrivals: list[tuple[float, int]] = []
    moved = 0

    def note(count: int) -> None:
        nonlocal moved
        moved += count
        now = time.perf_counter()
        if len(arrivals) < 2 or now - arrivals[-2][0] >= _ARRIVALS_APART_S:
            arrivals.append((now, moved))
        else:
            arrivals[-1] = (now, moved)

    while size := _FRAME.unpack(line.receive(_FRAME.size))[0]:
        if size > len(buffer) or moved + size > most:
            raise ProbeFailed(f"the other end sent more than the budget of {most} bytes")
        line.receive_into(buffer[:size], note)
    if not arrivals:
        raise ProbeFailed("the other end sent nothing")
    return _Transfer(steady_bytes_per_s(arrivals), moved)
