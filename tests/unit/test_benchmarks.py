"""The benchmark: peers place validly and as their rules say, and nothing is scored that is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, Evaluator, evaluate

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import families, irregular, measure, picture, report, strategies, table  # noqa: E402
from benchmarks.instances import Instance, grid_pcg  # noqa: E402
from benchmarks.job import Job  # noqa: E402
from benchmarks.peers import Candidate, Unavailable, all_peers, pure_python  # noqa: E402
from benchmarks.peers.arnold import solved  # noqa: E402
from benchmarks.peers.kueue import best_fit  # noqa: E402
from benchmarks.peers.slurm import tree_nodes  # noqa: E402


def cluster(free_by_tor: dict[str, list[int]], devices: int = 2) -> Cluster:
    """Pods of ToRs, each with that many whole free nodes: {"p0": [3, 1]} has two ToRs in pod p0."""
    nodes: list[dict[str, Any]] = []
    for pod, tors in free_by_tor.items():
        for tor, free in enumerate(tors):
            for number in range(free):
                domains = {"tor": f"{pod}t{tor}", "pod": pod}
                name = f"{pod}t{tor}n{number}"
                row = {"name": name, "accelerator": "V100", "devices": devices, "domains": domains}
                nodes.append(row)
    tiers = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("tor", "pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "test", "tiers": tiers, "rails": devices}
    return Cluster.parse(data | {"nodes": nodes})


def job(nodes: int, made: Cluster) -> Job:
    pcg = grid_pcg(1, nodes, data_bytes=1.0, pipeline_bytes=1.0, tensor=2)
    return Job(pcg, made)


@pytest.fixture(scope="module")
def tiny() -> Instance:
    made = cluster({"p0": [3, 2], "p1": [4], "p2": [2, 2]})
    pcg = grid_pcg(2, 4, data_bytes=3e9, pipeline_bytes=1e9, experts=2, tensor=2)
    return Instance("tiny", made, pcg)


@pytest.mark.parametrize("name", list(pure_python()))
def test_every_setting_of_a_peer_gives_a_valid_placement(name: str, tiny: Instance) -> None:
    peer = pure_python()[name]
    candidates = list(peer.candidates(Job(tiny.pcg, tiny.cluster), seed=1))
    assert candidates
    for candidate in candidates:
        problem = measure.validity_problem(tiny.cluster, tiny.pcg.world_size, candidate.place())
        assert (candidate.setting, problem) == (candidate.setting, "")


@pytest.mark.parametrize("name", list(pure_python()))
def test_peers_place_jobs_smaller_than_a_node_and_partly_free_nodes(name: str) -> None:
    made = families.fragments(3)
    for candidate in pure_python()[name].candidates(Job(made.pcg, made.cluster), seed=1):
        devices = candidate.place()
        assert measure.validity_problem(made.cluster, made.pcg.world_size, devices) == ""


@pytest.mark.parametrize("name", list(pure_python()))
def test_peers_place_jobs_without_a_grid_of_ranks(name: str) -> None:
    made = irregular.instance("mesh", 2, irregular.SMALL, nodes=30)
    for candidate in pure_python()[name].candidates(Job(made.pcg, made.cluster), seed=1):
        devices = candidate.place()
        assert measure.validity_problem(made.cluster, made.pcg.world_size, devices) == ""


def test_a_peer_without_its_program_says_how_to_get_it(tiny: Instance) -> None:
    for peer in all_peers().values():
        try:
            next(iter(peer.candidates(Job(tiny.pcg, tiny.cluster), seed=1)))
        except Unavailable as error:
            assert "install" in str(error)


def test_blocks_are_the_ranks_of_the_heaviest_groups_whatever_their_numbers() -> None:
    ranks = [5, 0, 3, 7, 1, 4, 2, 6]
    pairs = [(ranks[i], ranks[i + 1]) for i in range(0, 8, 2)]
    rows = [
        {"name": f"tp{i}", "op": "all_reduce", "ranks": list(pair), "bytes": 1e9}
        for i, pair in enumerate(pairs)
    ]
    rows.append({"name": "dp", "op": "all_reduce", "ranks": list(range(8)), "bytes": 1e6})
    pcg = PCG.parse({"format": "railweave.pcg/1", "world_size": 8, "groups": rows})
    found = Job(pcg, cluster({"p0": [4]})).blocks
    assert found == sorted(tuple(sorted(pair)) for pair in pairs)


def test_nets_and_tree_cost_what_the_evaluator_counts_at_the_spine(tiny: Instance) -> None:
    seen = Job(tiny.pcg, tiny.cluster)
    pod_of = {node.name: node.domains["pod"] for node in tiny.cluster.nodes}
    for candidate in pure_python()["random_order"].candidates(seen, seed=4):
        devices = candidate.place()
        pods = [pod_of[devices[ranks[0]][0]] for ranks in seen.blocks]
        cost = 0.0
        for net in seen.nets:
            spans = len({pods[pin] for pin in net.pins})
            cost += net.weight * (spans if net.ring and spans > 1 else spans - 1)
        counted = evaluate(tiny.pcg, tiny.cluster, devices).traffic_bytes["spine"]
        assert cost == pytest.approx(counted)


def taken(found: list[tuple[Any, int]]) -> dict[str, int]:
    nodes: dict[str, int] = {}
    for node, count in found:
        nodes[node.path[1]] = nodes.get(node.path[1], 0) + count
    return nodes


def test_kueue_takes_the_tightest_domain_that_holds_everything() -> None:
    made = job(3, cluster({"p0": [5, 4], "p1": [3], "p2": [2, 2]}))
    assert taken(best_fit(made, depth=2)) == {"p1t0": 3}


def test_kueue_goes_up_a_level_when_no_domain_of_the_preferred_one_fits() -> None:
    made = job(4, cluster({"p0": [3, 3], "p1": [3], "p2": [2, 2]}))
    assert taken(best_fit(made, depth=2)) == {"p2t0": 2, "p2t1": 2}


def test_kueue_takes_the_largest_domains_first_and_the_last_one_tight() -> None:
    made = job(9, cluster({"p0": [6], "p1": [5], "p2": [3], "p3": [4]}))
    assert taken(best_fit(made, depth=1)) == {"p0t0": 6, "p2t0": 3}


def test_kueue_keeps_slices_whole_where_they_leave_least_over() -> None:
    made = job(8, cluster({"p0": [7], "p1": [6], "p2": [4]}))
    assert taken(best_fit(made, depth=1, slice_blocks=4)) == {"p1t0": 4, "p2t0": 4}


def test_slurm_takes_the_tightest_leaf_that_holds_everything() -> None:
    made = job(3, cluster({"p0": [5, 4], "p1": [3], "p2": [2, 2]}))
    assert taken(tree_nodes(made)) == {"p1t0": 3}


def test_slurm_stays_below_the_switch_that_fits_and_starts_with_its_fuller_leaf() -> None:
    made = job(4, cluster({"p0": [3, 3, 3], "p1": [1, 3], "p2": [2]}))
    assert list(taken(tree_nodes(made)).items()) == [("p1t1", 3), ("p1t0", 1)]


def test_arnold_uses_few_domains_or_small_spread_as_its_weights_say() -> None:
    made = job(6, cluster({"p0": [3], "p1": [3], "p2": [2], "p3": [2], "p4": [2]}))
    units = [[0, 1], [2, 3], [4, 5]]
    few = solved(made, units, alpha=1.0, beta=0.1)
    assert sum(any(column) for column in zip(*few, strict=True)) == 2
    compact = solved(made, units, alpha=0.1, beta=1.0)
    assert max(sum(count > 0 for count in row) for row in compact) == 1


class _Peer:
    NAME = "made up"

    def __init__(self, *candidates: Candidate) -> None:
        self._candidates = candidates

    def candidates(self, job: Job, seed: int, starts: int = 1) -> Any:
        return iter(self._candidates)


def test_the_best_valid_setting_counts_and_failures_are_told(tiny: Instance) -> None:
    seen = Job(tiny.pcg, tiny.cluster)
    good = [c.place() for c in pure_python()["kueue"].candidates(seen, 0)]
    scores = [evaluate(tiny.pcg, tiny.cluster, devices).cross_spine_bytes for devices in good]

    def fails() -> Any:
        raise ValueError("no solution")

    peer = _Peer(
        *(Candidate(f"s{i}", lambda d=devices: d) for i, devices in enumerate(good)),
        Candidate("doubled", lambda: [good[0][0]] * tiny.pcg.world_size),
        Candidate("broken", fails),
    )
    score = Evaluator(tiny.pcg, tiny.cluster)
    result = measure.peer_result(peer, seen, score, "tiny", 0, 1.0)
    assert result.spine_bytes == min(scores)
    assert result.problem == "doubled: a device is used twice; broken: no solution"


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ([("p0t0n0", 0)], "1 devices for 2 ranks"),
        ([("p0t0n0", 0), ("p0t0n0", 0)], "a device is used twice"),
        ([("p0t0n0", 0), ("p0t0n0", 7)], r"('p0t0n0', 7) is not free"),
    ],
)
def test_invalid_placements_are_not_scored(devices: list[tuple[str, int]], problem: str) -> None:
    assert measure.validity_problem(cluster({"p0": [2]}), 2, devices) == problem


def test_instances_are_the_same_for_a_seed_and_differ_between_seeds() -> None:
    for family in ("fragments", *irregular.FAMILIES[1::2]):
        first, again, other = (families.instance(family, seed) for seed in (5, 5, 6))
        assert first == again
        assert first.pcg != other.pcg or first.cluster != other.cluster


def result(method: str, spine: float, bound: float = 10.0, seed: int = 1) -> measure.Result:
    traffic = {"node": 1.0, "tor": 5.0, "spine": spine}
    return measure.Result("b", seed, 16, method, "", traffic, bound, 0.5, 0.5)


def test_jobs_from_strategies_are_the_same_for_a_seed_and_have_room() -> None:
    (told, pcg, where), (again, same, there) = strategies.job(7, 2), strategies.job(7, 2)
    assert (told, pcg.world_size, where) == (again, same.world_size, there)
    assert strategies.LEAST_RANKS <= pcg.world_size <= strategies.MOST_RANKS
    assert sum(len(node.usable_devices) for node in where.nodes) >= pcg.world_size
    assert strategies.job(7, 3)[0] != told


def test_tables_show_means_worst_verdicts_and_infinite_ratios() -> None:
    rows = [
        result(measure.SOLVER, 10.0),
        result(measure.SOLVER, 0.0, 0.0, seed=2),
        result("other", 12.0),
        result("other", 4.0, 0.0, seed=2),
        result("same", 10.0),
        result("same", 0.0, 0.0, seed=2),
    ]
    found = table.cells(rows)
    assert found[measure.SOLVER, "b"].ratios == (1.0, 1.0)
    assert found["other", "b"].ratios[1] == float("inf")
    other, same = found["other", "b"], found["same", "b"]
    assert (other.better, other.equal, other.worse) == (2, 0, 0)
    assert (same.better, same.equal, same.worse) == (0, 2, 0)
    page = report.page(report.Run(rows, missing={"Scotch": "apt-get install scotch"}))
    assert "| `place()` | **1.00** |" in page
    assert "| other | ∞ |" in page
    assert "Not run here: Scotch is not installed (apt-get install scotch)." in page
    assert picture.ratios(rows).count("<polygon") == 2  # legend and mark


def test_without_a_bound_methods_are_still_compared_with_the_least_found() -> None:
    rows = [result(measure.SOLVER, 8.0, 0.0), result("other", 10.0, 0.0)]
    found = table.cells(rows)
    assert found[measure.SOLVER, "b"].over_least == (1.0,)
    assert found["other", "b"].over_least == (1.25,)
    assert "| other | 1.25 |" in report.page(report.Run(rows))


def test_a_method_without_a_valid_placement_stands_in_the_page_with_the_reason() -> None:
    why = "s1: a device is used twice"
    failed = measure.Result("b", 1, 16, "other", "", {}, 10.0, 0.0, 0.0, why)
    page = report.page(report.Run([result(measure.SOLVER, 10.0), failed]))
    assert "| other | none valid |" in page
    assert "other on b, seed 1 (s1: a device is used twice)" in page


def test_a_placement_below_the_proven_bound_is_told() -> None:
    rows = [result(measure.SOLVER, 12.0, 11.0), result("other", 10.0, 11.0)]
    assert table.below_bound(rows) == [rows[1]]
    assert "**The bound is wrong**: other on b, seed 1" in report.page(report.Run(rows))


def test_growth_pictures_hold_a_mark_for_each_size() -> None:
    rows = [
        {"devices": 10**power, "cpu_seconds": 0.1 * power, "peak_bytes": 2e8} for power in (3, 4, 5)
    ]
    assert len(re.findall("<polygon", picture.growth(rows))) == 6


def test_the_memory_of_a_growth_run_is_not_that_of_the_process_that_started_it() -> None:
    held = bytearray(b"x") * 1_500_000_000
    code = "from benchmarks.growth import peak_bytes; print(peak_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert 50_000_000 < int(done.stdout) < len(held) / 2
