"""What the search finds: on the devices of one kind, and on several kinds for one pipeline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..cluster import Cluster
from ..cost import Estimator
from ..evaluate import Device
from ..pcg import Requirement
from ..workload import Workload
from .estimates import Estimate
from .ground import domain_sizes, free_devices, island_size
from .limits import Limits
from .mixed import MixedEstimator, MixedSpace
from .search import Outcome, search
from .seats import devices_in_order
from .space import Space
from .task import Task

MOST_DEVICES_FOR_EVERY_NUMBER = 64
"""Up to so many free devices every smaller number is searched too, for what is faster than the best
on all of them; above, some that divide well."""
_FEWER_TRIED = 3


@dataclass(frozen=True)
class Ground:
    """So many devices of one kind, or of several for one pipeline, and what the search found."""

    cluster: Cluster
    space: Space
    estimator: Estimate
    outcome: Outcome
    island: int

    @property
    def mixed(self) -> bool:
        """Whether stages are on different kinds."""
        return isinstance(self.estimator, MixedEstimator)

    def devices(self, workload: Workload) -> list[Device]:
        """The free devices in order, for each rank."""
        if isinstance(self.estimator, MixedEstimator):
            return self.estimator.devices(workload)
        return devices_in_order(self.cluster, workload.parallelism.world_size)

    def requires(self, workload: Workload) -> tuple[Requirement, ...]:
        """The kind that each rank needs."""
        if isinstance(self.estimator, MixedEstimator):
            return self.estimator.requires(workload)
        (kind,) = free_devices(self.cluster)
        ranks = tuple(range(workload.parallelism.world_size))
        return (Requirement(ranks=ranks, accelerator=kind),)


def searched_on_kind(
    task: Task, limits: Limits, cluster: Cluster, devices: int | None, keep: int
) -> list[Ground]:
    """What the search finds on the devices of one kind.

    With as many as asked for, or all that are free; then with fewer where that may be faster.
    """
    free, island = free_devices(cluster).total(), island_size(cluster)
    sizes, estimator = domain_sizes(cluster), Estimator(cluster)

    def on(counts: Sequence[int], limit_s: float) -> Ground:
        space = Space(task, limits, counts, island, sizes)
        return Ground(cluster, space, estimator, search(space, estimator, keep, limit_s), island)

    grounds = [on([devices or free], math.inf)]
    if devices is not None:
        return grounds
    if not grounds[0].outcome.best or free <= MOST_DEVICES_FOR_EVERY_NUMBER:
        return [*grounds, on(range(1, free), last_s(grounds, 1))] if free > 1 else grounds
    for count in _easier_counts(free, island):
        grounds.append(on([count], last_s(grounds, keep)))
    return grounds


def last_s(grounds: Sequence[Ground], keep: int) -> float:
    """Seconds of the last strategy that would be told; slower ones are of no interest."""
    found = sorted(one.estimate.step_s for ground in grounds for one in ground.outcome.best)
    return found[keep - 1] if len(found) >= keep else math.inf


def searched_on_kinds(
    task: Task, limits: Limits, cluster: Cluster, keep: int, known: Sequence[Ground]
) -> list[Ground]:
    """What the search finds for pipelines over all kinds of a cluster: those with most memory
    first, which early stages need, and the fastest first and last."""
    kinds = sorted(free_devices(cluster))
    numbers = {kind: cluster.accelerator(kind) for kind in kinds}
    precision = str(task.common["precision"])
    orders = [
        sorted(kinds, key=lambda kind: -numbers[kind].memory_bytes),
        sorted(kinds, key=lambda kind: -numbers[kind].peak_of(precision)),
    ]
    found: list[Ground] = []
    for order in dict.fromkeys(tuple(order) for order in (*orders, orders[1][::-1])):
        estimator = MixedEstimator(cluster, order)
        space = MixedSpace(task, limits, cluster, estimator)
        limit_s = last_s([*known, *found], keep)
        outcome = search(space, estimator, keep, limit_s, space.floors)
        found.append(Ground(cluster, space, estimator, outcome, island_size(cluster)))
    return found


def sets_of_kinds(room: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Sets of two kinds or more, largest first: what they find rules out much of the others."""
    kinds = sorted(room)
    return [one for size in range(len(kinds), 1, -1) for one in combinations(kinds, size)]


def _easier_counts(free: int, island: int) -> list[int]:
    """The largest numbers of whole scale-up domains that divide well, where `free` does not."""
    if _divides_well(free / island):
        return []
    smaller = (count for count in range(free // island, 0, -1) if _divides_well(count))
    return [count * island for count, _ in zip(smaller, range(_FEWER_TRIED), strict=False)]


def _divides_well(count: float) -> bool:
    for factor in (2, 3):
        while count % factor == 0:
            count /= factor
    return count == 1
