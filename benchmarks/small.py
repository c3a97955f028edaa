"""`python -m benchmarks.small SEED COUNT`: how many random jobs of up to 32 nodes are proved best.

With `--whole-nodes` they are jobs of 1 to 32 whole nodes (see `small_nodes`), else of all kinds:
fragments, dense, expert- and context-parallel ones from strategies and from plain grids, loosely
held tensor groups with and without the rule that they stay whole, and jobs of a few devices; on odd
domains, whole and partly taken nodes. Everything is drawn from the seed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from railweave.placement import (
    PCG,
    Cluster,
    Parallelism,
    Workload,
    build_pcg,
    clos_8_rail,
    occupied,
    place,
)
from railweave.placement.constraints import Constraints
from railweave.placement.errors import InvalidInput
from railweave.placement.warm_up import warm_up

from . import families, instances, small_nodes

LEAST_RANKS, MOST_RANKS = 41, 256
KINDS = (
    *["fragments"] * 3,
    *["clos-dense", "clos-experts", "clos-context"],
    *["s-dense"] * 3,
    *["s-experts"] * 3,
    *["s-context"] * 2,
    *["g-dense"] * 2,
    *["g-experts", "g-context", "low", "low", "lowsplit", "small", "small"],
)
"""By number of a job, over and over: `s-` jobs are strategies of a model, `g-` ones plain grids,
`clos-` either of them in a Clos fabric, `low` ones have tensor groups that are loosely held."""
_SHAPES = ((2048, 24, 8192), (4096, 32, 14336), (8192, 80, 28672), (5120, 40, 13824))
_FREE = (1, 2, 2, 3, 4, 4, 5, 6, 8, 8)
_TAKEN_AT_LEAST, _KEPT_FREE = 0.5, 0.05
_LONG_S = 1.5

Job = tuple[str, PCG, Cluster, Constraints | None]


def job(base: int, number: int) -> Job:
    """Kind, groups, cluster and constraints of one job of a seed."""
    chance = random.Random(f"{base} {number}")
    kind = KINDS[number % len(KINDS)]
    if kind == "fragments":
        made = families.fragments(chance.randrange(10**8))
        return kind, made.pcg, made.cluster, None
    while True:
        if kind.startswith("clos"):
            find = _strategy if chance.random() < 0.5 else _grid
            pcg, _ = find(chance, kind[5:])
            return kind, pcg, _clos(chance, pcg.world_size), None
        pcg, tensor = _pcg(chance, kind)
        whole = chance.random() < 0.6
        width = chance.choice([8, 8, 8, 4]) if tensor <= 4 else 8
        cluster = _odd(chance, pcg.world_size, width, whole)
        if cluster is not None:
            lifted = Constraints(split_tensor_groups=True) if kind == "lowsplit" else None
            return kind, pcg, cluster, lifted


def _pcg(chance: random.Random, kind: str) -> tuple[PCG, int]:
    """The groups of a job of a kind, and the ranks of its tensor groups."""
    if kind.startswith("s-"):
        return _strategy(chance, kind[2:])
    if kind.startswith("g-"):
        return _grid(chance, kind[2:])
    return _loose(chance) if kind.startswith("low") else _few(chance)


def _clos(chance: random.Random, ranks: int) -> Cluster:
    cluster = clos_8_rail(chance.choice([8, 13, 20]), units_per_pod=chance.choice([1, 2, 4]))
    most = 1 - ranks / 8 / len(cluster.nodes) - _KEPT_FREE
    return occupied(cluster, chance.uniform(_TAKEN_AT_LEAST, most), chance.randrange(10**6))


def _odd(chance: random.Random, need: int, width: int, whole: bool) -> Cluster | None:
    """Pods of uneven size with at least `need` free devices on nodes of `width`, if one is met."""
    for _ in range(1000):
        pods = chance.choice([2, 3, 4, 6, 8, 12, 16])
        nested = chance.random() < 0.5
        slack = chance.choice([1.0, 1.05, 1.2, 1.5, 2.5])
        per_pod = max(1, -(-need // width) * slack / pods)
        even = chance.random() < 0.3
        nodes = []
        for p in range(pods):
            count = round(per_pod) if even else chance.randint(0, max(1, round(2 * per_pod)))
            for i in range(count):
                free = list(range(width))
                if not whole:
                    some = chance.choice([k for k in _FREE if k <= width])
                    free = sorted(chance.sample(free, some))
                racks = {"rack": f"p{p}r{i // 3}"} if nested else {}
                nodes.append(
                    {
                        "name": f"p{p}n{i}",
                        "accelerator": "H100-SXM",
                        "devices": width,
                        "domains": {**racks, "pod": f"p{p}"},
                        "free_devices": free,
                    }
                )
        if sum(len(node["free_devices"]) for node in nodes) < need:
            continue
        if len({node["domains"]["pod"] for node in nodes}) < 2:
            continue
        names = ("rack", "pod", "spine") if nested else ("pod", "spine")
        tiers = [{"name": name, "bandwidth": 5e10, "latency": 1e-6} for name in names]
        data = {"format": "railweave.cluster/1", "name": "odd", "tiers": tiers, "nodes": nodes}
        return Cluster.parse({**data, "rails": width, "cross_rail": "nvlink"})
    return None


def _strategy(chance: random.Random, kind: str) -> tuple[PCG, int]:
    """The groups of a model under a strategy that some combination of sizes allows."""
    while True:
        tp = chance.choice([1, 2, 4, 8])
        pp = chance.choice([1, 1, 2, 4, 8, 3, 6])
        cp = chance.choice([2, 4, 8]) if kind == "context" else 1
        dp = chance.choice([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64])
        ep = chance.choice([2, 4, 8, 16, 32]) if kind == "experts" else 1
        if not LEAST_RANKS <= tp * pp * cp * dp <= MOST_RANKS:
            continue
        hidden, layers, ffn = chance.choice(_SHAPES)
        layers -= layers % pp
        zero = chance.choice([0, 1, 1, 2, 3])
        twice = pp > 2 and layers % (2 * pp) == 0
        virtual = chance.choice([1, 1, 1, 2]) if twice else 1
        experts = chance.choice([8, 16, 32, 64]) if kind == "experts" else 0
        try:
            model = small_nodes.transformer(hidden, layers, ffn, experts, vocab=32000)
            micro, rounds = chance.choice([1, 2]), chance.choice([1, 2, 8])
            workload = Workload(
                model=model,
                parallelism=Parallelism(
                    tp=tp, pp=pp, dp=dp, cp=cp, ep=ep, virtual_pp=virtual, zero=zero
                ),
                global_batch=dp * micro * max(rounds, pp),
                micro_batch=micro,
                sequence=4096,
            )
            return build_pcg(workload), tp
        except (InvalidInput, ValueError):
            continue


def _grid(chance: random.Random, kind: str) -> tuple[PCG, int]:
    while True:
        tensor = chance.choice([1, 2, 4, 8])
        stages = chance.choice([1, 2, 3, 4, 6, 8, 16])
        replicas = chance.choice([2, 3, 4, 5, 6, 8, 12, 16, 32])
        experts = chance.choice([2, 4]) if kind == "experts" else 1
        context = chance.choice([2, 4]) if kind == "context" else 1
        ranks = tensor * stages * replicas
        if replicas % (experts * context) or not LEAST_RANKS <= ranks <= MOST_RANKS:
            continue
        return instances.grid_pcg(
            stages,
            replicas,
            data_bytes=chance.choice([3e9, 1.5e9, 6e9, 30e9]),
            pipeline_bytes=chance.choice([0.5e9, 0.25e9, 1e9, 20e9]),
            experts=experts,
            context=context,
            tensor=tensor,
        ), tensor


def _few(chance: random.Random) -> tuple[PCG, int]:
    while True:
        ranks = chance.choice([2, 4, 6, 8, 12, 16, 24, 32, 40])
        tensor = chance.choice([x for x in (1, 2, 4, 8) if ranks % x == 0])
        units = ranks // tensor
        replicas = chance.choice([x for x in (1, 2, 3, 4, 5, 6, 8, 10) if units % x == 0])
        stages = units // replicas
        if replicas == stages == tensor == 1:
            continue
        return instances.grid_pcg(
            stages,
            replicas,
            data_bytes=chance.choice([1.5e9, 6e9]),
            pipeline_bytes=chance.choice([0.25e9, 1e9, 8e9]),
            tensor=tensor,
        ), tensor


def _loose(chance: random.Random) -> tuple[PCG, int]:
    """A grid whose tensor groups say little more than its other groups."""
    while True:
        tensor, stages = chance.choice([2, 4, 8]), chance.choice([1, 2, 3, 4, 8])
        replicas = chance.choice([2, 3, 4, 5, 6, 8, 12, 16])
        if LEAST_RANKS <= tensor * stages * replicas <= MOST_RANKS:
            break
    inside, data = chance.choice([1e9, 2e9, 5e9, 10e9]), chance.choice([1e9, 3e9, 6e9])
    onward = chance.choice([0.25e9, 1e9, 4e9])
    groups: list[dict[str, object]] = []

    def add(name: str, op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size})

    def rank(i: int, j: int, k: int) -> int:
        return (i * replicas + j) * tensor + k

    for i in range(stages):
        for j in range(replicas):
            add(f"tp/{i}/{j}", "all_reduce", [rank(i, j, k) for k in range(tensor)], inside)
        for k in range(tensor):
            add(f"dp/{i}/{k}", "all_reduce", [rank(i, j, k) for j in range(replicas)], data)
    for i in range(stages - 1):
        for j in range(replicas):
            for k in range(tensor):
                ends = [rank(i, j, k), rank(i + 1, j, k)]
                add(f"pp/{i}/{j}/{k}", "send_recv", ends, 2 * onward)
    size = tensor * stages * replicas
    return PCG.parse({"format": "railweave.pcg/1", "world_size": size, "groups": groups}), tensor


def main(base: int, count: int, whole_nodes: bool = False) -> None:
    """Place the jobs of a seed with a limit of 1 s, and print which are not proved best."""
    proved, met = Counter[str](), Counter[str]()
    taken = []
    # What is compiled at first is no part of a job.
    warm_up()
    for number in range(count):
        drawn = small_nodes.job(base, number) if whole_nodes else job(base, number)
        kind, pcg, cluster, constraints = drawn
        begun = time.process_time()
        placement = place(pcg, cluster, 1.0, constraints=constraints)
        taken.append(time.process_time() - begun)
        met[kind] += 1
        proved[kind] += placement.proved_optimal
        if not placement.proved_optimal:
            cost, bound = placement.cross_spine_bytes, placement.lower_bound_bytes
            over = f"{cost / bound:.4f} of the bound" if bound else "no bound"
            print(f"{number:4} {kind}: {pcg.world_size} ranks, {over}", flush=True)
    for kind in met:
        print(f"{kind}: {proved[kind]} of {met[kind]}")
    mean, most = sum(taken) / len(taken), max(taken)
    longer = sum(one > _LONG_S for one in taken)
    print(f"{proved.total()} of {met.total()} proved; CPU s a job: {mean:.2f} in the mean,")
    print(f"{most:.2f} at most, {longer} jobs above {_LONG_S}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--whole-nodes", action="store_true")
    asked = parser.parse_args()
    main(asked.seed, asked.count, asked.whole_nodes)
