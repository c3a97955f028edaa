"""Why nothing fits, and the nearest thing that would."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..cluster import Cluster
from ..cost import Estimator
from ..drawing.svg import bytes_text
from .ground import domain_sizes, free_devices, island_size
from .limits import Limits
from .search import Strategy, first_broken
from .space import Space
from .task import Task
from .why import memory_text, strategy_text

_MOST_DEVICES = 65_536
_LEAST_SEQUENCE = 128


def leanest(space: Space, estimator: Estimator) -> Strategy | None:
    """The strategy of a space that needs least memory; None where the rules allow none.

    Of a space made with `lean` limits; in each shape all is shared out that may be.
    """
    found: Strategy | None = None
    for part in space.slices():
        for shape in space.shapes(part):
            for sharing in space.sharings(shape)[:1]:
                workload = space.workload(shape, sharing)
                if first_broken(workload) is not None:
                    continue
                estimate = estimator(workload)
                if found is None or estimate.memory_bytes < found.estimate.memory_bytes:
                    found = Strategy(shape, sharing, workload, estimate)
    return found


def lean(limits: Limits) -> Limits:
    """Of limits, what takes least memory where that is clear: the smallest micro-batch, the most
    recomputation, activations divided along the sequence, one stage a rank."""
    recompute = max(limits.recompute, key=("none", "selective", "full").index)
    changes: dict[str, Any] = {
        "recompute": (recompute,),
        "sequence_parallel": (max(limits.sequence_parallel),),
    }
    if limits.micro_batch is not None:
        changes["micro_batch"] = (min(limits.micro_batch),)
    else:
        changes["most_micro_batch"] = 1
    if limits.virtual_pp is None and "1f1b" in limits.schedules:
        changes["schedules"] = ("1f1b",)
    return limits.model_copy(update=changes)


def shortage_text(task: Task, limits: Limits, cluster: Cluster, devices: int) -> str:
    """Which memory is short, by how much, and what would fit: more devices, or shorter samples."""
    kind = next(iter(free_devices(cluster)))
    least = leanest(_lean_space(task, limits, cluster, devices), Estimator(cluster))
    start = f"{task.model.name} on {devices} x {kind}"
    if least is None:
        return f"{start}: no strategy within the limits satisfies the rules"
    lines = [
        f"{start}: no strategy fits. The leanest, {strategy_text(least.workload)}, needs "
        f"{memory_text(least.estimate, limits.memory_share)}."
    ]
    nearest = [
        *_with_more_devices(task, limits, cluster, devices),
        *_with_a_shorter_sequence(task, limits, cluster, devices),
    ]
    lines += nearest or ["Neither more devices nor a shorter sequence would help."]
    return "\n".join(lines)


def _with_more_devices(task: Task, limits: Limits, cluster: Cluster, devices: int) -> list[str]:
    times = 2
    while devices * times <= _MOST_DEVICES:
        larger, count = _times(cluster, times), devices * times
        least = leanest(_lean_space(task, limits, cluster, count), Estimator(larger))
        if least is not None and limits.allows(least.estimate):
            return [f"It would fit on {count} devices: {_room(least)}."]
        times *= 2
    return []


def _with_a_shorter_sequence(
    task: Task, limits: Limits, cluster: Cluster, devices: int
) -> list[str]:
    estimator, sequence = Estimator(cluster), task.sequence // 2
    while sequence >= _LEAST_SEQUENCE:
        shorter = replace(task, sequence=sequence)
        least = leanest(_lean_space(shorter, limits, cluster, devices), estimator)
        if least is not None and limits.allows(least.estimate):
            return [f"With a sequence of {sequence} it would fit here: {_room(least)}."]
        sequence //= 2
    return []


def _lean_space(task: Task, limits: Limits, cluster: Cluster, devices: int) -> Space:
    return Space(task, lean(limits), [devices], island_size(cluster), domain_sizes(cluster))


def _room(found: Strategy) -> str:
    estimate = found.estimate
    held, room = bytes_text(estimate.memory_bytes), bytes_text(estimate.memory_limit_bytes)
    return f"{strategy_text(found.workload)}, {held} of {room}"


def _times(cluster: Cluster, times: int) -> Cluster:
    """A cluster as many times as large, each copy in domains of its own."""
    free = [node for node in cluster.nodes if node.usable_devices]
    nodes = [
        node.model_copy(
            update={
                "name": f"{node.name}/{copy}",
                "domains": {tier: f"{name}/{copy}" for tier, name in node.domains.items()},
            }
        )
        for copy in range(times)
        for node in free
    ]
    return cluster.with_nodes(tuple(nodes))
