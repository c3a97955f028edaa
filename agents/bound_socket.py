"""TCP sockets that leave through a chosen NIC and from a chosen port."""

from __future__ import annotations

import socket
import struct

from pydantic import BaseModel, ConfigDict, Field

_RESET = struct.pack("ii", 1, 0)


class Via(BaseModel):
    """Where a connection leaves: the address and the name of a NIC, and the source port.

    address, device: None leaves the choice to the routes; port 0 leaves it to the kernel.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str | None = None
    device: str | None = None
    port: int = Field(default=0, ge=0, le=65535)

    def at(self, port: int) -> Via:
        """The same NIC, from this source port."""
        return self.model_copy(update={"port": port})

    def __str__(self) -> str:
        where = self.address or "any address"
        where += f" of {self.device}" if self.device else ""
        return f"{where}, port {self.port}" if self.port else where


ANYWHERE = Via()


def family(host: str) -> socket.AddressFamily:
    """The address family of a numeric address; IPv4 for a name."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def bound(host: str, via: Via) -> socket.socket:
    """A TCP socket towards `host` that will leave as `via` says. Raises OSError."""
    made = socket.socket(family(host), socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if via.device:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, via.device.encode())
        if via.port:
            # The port was used a moment ago by a trace of the same path.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if via.address or via.port:
            made.bind((via.address or ("::" if ":" in host else "0.0.0.0"), via.port))
    except OSError:
        made.close()
        raise
    return made


def dial(host: str, port: int, timeout_s: float, via: Via = ANYWHERE) -> socket.socket:
    """A connection to `host` that leaves as `via` says. Raises OSError."""
    made = bound(host, via)
    try:
        made.settimeout(timeout_s)
        made.connect((host, port))
    except OSError:
        made.close()
        raise
    return made


def listening(host: str, device: str | None, backlog: int, port: int = 0) -> socket.socket:
    """A socket that listens on a port of `host` (0: a free one), only on `device` if given.

    Raises OSError.
    """
    made = bound(host, Via(address=host, device=device, port=port))
    try:
        made.listen(backlog)
    except OSError:
        made.close()
        raise
    return made


def reset(connection: socket.socket) -> None:
    """Close a connection at once, so that its ports can be used again at once."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
