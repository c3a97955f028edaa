"""`python -m railweave.agents.probe_server`: a node's end of probes, where no Ray runs.

Listens for probers that know the token, which is read from a file or from the environment. Prints
one line of JSON with its address once it listens, and runs until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from .bound_socket import listening
from .netprobe import Opening, ProbeFailed
from .probe_end import NicAddress, ProbeEnd, ProbeOrder
from .probe_wire import Lines, prove_as_server

PORT = 7463
TOKEN = "RAILWEAVE_PROBE_TOKEN"
_GREETING_S = 5.0
_MOST_PROBERS = 8
_WORKERS = 16
_BACKLOG = 64
_log = logging.getLogger(__name__)


class _ConnectArgument(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    opening: Opening
    order: ProbeOrder


class ProbeServer:
    """Serves one node's end of probes to those who know the token."""

    def __init__(self, nics: Sequence[NicAddress], token: str, port: int = PORT) -> None:
        if len(token) < 16:
            raise ValueError(f"the token has {len(token)} characters; give at least 16")
        self._end = ProbeEnd(nics)
        self._token = token
        self._socket = listening(nics[0].address, nics[0].device, _BACKLOG, port)
        self._workers = ThreadPoolExecutor(_WORKERS, "probe")
        self._probers = threading.BoundedSemaphore(_MOST_PROBERS)
        self.address = nics[0].address
        self.port: int = self._socket.getsockname()[1]

    def serve(self) -> None:
        """Serve until `close`."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self._probers.acquire(blocking=False):
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _talk(self, connection: socket.socket) -> None:
        lines = Lines(connection)
        try:
            connection.settimeout(_GREETING_S)
            prove_as_server(lines, self._token)
            connection.settimeout(None)
            writing = threading.Lock()
            while True:
                self._workers.submit(self._serve_one, lines, lines.receive(), writing)
        except (OSError, ValueError, RuntimeError) as error:
            _log.info("a prober is gone: %s", error)
        finally:
            self._probers.release()
            lines.close()

    def _serve_one(self, lines: Lines, asked: dict[str, Any], writing: threading.Lock) -> None:
        answer: dict[str, Any] = {"id": asked.get("id")}
        try:
            answer["result"] = self._verb(str(asked.get("verb")))(asked.get("argument"))
        except (ProbeFailed, OSError, ValidationError) as error:
            answer["error"] = str(error)
        with contextlib.suppress(OSError, ValueError), writing:
            lines.send(answer)

    def _verb(self, name: str) -> Callable[[Any], dict[str, Any]]:
        verbs = {"ping": self._ping, "listen": self._listen, "connect": self._connect}
        if name not in verbs:
            raise ProbeFailed(f"a probe server does not know {name!r}; it knows {', '.join(verbs)}")
        return verbs[name]

    def _ping(self, _: Any) -> dict[str, Any]:
        return {}

    def _listen(self, argument: Any) -> dict[str, Any]:
        return self._end.listen(ProbeOrder.model_validate(argument)).model_dump(mode="json")

    def _connect(self, argument: Any) -> dict[str, Any]:
        given = _ConnectArgument.model_validate(argument)
        return self._end.connect(given.opening, given.order).model_dump(mode="json")


def main(arguments: Sequence[str]) -> None:
    """Serve until ended. Raises SystemExit for wrong arguments."""
    parser = argparse.ArgumentParser(prog="railweave.agents.probe_server", description=__doc__)
    parser.add_argument(
        "--nic",
        action="append",
        required=True,
        metavar="ADDRESS[%DEVICE]",
        help="a NIC's address, and its name to send through it; once a rail, in order",
    )
    parser.add_argument("--port", type=int, default=PORT, help="0 takes a free one")
    parser.add_argument("--token-file", type=Path, help=f"default: the variable {TOKEN}")
    given = parser.parse_args(arguments)
    token = given.token_file.read_text().strip() if given.token_file else os.environ.get(TOKEN, "")
    if not token:
        parser.error(f"no token: give --token-file or set {TOKEN}")
    nics = []
    for text in given.nic:
        address, _, device = text.partition("%")
        nics.append(NicAddress(address=address, device=device or None))
    server = ProbeServer(nics, token, given.port)
    sys.stdout.write(json.dumps({"host": server.address, "port": server.port}) + "\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
