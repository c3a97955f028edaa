"""The bound of parts of sets: never above what brute force finds, and as high on known jobs."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import place
from railweave.placement.bounds.class_ways import class_ways, directions
from railweave.placement.bounds.granules import next_cost
from railweave.placement.bounds.part_bound import part_bound
from railweave.placement.bounds.part_cost import (
    PartCost,
    Sets,
    choices_of_parts,
    crossed,
    crosses,
    divisions_of,
    part_cost,
)
from railweave.placement.errors import BoundAboveCost
from railweave.placement.exact.held_counts import held_bound
from railweave.placement.exact.unit_classes import families_of_class
from railweave.placement.jobs.index import Floats, Ints
from railweave.placement.spread.structure import ways_to_class
from unit_grids import every_placement, grid, paid_by, rings_in_a_grid

from benchmarks import small

relaxed = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
SHAPES = [(2, 4), (4, 2), (3, 3), (2, 2, 2), (8,), (2, 5)]


def parts_of(chosen: list[int], set_of: Ints) -> Ints:
    """The parts of sets that chosen units make, falling."""
    return np.sort(np.bincount(set_of[chosen], minlength=int(set_of.max()) + 1))[::-1]


def cost_at(cost: PartCost, parts: list[Ints]) -> list[float]:
    """What the choices with these parts of each division cost; there is one, or none."""
    same = np.ones(len(cost.units), dtype=bool)
    for each, rows in zip(cost.divisions, parts, strict=True):
        same &= (each.rows == rows).all(axis=1)
    return cost.cost[same].tolist()


@given(st.integers(0, 10**6), st.sampled_from(SHAPES))
@relaxed
def test_no_choice_of_units_pays_less_than_its_parts_cost(seed: int, shape: tuple[int]) -> None:
    graph = grid(np.random.default_rng(seed), 1, shape)
    units = graph.units
    families = families_of_class(graph, np.zeros(units, dtype=np.int64))
    ways = divisions_of(units, families)
    costs = [part_cost(units, families, units, way) for way in ways]
    every = [(way, cost) for way, cost in zip(ways, costs, strict=True) if cost is not None]
    assert len(every) == len(ways)
    told = [([way], cost) for way, cost in every]
    for (one, first), (other, second) in combinations(every, 2):
        if crosses(one, other):
            both = crossed(first, second)
            assert both is not None
            told.append(([one, other], both))
    for count in range(units + 1):
        for chosen in combinations(range(units), count):
            paid = paid_by(graph, np.array(chosen, dtype=np.int64))
            for sets, cost in told:
                found = cost_at(cost, [parts_of(list(chosen), set_of) for set_of in sets])
                assert len(found) == 1
                assert found[0] <= paid + 1e-9


def test_parts_of_sets_that_nothing_crosses_cost_exactly_what_is_told() -> None:
    graph = grid(np.random.default_rng(3), 1, (2, 4))
    families = families_of_class(graph, np.zeros(8, dtype=np.int64))
    for way in divisions_of(8, families):
        cost = part_cost(8, families, 8, way)
        assert cost is not None
        least: dict[bytes, float] = {}
        for count in range(9):
            for chosen in combinations(range(8), count):
                parts = parts_of(list(chosen), way).tobytes()
                paid = paid_by(graph, np.array(chosen, dtype=np.int64))
                least[parts] = min(paid, least.get(parts, np.inf))
        told = [least[row.tobytes()] for row in cost.divisions[0].rows]
        assert cost.cost == pytest.approx(np.array(told))


def test_a_set_is_divided_in_every_way_that_domains_have_room_for() -> None:
    graph = grid(np.random.default_rng(3), 1, (2, 4))
    families = families_of_class(graph, np.zeros(8, dtype=np.int64))
    cost = part_cost(8, families, 3, np.repeat([0, 1], 4))
    assert cost is not None
    (divided,) = cost.divisions
    assert isinstance(divided, Sets)
    # 3 + 1, 2 + 2, 2 + 1 + 1 and 1 + 1 + 1 + 1.
    made = sorted(map(tuple, divided.splits.tolist()))
    assert made == [(0, 2, 0), (1, 0, 1), (2, 1, 0), (4, 0, 0)]
    assert cost.units.max() == 3


CLASSED = [
    (1, (2, 4)),
    (1, (2, 2, 2)),
    (1, (3, 3)),
    (2, (2, 2)),
    (3, (3,)),
    (2, (4,)),
    (1, (2, 3)),
    (4, (2,)),
    (3, (1, 3)),
]


@given(st.integers(0, 10**6), st.sampled_from(CLASSED), st.sampled_from([1.0, 1.4, 3.0]))
@relaxed
def test_no_placement_costs_less_than_the_bound_of_parts(
    seed: int, job: tuple[int, tuple[int, ...]], over: float
) -> None:
    chance = np.random.default_rng(seed)
    graph = grid(chance, *job)
    domains = int(chance.integers(2, 5 if graph.units < 9 else 4))
    rooms = chance.integers(1, graph.units, domains)
    rooms[0] += max(0, graph.units - int(rooms.sum()))
    least = float(every_placement(graph, rooms)[1].min())
    # A placement that is known tells where to look, not where the bound is.
    known = least * over + (over - 1.0)
    for class_of in ways_to_class(graph):
        found = part_bound(graph, class_of, rooms, known, 1.0)
        assert found.bound_bytes <= least + 1e-7
        assert next_cost(graph, min(found.bound_bytes, least), known) <= least * (1 + 1e-8)


@given(
    st.integers(0, 10**6),
    st.sampled_from([(2, 2, 2), (2, 3, 1), (2, 4, 1), (3, 3, 1), (1, 3, 3), (2, 2, 1)]),
    st.sampled_from([1.0, 1.4, 3.0]),
)
@settings(relaxed, max_examples=12)
def test_no_placement_costs_less_than_the_bound_of_classes_in_a_grid(
    seed: int, shape: tuple[int, int, int], over: float
) -> None:
    chance = np.random.default_rng(seed)
    graph = rings_in_a_grid(chance, *shape)
    rooms = chance.integers(1, graph.units, 3)
    rooms[0] += max(0, graph.units - int(rooms.sum()))
    least = float(every_placement(graph, rooms)[1].min())
    known = least * over + (over - 1.0)
    for class_of in class_ways(graph):
        found = part_bound(graph, class_of, rooms, known, 1.0)
        assert found.bound_bytes <= least + 1e-7


def test_of_classes_in_a_grid_those_in_a_column_may_be_one() -> None:
    graph = rings_in_a_grid(np.random.default_rng(0), 2, 8, 5)
    ways = class_ways(graph)
    column = np.tile(np.repeat(np.arange(8), 5), 2)
    assert any((way == column).all() for way in ways)
    # Both rings of a stage that must be split cost more together than each where it is.
    rooms = np.array([5, 35, 47])
    rings = part_bound(graph, ways[0], rooms, 1e3, 1.0).bound_bytes
    assert part_bound(graph, column, rooms, 1e3, 1.0).bound_bytes > rings


def test_the_directions_of_a_grid_are_its_columns_and_each_step_along_its_rows() -> None:
    number = np.arange(8).reshape(2, 4)
    steps = [(number[0], number[1]), *((number[:, i], number[:, i + 1]) for i in range(3))]
    pairs = np.concatenate([np.stack(step) for step in steps], axis=1)
    found = directions(pairs)
    assert sorted(some.T.tolist() for some in found) == sorted(
        np.stack(step).T.tolist() for step in steps
    )


ONE_CLASS = [(2, 4), (3, 3), (2, 2, 2), (2, 5), (9,), (1, 3, 3)]


@given(
    st.integers(0, 10**6),
    st.sampled_from(ONE_CLASS),
    st.sampled_from([1.0, 1.4, 3.0]),
    st.sampled_from([1.0, 0.37, 1e7 / 3]),
)
@relaxed
def test_no_placement_costs_less_than_the_bound_of_how_much_sets_have_in_domains(
    seed: int, shape: tuple[int, ...], over: float, unit: float
) -> None:
    chance = np.random.default_rng(seed)
    graph = grid(chance, 1, shape)
    # Weights that are whole numbers of something, and such that are not.
    graph = replace(graph, weight=graph.weight * unit, link_weight=graph.link_weight * unit)
    domains = int(chance.integers(2, 5 if graph.units < 9 else 4))
    rooms = chance.integers(1, graph.units, domains)
    rooms[0] += max(0, graph.units - int(rooms.sum()))
    least = float(every_placement(graph, rooms)[1].min())
    known = least * over + (over - 1.0) * unit
    bound, work = held_bound(graph, rooms, known, 1.0)
    assert bound <= least * (1 + 1e-9)
    assert work <= 1.5


@pytest.mark.parametrize(
    ("seed", "shape", "rooms"),
    [(100882, (2, 2, 2), [3, 3, 1, 4]), (100020, (1, 3, 3), [3, 7, 4])],
)
def test_prices_without_a_common_divisor_lead_to_no_false_proof(
    seed: int, shape: tuple[int, ...], rooms: list[int]
) -> None:
    graph = grid(np.random.default_rng(seed), 1, shape)
    graph = replace(graph, weight=graph.weight * 1e7 / 3, link_weight=graph.link_weight * 1e7 / 3)
    least = float(every_placement(graph, np.array(rooms))[1].min())
    for over in (1.0, 1.2, 1.5417, 3.0):
        assert held_bound(graph, np.array(rooms), least * over, 1.0)[0] <= least * (1 + 1e-9)


def test_prices_without_a_common_divisor_are_rounded_to_next_to_nothing() -> None:
    rooms, told = np.array([5, 4, 2]), []
    for seed in range(6):
        graph = grid(np.random.default_rng(seed), 1, (3, 3))
        prices = np.random.default_rng(seed).uniform(1e9, 3e10, graph.nets)
        weight = prices[np.unique(graph.weight, return_inverse=True)[1]]
        graph = replace(graph, weight=weight)
        least = float(every_placement(graph, rooms)[1].min())
        for known in (least, 1.1 * least):
            bound = held_bound(graph, rooms, known, 1.0)[0]
            assert bound <= least * (1 + 1e-9)
        told.append(held_bound(graph, rooms, least, 1.0)[0] / least)
    assert sum(one >= 1 - 1e-8 for one in told) >= 4


@given(st.integers(0, 10**6), st.sampled_from([(2, 2), (3,), (4,), (2, 1, 2)]))
@relaxed
def test_of_two_linked_classes_held_counts_bound_both(seed: int, shape: tuple[int, ...]) -> None:
    chance = np.random.default_rng(seed)
    graph = grid(chance, 2, shape)
    rooms = chance.integers(1, graph.units, 3)
    rooms[0] += max(0, graph.units - int(rooms.sum()))
    least = float(every_placement(graph, rooms)[1].min())
    assert held_bound(graph, rooms, 1.2 * least + 0.2, 1.0)[0] <= least * (1 + 1e-9)


@pytest.mark.parametrize("factor", [1e-18, 1e18, 1e27])
def test_bytes_of_any_size_are_bounded_alike(factor: float) -> None:
    rooms = np.array([5, 4, 2])
    graph = grid(np.random.default_rng(3), 1, (3, 3))
    least = float(every_placement(graph, rooms)[1].min())
    scaled = replace(graph, weight=graph.weight * factor, link_weight=graph.link_weight * factor)
    found = held_bound(scaled, rooms, 1.2 * least * factor, 1.0)[0] / factor
    assert found == pytest.approx(held_bound(graph, rooms, 1.2 * least, 1.0)[0], rel=1e-6)


def test_a_family_dearer_than_anything_known_is_kept_whole() -> None:
    rooms = np.array([6, 3, 3])
    graph = grid(np.random.default_rng(3), 1, (3, 3))
    one = graph.weight == graph.weight.max()
    uneven = replace(graph, weight=np.where(one, 1e30, graph.weight))
    assert 0 <= held_bound(uneven, rooms, 50.0, 1.0)[0] <= 50.0


def test_units_that_pay_nothing_are_bounded_by_nothing() -> None:
    graph = grid(np.random.default_rng(3), 1, (3, 3))
    free = replace(graph, weight=graph.weight * 0, link_weight=graph.link_weight * 0)
    assert held_bound(free, np.array([5, 4, 2]), 1.0, 1.0)[0] == 0


def test_of_two_families_that_cross_the_model_of_held_counts_proves_the_best() -> None:
    proved = 0
    for seed in range(12):
        chance = np.random.default_rng(seed)
        graph = grid(chance, 1, (3, 3))
        rooms = np.array([5, 4, 2])
        least = float(every_placement(graph, rooms)[1].min())
        proved += held_bound(graph, rooms, least, 1.0)[0] >= least * (1 - 1e-9)
    assert proved >= 9


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 12))
@relaxed
def test_choices_of_parts_are_counted_before_they_are_written_down(
    sets: int, tall: int, most: int
) -> None:
    rows = choices_of_parts(sets, tall, most)
    assert rows is not None
    falling = [r for r in product(range(tall, -1, -1), repeat=sets) if list(r) == sorted(r)[::-1]]
    assert len(rows) == sum(sum(row) <= most for row in falling)


@given(st.integers(0, 10**6), st.floats(0.0, 1.0), st.sampled_from([1.0, 1.3]))
@relaxed
def test_rounding_a_bound_up_passes_over_no_cost_that_a_placement_can_have(
    seed: int, part: float, over: float
) -> None:
    chance = np.random.default_rng(seed)
    graph = grid(chance, 2, (2, 2))
    costs: Floats = np.unique(every_placement(graph, np.array([5, 4, 3]))[1])
    bound = float(costs[-1]) * part
    above = costs[costs >= bound]
    rounded = next_cost(graph, bound, float(above[0]) * over)
    assert min(bound, float(above[0])) * (1 - 1e-8) <= rounded <= above[0] * (1 + 1e-8)


def test_a_bound_stays_where_weights_differ_so_much_that_they_make_too_many_sums() -> None:
    graph = grid(np.random.default_rng(1), 2, (2, 2))
    uneven = replace(graph, weight=np.array([1e12 / 3, 1.5]), link_weight=np.ones(1))
    assert next_cost(uneven, 1e12, 1.2e12) == 1e12


@pytest.mark.parametrize(
    ("base", "number", "kind"),
    [
        (73110504, 153, "g-dense"),
        (73110507, 99, "s-dense"),
        (73111201, 88, "low"),
        (81000001, 113, "small"),
        (90411201, 75, "s-dense"),
    ],
)
def test_a_job_whose_groups_must_be_split_over_pods_is_proved_best(
    base: int, number: int, kind: str
) -> None:
    drawn, pcg, cluster, constraints = small.job(base, number)
    assert drawn == kind
    placement = place(pcg, cluster, constraints=constraints)
    assert placement.proved_optimal
    assert placement.lower_bound_bytes > 0


def test_links_inside_a_class_of_two_blocks_count_as_links_where_blocks_may_be_split() -> None:
    _, pcg, cluster, constraints = small.job(73110505, 148)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BoundAboveCost)
        placement = place(pcg, cluster, constraints=constraints)
    assert placement.proved_optimal
