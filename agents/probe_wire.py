"""How a prober and a probe server talk: proof of one token at both ends, then lines of JSON.

The token never travels: each end sends a nonce and gets an HMAC of both nonces under the token
back, with the role in it, so that an answer cannot be played back the other way. What is said
afterwards is neither secret nor encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
from typing import Any

LINE_BYTES = 2**20
_NONCE_BYTES = 32
_SERVER, _CLIENT = b"server", b"client"


class NotTrusted(ConnectionError):
    """The other end does not have the token, or does not speak this protocol."""


class Lines:
    """A connection that carries one JSON object a line; a longer line than a MiB ends it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb")

    def send(self, data: dict[str, Any]) -> None:
        """Raises OSError."""
        self.connection.sendall(json.dumps(data).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next object. Raises ConnectionError, ValueError, OSError."""
        line = self._reader.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionError("the other end closed the connection or sent too long a line")
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("the other end sent no JSON object")
        return data

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self.connection.close()


def prove_as_client(lines: Lines, token: str) -> None:
    """Show a server that the token is known here, and have it show the same. Raises NotTrusted."""
    own = secrets.token_hex(_NONCE_BYTES)
    theirs = _text(lines.receive(), "nonce")
    lines.send({"nonce": own, "proof": _proof(token, _CLIENT, theirs, own)})
    answer = _text(lines.receive(), "proof")
    if not hmac.compare_digest(answer, _proof(token, _SERVER, theirs, own)):
        raise NotTrusted("the probe server does not have the prober's token")


def prove_as_server(lines: Lines, token: str) -> None:
    """The server's part of the same. Raises NotTrusted."""
    own = secrets.token_hex(_NONCE_BYTES)
    lines.send({"nonce": own})
    told = lines.receive()
    theirs, proof = _text(told, "nonce"), _text(told, "proof")
    if not hmac.compare_digest(proof, _proof(token, _CLIENT, own, theirs)):
        raise NotTrusted("the prober does not have the server's token")
    lines.send({"proof": _proof(token, _SERVER, own, theirs)})


def _proof(token: str, role: bytes, of_server: str, of_client: str) -> str:
    said = b"|".join((role, of_server.encode(), of_client.encode()))
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()


def _text(data: dict[str, Any], name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str) or not found.isascii() or not 0 < len(found) <= 256:
        raise NotTrusted(f"the other end gave no {name}")
    return found
