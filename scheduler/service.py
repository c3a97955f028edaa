"""Starting and ending the daemon of a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from ..agents.fleet import NAMESPACE, agent_name
from .client import Client
from .connection import NoDaemon
from .daemon import Daemon
from .lifecycle import JobState
from .messages import DAEMON_NAME, ON_HEAD, controller_name
from .settings import Settings
from .views import DaemonStatus

_ACTIVE = tuple(state for state in JobState if not state.final)
_KILL_S = 30.0
_POLL_S = 0.1


def start_daemon(
    state_dir: str | os.PathLike[str],
    *,
    address: str | None = None,
    store: str = "",
    tiers: Sequence[str] = (),
    **settings: Any,
) -> DaemonStatus:
    """Start the daemon on the head node of a Ray cluster, and wait until it answers.

    state_dir: a folder on the head's disk; agents use the same path on their nodes. store: another
    place for the store, as a path or database URL. settings: the other fields of `Settings`.
    A daemon that runs already is left as it is. Raises CannotConnect; ValueError when the daemon
    that runs has another state_dir; RuntimeError with the reason when it does not come up.
    """
    wanted = Settings(
        state_dir=os.path.abspath(state_dir), store=store, tiers=tuple(tiers), **settings
    )
    actor: Any = ray.remote(Daemon)
    with Client(address) as client:
        try:
            actor.options(
                name=DAEMON_NAME,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                resources=ON_HEAD,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=1000,
            ).remote(wanted.model_dump_json())
            status = client.status()
        except NoDaemon as error:
            raise RuntimeError(f"the daemon did not come up: {error}") from None
        if status.state_dir != wanted.state_dir:
            raise ValueError(
                f"a daemon with state_dir {status.state_dir} runs on this cluster already; end it "
                "with `railweave down` before using another"
            )
        return status


def stop_daemon(
    *, address: str | None = None, cancel_jobs: bool = True, timeout_s: float = 120.0
) -> None:
    """End the daemon of a Ray cluster, and with `cancel_jobs` every job and agent too.

    Without, running jobs go on, and the next daemon on the same state_dir takes them up again.
    Nothing happens where no daemon runs. Raises CannotConnect; TimeoutError when jobs do not end.
    """
    with Client(address) as client:
        try:
            client.status()
        except NoDaemon:
            return
        if cancel_jobs:
            _cancel_all(client, timeout_s)
        client.close_daemon()
        _end_actor(DAEMON_NAME)
        if cancel_jobs:
            for actor in ray.util.list_named_actors(all_namespaces=True):
                name = str(actor["name"])
                ours = name.startswith((agent_name(""), controller_name("")))
                if ours and actor["namespace"] == NAMESPACE:
                    _end_actor(name)


def _cancel_all(client: Client, timeout_s: float) -> None:
    give_up = time.monotonic() + timeout_s
    for record in client.jobs(_ACTIVE):
        client.job(record.job_id).cancel()
    while left := client.jobs(_ACTIVE):
        if time.monotonic() > give_up:
            names = ", ".join(record.job_id for record in left[:5])
            raise TimeoutError(f"{len(left)} jobs have not ended in {timeout_s:g} s: {names}")
        time.sleep(_POLL_S)


def _end_actor(name: str) -> None:
    """End a named actor for good and wait until its name is free."""
    give_up = time.monotonic() + _KILL_S
    while time.monotonic() < give_up:
        try:
            ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)
        except (ValueError, RayError):
            return
        time.sleep(_POLL_S)
    raise TimeoutError(f"the actor {name} has not ended in {_KILL_S:g} s")
