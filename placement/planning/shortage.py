"""Why nothing fits, and the nearest thing that would."""

from __future__ import annotations

from dataclasses import replace

from ..cluster import Cluster
from ..cost import Estimator
from ..svg import bytes_text
from .ground import domain_sizes, free_devices, island_size
from .limits import Limits
from .search import Strategy, first_broken
from .space import Space
from .task import Task
from .why import memory_text, strategy_text

_MOST_DEVICES = 65_536
_LEAST_SEQUENCE = 128


def leanest(space: Space, estimator: Estimator) -> Strategy | None:
    """The strategy that misses a device's memory by least, or fits with most room; None where the
    rules allow none.

    Looks at the smallest micro-batch and the most recomputation that the limits allow, with all
    shared out that may be.
    """
    found: Strategy | None = None
    recompute = max(space.limits.recompute, key=("none", "selective", "full").index)
    smallest = min((part.micro_batch for part in space.slices()), default=0)
    for part in space.slices():
        if part.micro_batch != smallest or part.recompute != recompute:
            continue
        for shape in space.shapes(part):
            for sharing in space.sharings(shape)[:1]:
                workload = space.workload(shape, sharing)
                if first_broken(workload) is not None:
                    continue
                estimate = estimator(workload)
                if found is None or estimate.memory_bytes < found.estimate.memory_bytes:
                    found = Strategy(shape, sharing, workload, estimate)
    return found


def shortage_text(task: Task, limits: Limits, cluster: Cluster, space: Space) -> str:
    """Which memory is short, by how much, and what would fit: more devices, or shorter samples."""
    devices = max(space.counts)
    kind = next(iter(free_devices(cluster)))
    estimator = Estimator(cluster)
    least = leanest(space, estimator)
    start = f"{task.model.name} on {devices} x {kind}"
    if least is None:
        return f"{start}: no strategy within the limits satisfies the rules"
    lines = [
        f"{start}: no strategy fits. The leanest, {strategy_text(least.workload)}, needs "
        f"{memory_text(least.estimate)}."
    ]
    nearest = [
        *_with_more_devices(task, limits, cluster, devices),
        *_with_a_shorter_sequence(task, limits, cluster, space),
    ]
    lines += nearest or ["Neither more devices nor a shorter sequence would help."]
    return "\n".join(lines)


def _with_more_devices(task: Task, limits: Limits, cluster: Cluster, devices: int) -> list[str]:
    times = 2
    while devices * times <= _MOST_DEVICES:
        larger = _times(cluster, times)
        count = devices * times
        least = leanest(
            Space(task, limits, [count], island_size(cluster), domain_sizes(cluster)),
            Estimator(larger),
        )
        if least is not None and least.estimate.fits:
            return [f"It would fit on {count} devices: {_room(least)}."]
        times *= 2
    return []


def _with_a_shorter_sequence(
    task: Task, limits: Limits, cluster: Cluster, space: Space
) -> list[str]:
    estimator, sequence = Estimator(cluster), task.sequence // 2
    while sequence >= _LEAST_SEQUENCE:
        shorter = replace(task, sequence=sequence)
        least = leanest(
            Space(
                shorter, limits, sorted(space.counts), island_size(cluster), domain_sizes(cluster)
            ),
            estimator,
        )
        if least is not None and least.estimate.fits:
            return [f"With a sequence of {sequence} it would fit here: {_room(least)}."]
        sequence //= 2
    return []


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
