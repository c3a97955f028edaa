"""The instances of the benchmark, by family: of `instances`, of `irregular`, and one of its own.

`b` to `e` are dense jobs, `-experts` and `-context` their expert- and context-parallel variants.
`fragments` are jobs of less than a node to a few nodes on nodes with some devices taken; those of
`irregular` are jobs without a grid of ranks.
"""

from __future__ import annotations

import random

from railweave.placement import fat_tree

from . import instances, irregular
from .instances import Instance

GRIDS = tuple(
    f"{family}{suffix}" for suffix in ("", "-experts", "-context") for family in instances.FAMILIES
)
FAMILIES = (*GRIDS, "fragments", *irregular.FAMILIES)
DESCRIPTIONS = {
    "b": "1,024 of 2,080 devices",
    "c": "9,600 of 12,800 devices",
    "d": "15,360 of 16,000 devices",
    "e": "8,192 of 16,000 devices",
    "fragments": "4 to 64 of 1,024 devices, nodes partly taken",
    "mesh": "neighbours in a plane that exchange unequal bytes",
    "rings": "overlapping rings of 3 to 40 nodes",
    "tables": "all-to-all among the holders of embedding tables",
    "skips": "a pipeline of unequal stages with connections over several",
    "noisy": "stages and replicas with random edges across them",
}


def described(family: str) -> str:
    """What a family is, for people."""
    if family in irregular.FAMILIES:
        kind, small, _ = family.partition(irregular.SMALL)
        size = "384 of 960" if small else "4,096 of 8,000"
        return f"{size} devices, no grid of ranks: {DESCRIPTIONS[kind]}"
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
    if family in irregular.FAMILIES:
        kind, small, _ = family.partition(irregular.SMALL)
        return irregular.instance(kind, seed, small)
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
