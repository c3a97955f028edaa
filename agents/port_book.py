"""Which ports were given to attempts on this node, so that none is given to a later one.

A rank that wakes up after its attempt was given up still dials the port of that attempt. As long as
no other attempt has that port, nobody answers it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from pathlib import Path

from .bound_socket import family

KEPT = 8192
"""How many ports back; the kernel has 28,000 to choose from."""
_TRIES = 1000


class PortBook:
    """The ports given on a node, kept in a file of its own folder. Safe to use from threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._given: deque[int] = deque(_read(path), maxlen=KEPT)

    def free_port(self, address: str) -> int:
        """A port that is free at an address and was not given lately.

        Raises OSError where there is none, or where it cannot be written down.
        """
        with self._mutex:
            known = set(self._given)
            for _ in range(_TRIES):
                with socket.create_server((address, 0), family=family(address)) as server:
                    port: int = server.getsockname()[1]
                if port not in known:
                    self._keep(port)
                    return port
        raise OSError(f"{_TRIES} free ports at {address} were all given to attempts before")

    def _keep(self, port: int) -> None:
        self._given.append(port)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.write_text(" ".join(map(str, self._given)))
        fresh.replace(self._path)


def _read(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split() if word.isdigit()]
    except OSError:
        return []
