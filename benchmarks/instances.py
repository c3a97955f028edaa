"""Instances for measuring the solver: large jobs on clusters in use, each made from a seed.

Families of dense jobs, by devices asked of devices there: b 1,024 of 2,048; c 9,600 of 12,800;
d 15,360 of 16,000; e 8,192 of 16,000. Free nodes are fragmented by jobs of 1 to 64 nodes and 1 % of
the nodes are faulty. `experts` and `context` add expert-parallel groups over several nodes and
context-parallel rings to them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from railweave.placement import PCG, Cluster, clos_8_rail, occupied


@dataclass(frozen=True)
class Family:
    """Shapes to draw from: (stages, replicas) of nodes; units of 20 nodes there, and in a pod."""

    shapes: tuple[tuple[int, int], ...]
    units: int
    units_per_pod: tuple[int, ...]


FAMILIES = {
    "b": Family(((8, 16), (16, 8), (4, 32)), 13, (2, 1, 4)),
    "c": Family(((8, 150), (12, 100), (16, 75), (24, 50)), 80, (20, 4, 10)),
    "d": Family(((8, 240), (16, 120), (12, 160), (24, 80)), 100, (20, 4, 10)),
    "e": Family(((8, 128), (16, 64), (32, 32), (4, 256)), 100, (20, 4, 10)),
}
TENSOR, EXPERTS, CONTEXT = 8, 4, 2


@dataclass(frozen=True)
class Instance:
    """A cluster in use, a job, and where they come from."""

    name: str
    cluster: Cluster
    pcg: PCG


def instance(family: str, seed: int, variant: str = "dense") -> Instance:
    """The instance of a family (b, c, d, e) and variant (dense, experts, context) for a seed."""
    chance = random.Random(f"{family} {variant} {seed}")
    made = FAMILIES[family]
    stages, replicas = chance.choice(made.shapes)
    replicas -= replicas % {"experts": EXPERTS, "context": CONTEXT}.get(variant, 1)
    cluster = clos_8_rail(made.units, units_per_pod=chance.choice(made.units_per_pod))
    nodes = made.units * 20
    wanted = stages * replicas / nodes
    # Busy so that the job fits with a little room: the denser the family, the less.
    busy = max(0.0, (0.985 - wanted) * chance.uniform(0.3, 0.8))
    in_use = occupied(cluster, busy, seed)
    pcg = grid_pcg(
        stages,
        replicas,
        data_bytes=chance.choice([3.0e9, 1.5e9, 6.0e9]) if variant == "dense" else 3.0e9,
        pipeline_bytes=chance.choice([0.5e9, 0.25e9, 1.0e9]),
        experts=EXPERTS if variant == "experts" else 1,
        context=CONTEXT if variant == "context" else 1,
    )
    return Instance(f"{family}-{variant}-{seed}", in_use, pcg)


def grid_pcg(
    stages: int,
    replicas: int,
    *,
    data_bytes: float,
    pipeline_bytes: float,
    experts: int = 1,
    context: int = 1,
    tensor: int = TENSOR,
) -> PCG:
    """A job of stages x replicas nodes of `tensor` ranks each.

    experts: nodes in an expert group (all_to_all over all of their ranks), with replica rings of
        the experts across the groups. context: nodes in a context-parallel ring.
    """
    groups: list[dict[str, Any]] = []

    def rank(stage: int, replica: int, part: int) -> int:
        return (stage * replicas + replica) * tensor + part

    def add(name: str, op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size})

    for s in range(stages):
        for d in range(replicas):
            if tensor > 1:
                whole = [rank(s, d, t) for t in range(tensor)]
                add(f"tp/{s}/{d}", "all_reduce", whole, 137.6e9)
        for t in range(tensor):
            every = [rank(s, d, t) for d in range(replicas)]
            dense_part = 0.4 if experts > 1 else 1.0
            add(f"dp/{s}/{t}", "all_reduce", every, dense_part * data_bytes)
            for block in range(replicas // context if context > 1 else 0):
                near = [rank(s, block * context + c, t) for c in range(context)]
                add(f"cp/{s}/{block}/{t}", "all_gather", near, 20e9)
            for e in range(experts if experts > 1 else 0):
                same = [rank(s, d, t) for d in range(e, replicas, experts)]
                add(f"edp/{s}/{e}/{t}", "all_reduce", same, 0.6 * data_bytes)
        for block in range(replicas // experts if experts > 1 else 0):
            near = [rank(s, block * experts + e, t) for e in range(experts) for t in range(tensor)]
            add(f"ep/{s}/{block}", "all_to_all", near, 20e9)
    for s in range(stages - 1):
        for d in range(replicas):
            for t in range(tensor):
                ends = [rank(s, d, t), rank(s + 1, d, t)]
                add(f"pp/{s}/{d}/{t}/f", "send_recv", ends, pipeline_bytes)
                add(f"pp/{s}/{d}/{t}/b", "send_recv", ends[::-1], pipeline_bytes)
    return PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": stages * replicas * tensor,
            "groups": groups,
        }
    )
