"""What Linux counts of a TCP connection: its least round trip, and what it sent again."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_INFO_BYTES = 256
# Fields of struct tcp_info (linux/tcp.h): their offsets have not changed since they were added.
_FIELD = struct.Struct("=I")
_TOTAL_RETRANS, _MIN_RTT, _DATA_SEGS_OUT = 100, 148, 156
_UNKNOWN_RTT = 2**32 - 1
_FEWEST_SEGMENTS = 64
"""Of fewer segments, the part that was sent again says nothing."""


@dataclass(frozen=True)
class Sent:
    """Segments with data that were sent, and how many of these because others were lost."""

    segments: int = 0
    again: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.segments + other.segments, self.again + other.again)

    @property
    def loss(self) -> float | None:
        """The part that was sent again; None where too few were sent to tell."""
        enough = self.segments >= _FEWEST_SEGMENTS
        return min(1.0, self.again / self.segments) if enough else None


def sent_on(connection: socket.socket) -> Sent:
    """What has been sent on a connection so far; nothing where the kernel is too old to say."""
    segments, again = (_field(connection, offset) for offset in (_DATA_SEGS_OUT, _TOTAL_RETRANS))
    return Sent(segments or 0, min(again or 0, segments or 0))


def least_round_trip_s(connection: socket.socket) -> float | None:
    """The least time from a segment to its acknowledgement, in which no process has a part."""
    microseconds = _field(connection, _MIN_RTT)
    return None if microseconds in (None, 0, _UNKNOWN_RTT) else microseconds * 1e-6


def _field(connection: socket.socket, offset: int) -> int | None:
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < offset + _FIELD.size:
        return None
    value: int = _FIELD.unpack_from(info, offset)[0]
    return value
