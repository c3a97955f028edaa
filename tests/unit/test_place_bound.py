"""What place() says of its bound: nothing known is said in words, a wrong one does not pass."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from railweave.placement import PCG, Cluster, evaluate, fat_tree, place
from railweave.placement.bounds.class_bound import ClassResult
from railweave.placement.errors import BoundAboveCost

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import irregular, measure, table
from benchmarks.job import Job
from benchmarks.peers import pure_python

solver = importlib.import_module("railweave.placement.place")


def job() -> tuple[PCG, Cluster]:
    """Pairs of ranks on a fabric of two pods where all fit in one."""
    groups = [
        {"name": f"g{r}", "op": "send_recv", "ranks": [r, r + 1], "bytes": 1e9} for r in range(7)
    ]
    data = {"format": "railweave.pcg/1", "world_size": 8, "groups": groups}
    return PCG.parse(data), fat_tree(2, nodes_per_rack=2, racks_per_pod=1)


def test_a_bound_above_the_cost_is_told_though_the_placement_hides_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pcg, cluster = job()
    monkeypatch.setattr(solver, "group_bound", lambda fabric, demand: 7e9)
    with pytest.warns(BoundAboveCost, match="a lower bound of 7000000000 B"):
        placement = place(pcg, cluster)
    assert placement.lower_bound_bytes <= placement.cross_spine_bytes


def test_the_benchmark_reports_a_bound_that_is_above_the_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pcg, cluster = job()
    monkeypatch.setattr(solver, "group_bound", lambda fabric, demand: 7e9)
    instance = irregular.Instance("wrong", cluster, pcg)
    assert table.below_bound([measure.solver_result(instance, "mesh", 1, 1.0)])


def test_where_no_bound_is_known_the_placement_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = irregular.instance("mesh", 5, irregular.SMALL)
    told = "no lower bound above 0 is known for the bytes over the spine"
    known = place(made.pcg, made.cluster, 0.3)
    assert 0 < known.lower_bound_bytes <= known.cross_spine_bytes
    assert told not in known.notes
    monkeypatch.setattr("railweave.placement.jobs.large_jobs.general_bound", lambda *given: 0.0)
    monkeypatch.setattr("railweave.placement.jobs.large_jobs._proved_by_units", lambda *given: 0.0)
    nothing = ClassResult(0.0, None)
    monkeypatch.setattr(
        "railweave.placement.jobs.large_jobs.bound_by_parts", lambda *given: nothing
    )
    monkeypatch.setattr("railweave.placement.jobs.large_jobs.class_bound", lambda *given: nothing)
    monkeypatch.setattr(solver, "group_bound", lambda fabric, demand: 0.0)
    unknown = place(made.pcg, made.cluster, 0.3)
    assert unknown.lower_bound_bytes == 0 < unknown.cross_spine_bytes
    assert told in unknown.notes
    assert unknown.devices == known.devices


@pytest.mark.parametrize("kind", sorted(irregular.KINDS))
def test_no_peer_goes_below_the_bound_of_an_irregular_job(kind: str) -> None:
    made = irregular.instance(kind, 31, irregular.SMALL)
    bound = place(made.pcg, made.cluster, 0.5).lower_bound_bytes
    peers = Job(made.pcg, made.cluster)
    for name in ("kueue", "slurm", "random_order"):
        for candidate in pure_python()[name].candidates(peers, seed=1):
            traffic = evaluate(made.pcg, made.cluster, candidate.place()).traffic_bytes
            assert traffic[made.cluster.spine] >= bound * (1 - 1e-9)
