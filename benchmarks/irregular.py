"""Jobs without a grid of ranks, large and small, each made from a seed.

mesh: neighbours in a random plane that exchange unequal bytes. rings: overlapping rings of 3 to 40
nodes, most of them inside hidden communities. tables: embedding tables of a recommendation model,
their sizes a power law, each exchanged by all_to_all among the nodes that hold a part of it. skips:
a pipeline of stages of unequal width with connections over several. noisy: a grid of stages and
replicas with random edges across it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from railweave.placement import PCG, Cluster, clos_8_rail, occupied

from .instances import TENSOR, Instance, grid_pcg

Groups = list[dict[str, Any]]
LARGE, SMALL = "", "-small"
SIZES = {LARGE: (512, 50, 5), SMALL: (48, 6, 2)}
"""Nodes asked for, units of 20 nodes there, and units in a pod."""
TENSOR_BYTES = 137.6e9


def instance(kind: str, seed: int, size: str = LARGE, nodes: int = 0) -> Instance:
    """The instance of a kind (see above) for a seed, of about `nodes` nodes if given."""
    wanted, units, per_pod = SIZES[size]
    name = f"{kind}{size}"
    chance = random.Random(f"{name} {seed}")
    cluster: Cluster = clos_8_rail(units, units_per_pod=per_pod)
    in_use = occupied(cluster, 0.3, seed)
    return Instance(f"{name}-{seed}", in_use, KINDS[kind](chance, nodes or wanted))


def mesh(chance: random.Random, nodes: int) -> PCG:
    """Each node talks to its six nearest neighbours in a plane, bytes log-normal; one broadcast."""
    points = [(chance.random(), chance.random()) for _ in range(nodes)]
    groups: Groups = []
    for here in range(nodes):
        _add(groups, f"tp/{here}", "all_reduce", _whole(here), TENSOR_BYTES)
        near = sorted(range(nodes), key=lambda other: math.dist(points[here], points[other]))
        for there in near[1:7]:
            size = 1e9 * chance.lognormvariate(0, 0.7)
            _pairs(groups, f"halo/{here}/{there}", here, there, size)
    _add(groups, "model", "broadcast", list(range(nodes * TENSOR)), 1e9)
    return _pcg(chance, nodes, groups)


def rings(chance: random.Random, nodes: int) -> PCG:
    """Overlapping rings of any size; a node is in four, three of them in its own community."""
    number = list(range(nodes))
    chance.shuffle(number)
    communities: list[list[int]] = []
    while number:
        taken = chance.randint(max(2, nodes // 24), max(3, nodes // 6))
        communities.append(number[:taken])
        number = number[taken:]
    groups: Groups = []
    for here in range(nodes):
        _add(groups, f"tp/{here}", "all_reduce", _whole(here), TENSOR_BYTES)
    for layer in range(4):
        pools = communities if layer < 3 else [[n for c in communities for n in c]]
        for at, pool in enumerate(pools):
            left = list(pool)
            chance.shuffle(left)
            while len(left) >= 3:
                taken = min(len(left), 3 + int(chance.paretovariate(1.2)), 40)
                op = chance.choice(["all_reduce", "all_gather", "reduce_scatter"])
                size = 1e9 * chance.lognormvariate(0, 0.7)
                for t in range(TENSOR):
                    ranks = [n * TENSOR + t for n in left[:taken]]
                    _add(groups, f"ring/{layer}/{at}/{len(left)}/{t}", op, ranks, size)
                left = left[taken:]
    return _pcg(chance, nodes, groups)


def tables(chance: random.Random, nodes: int) -> PCG:
    """All-to-all of embedding tables among 2 to 64 nodes near a hub of theirs, and a dense part."""
    places = [(chance.random(), chance.random()) for _ in range(nodes)]
    groups: Groups = []
    for here in range(nodes):
        _add(groups, f"tp/{here}", "all_reduce", _whole(here), TENSOR_BYTES)
    for table in range(nodes):
        share = min(1.0, 0.02 * chance.paretovariate(1.1))
        members = max(2, min(64, int(share * nodes)))
        hub = (chance.random(), chance.random())
        # Mostly the nodes around the hub, now and then one from anywhere.
        key = {
            n: math.dist(hub, places[n]) * (0.2 if chance.random() < 0.05 else 1.0)
            for n in range(nodes)
        }
        held = sorted(key, key=lambda n: (key[n], n))[:members]
        size = 4e9 * chance.lognormvariate(0, 0.7) * share
        for t in range(TENSOR):
            ranks = [n * TENSOR + t for n in held]
            _add(groups, f"table/{table}/{t}", "all_to_all", ranks, size)
    for t in range(TENSOR):
        every = [n * TENSOR + t for n in range(nodes)]
        _add(groups, f"dense/{t}", "all_reduce", every, 1e9)
    return _pcg(chance, nodes, groups)


def skips(chance: random.Random, nodes: int) -> PCG:
    """Stages of unequal width whose nodes form a ring each; links to later stages, near or far."""
    stages: list[list[int]] = []
    left = list(range(nodes))
    chance.shuffle(left)
    while left:
        taken = chance.randint(max(2, nodes // 40), max(3, nodes // 12))
        stages.append(left[:taken])
        left = left[taken:]
    groups: Groups = []
    for here in range(nodes):
        _add(groups, f"tp/{here}", "all_reduce", _whole(here), TENSOR_BYTES)
    for s, stage in enumerate(stages):
        size = chance.choice([1.5e9, 3e9, 6e9])
        for t in range(TENSOR):
            ranks = [n * TENSOR + t for n in stage]
            algorithm = "tree" if s % 3 == 2 else "auto"
            _add(groups, f"dp/{s}/{t}", "all_reduce", ranks, size, algorithm)
        later = {s + 1} | {s + 1 + int(chance.paretovariate(0.8)) for _ in range(2)}
        for to in sorted(x for x in later if x < len(stages)):
            ahead = stages[to]
            for i in range(max(len(stage), len(ahead))):
                here, there = stage[i % len(stage)], ahead[i % len(ahead)]
                _pairs(groups, f"act/{s}/{to}/{i}", here, there, 0.5e9)
                _pairs(groups, f"grad/{s}/{to}/{i}", there, here, 0.5e9)
    return _pcg(chance, nodes, groups)


def noisy(chance: random.Random, nodes: int) -> PCG:
    """A grid of stages and replicas, and as many edges between any two nodes as there are nodes."""
    stages = chance.choice([4, 8, 16])
    replicas = nodes // stages
    grid = grid_pcg(stages, replicas, data_bytes=3e9, pipeline_bytes=0.5e9)
    groups: Groups = [group.model_dump(mode="json") for group in grid.groups]
    for edge in range(stages * replicas):
        here, there = chance.sample(range(stages * replicas), 2)
        _pairs(groups, f"noise/{edge}", here, there, 0.2e9 * chance.lognormvariate(0, 1))
    return _pcg(chance, stages * replicas, groups)


KINDS: dict[str, Callable[[random.Random, int], PCG]] = {
    "mesh": mesh,
    "rings": rings,
    "tables": tables,
    "skips": skips,
    "noisy": noisy,
}
FAMILIES = tuple(f"{kind}{size}" for kind in KINDS for size in SIZES)


def _whole(node: int) -> list[int]:
    return [node * TENSOR + t for t in range(TENSOR)]


def _pairs(groups: Groups, name: str, here: int, there: int, size: float) -> None:
    for t in range(TENSOR):
        ends = [here * TENSOR + t, there * TENSOR + t]
        _add(groups, f"{name}/{t}", "send_recv", ends, size)


def _add(
    groups: Groups, name: str, op: str, ranks: list[int], size: float, algorithm: str = "auto"
) -> None:
    groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size, "algorithm": algorithm})


def _pcg(chance: random.Random, nodes: int, groups: Groups) -> PCG:
    chance.shuffle(groups)
    data = {"format": "railweave.pcg/1", "world_size": nodes * TENSOR, "groups": groups}
    return PCG.parse(data)
