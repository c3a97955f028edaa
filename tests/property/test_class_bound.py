"""The bound of classes of units: never above what brute force finds, and often as high."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Model, Parallelism, Workload, build_pcg, place
from railweave.placement.bounds.class_bound import housed
from railweave.placement.bounds.class_cost import class_cost
from railweave.placement.exact.exact_counts import best_spread
from railweave.placement.exact.unit_classes import counts_of_classes, families_of_class
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, Demand, Fabric, Floats, Ints
from railweave.placement.jobs.units import unit_graph
from railweave.placement.spread.counts import Counts
from unit_grids import every_placement, grid, paid_by

relaxed = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@given(st.integers(0, 10**6), st.sampled_from([(2, 4), (4, 2), (3, 3), (2, 2, 2), (8,), (2, 5)]))
@relaxed
def test_no_choice_of_units_pays_less_than_the_class_cost(seed: int, shape: tuple[int]) -> None:
    graph = grid(np.random.default_rng(seed), 1, shape)
    told = class_cost(graph.units, families_of_class(graph, np.zeros(graph.units, dtype=np.int64)))
    for count in range(graph.units + 1):
        ways = combinations(range(graph.units), count)
        least = min(paid_by(graph, np.array(chosen, dtype=np.int64)) for chosen in ways)
        assert told[count] <= least + 1e-9
    if len(shape) == 1:
        assert told[1] == pytest.approx(paid_by(graph, np.array([0])))


def test_sets_that_nest_are_counted_exactly() -> None:
    graph = grid(np.random.default_rng(0), 1, (8,))
    nested = Demand(
        ranks=8,
        form=np.array([RING, RING, PAIRS, PAIRS, PAIRS, PAIRS]),
        weight=np.array([3.0, 3.0, 1.0, 1.0, 1.0, 1.0]),
        start=np.array([0, 4, 8, 10, 12, 14, 16]),
        member=np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]),
        kind=np.full(8, ANY_KIND),
    )
    graph = unit_graph(nested)
    told = class_cost(8, families_of_class(graph, np.zeros(8, dtype=np.int64)))
    least: Floats = np.array(
        [
            min(paid_by(graph, np.array(c, dtype=np.int64)) for c in combinations(range(8), n))
            for n in range(9)
        ]
    )
    assert told == pytest.approx(least)


@given(st.integers(0, 10**6), st.sampled_from([(2, 4), (2, 2, 2), (3, 3), (1, 6)]))
@relaxed
def test_no_placement_costs_less_than_the_bound_of_its_classes(
    seed: int, size: tuple[int, ...]
) -> None:
    chance = np.random.default_rng(seed)
    classes, shape = (2, (2, 2)) if size[0] == 1 else (1, size)
    graph = grid(chance, classes, shape)
    domains = 2 if graph.units > 8 else 3
    rooms = chance.integers(1, graph.units, domains)
    rooms[0] += max(0, graph.units - int(rooms.sum()))
    ways, cost = every_placement(graph, rooms)
    least, best = float(cost.min()), ways[int(cost.argmin())]
    class_of = np.repeat(np.arange(classes), graph.units // classes)
    problem, constant = counts_of_classes(graph, class_of, rooms)
    spread = spread_of(problem, class_of, best)
    assert problem.bytes_of(spread) + constant <= least + 1e-9
    proved = best_spread(problem, spread, 1.0)
    assert proved is not None
    assert proved.bound + constant <= least + 1e-6


def spread_of(problem: Counts, class_of: Ints, where: Ints) -> Ints:
    spread = np.zeros((problem.classes, problem.domains), dtype=np.int64)
    np.add.at(spread, (class_of, where), 1)
    return spread


def pods_of_nodes(devices: int, counts: tuple[int, ...]) -> Cluster:
    tiers = [{"name": t, "bandwidth": 5e10, "latency": 1e-6} for t in ("pod", "spine")]
    nodes = [
        {"name": f"p{p}n{n}", "accelerator": "A", "devices": devices, "domains": {"pod": f"p{p}"}}
        for p, count in enumerate(counts)
        for n in range(count)
    ]
    return Cluster.parse(
        {"format": "railweave.cluster/1", "name": "odd", "tiers": tiers, "nodes": nodes}
    )


def test_units_are_housed_only_where_their_kinds_of_device_are() -> None:
    pods = pods_of_nodes(2, (2, 2))
    kinds = ("A", "A", "B", "A")
    nodes = [
        node.model_copy(update={"accelerator": kind})
        for node, kind in zip(pods.nodes, kinds, strict=True)
    ]
    mixed = pods.with_nodes(tuple(nodes))
    needs = [{"ranks": [0, 1], "accelerator": "B"}]
    data = {"format": "railweave.pcg/1", "world_size": 4, "groups": [], "requires": needs}
    fabric = Fabric.of(mixed)
    graph = unit_graph(Demand.of(PCG.parse(data), fabric.kinds))
    alone = np.arange(4)
    assert housed(fabric, graph, alone, np.array([0, 0, 1, 1]), 0) is None
    slots = housed(fabric, graph, alone, np.array([1, 1, 0, 1]), 0)
    assert slots is not None
    assert [mixed.nodes[n].accelerator for n in fabric.slot_node[slots[:2]]] == ["B", "B"]


def mixture(experts: int) -> Model:
    return Model.transformer(
        hidden=2048,
        layers=24,
        heads=32,
        kv_heads=8,
        ffn=8192,
        vocab=32000,
        sequence=4096,
        gated_mlp=True,
        experts=experts,
        experts_per_token=2,
    )


def test_an_expert_parallel_job_on_nodes_of_four_is_placed_by_its_classes_and_proved() -> None:
    cluster = pods_of_nodes(4, (14, 11, 22, 9, 17, 9, 5, 5))
    split = Parallelism(tp=2, pp=6, dp=12, ep=4)
    workload = Workload(model=mixture(16), parallelism=split, global_batch=96, micro_batch=1)
    placement = place(build_pcg(workload), cluster)
    assert placement.proved_optimal
    assert placement.lower_bound_bytes > 0


def test_a_job_whose_chains_do_not_fit_is_placed_without_them_and_proved() -> None:
    cluster = pods_of_nodes(8, (2, 2, 8, 9, 10, 11))
    split = Parallelism(tp=2, pp=2, dp=64, ep=4, zero=3)
    workload = Workload(model=mixture(64), parallelism=split, global_batch=256, micro_batch=2)
    placement = place(build_pcg(workload), cluster)
    assert placement.proved_optimal
    assert placement.lower_bound_bytes > 0
