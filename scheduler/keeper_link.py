"""The keeper of an embedded cluster as its owner, or one who attached later, sees it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..agents import processes
from .keeper import SOCKET_NAME


class EmbeddedClusterError(RuntimeError):
    """The embedded cluster could not be started, changed or ended; the message says what to do."""


class KeeperLink:
    """The keeper's process as its owner, or one who attached later, sees it."""

    def __init__(
        self,
        directory: Path,
        process: processes.Process,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.directory = directory
        self.process = process
        self.child = child
        self.detached = False

    @classmethod
    def start(cls, directory: Path, log: Path) -> KeeperLink:
        """Start a keeper for `directory` whose lifeline this process holds."""
        with log.open("ab") as stream:
            child = subprocess.Popen(
                [sys.executable, "-m", "railweave.scheduler.keeper", os.fspath(directory)],
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        entry = processes.process(child.pid)
        give_up = time.monotonic() + 30
        while entry is None or not (directory / SOCKET_NAME).exists():
            if child.poll() is not None or time.monotonic() > give_up:
                child.kill()
                raise EmbeddedClusterError(
                    f"the process that holds the cluster did not come up: {tail(log, 2000)}"
                )
            time.sleep(0.01)
        return cls(directory, entry, child)

    def ask(self, request: dict[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
        """The keeper's answer. Raises EmbeddedClusterError when it refuses or is gone."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(timeout_s)
                connection.connect(os.fspath(self.directory / SOCKET_NAME))
                with connection.makefile("rw", encoding="utf-8") as stream:
                    stream.write(json.dumps(request) + "\n")
                    stream.flush()
                    reply: dict[str, Any] = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            raise EmbeddedClusterError(
                f"the process that holds the embedded cluster (pid {self.process.pid}) does not "
                f"answer ({error}); the cluster has ended, start another"
            ) from error
        if "error" in reply:
            raise EmbeddedClusterError(f"{request['verb']}: {reply['error']}")
        return reply

    def end(self) -> list[int]:
        """End the keeper and all it holds; the pids that would not end."""
        survivors: list[int] = []
        with contextlib.suppress(EmbeddedClusterError):
            survivors = self.ask({"verb": "end"})["survivors"]
        if self.child is not None and self.child.stdin is not None:
            self.child.stdin.close()
        give_up = time.monotonic() + 30
        while not self._gone():
            if time.monotonic() > give_up:
                return [*survivors, self.process.pid]
            time.sleep(0.01)
        return survivors

    def _gone(self) -> bool:
        if self.child is not None:
            return self.child.poll() is not None
        found = processes.process(self.process.pid)
        # Where nobody reaps orphans, what has ended stays in the table.
        return found is None or found.state == "Z" or found.start_ticks != self.process.start_ticks


def tail(path: Path, size_bytes: int) -> str:
    """The end of a text file; empty when there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - size_bytes))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""
