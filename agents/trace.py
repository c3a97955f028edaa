"""TCP path traces: the routers between two nodes, port by port, without any privilege.

A switch that has several equal ways picks one by a hash of addresses, protocol and ports, so the
path of a connection is that of every packet with its ports. A trace connects again and again from
one source port, with a time to live of 1, 2, ...; the router where it runs out says so by ICMP,
which Linux reports on the socket's error queue (ip(7), IP_RECVERR). Many ports go at the same time.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from .bound_socket import ANYWHERE, Via, bound, family, reset

NO_ANSWER = "*"
"""Stands for a router that does not say who it is."""

_IP_RECVERR, _IPV6_RECVERR = 11, 25  # <linux/in.h>, <linux/in6.h>
_EXTENDED_ERROR = struct.Struct("=IBBBBII")  # struct sock_extended_err, <linux/errqueue.h>
_FROM_ICMP, _FROM_ICMP6 = 2, 3
_TIME_EXCEEDED = {_FROM_ICMP: 11, _FROM_ICMP6: 3}
_FULL_TTL = 64
_SILENT_HOPS = 3


class TracedPath(BaseModel):
    """The path of one source port.

    hops: addresses of routers in order, "*" where one gave none. reached: whether a connection from
    that port came through; else hops end where the path does.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    source_port: int
    hops: tuple[str, ...]
    reached: bool


class TraceLimits(BaseModel):
    """What a trace may cost. hop_s: how long to wait for the answers to one time to live."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    most_hops: int = Field(default=16, ge=1, le=64)
    hop_s: float = Field(default=0.5, gt=0, le=10)

    @property
    def deadline_s(self) -> float:
        """By when a trace is over."""
        return (self.most_hops + 2) * self.hop_s


def equal_cost_paths(traced: Iterable[TracedPath]) -> dict[tuple[str, ...], tuple[int, ...]]:
    """The paths that came through, and the source ports of each; paths and ports in order."""
    found: dict[tuple[str, ...], list[int]] = {}
    for path in traced:
        if path.reached:
            found.setdefault(path.hops, []).append(path.source_port)
    return {hops: tuple(sorted(ports)) for hops, ports in sorted(found.items())}


def trace(
    host: str,
    port: int,
    source_ports: Sequence[int],
    via: Via = ANYWHERE,
    limits: TraceLimits | None = None,
) -> tuple[TracedPath, ...]:
    """The paths to a listening port from each source port; ports that are in use are left out.

    Raises OSError where `via` cannot be used at all.
    """
    limits = limits or TraceLimits()
    bound(host, via).close()
    target = _Target(host, port, via, limits.hop_s)
    arrived = target.ask(source_ports, _FULL_TTL)
    walks = {
        source: _Walk(reached=source in arrived and arrived[source].reached)
        for source in source_ports
        if source not in arrived or arrived[source].usable
    }
    for ttl in range(1, limits.most_hops + 1):
        waiting = [source for source, walk in walks.items() if not walk.over]
        if not waiting:
            break
        answers = target.ask(waiting, ttl)
        # A lost answer would look like a router that never gives one.
        if again := [source for source in waiting if source not in answers]:
            answers |= target.ask(again, ttl)
        for source in waiting:
            walks[source].step(answers.get(source))
    return tuple(
        TracedPath(source_port=source, hops=walk.found(), reached=walk.reached)
        for source, walk in walks.items()
    )


@dataclass(frozen=True)
class _Answer:
    """What came of one attempt to connect.

    router: who said that the time to live ran out, or that there is no way; None when the target
    itself answered. usable: False when the port could not be used here.
    """

    router: str | None = None
    way_on: bool = True
    usable: bool = True

    @property
    def reached(self) -> bool:
        return self.usable and self.router is None


@dataclass
class _Walk:
    """The path of one port so far. reached: known before, from a full time to live."""

    reached: bool
    over: bool = False
    hops: list[str] = field(default_factory=list)

    def step(self, answer: _Answer | None) -> None:
        """Take in what one more hop has said."""
        if answer is None:
            self.hops.append(NO_ANSWER)
            silent = self.hops[-_SILENT_HOPS:] == [NO_ANSWER] * _SILENT_HOPS
            self.over = silent and not self.reached
        elif answer.router is None:
            self.over = True
        elif answer.way_on:
            self.hops.append(answer.router)
        else:
            # A router that is on the path already may say only now that there is no way on.
            self.hops = list(self.found())
            if self.hops[-1:] != [answer.router]:
                self.hops.append(answer.router)
            self.over = True

    def found(self) -> tuple[str, ...]:
        """The routers; without the silence after the last one where the path ends early."""
        hops = list(self.hops)
        while hops and hops[-1] == NO_ANSWER and not self.reached:
            hops.pop()
        return tuple(hops)


@dataclass(frozen=True)
class _Target:
    host: str
    port: int
    via: Via
    hop_s: float

    def ask(self, source_ports: Sequence[int], ttl: int) -> dict[int, _Answer]:
        """Connect from each port with this time to live; the answers that came in time."""
        answers: dict[int, _Answer] = {}
        waiting: dict[int, tuple[int, socket.socket]] = {}
        poller = select.poll()
        try:
            for source in source_ports:
                begun = self._begin(source, ttl)
                if begun is None:
                    answers[source] = _Answer(usable=False)
                    continue
                waiting[begun.fileno()] = (source, begun)
                poller.register(begun, select.POLLOUT)
            give_up = time.monotonic() + self.hop_s
            while waiting and (left_s := give_up - time.monotonic()) > 0:
                for handle, _ in poller.poll(1000 * left_s):
                    poller.unregister(handle)
                    source, connection = waiting.pop(handle)
                    answer = _answer(connection)
                    if answer is not None:
                        answers[source] = answer
                    reset(connection)
        finally:
            for _, connection in waiting.values():
                reset(connection)
        return answers

    def _begin(self, source: int, ttl: int) -> socket.socket | None:
        try:
            made = bound(self.host, self.via.at(source))
        except OSError:
            return None
        made.setblocking(False)
        if family(self.host) == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
        else:
            made.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
            made.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        if made.connect_ex((self.host, self.port)) in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            made.close()
            return None
        return made


def _answer(connection: socket.socket) -> _Answer | None:
    """What a connection that is no longer pending has come to; None where nobody said anything."""
    try:
        _, ancillary, _, _ = connection.recvmsg(0, 512, socket.MSG_ERRQUEUE)
    except OSError:
        ancillary = []
    for _, _, data in ancillary:
        _, origin, kind, _, _, _, _ = _EXTENDED_ERROR.unpack_from(data)
        if origin in _TIME_EXCEEDED:
            router = _offender(data[_EXTENDED_ERROR.size :])
            return _Answer(router, way_on=kind == _TIME_EXCEEDED[origin])
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return _Answer() if error in (0, errno.ECONNREFUSED) else None


def _offender(address: bytes) -> str:
    """The address in a sockaddr_in or sockaddr_in6."""
    if int.from_bytes(address[:2], sys.byteorder) == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, address[8:24])
    return socket.inet_ntop(socket.AF_INET, address[4:8])
