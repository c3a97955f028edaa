"""Atoms in lanes: splitting them saves no more than told, by brute force over all placements."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement.bounds.lanes_apart import find_lanes
from railweave.placement.division.local import Local
from railweave.placement.jobs.index import ANY_KIND, PAIRS, RING, TREE, Demand, Ints
from railweave.placement.jobs.units import UnitGraph, unit_graph

relaxed = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def job(chance: np.random.Generator, atoms: int, inside: float) -> UnitGraph:
    """Atoms of two ranks, a ring over all atoms and some other groups; both lanes alike.

    Rank 2 a + lane is of atom a. inside: bytes between the ranks of an atom.
    """
    groups: list[tuple[int, list[int], float]] = [(RING, list(range(atoms)), 1.0)]
    for _ in range(int(chance.integers(0, 4))):
        members = chance.choice(atoms, size=int(chance.integers(2, atoms + 1)), replace=False)
        form = int(chance.choice([RING, TREE, PAIRS])) if len(members) > 2 else PAIRS
        groups.append((form, sorted(members.tolist()), float(chance.choice([0.5, 1.0, 3.0]))))
    form = [PAIRS] * atoms
    weight = [inside / 2] * atoms
    member = [[2 * a, 2 * a + 1] for a in range(atoms)]
    for lane in range(2):
        for kind, joined, size in groups:
            form.append(kind)
            weight.append(size)
            member.append([2 * a + lane for a in joined])
    demand = Demand(
        ranks=2 * atoms,
        form=np.array(form),
        weight=np.array(weight),
        start=np.concatenate([[0], np.cumsum([len(m) for m in member])]),
        member=np.concatenate([np.array(m) for m in member]),
        kind=np.full(2 * atoms, ANY_KIND),
    )
    return unit_graph(demand)


def least_bytes(graph: UnitGraph, rooms: Ints, whole: bool) -> float:
    """The cost of the best placement of all, or of the best that splits no atom."""
    kinds = np.zeros((len(rooms), 0), dtype=np.int64)
    local = Local.of(graph, np.arange(graph.units), rooms, kinds)
    together = local.bytes_of(np.zeros(graph.units, dtype=np.int64))
    units = graph.units // 2 if whole else graph.units
    least = np.inf
    for chosen in product(range(len(rooms)), repeat=units):
        where = np.repeat(chosen, 2) if whole else np.array(chosen)
        if local.fits(where):
            least = min(least, local.bytes_of(where) - together)
    return least


@given(st.integers(0, 10**6), st.sampled_from([(3, 2), (3, 3), (4, 2)]))
@relaxed
def test_no_placement_costs_less_than_the_floor(seed: int, size: tuple[int, int]) -> None:
    atoms, domains = size
    chance = np.random.default_rng(seed)
    graph = job(chance, atoms, float(chance.choice([0.5, 2.0, 4.0, 8.0])))
    rooms = chance.integers(1, atoms, domains)
    rooms[0] += max(0, atoms - int(rooms.sum()))
    lanes = find_lanes(graph, np.repeat(np.arange(atoms), 2), rooms)
    assert lanes is not None
    whole = least_bytes(graph, 2 * rooms, whole=True)
    floor = lanes.floor(whole)
    assert floor <= whole
    assert floor <= least_bytes(graph, 2 * rooms, whole=False) * (1 + 1e-9) + 1e-9
    # What holds atoms together firmly makes whole ones the best.
    if lanes.splitting >= lanes.moving[-1]:
        assert floor == whole


def test_groups_across_lanes_or_unlike_ones_are_no_lanes() -> None:
    chance = np.random.default_rng(1)
    graph = job(chance, 3, 4.0)
    atom_of, rooms = np.repeat(np.arange(3), 2), np.array([2, 2])
    assert find_lanes(graph, atom_of, rooms) is not None
    across = replace(graph, link=np.array([[0], [3]]), link_weight=np.ones(1))
    assert find_lanes(across, atom_of, rooms) is None
    weight = graph.weight.copy()
    weight[0] *= 2
    assert find_lanes(replace(graph, weight=weight), atom_of, rooms) is None
