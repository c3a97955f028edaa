"""Finding the daemon that a command talks to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from ...agents.fleet import node_names
from ...agents.inventory import DEVICE_RESOURCE
from ..client import Client
from ..home import background_cluster
from ..views import DaemonStatus
from .main import Failed


def use_cluster() -> None:
    """Point this process at the cluster of RAY_ADDRESS, else at the embedded one of `up`.

    Raises Failed when there is neither.
    """
    if os.environ.get("RAY_ADDRESS"):
        return
    cluster = background_cluster()
    if cluster is None:
        raise Failed(
            "no Ray cluster: RAY_ADDRESS is not set and no embedded cluster is running. Set "
            "RAY_ADDRESS to the cluster's address, or start one here with: railweave up --embedded"
        )
    cluster.use()


@contextmanager
def connected() -> Iterator[Client]:
    """A client of the running daemon for the time of a command."""
    use_cluster()
    with Client() as client:
        yield client


def wait_for_agents(client: Client, timeout_s: float = 90.0) -> DaemonStatus:
    """The daemon's status once every node of the Ray cluster has told of its devices.

    Raises Failed naming the nodes that have not after `timeout_s`.
    """
    give_up = time.monotonic() + timeout_s
    while True:
        status = client.status()
        expected = _declared_devices()
        told = {node.name: node.devices for node in status.nodes if node.state == "ok"}
        missing = [name for name, count in expected.items() if told.get(name, -1) < count]
        if not missing:
            return status
        if time.monotonic() > give_up:
            reasons = {node.name: node.reason for node in status.nodes if node.reason}
            names = ", ".join(f"{name} ({reasons.get(name, 'no agent')})" for name in missing)
            raise Failed(
                f"after {timeout_s:g} s these nodes are not ready: {names}; is Railweave installed "
                "there, in the same version?"
            )
        time.sleep(0.2)


def _declared_devices() -> dict[str, int]:
    """How many devices Ray says each alive node has, by Railweave's name of the node."""
    entries = [entry for entry in ray.nodes() if entry["Alive"]]  # type: ignore[no-untyped-call]
    names = node_names(entries)
    return {
        names[entry["NodeID"]]: int(
            entry["Resources"].get(DEVICE_RESOURCE, 0) or entry["Resources"].get("GPU", 0)
        )
        for entry in entries
    }
