"""A plan is what estimating every strategy by itself finds, on any number of devices up to 64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from railweave.placement import (
    Cluster,
    Estimator,
    Infeasible,
    Limits,
    Model,
    Parallelism,
    StepEstimate,
    Workload,
    broken_rules,
    plan,
)

DENSE = {"hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 4096, "vocab": 32000, "sequence": 8192}
EXPERTS = {"experts": 8, "experts_per_token": 2, "expert_ffn": 1024, "dense_layers": 1}
OWN = ("model", "parallelism", "global_batch", "micro_batch", "sequence", "recompute")
COMMON = {name: f.default for name, f in Workload.model_fields.items() if name not in OWN}


def small(layers: int, **more: Any) -> Model:
    return Model.transformer(**DENSE, layers=layers, gated_mlp=True, **more)


def cluster(nodes: Sequence[str], devices: int, pods: int, memory_gb: float = 8.0) -> Cluster:
    """A node of each kind in the list; "chip" has as little memory as is said."""
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "lab",
            "rails": devices,
            "accelerators": {
                "chip": {
                    "memory_bytes": int(memory_gb * 1e9),
                    "peak_flops": {"bf16": 200e12},
                    "memory_bandwidth": 1.5e12,
                    "scale_up_bandwidth": 200e9,
                }
            },
            "tiers": [
                {"name": "pod", "bandwidth": 50e9, "latency": 2e-6},
                {"name": "spine", "bandwidth": 50e9, "latency": 5e-6, "oversubscription": 4},
            ],
            "nodes": [
                {
                    "name": f"n{n}",
                    "accelerator": kind,
                    "devices": devices,
                    "domains": {"pod": f"p{n * pods // len(nodes)}"},
                }
                for n, kind in enumerate(nodes)
            ],
        }
    )


def divisors(count: int) -> list[int]:
    return [d for d in range(1, count + 1) if count % d == 0]


def every_strategy(
    model: Model, count: int, island: int, pod: int, batch: int, sequence: int
) -> Iterator[Workload]:
    """Every strategy on `count` devices whose stages have as many layers as the rules allow evenly,
    each checked by itself: the ranges of the page on planning and nothing else."""
    experts = divisors(model.experts) if model.experts else [1]
    for tp, cp, pp in product(
        range(1, min(island, count) + 1), range(1, max(1, sequence // 1024) + 1), divisors(count)
    ):
        if count % (tp * cp * pp):
            continue
        dp = count // (tp * cp * pp)
        shards = [None, *sorted({size // tp for size in (island, pod) if size % tp == 0} - {1})]
        for v, ends, schedule, ep, etp, zero, shard, reshard, form, split_sequence in product(
            range(1, 9) if pp > 1 else [1],
            ((False, False), (False, True), (True, True)),
            (None, "zero-bubble"),
            experts,
            divisors(tp) if model.experts else [tp],
            (0, 1, 2, 3),
            shards,
            (False, True),
            ("ring", "all-to-all") if cp > 1 else ("ring",),
            (True, False) if tp > 1 else (True,),
        ):
            if (schedule and (pp == 1 or v > 1)) or (reshard and zero < 3):
                continue
            if shard is not None and (zero == 0 or shard >= dp * cp):
                continue
            split = Parallelism.model_construct(
                tp=tp,
                cp=cp,
                pp=pp,
                dp=dp,
                ep=ep,
                etp=None if etp == tp else etp,
                virtual_pp=v,
                embedding_as_layer=ends[0],
                head_as_layer=ends[1],
                schedule=schedule,
                zero=zero,
                shard=shard,
                reshard_parameters=reshard,
                context_form=form,
                sequence_parallel=split_sequence,
            )
            for size in divisors(batch // dp if batch % dp == 0 else 0):
                ways = [
                    Workload.model_construct(
                        model=model,
                        parallelism=split,
                        global_batch=batch,
                        micro_batch=size,
                        sequence=sequence,
                        recompute=recompute,
                        **COMMON,
                    )
                    for recompute in ("none", "selective", "full")
                ]
                if size <= 32 and not broken_rules(ways[0]):
                    yield from ways


def best_of_all(
    model: Model, place: Cluster, pod: int, batch: int, sequence: int, counts: Sequence[int]
) -> StepEstimate | None:
    estimator, best = Estimator(place), None
    island = max(len(node.usable_devices) for node in place.nodes)
    for count in counts:
        for workload in every_strategy(model, count, island, pod, batch, sequence):
            found = estimator(workload)
            if found.fits and (best is None or found.step_s < best.step_s):
                best = found
    return best


def check(
    model: Model, place: Cluster, pod: int, batch: int, sequence: int, counts: Sequence[int]
) -> None:
    best = best_of_all(model, place, pod, batch, sequence, counts)
    if best is None:
        with pytest.raises(Infeasible):
            plan(model, place, global_batch=batch, sequence=sequence, time_limit_s=0.1)
        return
    found = plan(model, place, global_batch=batch, sequence=sequence, time_limit_s=0.1).best
    assert found.estimate.fits
    split = found.workload.parallelism
    if split.stage_layers is None and found.in_order_s == found.estimate.step_s:
        assert found.estimate.step_s == pytest.approx(best.step_s, rel=1e-9)
    # Uneven stages, and devices that the solver chose, may only be faster.
    assert found.estimate.step_s <= best.step_s * (1 + 1e-9)


@pytest.mark.parametrize(
    ("model", "devices", "batch"),
    [(small(6), (2, 3), 10), (small(4, **EXPERTS), (1, 4), 4)],
    ids=["dense on any number of six", "experts"],
)
def test_within_the_default_limits_nothing_is_faster_than_the_plan(
    model: Model, devices: tuple[int, int], batch: int
) -> None:
    nodes, each = devices
    place = cluster(["chip"] * nodes, each, nodes, memory_gb=5.0)
    check(model, place, each, batch, 2048, range(1, nodes * each + 1))


WIDE = {
    "memory is short": (small(7), cluster(["chip"] * 2, 8, 2, 3.5), 8, 16, 2048),
    "nothing fits": (small(7), cluster(["chip"], 2, 1, 1.5), 2, 16, 2048),
    "a batch for 60 of 64": (small(8), cluster(["chip"] * 8, 8, 2), 32, 60, 1024),
    "8B on 16": (Model.from_catalog("llama-3-8b"), cluster(["H100-SXM"] * 2, 8, 2), 8, 32, 8192),
    "8B on 64": (Model.from_catalog("llama-3-8b"), cluster(["H100-SXM"] * 8, 8, 2), 32, 64, 4096),
    "a mixture on 32": (
        Model.from_catalog("mixtral-8x7b"),
        cluster(["H100-SXM"] * 4, 8, 2),
        16,
        32,
        4096,
    ),
    "a small mixture on 24": (
        small(6, **EXPERTS),
        cluster(["chip"] * 6, 4, 3),
        8,
        24,
        2048,
    ),
    "22B on 64 A100": (
        Model.transformer(hidden=6144, layers=48, heads=64, vocab=51200, sequence=2048),
        cluster(["A100-80G"] * 8, 8, 4),
        16,
        64,
        2048,
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(WIDE))
def test_on_up_to_64_devices_nothing_is_faster_than_the_plan(name: str) -> None:
    model, place, pod, batch, sequence = WIDE[name]
    free = sum(len(node.usable_devices) for node in place.nodes)
    counts = range(1, free + 1) if free <= 24 else [free, *range(4, free, 4)]
    check(model, place, pod, batch, sequence, counts)


def test_a_plan_over_kinds_is_never_worse_than_the_best_kind_alone() -> None:
    kinds = ["H100-SXM", "A100-80G", "H200"]
    place = cluster(kinds, 2, 1)
    ask: dict[str, Any] = {
        "global_batch": 12,
        "sequence": 2048,
        "time_limit_s": 0.1,
        "keep": 3,
        "limits": Limits(cp=1, recompute="none", zero=(1, 2), most_virtual_pp=2),
        "training": {"software": "megatron"},
    }
    model = small(9)
    alone = [plan(model, cluster([kind], 2, 1), **ask).best.estimate.step_s for kind in kinds]
    best = plan(model, place, **ask).best
    assert best.estimate.step_s <= min(alone) * (1 + 1e-9)
    on_one = plan(model, place, mix_kinds=False, **ask)
    assert on_one.best.estimate.step_s == pytest.approx(min(alone), rel=1e-9)
    assert best.estimate.step_s < on_one.best.estimate.step_s
    assert best.workload.parallelism.stage_layers is not None
    assert len(best.requires) > 1
