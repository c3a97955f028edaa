"""Keeping a node's copy server up, and saying which jobs may use it. For the node's agent."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

from ..placement.files import write_text_atomically
from .attempt import Refused
from .copy_server import KEYS_NAME, LOCK_NAME, RECORD_NAME
from .detached import start_detached

_START_S = 20.0


def key_path(node_folder: Path, job_id: str) -> Path:
    """Where a node keeps a job's key, for its copy server and for the job's own ranks."""
    return node_folder / "copies" / KEYS_NAME / f"{job_id}.json"


class CopyHost:
    """The copy server of a node: started at the first job that wants it, again when it was killed.

    node_folder: the node's own state folder. raylet_fd: a handle of the process that it ends with.
    Safe to call from several threads.
    """

    def __init__(self, node_folder: Path, address: str, raylet_fd: int) -> None:
        self._node_folder = node_folder
        self._folder = node_folder / "copies"
        self._address = address
        self._raylet_fd = raylet_fd
        self._mutex = threading.Lock()

    def grant(self, job_id: str, key: str, directory: str) -> str:
        """Let a job use the server; returns its `host:port`. Raises Refused when it cannot start.

        directory: where this node keeps the job's checkpoints on its own disk.
        """
        path = key_path(self._node_folder, job_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._mutex:
            write_text_atomically(path, json.dumps({"key": key, "directory": directory}))
            path.chmod(0o600)
            return self._running()

    def revoke(self, job_id: str) -> None:
        """The job is over: its key goes, and with it the copies in memory."""
        key_path(self._node_folder, job_id).unlink(missing_ok=True)

    def tend(self) -> None:
        """Start the server again where it was killed while jobs use it; call it every second."""
        keys = self._folder / KEYS_NAME
        if keys.is_dir() and any(keys.iterdir()):
            with self._mutex:
                self._running()

    def _running(self) -> str:
        if not self._locked():
            self._start()
        record = json.loads((self._folder / RECORD_NAME).read_text())
        return f"{record['host']}:{record['port']}"

    def _locked(self) -> bool:
        """Whether a server is at work: it holds the lock as long as it lives."""
        try:
            with (self._folder / LOCK_NAME).open("r") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _start(self) -> None:
        log_path = self._folder / "copies.log"
        arguments = [self._address, str(self._folder), str(self._raylet_fd)]
        up = start_detached("copy_server", arguments, log_path, self._raylet_fd, _START_S)
        if not up and not self._locked():
            said = log_path.read_text(errors="replace").strip().splitlines()[-3:]
            raise Refused(
                f"the copy server did not come up at {self._address}; its log {log_path} says: "
                f"{' | '.join(said) or 'nothing'}"
            )
