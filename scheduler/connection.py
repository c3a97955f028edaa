"""A connection to a Ray cluster and to the daemon on it, with errors that say what to do."""

from __future__ import annotations

import os
import re
import time
from typing import Any

import ray
from ray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    RayActorError,
    RaySystemError,
    RayTaskError,
)

from ..agents.fleet import NAMESPACE
from .joining import CannotConnect, NoCluster, WrongToken, in_cluster, join, join_again, leave
from .messages import DAEMON_NAME

__all__ = ["CannotConnect", "Connection", "NoCluster", "NoDaemon", "WrongToken"]

# A daemon that was killed answers again after about 1 s; a busy machine may need longer.
RESTART_S = 60.0
_CALL_S = 90.0
_RETRY_S = 0.1
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*: ")


class NoDaemon(CannotConnect):
    """The Ray cluster has no Railweave daemon, or it does not answer."""


class Connection:
    """A connection to a Ray cluster; `call` talks to the daemon there."""

    def __init__(self, owned: bool) -> None:
        self._owned = owned

    @classmethod
    def open(cls, address: str | None = None) -> Connection:
        """Connect to the cluster at `address`, else at RAY_ADDRESS, else as Ray already is.

        Raises NoCluster, WrongToken.
        """
        where = address or os.environ.get("RAY_ADDRESS", "")
        if ray.is_initialized():
            joined = ray.get_runtime_context().gcs_address
            if address and address != joined:
                raise NoCluster(
                    f"this process has joined the Ray cluster at {joined}; call ray.shutdown() "
                    f"before joining the one at {address}"
                )
            return cls(owned=False)
        if not where:
            raise NoCluster(
                "no Ray cluster: set RAY_ADDRESS to its head's host:port, or start one on this "
                "machine with: railweave up --embedded"
            )
        join(where)
        return cls(owned=True)

    def close(self) -> None:
        """Leave the cluster, where this connection joined it."""
        if self._owned:
            leave()

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the daemon returns; a daemon that is just restarting is waited for.

        So is a head that is started again: the cluster is joined anew then. Every method may be
        called twice without harm, so a call that got lost is repeated. Raises NoDaemon, NoCluster,
        or what the method raised.
        """
        give_up = time.monotonic() + RESTART_S
        while True:
            try:
                with in_cluster():
                    return self._once(method, *arguments)
            except (RayActorError, GetTimeoutError, RaySystemError, NoCluster) as error:
                if join_again(give_up):
                    give_up = time.monotonic() + RESTART_S
                    continue
                if isinstance(error, RaySystemError | NoCluster):
                    raise
                if isinstance(error, ActorDiedError):
                    raise NoDaemon(f"the daemon has ended: {_root_message(error)}") from None
                if time.monotonic() > give_up:
                    raise NoDaemon(
                        f"the daemon has not answered for {RESTART_S:.0f} s "
                        f"({type(error).__name__}); see `ray list actors`, and its log with "
                        "`ray logs actor`"
                    ) from None
                time.sleep(_RETRY_S)

    def _once(self, method: str, *arguments: Any) -> Any:
        try:
            daemon = ray.get_actor(DAEMON_NAME, NAMESPACE)
        except ValueError:
            raise NoDaemon(
                "no Railweave daemon runs on this Ray cluster; start it with: railweave up"
            ) from None
        try:
            return ray.get(getattr(daemon, method).remote(*arguments), timeout=_CALL_S)
        except RayTaskError as error:
            # The daemon's own error, without Ray's account of how it travelled.
            raise (error.cause if isinstance(error.cause, Exception) else error) from None


def _root_message(error: Exception) -> str:
    """The message of the error that ended an actor, out of the traceback that Ray makes of it."""
    lines = str(error).strip().splitlines()
    starts = [i for i, line in enumerate(lines) if _ERROR_LINE.match(line)]
    return "\n".join(lines[starts[-1] if starts else 0 :])
