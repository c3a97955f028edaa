"""The instances of the benchmark, by family: those of `instances` and two of its own.

`b` to `e` are dense jobs, `-experts` and `-context` their expert- and context-parallel variants.
`fragments` are jobs of less than a node to a few nodes on nodes with some devices taken; `mesh` are
jobs without a grid of ranks: neighbours in a random plane that exchange unequal bytes.
"""

from __future__ import annotations

import math
import random
from typing import Any

from railweave.placement import PCG, Cluster, clos_8_rail, fat_tree, occupied

from . import instances
from .instances import Instance

GRIDS = tuple(
    f"{family}{suffix}" for suffix in ("", "-experts", "-context") for family in instances.FAMILIES
)
FAMILIES = (*GRIDS, "fragments", "mesh")
DESCRIPTIONS = {
    "b": "1,024 of 2,080 devices",
    "c": "9,600 of 12,800 devices",
    "d": "15,360 of 16,000 devices",
    "e": "8,192 of 16,000 devices",
    "fragments": "4 to 64 of 1,024 devices, nodes partly taken",
    "mesh": "4,096 of 8,000 devices, no grid of ranks",
}


def described(family: str) -> str:
    """What a family is, for people."""
    size, _, variant = family.partition("-")
    names = {
        "experts": f", expert-parallel groups of {instances.EXPERTS} nodes",
        "context": f", context-parallel rings of {instances.CONTEXT} nodes",
    }
    return DESCRIPTIONS[size] + names.get(variant, "")


def instance(family: str, seed: int) -> Instance:
    """The instance of a family for a seed. Raises KeyError for an unknown family."""
    if family == "fragments":
        return fragments(seed)
    if family == "mesh":
        return mesh(seed)
    if family not in GRIDS:
        raise KeyError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    size, _, variant = family.partition("-")
    return instances.instance(size, seed, variant or "dense")


def fragments(seed: int, racks: int = 16) -> Instance:
    """A small job of TP pairs, stages and replicas where nodes have 0 to 8 devices left."""
    chance = random.Random(f"fragments {seed}")
    cluster = fat_tree(racks, nodes_per_rack=8, racks_per_pod=4)
    nodes = []
    for node in cluster.nodes:
        free = chance.choice([0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 8])
        chosen = sorted(chance.sample(range(node.devices), free))
        nodes.append(node.model_copy(update={"free_devices": tuple(chosen)}))
    stages, replicas, tensor = chance.choice(
        [(1, 2, 2), (2, 4, 2), (4, 4, 2), (4, 8, 2), (3, 5, 2)]
    )
    pcg = instances.grid_pcg(
        stages, replicas, data_bytes=1.5e9, pipeline_bytes=0.5e9, tensor=tensor
    )
    return Instance(f"fragments-{seed}", cluster.with_nodes(tuple(nodes)), pcg)


def mesh(seed: int, nodes: int = 512, units: int = 50) -> Instance:
    """Parts of a plane: each node of 8 ranks talks to its nearest neighbours, bytes log-normal."""
    chance = random.Random(f"mesh {seed}")
    cluster: Cluster = clos_8_rail(units, units_per_pod=5)
    in_use = occupied(cluster, 0.3, seed)
    points = [(chance.random(), chance.random()) for _ in range(nodes)]
    groups: list[dict[str, Any]] = []

    def add(name: str, op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size})

    for here in range(nodes):
        add(f"tp/{here}", "all_reduce", [here * 8 + t for t in range(8)], 137.6e9)
        near = sorted(range(nodes), key=lambda other: math.dist(points[here], points[other]))
        for there in near[1:7]:
            size = 1e9 * chance.lognormvariate(0, 0.7)
            for t in range(8):
                add(f"halo/{here}/{there}/{t}", "send_recv", [here * 8 + t, there * 8 + t], size)
    add("model", "broadcast", list(range(nodes * 8)), 1e9)
    chance.shuffle(groups)
    data = {"format": "railweave.pcg/1", "world_size": nodes * 8, "groups": groups}
    return Instance(f"mesh-{seed}", in_use, PCG.parse(data))
