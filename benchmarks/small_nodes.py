"""Random jobs of 1 to 32 whole nodes on clusters in use of two to four tiers."""

from __future__ import annotations

import random

from railweave.placement import (
    PCG,
    Cluster,
    Model,
    Parallelism,
    Workload,
    build_pcg,
)
from railweave.placement.constraints import Constraints
from railweave.placement.errors import InvalidInput

from . import instances

WIDTH = 8
"""Devices of a node."""
NODES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32)
KINDS = ("dense", "experts", "context", "dense", "experts", "grid")
"""By number of a job, over and over."""
_TIERS = (("pod", "spine"), ("rack", "pod", "spine"), ("rack", "pod", "zone", "spine"))
_SHAPES = ((2048, 24, 8192), (4096, 32, 14336), (5120, 40, 13824), (8192, 80, 28672))
_HEADS = {2048: 32, 4096: 32, 5120: 40, 8192: 64}
_IN_A_RACK, _RACKS, _PODS, _ZONES = (1, 2, 3, 4), (1, 2, 3, 4, 6), (2, 3, 4, 6), (2, 3)
_TAKEN = (0.0, 0.2, 0.4, 0.6)

Sizes = tuple[int, int, int, int, int]


def job(base: int, number: int) -> tuple[str, PCG, Cluster, Constraints | None]:
    """Kind, groups, cluster and constraints, none here, of one job of a seed."""
    chance = random.Random(f"nodes {base} {number}")
    kind = KINDS[number % len(KINDS)]
    nodes = chance.choice(NODES)
    pcg = _grid(chance, nodes) if kind == "grid" else _strategy(chance, nodes, kind)
    return kind, pcg, _cluster(chance, nodes), None


def _cluster(chance: random.Random, nodes: int) -> Cluster:
    """A cluster of uneven domains of which some nodes are taken, with as many free as are asked."""
    tiers = chance.choice(_TIERS)
    while True:
        racks = chance.choice(_RACKS) if "rack" in tiers else 1
        zones = chance.choice(_ZONES) if "zone" in tiers else 1
        made: list[dict[str, object]] = []
        free = 0
        uneven, taken = chance.random() < 0.5, chance.choice(_TAKEN)
        in_a_rack = chance.choice(_IN_A_RACK) * (1 if "rack" in tiers else 4)
        for pod in range(zones * chance.choice(_PODS)):
            for rack in range(chance.randint(1, racks) if uneven else racks):
                for _ in range(chance.randint(1, 2 * in_a_rack) if uneven else in_a_rack):
                    names = (f"p{pod}r{rack}", f"p{pod}", f"z{pod % zones}")
                    domains = dict(zip(("rack", "pod", "zone"), names, strict=True))
                    is_free = chance.random() >= taken
                    free += is_free
                    made.append(
                        {
                            "name": f"n{len(made)}",
                            "accelerator": "H100-SXM",
                            "devices": WIDTH,
                            "domains": {tier: domains[tier] for tier in tiers[:-1]},
                            "free_devices": list(range(WIDTH)) if is_free else [],
                        }
                    )
        if free >= nodes:
            break
    links = [{"name": name, "bandwidth": 5e10, "latency": 1e-6} for name in tiers]
    data = {"format": "railweave.cluster/1", "name": "in use", "tiers": links, "nodes": made}
    return Cluster.parse({**data, "rails": WIDTH, "cross_rail": "nvlink"})


def _sizes(chance: random.Random, nodes: int, kind: str) -> Sizes:
    """Tensor, pipeline, context, data and expert parallel sizes of so many nodes."""
    while True:
        tp = chance.choice([1, 2, 4, 8, 8])
        pp = chance.choice([1, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16])
        cp = chance.choice([2, 4, 8]) if kind == "context" else 1
        dp, left = divmod(nodes * WIDTH, tp * pp * cp)
        ep = chance.choice([2, 4, 8, 16]) if kind == "experts" else 1
        if dp and not left:
            return tp, pp, cp, dp, ep


def _strategy(chance: random.Random, nodes: int, kind: str) -> PCG:
    """The groups of a model on so many nodes, often with unequal stages."""
    while True:
        tp, pp, cp, dp, ep = _sizes(chance, nodes, kind)
        hidden, layers, ffn = chance.choice(_SHAPES)
        ends = chance.random() < 0.5
        layers -= (layers + 2 * ends) % pp
        experts = chance.choice([8, 16, 32]) if kind == "experts" else 0
        try:
            model = transformer(hidden, layers, ffn, experts, chance.choice([32000, 128256]))
            parallelism = Parallelism(
                tp=tp,
                pp=pp,
                dp=dp,
                cp=cp,
                ep=ep,
                zero=chance.choice([0, 1, 2, 3]),
                embedding_as_layer=ends,
                head_as_layer=ends,
            )
            workload = Workload(
                model=model,
                parallelism=parallelism,
                global_batch=dp * max(chance.choice([1, 2, 8]), pp),
                sequence=4096,
            )
            return build_pcg(workload)
        except (InvalidInput, ValueError):
            continue


def transformer(hidden: int, layers: int, ffn: int, experts: int, vocab: int) -> Model:
    """A model of a usual shape; `experts` is 0 for a dense one."""
    mixture = {"experts": experts, "experts_per_token": 2} if experts else {}
    return Model.transformer(
        hidden=hidden,
        layers=layers,
        heads=_HEADS[hidden],
        kv_heads=8,
        ffn=ffn,
        vocab=vocab,
        sequence=4096,
        gated_mlp=True,
        **mixture,
    )


def _grid(chance: random.Random, nodes: int) -> PCG:
    """A grid of stages and replicas of plain groups on so many nodes."""
    while True:
        tensor = chance.choice([2, 4, 8])
        units = nodes * WIDTH // tensor
        stages = chance.choice([1, 2, 3, 4, 5, 6, 8, 12, 16])
        if units == 1:
            stages = 1
        if units % stages == 0 and (units > stages or units == 1):
            break
    return instances.grid_pcg(
        stages,
        units // stages,
        data_bytes=chance.choice([3e9, 1.5e9, 6e9, 30e9]),
        pipeline_bytes=chance.choice([0.5e9, 0.25e9, 1e9, 20e9]),
        tensor=tensor,
    )
