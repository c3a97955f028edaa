"""What a placement's job does to the wires of a fabric: bytes over the spines, and time a step."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from railweave.placement import PCG, Cluster, evaluate, place
from railweave.placement.cluster import Node, NodeState, Tier
from railweave.placement.evaluate import Device
from railweave.placement.pcg import Group
from railweave.placement.timed.link_time import communication_time, phases_of

from . import namespaces
from .fabric import Fabric
from .hosts import Crew
from .topology import Plan

HEADER_BYTES = 14 + 20 + 32
"""Ethernet, IPv4, and TCP with timestamps: what a frame has besides its payload."""
RAILWEAVE, IN_ORDER = "Railweave", "packing in order"
BUSY = ("h1-2",)
LANES, RING_BYTES, EDGE_BYTES = 3, 2**20, 2**15
ROUNDS, STEPS = 3, 4
"""How often each placement runs, with new connections each time, and for how long."""
_PORT = 29555
# One thread a rank, and no word on name servers, which the hosts do not have.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}


@dataclass(frozen=True)
class OnTheWire:
    """A job as predicted and as it was.

    spine_bytes: payload that crossed the spines, a step. step_s: the median step of the slowest
    rank.
    """

    devices: tuple[Device, ...]
    predicted_spine_bytes: float
    spine_bytes: float
    predicted_step_s: float
    step_s: float


def cluster_of(plan: Plan, busy: Sequence[str] = ()) -> Cluster:
    """The cluster file of a fabric with one device a host; `busy` hosts have none free.

    A connection goes over one spine link, so that is what a NIC gets at the spine.
    """
    payload = (plan.mtu_bytes - 52) / (plan.mtu_bytes + 14)
    leaf_s = 20e-6
    spine = min(plan.host_bytes_per_s, plan.spine_bytes_per_s)
    uplinks = plan.spines * plan.spine_bytes_per_s
    return Cluster(
        name="fabric",
        tiers=(
            Tier(name="leaf", bandwidth=plan.host_bytes_per_s * payload, latency=leaf_s),
            Tier(
                name="spine",
                bandwidth=spine * payload,
                latency=leaf_s + 2 * plan.delay_s,
                oversubscription=max(1.0, plan.hosts_per_leaf * spine / uplinks),
            ),
        ),
        nodes=tuple(
            Node(
                name=host.name,
                accelerator="H100",
                devices=1,
                domains={"leaf": f"leaf{host.leaf}"},
                state=NodeState.BUSY if host.name in busy else NodeState.FREE,
            )
            for host in plan.hosts()
        ),
    )


def pipeline() -> PCG:
    """Two stages of three ranks: gradients go round in each, activations to and fro between."""
    rings = [
        {"name": f"dp{s}", "op": "all_reduce", "bytes": RING_BYTES}
        | {"ranks": [s * LANES + lane for lane in range(LANES)]}
        for s in range(2)
    ]
    edges = [
        {"name": f"{way}{lane}", "op": "send_recv", "bytes": EDGE_BYTES}
        | {"ranks": [lane, LANES + lane][::order]}
        for way, order in (("forward", 1), ("backward", -1))
        for lane in range(LANES)
    ]
    return PCG.parse(
        {"format": "railweave.pcg/1", "world_size": 2 * LANES, "groups": [*rings, *edges]}
    )


def compare(fabric: Fabric) -> dict[str, OnTheWire]:
    """The pipeline on a fabric of which some hosts are busy, placed in both ways."""
    cluster, pcg = cluster_of(fabric.plan, BUSY), pipeline()
    placements = {
        IN_ORDER: in_order(pcg, cluster),
        RAILWEAVE: place(pcg, cluster, time_limit_s=1.0, seed=0).devices,
    }
    return run_jobs(fabric, pcg, cluster, placements)


def in_order(pcg: PCG, cluster: Cluster) -> list[Device]:
    """Rank after rank on the first free device, as packing does."""
    free = [
        (n.name, d) for n in cluster.nodes if n.state is NodeState.FREE for d in range(n.devices)
    ]
    return free[: pcg.world_size]


def ring_order(ranks: Sequence[int], cluster: Cluster, devices: Sequence[Device]) -> list[int]:
    """A group's ranks as its ring visits them: domain after domain from the outermost in."""
    place = {node.name: number for number, node in enumerate(cluster.nodes)}
    tiers = [tier.name for tier in cluster.tiers[-2::-1]]

    def key(rank: int) -> tuple[list[str], int, int]:
        name, index = devices[rank]
        return [cluster.node(name).domains[tier] for tier in tiers], place[name], index

    return sorted(ranks, key=key)


def run_jobs(
    fabric: Fabric, pcg: PCG, cluster: Cluster, placements: Mapping[str, Sequence[Device]]
) -> dict[str, OnTheWire]:
    """Run the PCG's traffic on the hosts of each placement, and count what the spines carry."""
    turns = list(placements) * ROUNDS
    jobs = [
        _job(fabric, pcg, cluster, placements[name], _PORT + number)
        for number, name in enumerate(turns)
    ]
    hosts = sorted({name for devices in placements.values() for name, _ in devices})
    took_s: dict[str, list[float]] = {name: [] for name in placements}
    carried = dict.fromkeys(placements, 0)
    with tempfile.TemporaryDirectory(prefix="rw-wire-") as folder:
        path = Path(folder, "jobs.json")
        path.write_text(json.dumps(jobs))
        for host in hosts:
            os.mkfifo(path.parent / f"go-{host}")
        arguments = {host: [str(path)] for host in hosts}
        with Crew(fabric, "fabric.gloo_job", arguments, _ENVIRONMENT) as crew:
            for name in turns:
                pipes = [path.parent / f"go-{host}" for host, _ in placements[name]]
                _expect_ready(crew.each(len(pipes)))
                before = _spine_payload_bytes(fabric)
                _go(pipes)
                steps_s = [json.loads(line) for line in crew.each(len(pipes)).values()]
                carried[name] += _spine_payload_bytes(fabric) - before
                _go(pipes)
                took_s[name] += [max(step) for step in zip(*steps_s, strict=True)]
            crew.wait()
    return {
        name: OnTheWire(
            devices=tuple(devices),
            predicted_spine_bytes=evaluate(pcg, cluster, devices).cross_spine_bytes,
            spine_bytes=carried[name] / (ROUNDS * STEPS),
            predicted_step_s=communication_time(pcg, cluster, devices).total_s,
            step_s=statistics.median(took_s[name]),
        )
        for name, devices in placements.items()
    }


def _job(
    fabric: Fabric,
    pcg: PCG,
    cluster: Cluster,
    devices: Sequence[Device],
    port: int,
) -> dict[str, object]:
    return {
        "master": fabric.hosts[devices[0][0]].address,
        "port": port,
        "ranks": {host: rank for rank, (host, _) in enumerate(devices)},
        "steps": STEPS,
        "phases": [
            [_described(pcg.groups[number], cluster, devices) for number in numbers]
            for numbers in phases_of(pcg).values()
        ],
    }


def _described(group: Group, cluster: Cluster, devices: Sequence[Device]) -> dict[str, object]:
    ranks = list(group.ranks)
    ringed = group.op.value == "all_reduce"
    return {
        "op": group.op.value,
        "ranks": ring_order(ranks, cluster, devices) if ringed else ranks,
        "bytes": group.bytes,
    }


def _expect_ready(said: dict[str, str]) -> None:
    wrong = {host: line for host, line in said.items() if line != "ready"}
    if wrong:
        raise RuntimeError(f"ranks that did not come up: {wrong}")


def _go(pipes: Sequence[Path]) -> None:
    for pipe in pipes:
        pipe.write_text("go\n")


def _spine_payload_bytes(fabric: Fabric) -> int:
    """Payload that the leaves have sent to the spines so far, by the kernel's counters."""
    total = 0
    for switch in range(fabric.plan.switches):
        for name, counted in namespaces.counters(fabric.leaf(switch)).items():
            if name.startswith("up"):
                total += counted["tx_bytes"] - HEADER_BYTES * counted["tx_packets"]
    return total
