"""The random small jobs of the benchmark: the same from one seed each time, and placeable."""

from __future__ import annotations

import pytest
from railweave.placement import place

from benchmarks import small_nodes


@pytest.mark.parametrize("number", range(12))
def test_a_job_of_whole_nodes_fits_its_cluster_and_is_the_same_each_time(number: int) -> None:
    kind, pcg, cluster, constraints = small_nodes.job(7, number)
    again = small_nodes.job(7, number)
    assert (kind, constraints) == (again[0], None)
    assert list(pcg.groups) == list(again[1].groups)
    assert cluster == again[2]
    free = [len(node.usable_devices) for node in cluster.nodes]
    assert set(free) <= {0, small_nodes.WIDTH}
    assert pcg.world_size <= sum(free)
    assert pcg.world_size // small_nodes.WIDTH in small_nodes.NODES


def test_some_job_of_whole_nodes_spans_domains_and_is_proved_best() -> None:
    for number in range(60, 90):
        _, pcg, cluster, _ = small_nodes.job(7, number)
        room = max(
            sum(len(n.usable_devices) for n in cluster.nodes if n.domains[tier] == name)
            for tier in [cluster.tiers[-2].name]
            for name in {n.domains[tier] for n in cluster.nodes}
        )
        if room < pcg.world_size <= 64:
            break
    placement = place(pcg, cluster)
    assert placement.cross_spine_bytes > 0
    assert placement.proved_optimal
