"""Whether a job fits a cluster at all, and what is short when it does not."""

from __future__ import annotations

from collections import Counter

import numpy as np

from .cluster import Cluster, Node, NodeState
from .errors import Infeasible
from .jobs.index import Fabric
from .pcg import PCG


def check_feasible(pcg: PCG, fabric: Fabric) -> None:
    """Raise Infeasible, naming what is short and where, unless every rank can have a device.

    Ranks that need one kind come first and the rest take any device that is left, so the job fits
    exactly when each kind covers its own need and all kinds together cover every rank. Takes no
    longer for a job that is far too large.
    """
    names = [*fabric.kinds]
    for need in pcg.requires:
        if need.accelerator not in names:
            names.append(need.accelerator)
    free = np.bincount(fabric.slot_kind, minlength=len(names))
    needed = Counter(pcg.required_accelerators().values())
    shortages = [
        f"{needed[name]} ranks need {name} devices and {free[k]} are free: "
        f"{needed[name] - free[k]} short"
        for k, name in enumerate(names)
        if needed[name] > free[k]
    ]
    total = int(free.sum())
    if pcg.world_size > total:
        shortages.append(
            f"{pcg.world_size} ranks need as many devices and {total} are free: "
            f"{pcg.world_size - total} short"
        )
    if shortages:
        lines = [*shortages, *_where(fabric.cluster)]
        raise Infeasible(f"no placement on cluster {fabric.cluster.name!r}: " + "; ".join(lines))


_HINTS = {
    NodeState.BUSY: "are busy",
    NodeState.DRAINED: "are drained",
    NodeState.FAULTY: "are faulty",
}


def _where(cluster: Cluster) -> list[str]:
    free: Counter[str] = Counter()
    holders: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    lines = []
    for node in cluster.nodes:
        if node.state is NodeState.FREE:
            usable = len(node.usable_devices)
            free[node.accelerator] += usable
            holders[node.accelerator] += usable > 0
            taken[node.accelerator] += node.devices - usable
    for kind in sorted(free):
        line = f"free {kind}: {free[kind]} devices on {_count(holders[kind], 'node')}"
        if taken[kind]:
            line += f" ({taken[kind]} more taken on nodes in service)"
        lines.append(line)
    for state, verb in _HINTS.items():
        out = [node for node in cluster.nodes if node.state is state]
        if out:
            devices = Counter[str]()
            for node in out:
                devices[node.accelerator] += node.devices
            held = ", ".join(f"{count} {kind}" for kind, count in sorted(devices.items()))
            lines.append(f"{_count(len(out), 'node')} with {held} devices {verb} ({_some(out)})")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _some(nodes: list[Node]) -> str:
    names = [node.name for node in nodes]
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown}, ..."
