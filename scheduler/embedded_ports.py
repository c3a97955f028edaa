"""Ports of the nodes of an embedded cluster, which share one machine with each other."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path

from ..placement.files import write_text_atomically
from .keeper_link import EmbeddedClusterError

_LOWEST, _COUNT = 20000, 12000
_TRIES = 200
_LISTEN = "dashboard-agent-listen"
_CLIENTS = "ray-client-server"
_AGENTS = (_LISTEN, "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")


class ClaimedPort:
    """A free TCP port, which nobody else who claims ports in this way gets until `release()`.

    It is below the ephemeral range, where no outgoing connection takes it in between. Raises
    EmbeddedClusterError when there is none.
    """

    def __init__(self) -> None:
        for _ in range(_TRIES):
            self.number = _LOWEST + secrets.randbelow(_COUNT)
            # Who is to listen binds it for TCP, so that the same number for UDP can be the claim.
            self._claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with socket.socket() as probe, contextlib.suppress(OSError):
                self._claim.bind(("", self.number))
                probe.bind(("", self.number))
                return
            self._claim.close()
        raise EmbeddedClusterError(
            f"no free TCP port between {_LOWEST} and {_LOWEST + _COUNT}; end what holds them"
        )

    def release(self) -> None:
        """Let others have it."""
        self._claim.close()


class AgentPorts:
    """The ports of what Ray runs on one node beside its raylet, until `release()`.

    temporary: the node's own folder, in which Ray makes its session. head: whether it is the head.
    Ports that these agents choose by themselves are waited for by the raylet, which ends itself
    after 15 s; on a crowded machine they take longer. The port for HTTP is waited for in any case,
    in a file; `publish` writes it before the agent writes the same.
    """

    def __init__(self, node_id: str, temporary: Path, *, head: bool) -> None:
        self._file = f"dashboard_agent_listen_port_{node_id}"
        self._temporary = temporary
        self._published = False
        self._claims: dict[str, ClaimedPort] = {}
        try:
            for agent in (*_AGENTS, *([_CLIENTS] if head else [])):
                self._claims[agent] = ClaimedPort()
        except EmbeddedClusterError:
            self.release()
            raise

    def arguments(self) -> list[str]:
        """The options of `ray start` that give these ports out."""
        return [f"--{agent}-port={claim.number}" for agent, claim in self._claims.items()]

    def publish(self) -> None:
        """Tell the raylet the port for HTTP, once there is a session folder."""
        if self._published:
            return
        for session in self._temporary.glob("session_2*"):
            write_text_atomically(session / self._file, str(self._claims[_LISTEN].number))
            self._published = True

    def release(self) -> None:
        """Let others have the ports, once the node has ended."""
        for claim in self._claims.values():
            claim.release()
