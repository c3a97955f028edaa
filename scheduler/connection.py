"""A connection to a Ray cluster and to the daemon on it, with errors that say what to do."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import ray
from ray.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)

from ..agents.fleet import NAMESPACE
from .messages import DAEMON_NAME

# A daemon that was killed answers again after about 1 s; a busy machine may need longer.
RESTART_S = 60.0
_CALL_S = 90.0
_REACH_S = 5.0
_RETRY_S = 0.1
_ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*: ")
_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"


class CannotConnect(RuntimeError):
    """There is nobody to talk to; the message says what to do."""


class NoCluster(CannotConnect):
    """No Ray cluster is named, or none answers at its address."""


class WrongToken(CannotConnect):
    """The Ray cluster does not accept this process's token."""


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
        _use_token()
        _refuse_unreachable(where)
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(
                address=where, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
            )
            # Else the raylets' warnings would still be printed, into the output of commands.
            ray._private.worker._worker_logs_enabled = False
        except (ConnectionError, RayError, ValueError) as error:
            raise NoCluster(f"cannot join the Ray cluster at {where}: {error}") from error
        finally:
            # Ray's own handler ends the process from within a call, with a stack dump.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_sigterm)
        return cls(owned=True)

    def close(self) -> None:
        """Leave the cluster, where this connection joined it."""
        if self._owned and ray.is_initialized():
            ray.shutdown()

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the daemon returns; a daemon that is just restarting is waited for.

        Every method may be called twice without harm, so a call that got lost is repeated. Raises
        NoDaemon, or what the method raised.
        """
        give_up = time.monotonic() + RESTART_S
        while True:
            try:
                return self._once(method, *arguments)
            except ActorDiedError as error:
                raise NoDaemon(f"the daemon has ended: {_root_message(error)}") from None
            except (RayActorError, GetTimeoutError) as error:
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


def _use_token() -> None:
    """Turn Ray's token authentication on where this process has a token.

    Only a head does so by itself; Ray reads its settings and its token once, when it is imported.
    """
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    if "RAY_AUTH_MODE" not in os.environ and _token():
        os.environ["RAY_AUTH_MODE"] = "token"
    # Otherwise a driver ends 60 s after its cluster's control store went away.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _token() -> str:
    """This process's token, as Ray looks it up; empty when it has none."""
    given = os.environ.get("RAY_AUTH_TOKEN", "")
    if given:
        return given
    path = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    try:
        return Path(path or Path.home() / ".ray" / "auth_token").read_text().strip()
    except OSError as error:
        if path:
            raise WrongToken(
                f"RAY_AUTH_TOKEN_PATH names {path}, which cannot be read: {error.strerror}"
            ) from error
        return ""


def _refuse_unreachable(address: str) -> None:
    """Ask the head for a sign of life: Ray itself would try for minutes, or end the process.

    Raises NoCluster, WrongToken.
    """
    if ":" not in address or "://" in address or os.environ.get("RAY_USE_TLS", "0") == "1":
        return
    token = _token() if os.environ.get("RAY_AUTH_MODE") == "token" else ""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(_ALIVE)(b"", timeout=_REACH_S, metadata=metadata)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else None
            if code is grpc.StatusCode.UNAUTHENTICATED:
                what = "does not accept this process's token" if token else "asks for a token"
                raise WrongToken(
                    f"the Ray cluster at {address} {what}: set RAY_AUTH_TOKEN_PATH to the file "
                    "with the token that its nodes were started with"
                ) from None
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise NoCluster(
                    f"no Ray cluster answers at {address}: is its head running, and is this "
                    "RAY_ADDRESS its host:port?"
                ) from None
