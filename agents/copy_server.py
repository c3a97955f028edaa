"""The process of a node that holds copies of other nodes' shards and hands out its own.

    main([ADDRESS, FOLDER, RAYLET_FD])

It outlives ranks and the agent, and ends with the node's raylet. What neighbours give it stays in
memory alone; what it is asked for it takes from there or from the node's own checkpoint directory
of that job. FOLDER holds `keys/<job_id>.json`, one for each job that may use it, with the job's key
and directory: where a file goes, the job's copies go too. Standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .checkpoint_manifest import MANIFEST_NAME
from .checkpoint_storage import FolderStorage, checksum, is_plain_name
from .copy_wire import BLOCK_BYTES, Channel, NotTrusted, accept
from .processes import detach, process, set_name

RECORD_NAME = "copies.json"
LOCK_NAME = "copies.lock"
KEYS_NAME = "keys"
_HANDSHAKE_S = 10.0
_IDLE_S = 60.0
_LOOK_S = 2.0
_CLIENTS = 256
_WHOLE_KEPT = 2


class Copies:
    """What a job's neighbours have given this node, and this node's own directory of the job.

    memory: content by name, `folder/file`; never more than the last two checkpoints and what is
        newer, however many stay on disks.
    """

    def __init__(self, directory: str) -> None:
        self.disk = FolderStorage(Path(directory))
        self.memory: dict[str, bytes] = {}
        self._mutex = threading.Lock()

    def listing(self) -> dict[str, dict[str, int]]:
        """Size of every file by folder; the directory itself is the folder ''."""
        found = {"": self.disk.files()}
        for folder in self.disk.folders():
            if is_plain_name(folder):
                found[folder] = self.disk.files(folder)
        with self._mutex:
            held = {name: len(content) for name, content in self.memory.items()}
        for name, size_bytes in held.items():
            folder, _, file = name.rpartition("/")
            found.setdefault(folder, {}).setdefault(file, size_bytes)
        return found

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """A file, from the disk or else from memory. Raises OSError."""
        try:
            stream = self.disk.open(name)
        except FileNotFoundError:
            with self._mutex:
                content = self.memory.get(name)
            if content is None:
                raise
            stream = io.BytesIO(content)
        with stream:
            yield stream

    def keep(self, name: str, content: bytes, durable: bool) -> None:
        """Take a copy; a durable one goes onto the disk."""
        if durable:
            folder = name.rpartition("/")[0]
            self.disk.make_folder(folder)
            with self.disk.writing(name) as writer:
                writer.write(content)
            return
        with self._mutex:
            self.memory[name] = content
        self._thin()

    def _thin(self) -> None:
        """Let go of what is older than the last checkpoints, which are the ones to resume from."""
        whole = [f for f in sorted(self.disk.folders()) if MANIFEST_NAME in self.disk.files(f)]
        oldest = whole[-_WHOLE_KEPT] if len(whole) >= _WHOLE_KEPT else ""
        with self._mutex:
            for held in [n for n in self.memory if n.rpartition("/")[0] < oldest]:
                del self.memory[held]

    def remove(self, name: str) -> None:
        """Forget a file, or a folder and everything in it."""
        with self._mutex:
            for held in [n for n in self.memory if n == name or n.startswith(f"{name}/")]:
                del self.memory[held]
        if name in self.disk.folders():
            self.disk.remove_folder(name)
        else:
            with contextlib.suppress(FileNotFoundError):
                self.disk.remove(name)


class CopyServer:
    """Answers ranks' writers and agents of other nodes; a thread a connection."""

    def __init__(self, folder: Path) -> None:
        self._keys = folder / KEYS_NAME
        self._jobs: dict[str, Copies] = {}
        self._mutex = threading.Lock()
        self._clients = threading.BoundedSemaphore(_CLIENTS)

    def serve(self, server: socket.socket, raylet_fd: int) -> None:
        """Until the node's raylet is gone."""
        while True:
            ready = select.select([server.fileno(), raylet_fd], [], [], _LOOK_S)[0]
            if raylet_fd in ready:
                return
            self.forget_unknown()
            if server.fileno() in ready:
                connection, _ = server.accept()
                threading.Thread(target=self._client, args=(connection,), daemon=True).start()

    def forget_unknown(self) -> None:
        """Let go of the copies of jobs that may not use this node any more."""
        with self._mutex:
            for job_id in [job for job in self._jobs if self._grant(job) is None]:
                del self._jobs[job_id]

    def _client(self, connection: socket.socket) -> None:
        with self._clients, connection:
            connection.settimeout(_HANDSHAKE_S)
            try:
                job_id, channel = accept(connection, self._key)
                connection.settimeout(_IDLE_S)
                copies = self._copies(job_id)
                while True:
                    self._answer(copies, channel, channel.receive())
            except (OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, NotTrusted):
                    sys.stderr.write(f"refused: {error}\n")

    def _answer(self, copies: Copies, channel: Channel, message: dict[str, Any]) -> None:
        op, name = message["op"], message.get("name", "")
        if op != "list" and not is_plain_name(name):
            raise ValueError(f"{name!r} is no name")
        content = bytearray()
        if message["payload_bytes"]:
            channel.payload(message, content.extend)
        try:
            if op == "list":
                channel.send({"ok": True, "folders": copies.listing()})
            elif op == "put":
                copies.keep(name, bytes(content), bool(message["durable"]))
                channel.send({"ok": True})
            elif op == "remove":
                copies.remove(name)
                channel.send({"ok": True})
            elif op == "checksum":
                with copies.opened(name) as stream:
                    size_bytes, sha256 = checksum(stream)
                channel.send({"ok": True, "size_bytes": size_bytes, "sha256": sha256})
            elif op == "get":
                _give(copies, channel, name)
            else:
                raise ValueError(f"unknown request {op!r}")
        except OSError as error:
            number = error.errno or errno.EIO
            channel.send({"ok": False, "errno": number, "why": error.strerror or str(error)})

    def _copies(self, job_id: str) -> Copies:
        grant = self._grant(job_id)
        if grant is None:
            raise NotTrusted(f"job {job_id} is over")
        with self._mutex:
            found = self._jobs.get(job_id)
            if found is None or found.disk.root != Path(grant["directory"]):
                found = self._jobs[job_id] = Copies(grant["directory"])
            return found

    def _key(self, job_id: str) -> str | None:
        grant = self._grant(job_id)
        return None if grant is None else str(grant["key"])

    def _grant(self, job_id: str) -> dict[str, Any] | None:
        if "/" in job_id or job_id.startswith("."):
            return None
        try:
            found = json.loads((self._keys / f"{job_id}.json").read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


def _give(copies: Copies, channel: Channel, name: str) -> None:
    with copies.opened(name) as stream:
        size_bytes, sha256 = checksum(stream)
        stream.seek(0)
        blocks = iter(lambda: stream.read(BLOCK_BYTES), b"")
        channel.send({"ok": True, "sha256": sha256}, size_bytes, blocks)


def content_sha256(content: bytes) -> str:
    """What a payload's message says of it."""
    return hashlib.sha256(content).hexdigest()


def main(arguments: list[str]) -> None:
    """Detach and serve. The process that was started exits 0 once the record is written."""
    address, folder, raylet_fd = arguments[0], Path(arguments[1]), int(arguments[2])
    ready = detach()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_name("railweave-copies")
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os._exit(1)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with _listening(address, family, folder) as server:
        own = process(os.getpid())
        record = {
            "pid": os.getpid(),
            "start_ticks": own.start_ticks if own else 0,
            "host": address,
            "port": server.getsockname()[1],
        }
        part = folder / f"{RECORD_NAME}.part"
        part.write_text(json.dumps(record))
        part.replace(folder / RECORD_NAME)
        os.write(ready, b"1")
        os.close(ready)
        CopyServer(folder).serve(server, raylet_fd)
    os._exit(0)


def _listening(address: str, family: socket.AddressFamily, folder: Path) -> socket.socket:
    """On the port of its predecessor, which ranks know, where that is free."""
    port = 0
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        port = int(json.loads((folder / RECORD_NAME).read_text())["port"])
    with contextlib.suppress(OSError):
        return socket.create_server((address, port), family=family, backlog=128)
    return socket.create_server((address, 0), family=family, backlog=128)
