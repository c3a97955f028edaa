"""Finding chains: what they leave out decides whether a job is placed by counts."""

from __future__ import annotations

import random

import numpy as np
from railweave.placement import PCG
from railweave.placement.jobs.index import Demand
from railweave.placement.jobs.units import UnitGraph, unit_graph
from railweave.placement.spread.structure import find_chains


def _graph(ranks: int, pairs: list[tuple[int, int, float]]) -> UnitGraph:
    groups = [
        {"name": f"g{i}", "op": "send_recv", "ranks": [a, b], "bytes": size}
        for i, (a, b, size) in enumerate(pairs)
    ]
    made = PCG.parse({"format": "railweave.pcg/1", "world_size": ranks, "groups": groups})
    return unit_graph(Demand.of(made, ()))


def test_a_chain_with_some_light_links_beside_it_is_a_chain() -> None:
    chain = [(i, i + 1, 8.0) for i in range(19)]
    beside = [(i, i + 5, 1.0) for i in range(12)]
    found = find_chains(_graph(20, [*chain, *beside]))
    assert found is not None
    assert [len(members) for members in found.members] == [1] * 20
    assert found.left_out_bytes > 0


def test_a_graph_whose_links_no_chain_can_mostly_take_has_none() -> None:
    chance = random.Random(5)
    links = [(*chance.sample(range(30), 2), 1.0 + chance.random()) for _ in range(150)]
    assert find_chains(_graph(30, links)) is None


def test_a_ring_of_few_units_is_still_taken_for_a_chain() -> None:
    ring = [(i, (i + 1) % 6, 2.0) for i in range(6)]
    found = find_chains(_graph(6, ring))
    assert found is not None
    assert sorted(np.concatenate(found.members).tolist()) == list(range(6))
