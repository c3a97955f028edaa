"""This process's place in a Ray cluster: taken, kept while it is used, and taken anew.

A process joins by way of one of the cluster's nodes. When that node has ended, as the head that was
killed and started again, the process gets no further with Ray and has to join once more; nobody may
be using Ray in it at that moment.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import ray
from ray.exceptions import RayError

from ..agents.fleet import NAMESPACE

_REACH_S = 5.0
_AGAIN_S = 0.5
_ANSWER_S = 1.0
_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"


class CannotConnect(RuntimeError):
    """There is nobody to talk to; the message says what to do."""


class NoCluster(CannotConnect):
    """No Ray cluster is named, or none answers at its address."""


class WrongToken(CannotConnect):
    """The Ray cluster does not accept this process's token."""


class _Place:
    """The process's one place, empty where it has none or somebody else has joined.

    node: Ray's own record of it; None while it is lost. raylet_pid: of the node that it joined by.
    times: how often it was taken. using: how many use it now. moving: it is just taken anew.
    """

    def __init__(self) -> None:
        self.free = threading.Condition()
        self.address = ""
        self.node: Any = None
        self.raylet_pid: int | None = None
        self.times = 0
        self.using = 0
        self.moving = False


_place = _Place()


@contextmanager
def in_cluster() -> Iterator[int]:
    """Use Ray in the block: the place in the cluster is not taken anew meanwhile.

    Gives a number that changes with the place: handles of actors are good for one place only.
    Raises NoCluster where the place is lost; `join_again` looks for another.
    """
    with _place.free:
        _place.free.wait_for(lambda: not _place.moving)
        if _place.address and _place.node is None:
            raise NoCluster(f"the Ray cluster at {_place.address} has ended")
        _place.using += 1
    try:
        yield _place.times
    finally:
        with _place.free:
            _place.using -= 1
            _place.free.notify_all()


def join(address: str) -> None:
    """Join the cluster whose head is at `host:port`. Raises NoCluster, WrongToken."""
    _use_token()
    _refuse_unreachable(address)
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR
        )
        # Else the raylets' warnings would still be printed, into the output of commands.
        ray._private.worker._worker_logs_enabled = False
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        raise NoCluster(f"cannot join the Ray cluster at {address}: {error}") from error
    finally:
        # Ray's own handler ends the process from within a call, with a stack dump.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)
    _place.address = address
    _place.node = ray._private.worker._global_node
    _place.raylet_pid = _raylet_pid()
    _place.times += 1


def leave() -> None:
    """Leave the cluster that this process has joined."""
    _place.address, _place.node = "", None
    if ray.is_initialized():
        ray.shutdown()


def join_again(give_up: float) -> bool:
    """Join the cluster anew where the node that this process joined by has ended; whether it had.

    Waits for a cluster that is not there until `give_up`, by the monotonic clock. Raises
    CannotConnect.
    """
    if not _is_out():
        return False
    with _place.free:
        _place.free.wait_for(lambda: not _place.moving)
        if not _is_out():
            return True  # somebody else has joined meanwhile
        _place.moving = True
        _place.free.wait_for(lambda: _place.using == 0)
    try:
        # To leave a cluster whose control store does not answer can take Ray minutes.
        _waiting(lambda: _refuse_unreachable(_place.address), give_up)
        _place.node = None
        ray.shutdown()
        _waiting(lambda: join(_place.address), give_up)
        return True
    finally:
        with _place.free:
            _place.moving = False
            _place.free.notify_all()


def _waiting(attempt: Callable[[], None], give_up: float) -> None:
    """Try again while there is no cluster, until `give_up`. Raises CannotConnect."""
    while True:
        try:
            return attempt()
        except NoCluster:
            if time.monotonic() > give_up:
                raise
            time.sleep(_AGAIN_S)


def _is_out() -> bool:
    """Whether this process had joined a cluster by a node that is not there any more."""
    if not _place.address or _place.node is None:
        return bool(_place.address)
    # Where somebody has called Ray's own functions instead, the place is theirs.
    ours = ray._private.worker._global_node is _place.node
    return ours and _raylet_pid() != _place.raylet_pid


def _raylet_pid() -> int | None:
    """The process that listens where this one has joined; None when there is none."""
    node = ray._private.worker._global_node
    if node is None:
        return None
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(node.raylet_socket_name)
            size = struct.calcsize("3i")
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    except OSError:
        return None
    return int(struct.unpack("3i", told)[0])


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
