"""`python -m benchmarks.strategies SEED COUNT`: large jobs from strategies of models, to the bound.

Jobs of 512 to 6,144 ranks: tensor, pipeline (interleaved too), context, data and expert parallelism
in any sizes that a model allows, on Clos fabrics whose nodes are free in part. Unlike the families
they were not chosen for what placing them asks; everything is drawn from the seed.
"""

from __future__ import annotations

import argparse
import random
import time
from functools import cache

from railweave.placement import (
    PCG,
    Cluster,
    Model,
    Parallelism,
    Workload,
    build_pcg,
    clos_8_rail,
    occupied,
    place,
    warm_up,
)
from railweave.placement.errors import InvalidInput

LEAST_RANKS, MOST_RANKS = 512, 6144
NODE = 8
_SHAPES = (
    (4096, 32, 32, 14336),
    (5120, 40, 40, 13824),
    (7168, 64, 61, 18432),
    (8192, 64, 80, 28672),
    (12288, 96, 96, 49152),
)
"""Hidden size, heads, layers, size of the feed-forward layer."""
_FABRICS = ((8, 1), (8, 2), (16, 1), (16, 2), (16, 4), (25, 4), (32, 2), (50, 1), (50, 2))
"""Scalable units, and how many of them make a pod."""
_ROOM, _MOST_ROOM = 1.02, 5.0
_NEAR = (1.0, 1.02, 1.06, 1.2)


def job(base: int, number: int) -> tuple[str, PCG, Cluster]:
    """The strategy, the groups and the cluster of one job of a seed."""
    chance = random.Random(f"strategies {base} {number}")
    while True:
        told, pcg = _strategy(chance)
        nodes = pcg.world_size / NODE
        fabrics = [_fabric(units, each) for units, each in _FABRICS]
        fits = [f for f in fabrics if _ROOM * nodes <= len(f.nodes) <= _MOST_ROOM * nodes]
        if fits:
            cluster = chance.choice(fits)
            taken = chance.uniform(0, 1 - _ROOM * nodes / len(cluster.nodes))
            return told, pcg, occupied(cluster, taken, chance.randrange(10**6))


@cache
def _fabric(units: int, units_per_pod: int) -> Cluster:
    return clos_8_rail(units, units_per_pod=units_per_pod)


def _strategy(chance: random.Random) -> tuple[str, PCG]:
    while True:
        hidden, heads, layers, ffn = chance.choice(_SHAPES)
        sizes = {
            "tp": chance.choice([1, 2, 4, 8, 8]),
            "pp": chance.choice([1, 1, 2, 4, 6, 8, 12, 16]),
            "cp": chance.choice([1, 1, 1, 2, 4, 8]),
            "dp": chance.choice([2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256]),
        }
        ranks = sizes["tp"] * sizes["pp"] * sizes["cp"] * sizes["dp"]
        if not LEAST_RANKS <= ranks <= MOST_RANKS:
            continue
        mixture = chance.random() < 0.4
        sizes["ep"] = chance.choice([4, 8, 16, 32, 64]) if mixture else 1
        sizes["virtual_pp"] = chance.choice([1, 1, 2, 4]) if sizes["pp"] > 1 else 1
        sizes["zero"] = chance.choice([0, 1, 2, 3])
        layers -= layers % sizes["pp"]
        experts = chance.choice([64, 128]) if mixture else 0
        try:
            model = Model.transformer(
                hidden=hidden,
                layers=layers,
                heads=heads,
                kv_heads=8,
                ffn=ffn,
                vocab=128256,
                sequence=8192,
                gated_mlp=True,
                **({"experts": experts, "experts_per_token": 8} if experts else {}),
            )
            workload = Workload(
                model=model,
                parallelism=Parallelism(**sizes),
                global_batch=sizes["dp"] * max(sizes["pp"], chance.choice([4, 8, 16])),
                sequence=8192,
            )
            told = " ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
            return told, build_pcg(workload)
        except (InvalidInput, ValueError):
            continue


def main(base: int, count: int) -> None:
    """Place the jobs of a seed with a limit of 1 s, and print how far each is over its bound."""
    warm_up()
    over: list[float] = []
    walls: list[float] = []
    for number in range(count):
        told, pcg, cluster = job(base, number)
        begun, used = time.perf_counter(), time.process_time()
        found = place(pcg, cluster, 1.0)
        walls.append(time.perf_counter() - begun)
        used = time.process_time() - used
        cost, bound = found.cross_spine_bytes, found.lower_bound_bytes
        over.append(1.0 if found.proved_optimal else cost / bound if bound else float("inf"))
        print(
            f"{number:4} {pcg.world_size:5} ranks, {told}: {over[-1]:.4f} of the bound, "
            f"{walls[-1]:.2f} s (CPU {used:.2f})",
            flush=True,
        )
    for near in _NEAR:
        print(
            f"at most {near:g} of the bound: {sum(one <= near + 1e-9 for one in over)} of {count}"
        )
    print(f"the worst {max(over):.4f}; wall s: {sum(walls) / count:.2f} in the mean, ", end="")
    print(f"{max(walls):.2f} at most")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strategies")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    asked = parser.parse_args()
    main(asked.seed, asked.count)
