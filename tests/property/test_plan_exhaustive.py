"""Planning finds what an exhaustive search finds, and its bounds hold for every strategy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, product
from typing import Any

import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from railweave.placement import (
    Cluster,
    Estimator,
    InvalidInput,
    Model,
    Parallelism,
    StepEstimate,
    Workload,
)
from railweave.placement.planning import Limits
from railweave.placement.planning.floors import Floors
from railweave.placement.planning.ground import domain_sizes, island_size
from railweave.placement.planning.layer_splits import LayerCosts, layer_splits
from railweave.placement.planning.mixed import MixedEstimator, MixedSpace, proportional
from railweave.placement.planning.search import first_broken, search
from railweave.placement.planning.space import Space
from railweave.placement.planning.task import Task

DENSE = {"hidden": 1024, "heads": 16, "kv_heads": 4, "ffn": 4096, "vocab": 32000, "sequence": 8192}
MIXED = DENSE | {"experts": 8, "experts_per_token": 2, "expert_ffn": 1024, "dense_layers": 1}


def cluster(nodes: int, devices: int, memory_gb: float, accelerator: str) -> Cluster:
    """Nodes in pairs, with chips of little memory so that not everything fits."""
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "lab",
            "rails": devices,
            "accelerators": {
                "chip": {
                    "memory_bytes": int(memory_gb * 1e9),
                    "peak_flops": {"bf16": 200e12, "fp8": 400e12},
                    "memory_bandwidth": 1.5e12,
                    "scale_up_bandwidth": 200e9,
                }
            },
            "tiers": [
                {"name": "pair", "bandwidth": 12.5e9, "latency": 2e-6},
                {"name": "spine", "bandwidth": 12.5e9, "latency": 4e-6, "oversubscription": 4},
            ],
            "nodes": [
                {
                    "name": f"n{n}",
                    "accelerator": accelerator,
                    "devices": devices,
                    "domains": {"pair": f"p{n // 2}"},
                }
                for n in range(nodes)
            ],
        }
    )


def every_strategy(model: Model, where: Cluster, limits: Limits, batch: int) -> Iterator[Workload]:
    """All valid workloads within the limits, each made and checked by itself."""
    count = sum(len(node.usable_devices) for node in where.nodes)
    sequence = 2048
    degrees = [d for d in range(1, count + 1) if count % d == 0]
    costs = LayerCosts.of(model, sequence)
    most_tp, most_cp = island_size(where), sequence // 1024
    eps = [e for e in degrees if model.experts and model.experts % e == 0] or [1]
    for tp, cp, pp in product(degrees, degrees, degrees):
        if tp > most_tp or cp > most_cp or count % (tp * cp * pp) or pp > model.layers + 2:
            continue
        dp = count // (tp * cp * pp)
        if batch % dp:
            continue
        sizes = [b for b in range(1, batch // dp + 1) if (batch // dp) % b == 0]
        shards = [None, *(size // tp for size in domain_sizes(where) if size % tp == 0)]
        virtual = range(1, (model.layers + 2) // pp + 1) if pp > 1 else [1]
        for v, schedule in product(virtual, ("1f1b", "interleaved", "zero-bubble")):
            if (v > 1) != (schedule == "interleaved") or schedule not in limits.schedules:
                continue
            uneven = limits.uneven_stages and (v == 1 or model.layers % pp > 0)
            for layers in layer_splits(costs, pp * v, uneven):
                for ep, etp, size, recompute, zero, shard, reshard, form, split_sequence in product(
                    eps,
                    degrees,
                    sizes,
                    limits.recompute,
                    limits.zero,
                    shards,
                    (False, True),
                    limits.context_forms,
                    limits.sequence_parallel,
                ):
                    if etp > tp or tp % etp or (etp != tp and not model.experts):
                        continue
                    if size > limits.most_micro_batch or (reshard and zero < 3):
                        continue
                    if shard is not None and not 1 < shard < dp * cp:
                        continue
                    try:
                        yield Workload(
                            model=model,
                            parallelism=Parallelism(
                                **layers._asdict(),
                                tp=tp,
                                cp=cp,
                                pp=pp,
                                dp=dp,
                                ep=ep,
                                etp=etp,
                                virtual_pp=v,
                                schedule=schedule,
                                zero=zero,
                                shard=shard,
                                reshard_parameters=reshard,
                                context_form=form,
                                sequence_parallel=split_sequence,
                            ),
                            global_batch=batch,
                            micro_batch=size,
                            sequence=sequence,
                            recompute=recompute,
                        )
                    except InvalidInput:
                        continue


def searched(
    model: Model, where: Cluster, limits: Limits, batch: int, keep: int
) -> list[tuple[tuple[int, ...], StepEstimate]]:
    count = sum(len(node.usable_devices) for node in where.nodes)
    space = Space(
        Task(model, batch, 2048, {}), limits, [count], island_size(where), domain_sizes(where)
    )
    found = search(space, Estimator(where), keep)
    return [(one.degrees, one.estimate) for one in found.best]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Model, Cluster, Limits, int]:
    mixture = draw(st.booleans())
    layers = draw(st.sampled_from([4, 6, 7]))
    model = Model.transformer(**(MIXED if mixture else DENSE), layers=layers, gated_mlp=True)
    nodes, devices = draw(st.sampled_from([(1, 2), (1, 4), (2, 2), (2, 4), (3, 2), (4, 4)]))
    where = cluster(nodes, devices, draw(st.sampled_from([3.0, 5.0, 12.0])), "chip")
    one_or_two = {"min_size": 1, "max_size": 2, "unique": True}
    limits = Limits(
        zero=tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3]), **one_or_two))),
        recompute=tuple(draw(st.lists(st.sampled_from(["none", "full"]), **one_or_two))),
        schedules=("1f1b", *draw(st.sampled_from([(), ("interleaved",), ("zero-bubble",)]))),
        sequence_parallel=(True,),
        context_forms=(draw(st.sampled_from(["ring", "all-to-all"])),),
        most_micro_batch=draw(st.sampled_from([2, 4])),
    )
    return model, where, limits, draw(st.sampled_from([8, 12, 16]))


# Sharding is asked for where there is nothing to shard, and memory just suffices.
ALONE = (
    Model.transformer(**DENSE, layers=4, gated_mlp=True),
    cluster(1, 4, 3.0, "chip"),
    Limits(
        zero=3,
        recompute="full",
        schedules="1f1b",
        sequence_parallel=True,
        context_forms="ring",
        most_micro_batch=2,
    ),
    8,
)


@settings(max_examples=examples(12), deadline=None)
@example(ALONE)
@given(cases())
def test_the_best_strategies_are_those_of_an_exhaustive_search(
    case: tuple[Model, Cluster, Limits, int],
) -> None:
    model, where, limits, batch = case
    estimator = Estimator(where)
    best: dict[tuple[int, ...], float] = {}
    for workload in every_strategy(model, where, limits, batch):
        found, split = estimator(workload), workload.parallelism
        if found.fits:
            degrees = (split.tp, split.pp, split.dp, split.cp, split.ep, split.expert_tp)
            best[degrees] = min(best.get(degrees, float("inf")), found.step_s)
    got = searched(model, where, limits, batch, keep=5)
    expected = sorted(best.values())[:5]
    assert [one.step_s for _, one in got] == pytest.approx(expected, rel=1e-9)
    for degrees, one in got:
        assert one.step_s == pytest.approx(best[degrees], rel=1e-9)


@pytest.mark.parametrize(("kind", "zero"), [(DENSE, (1, 3)), (MIXED, 2)], ids=["dense", "experts"])
def test_on_64_devices_the_best_is_that_of_an_exhaustive_search(
    kind: dict[str, Any], zero: Any
) -> None:
    model = Model.transformer(**kind, layers=8, gated_mlp=True)
    where = cluster(8, 8, 4.0, "chip")
    limits = Limits(
        recompute="selective",
        zero=zero,
        sequence_parallel=True,
        context_forms="ring",
        schedules=("1f1b", "interleaved"),
        most_micro_batch=1,
    )
    estimator = Estimator(where)
    estimates = (estimator(workload) for workload in every_strategy(model, where, limits, 64))
    least = min(one.step_s for one in estimates if one.fits)
    [(_, best)] = searched(model, where, limits, 64, keep=1)
    assert best.step_s == pytest.approx(least, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(cases(), st.integers(0, 10_000))
def test_no_strategy_goes_below_the_floors_of_its_slice_and_shape(
    case: tuple[Model, Cluster, Limits, int], chosen: int
) -> None:
    model, where, limits, batch = case
    count = sum(len(node.usable_devices) for node in where.nodes)
    task = Task(model, batch, 2048, {})
    estimator = Estimator(where)
    for counts in ([count], range(1, count + 1)):
        space = Space(task, limits, counts, island_size(where), domain_sizes(where))
        floors = Floors(space, estimator)
        parts = list(space.slices())
        part = parts[chosen % len(parts)]
        floor = floors.of_slice(part)
        for shape in space.shapes(part):
            for sharing in space.sharings(shape):
                workload = space.workload(shape, sharing)
                if first_broken(workload) is not None:
                    continue
                found = estimator(workload)
                assert floors.slice_s(part, floor) <= floors.shape_s(shape, floor) * (1 + 1e-9)
                assert floors.shape_s(shape, floor) <= found.step_s * (1 + 1e-9)
                assert floors.shape_bytes(shape, floor) <= found.memory_bytes


@settings(max_examples=10, deadline=None)
@given(cases(), st.integers(0, 10_000))
def test_recomputing_more_never_takes_less_time(
    case: tuple[Model, Cluster, Limits, int], chosen: int
) -> None:
    model, where, limits, batch = case
    count = sum(len(node.usable_devices) for node in where.nodes)
    space = Space(
        Task(model, batch, 2048, {}), limits, [count], island_size(where), domain_sizes(where)
    )
    floors = Floors(space, Estimator(where))
    parts = [part for part in space.slices() if part.recompute == limits.recompute[0]]
    part = parts[chosen % len(parts)]
    ways = [part._replace(recompute=word) for word in ("none", "selective", "full")]
    times = [floors.of_slice(way).busy_s for way in ways]
    assert times == sorted(times)


@settings(max_examples=15, deadline=None)
@given(cases(), st.integers(0, 10_000))
def test_what_is_shared_out_changes_memory_and_the_end_of_a_step_alone(
    case: tuple[Model, Cluster, Limits, int], chosen: int
) -> None:
    model, where, limits, batch = case
    everything = limits.model_copy(update={"zero": (0, 1, 2, 3)})
    count = sum(len(node.usable_devices) for node in where.nodes)
    space = Space(
        Task(model, batch, 2048, {}), everything, [count], island_size(where), domain_sizes(where)
    )
    estimator = Estimator(where)
    parts = list(space.slices())
    for shape in space.shapes(parts[chosen % len(parts)]):
        workloads = [space.workload(shape, sharing) for sharing in space.sharings(shape)]
        found = [estimator(w) for w in workloads if first_broken(w) is None]
        for one in found[1:]:
            assert one.memory_bytes >= found[0].memory_bytes * (1 - 1e-9)
            for name, seconds in one.breakdown.items():
                if name not in ("data_parallel", "optimizer"):
                    assert seconds == found[0].breakdown[name]


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(st.floats(0.1, 4), min_size=1, max_size=30),
    st.floats(0, 8),
    st.integers(2, 12),
)
def test_uneven_stages_are_no_slower_than_even_ones_and_as_even_as_that_allows(
    layers: list[float], last: float, stages: int
) -> None:
    costs = LayerCosts(tuple(layers), last)
    for way in layer_splits(costs, stages, uneven=True):
        counts = way.stage_layers
        if counts is None:
            continue
        assert sum(counts) == len(layers) and len(counts) == stages
        assert all(counts[1:-1])
        slowest = _slowest(costs, counts)
        if len(layers) >= stages:
            over = len(layers) % stages
            even = [len(layers) // stages + (k < over) for k in range(stages)]
            assert slowest <= _slowest(costs, even) * (1 + 1e-9)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.floats(0.1, 4), min_size=3, max_size=9),
    st.floats(0, 3),
    st.lists(st.tuples(st.floats(0.2, 3), st.integers(1, 9)), min_size=2, max_size=4),
)
def test_layers_in_proportion_to_speed_are_the_best_of_all_divisions_that_memory_allows(
    layers: list[float], last: float, stages: list[tuple[float, int]]
) -> None:
    costs, rates = LayerCosts(tuple(layers), last), [rate for rate, _ in stages]
    caps = [cap for _, cap in stages]

    def slowest(counts: tuple[int, ...]) -> float:
        ends = list(accumulate(counts))
        parts = [sum(layers[e - n : e]) for e, n in zip(ends, counts, strict=True)]
        parts[-1] += last
        return max(part * rate for part, rate in zip(parts, rates, strict=True))

    ways = [
        counts
        for counts in product(*(range(cap + 1) for cap in caps))
        if sum(counts) == len(layers) and all(counts[1:-1])
    ]
    found = proportional(costs, rates, caps)
    if not ways:
        assert found is None
    else:
        assert found is not None and tuple(found) in ways
        assert slowest(tuple(found)) <= min(map(slowest, ways)) * (1 + 1e-9)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([3.0, 6.0, 12.0]), st.sampled_from([8, 16]), st.integers(0, 10_000))
def test_no_pipeline_over_several_kinds_goes_below_its_floors(
    memory_gb: float, batch: int, chosen: int
) -> None:
    where = two_kinds(memory_gb)
    model = Model.transformer(**DENSE, layers=7, gated_mlp=True)
    task = Task(model, batch, 2048, {"rank_order": "tp-cp-ep-dp-pp", "precision": "bf16"})
    estimator = MixedEstimator(where, ("chip", "A100-80G"))
    space = MixedSpace(task, Limits(zero=(1, 2)), where, estimator)
    parts = list(space.slices())
    for part in (parts[chosen % len(parts)], parts[(7 * chosen) % len(parts)]):
        floor = space.floors.of_slice(part)
        shapes = list(space.shapes(part))
        for shape in shapes:
            for sharing in space.sharings(shape):
                workload = space.workload(shape, sharing)
                if first_broken(workload) is None:
                    found = estimator(workload)
                    least = space.floors.shape_s(shape, floor)
                    assert space.floors.slice_s(part, floor) <= least * (1 + 1e-9)
                    assert least <= found.step_s * (1 + 1e-9)
                    again = estimator(workload, estimator.devices(workload))
                    assert again.step_s == found.step_s


def two_kinds(memory_gb: float) -> Cluster:
    """Two nodes of four small chips, and two of four A100, in two domains that have one of each."""
    small = cluster(4, 4, memory_gb, "chip")
    nodes = [
        node.model_copy(update={"accelerator": "A100-80G"}) if index % 2 else node
        for index, node in enumerate(small.nodes)
    ]
    return small.with_nodes(tuple(nodes))


def _slowest(costs: LayerCosts, counts: Any) -> float:
    start, found = 0, []
    for count in counts:
        found.append(sum(costs.layers[start : start + count]))
        start += count
    found[-1] += costs.last
    return max(found)
