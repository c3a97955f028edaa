"""A job under the daemon whose network is broken in every way: noticed as what it is, survived."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from railweave.scheduler.chaos.kinds import FACTS, Kind, Where
from railweave.scheduler.chaos.schedule import Injection, Schedule

from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.raylets import Raylets
from fabric.topology import Plan

# Longer than it takes to be noticed, shorter than Ray waits before it gives a node up for good.
FOR_S = 14.0
STEPS_APART = 250
NETWORK = tuple(kind for kind in Kind if FACTS[kind].where is Where.NETWORK)


class Wires:
    """Breaks the network of a fabric as the driver inside of it asks, one thing at a time."""

    def __init__(self, fabric: Fabric, head: str) -> None:
        self._fabric = fabric
        self._faults = Faults(fabric)
        self._head_leaf = fabric.hosts[head].leaf
        self._broken = ExitStack()

    def do(self, request: dict[str, str]) -> None:
        self._broken.close()
        if "cut" not in request:
            return
        kind, node = Kind(request["cut"]), request["node"]
        leaf = self._fabric.hosts[node].leaf
        if kind is Kind.CABLE_PULLED:
            self._broken.enter_context(self._faults.nic_down(node))
        elif kind is Kind.PARTITION:
            self._broken.enter_context(self._faults.partition([self._head_leaf], [leaf]))
        elif kind is Kind.PARTITION_ONE_WAY:
            # What the node says arrives; what is said to it does not.
            self._broken.enter_context(self._faults.one_way(self._head_leaf, leaf))
        else:
            self._broken.enter_context(self._faults.nic_slow(node, 1.0))

    def mend(self) -> None:
        self._broken.close()


@contextmanager
def serving(wires: Wires, path: Path) -> Iterator[None]:
    """Do what is asked over a socket, while the context lasts."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(4)

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("r") as stream:
                    line = stream.readline()
                    if not line:
                        return
                    wires.do(json.loads(line))
                    connection.sendall(b"done\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()
            wires.mend()


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_job_survives_every_way_of_breaking_its_network() -> None:
    plan = Plan(leaves=3, hosts_per_leaf=2, host_mbit=60, spine_mbit=60)
    hosts = ["h0-0", "h1-0", "h2-0", "h2-1"]
    schedule = Schedule(
        faults=tuple(
            Injection(
                kind=kind, job="job", rank=index % 2, at_step=10 + STEPS_APART * index, for_s=FOR_S
            )
            for index, kind in enumerate(NETWORK)
        )
    )
    with (
        Fabric(plan) as fabric,
        Raylets(fabric, hosts, json.dumps({"railweave_device": 1})) as raylets,
        serving(Wires(fabric, hosts[0]), raylets.folder / "network"),
    ):
        said = raylets.run(
            "fabric.chaos_run", str(raylets.folder), schedule.to_json(), timeout_s=900
        )
    told = json.loads(said.splitlines()[-1])
    print(json.dumps(told, indent=1))
    assert told["state"] == "SUCCEEDED", told["explained"]
    assert told["right"] == [True, True]
    assert told["unexplained"] == []
    assert {kind for kind, *_ in told["findings"]} == {kind.value for kind in NETWORK}
    for kind, outcome, _, what in told["findings"]:
        expected = "noticed" if FACTS[Kind(kind)].breaks else "borne"
        assert outcome == expected, (kind, what)
