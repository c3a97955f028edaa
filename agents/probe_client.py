"""The prober's side of probe servers: the ends of nodes on which no Ray runs."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from ..placement.inference.measurements import Pair
from .bound_socket import dial
from .netprobe import Opening, ProbeFailed
from .probe_end import PairProbe, ProbeOrder
from .probe_wire import Lines, prove_as_client
from .prober import Answers

Answer = TypeVar("Answer")
_CONNECT_S = 10.0
_MOST_AT_ONCE = 256


class NoAnswer(ProbeFailed):
    """A probe server did not answer."""


class ProbeServers:
    """Probe servers by node name, given as (host, port), and the token they share.

    A server that cannot be reached fails the probes of its node and is tried again with the next.
    """

    def __init__(self, servers: Mapping[str, tuple[str, int]], token: str) -> None:
        self._nodes = {name: _Server(name, where, token) for name, where in servers.items()}
        self._pool = ThreadPoolExecutor(min(_MOST_AT_ONCE, max(1, len(servers))), "ask")

    def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        """See `Ends.listen`."""
        asked = {
            pair: (pair[1], "listen", order.model_dump(mode="json"))
            for pair, order in orders.items()
        }
        return self._all(asked, timeout_s, Opening.model_validate)

    def connect(
        self, orders: Mapping[Pair, tuple[Opening, ProbeOrder]], timeout_s: float
    ) -> Answers[PairProbe]:
        """See `Ends.connect`."""
        asked = {
            pair: (
                pair[0],
                "connect",
                {
                    "opening": opening.model_dump(mode="json"),
                    "order": order.model_dump(mode="json"),
                },
            )
            for pair, (opening, order) in orders.items()
        }
        return self._all(asked, timeout_s, PairProbe.model_validate)

    def close(self) -> None:
        """Close all connections."""
        self._pool.shutdown(cancel_futures=True)
        for node in self._nodes.values():
            node.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _all(
        self,
        asked: Mapping[Pair, tuple[str, str, Any]],
        timeout_s: float,
        read: Callable[[Any], Answer],
    ) -> Answers[Answer]:
        pending = {
            pair: self._pool.submit(self._nodes[node].ask, verb, argument, timeout_s)
            for pair, (node, verb, argument) in asked.items()
        }
        answers = Answers[Answer]()
        for pair, future in pending.items():
            try:
                answers.found[pair] = read(future.result())
            except (ProbeFailed, OSError, ValueError) as error:
                why = str(error) or type(error).__name__
                answers.fail(pair, why, isinstance(error, NoAnswer))
        return answers


class _Server:
    """The connection to one server. Invariant: one thread uses it at a time."""

    def __init__(self, name: str, where: tuple[str, int], token: str) -> None:
        self._name = name
        self._where = where
        self._token = token
        self._lines: Lines | None = None
        self._numbers = itertools.count()

    def ask(self, verb: str, argument: Any, timeout_s: float) -> Any:
        """The server's answer. Raises NoAnswer, ProbeFailed, OSError, ValueError."""
        give_up = time.monotonic() + timeout_s
        number = next(self._numbers)
        try:
            lines = self._connected(timeout_s)
            lines.connection.settimeout(timeout_s)
            lines.send({"id": number, "verb": verb, "argument": argument})
            while (answer := lines.receive()).get("id") != number:
                lines.connection.settimeout(max(0.001, give_up - time.monotonic()))
        except (OSError, ValueError) as error:
            self.close()
            host, port = self._where
            raise NoAnswer(
                f"the probe server of {self._name} at {host}:{port} gave no answer to {verb}: "
                f"{error or type(error).__name__}"
            ) from error
        if "error" in answer:
            raise ProbeFailed(str(answer["error"]))
        return answer.get("result")

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        lines, self._lines = self._lines, None
        if lines is not None:
            with suppress(OSError):
                lines.close()

    def _connected(self, timeout_s: float) -> Lines:
        if self._lines is None:
            wait_s = min(_CONNECT_S, timeout_s)
            connection = dial(*self._where, wait_s)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = Lines(connection)
            try:
                prove_as_client(lines, self._token)
            except (OSError, ValueError):
                lines.close()
                raise
            self._lines = lines
        return self._lines
