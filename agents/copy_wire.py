"""How nodes hand each other shards: proof of a job's key at both ends, then sealed messages.

The key never travels: each end answers the other's nonce with an HMAC of both, and every message
after that carries its number and an HMAC under a key of this connection and direction, so that
nothing can be forged, changed, left out or played back. A payload is bound by its SHA-256 in its
message. Nothing is encrypted. Standard library only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

LINE_BYTES = 2**20
BLOCK_BYTES = 2**20
_NONCE_BYTES = 32
_SERVER, _CLIENT = b"server", b"client"


class NotTrusted(ConnectionError):
    """The other end does not have the job's key, or does not speak this protocol."""


class Channel:
    """One end of a connection after the proof. All methods raise OSError, ValueError."""

    def __init__(self, connection: socket.socket, reader: BinaryIO, own: bytes, other: bytes):
        self._connection = connection
        self._reader = reader
        self._own_key, self._other_key = own, other
        self._sent = self._received = 0

    def send(self, data: dict[str, Any], size_bytes: int = 0, payload: Iterable[Any] = ()) -> None:
        """Send a message and a payload of that size; with one, `data` holds its `sha256`."""
        body = json.dumps({**data, "number": self._sent, "payload_bytes": size_bytes}).encode()
        self._sent += 1
        seal = hmac.new(self._own_key, body, hashlib.sha256).hexdigest().encode()
        self._connection.sendall(seal + b" " + body + b"\n")
        for block in payload:
            self._connection.sendall(block)

    def receive(self) -> dict[str, Any]:
        """The next message; `payload` takes what it brings. Raises NotTrusted when forged."""
        line = _line(self._reader)
        seal, _, body = line.rstrip(b"\n").partition(b" ")
        expected = hmac.new(self._other_key, body, hashlib.sha256).hexdigest().encode()
        if not hmac.compare_digest(seal, expected):
            raise NotTrusted("a message that the other end did not seal")
        data = json.loads(body)
        if not isinstance(data, dict) or data.pop("number", None) != self._received:
            raise NotTrusted("a message out of its order")
        self._received += 1
        return data

    def payload(self, message: dict[str, Any], write: Callable[[bytes], object]) -> None:
        """Pass a message's payload on. Raises NotTrusted when it is not what was announced."""
        digest = hashlib.sha256()
        left_bytes = int(message["payload_bytes"])
        while left_bytes:
            block = self._reader.read(min(left_bytes, BLOCK_BYTES))
            if not block:
                raise ConnectionError("the other end closed the connection in a payload")
            digest.update(block)
            write(block)
            left_bytes -= len(block)
        if digest.hexdigest() != message["sha256"]:
            raise NotTrusted("a payload that is not what was announced")

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._connection.close()


def connect(host: str, port: int, job_id: str, key: str, timeout_s: float) -> Channel:
    """A channel to a node's copy server. Raises NotTrusted, OSError, ValueError.

    timeout_s: also for each later piece of a message or payload.
    """
    connection = socket.create_connection((host, port), timeout_s)
    reader = connection.makefile("rb")
    try:
        own = secrets.token_hex(_NONCE_BYTES)
        theirs = _text(_plain(reader), "nonce")
        proof = _proof(key, _CLIENT, job_id, theirs, own)
        _send_plain(connection, {"job": job_id, "nonce": own, "proof": proof})
        answer = _text(_plain(reader), "proof")
        if not hmac.compare_digest(answer, _proof(key, _SERVER, job_id, theirs, own)):
            raise NotTrusted(f"{host}:{port} does not have the key of job {job_id}")
    except BaseException:
        reader.close()
        connection.close()
        raise
    keys = _keys(key, job_id, theirs, own)
    return Channel(connection, reader, own=keys[1], other=keys[0])


def accept(connection: socket.socket, find_key: Callable[[str], str | None]) -> tuple[str, Channel]:
    """The server's part: the job a client speaks for, and the channel to it.

    find_key: a job's key, None for jobs that are not known. Raises what `connect` raises; the
    connection stays the caller's to close until this has returned.
    """
    reader = connection.makefile("rb")
    try:
        own = secrets.token_hex(_NONCE_BYTES)
        _send_plain(connection, {"nonce": own})
        told = _plain(reader)
        job_id, theirs, proof = (_text(told, name) for name in ("job", "nonce", "proof"))
        key = find_key(job_id)
        # Whoever asks learns nothing of which jobs there are.
        wanted = _proof(key or secrets.token_hex(_NONCE_BYTES), _CLIENT, job_id, own, theirs)
        if not hmac.compare_digest(proof, wanted) or key is None:
            raise NotTrusted(f"no proof of the key of job {job_id}")
        _send_plain(connection, {"proof": _proof(key, _SERVER, job_id, own, theirs)})
    except BaseException:
        reader.close()
        raise
    keys = _keys(key, job_id, own, theirs)
    return job_id, Channel(connection, reader, own=keys[0], other=keys[1])


def _keys(key: str, job_id: str, of_server: str, of_client: str) -> tuple[bytes, bytes]:
    """Keys of this connection: for what the server sends, and for what the client sends."""
    said = "|".join((job_id, of_server, of_client)).encode()
    server, client = (
        hmac.new(key.encode(), b"session|" + role + b"|" + said, hashlib.sha256).digest()
        for role in (_SERVER, _CLIENT)
    )
    return server, client


def _proof(key: str, role: bytes, job_id: str, of_server: str, of_client: str) -> str:
    said = b"|".join((b"proof", role, job_id.encode(), of_server.encode(), of_client.encode()))
    return hmac.new(key.encode(), said, hashlib.sha256).hexdigest()


def _send_plain(connection: socket.socket, data: dict[str, str]) -> None:
    connection.sendall(json.dumps(data).encode() + b"\n")


def _plain(reader: BinaryIO) -> dict[str, Any]:
    data = json.loads(_line(reader))
    if not isinstance(data, dict):
        raise NotTrusted("the other end sent no JSON object")
    return data


def _line(reader: BinaryIO) -> bytes:
    line = reader.readline(LINE_BYTES)
    if not line.endswith(b"\n"):
        raise ConnectionError("the other end closed the connection or sent too long a line")
    return line


def _text(data: dict[str, Any], name: str) -> str:
    found = data.get(name)
    if not isinstance(found, str) or not found.isascii() or not 0 < len(found) <= 256:
        raise NotTrusted(f"the other end gave no {name}")
    return found
