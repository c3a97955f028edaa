"""A cluster in use: nodes taken by other jobs and nodes out of order, from a seed."""

from __future__ import annotations

import math
import random

from .cluster import Cluster, NodeState
from .errors import InvalidInput, Problem


def occupied(
    cluster: Cluster,
    fraction: float,
    seed: int,
    *,
    faulty_fraction: float = 0.01,
    most_nodes_per_job: int = 64,
) -> Cluster:
    """The cluster with `fraction` of its nodes busy in pieces, as after a long time of use.

    `faulty_fraction` of the free nodes become faulty, at random. Jobs of 1 to `most_nodes_per_job`
    nodes (small ones more often: sizes are log-uniform) then fill what is free in node order, and
    end in random order until `fraction` of the healthy nodes is still busy, to the node. Nodes
    that are not free in `cluster` stay as they are. Raises InvalidInput.
    """
    _check(fraction, faulty_fraction, most_nodes_per_job)
    chance = random.Random(seed)
    free = [i for i, node in enumerate(cluster.nodes) if node.state is NodeState.FREE]
    faulty = set(chance.sample(free, round(faulty_fraction * len(free))))
    healthy = [index for index in free if index not in faulty]
    wanted = round(fraction * len(healthy))
    busy: set[int] = set()
    for job in _shuffled_jobs(healthy, most_nodes_per_job, chance):
        busy.update(job[: wanted - len(busy)])
    states = dict.fromkeys(busy, NodeState.BUSY) | dict.fromkeys(faulty, NodeState.FAULTY)
    return cluster.with_nodes(
        tuple(
            node.model_copy(update={"state": states[index]}) if index in states else node
            for index, node in enumerate(cluster.nodes)
        )
    )


def _shuffled_jobs(nodes: list[int], most: int, chance: random.Random) -> list[list[int]]:
    jobs = []
    start = 0
    while start < len(nodes):
        size = min(most, int(math.exp(chance.uniform(0, math.log(most + 1)))))
        jobs.append(nodes[start : start + size])
        start += size
    chance.shuffle(jobs)
    return jobs


def _check(fraction: float, faulty_fraction: float, most_nodes_per_job: int) -> None:
    problems = [
        Problem(name, f"found {value!r}", "give a number from 0 to 1")
        for name, value in (("fraction", fraction), ("faulty_fraction", faulty_fraction))
        if not 0 <= value <= 1
    ]
    if most_nodes_per_job < 1:
        found = f"found {most_nodes_per_job!r}"
        problems.append(Problem("most_nodes_per_job", found, "give a whole number, 1 or more"))
    if problems:
        raise InvalidInput("occupied", problems)
