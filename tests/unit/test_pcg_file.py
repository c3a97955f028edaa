"""The PCG and placement files: what they accept, and how every fault is told."""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from railweave.placement import PCG, Algorithm, Group, InvalidInput, Op, Placement, Problem

GOOD: dict[str, Any] = {
    "format": "railweave.pcg/1",
    "world_size": 4,
    "groups": [
        {"name": "dp", "op": "all_reduce", "ranks": [0, 2], "bytes": 1e6, "algorithm": "tree"},
        {"name": "pp", "op": "send_recv", "ranks": [0, 1], "bytes": 5},
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    target: Any = data
    for step in way:
        target = target[int(step)] if isinstance(target, list) else target[step]
    key = int(last) if isinstance(target, list) else last
    if value is KeyError:
        del target[key]
    else:
        target[key] = value
    return data


def problems(data: Any) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        PCG.parse(data)
    assert all(problem.found and problem.fix for problem in caught.value.problems)
    return list(caught.value.problems)


def test_a_good_file_is_read() -> None:
    pcg = PCG.parse(GOOD)
    assert pcg.groups[0].resolved_algorithm is Algorithm.TREE
    assert pcg.groups[1].algorithm is Algorithm.AUTO
    assert pcg.required_accelerators() == {}


@pytest.mark.parametrize(
    ("op", "algorithm"),
    [
        (Op.ALL_REDUCE, Algorithm.RING),
        (Op.ALL_GATHER, Algorithm.RING),
        (Op.REDUCE_SCATTER, Algorithm.RING),
        (Op.ALL_TO_ALL, Algorithm.DIRECT),
    ],
)
def test_auto_means_ring_or_direct_by_operation(op: Op, algorithm: Algorithm) -> None:
    assert Group(name="g", op=op, ranks=(0,), bytes=1).resolved_algorithm is algorithm


@pytest.mark.parametrize(
    ("path", "value", "place", "found", "fix"),
    [
        ("world_size", KeyError, "world_size", "missing", "add it"),
        ("world_size", 0, "world_size", "found 0", "greater than or equal to 1"),
        ("world_size", True, "world_size", "found True", "a number, not true"),
        ("world_size", 10**12, "world_size", "found 1000000000000", "less than or equal"),
        ("groups", None, "groups", "found None", "tuple"),
        ("groups.0.name", KeyError, "groups[0].name", "missing", "add it"),
        ("groups.1.name", "dp", "groups[1].name", "duplicate name 'dp', also groups[0]", "rename"),
        ("groups.0.op", "allreduce", "groups[0].op", "found 'allreduce'", "'all_reduce'"),
        ("groups.0.ranks", [], "groups[0].ranks", "found []", "at least 1 item"),
        (
            "groups.0.ranks",
            [0, 4],
            "groups[0].ranks[1]",
            "rank 4 does not exist",
            "ranks are 0 to 3 (world_size 4)",
        ),
        ("groups.0.ranks", [-1, 0], "groups[0].ranks[0]", "rank -1 does not exist", "0 to 3"),
        ("groups.0.ranks", [1, 1], "groups[0].ranks[1]", "rank 1 given twice", "list it once"),
        ("groups.0.ranks", [0, True], "groups[0].ranks[1]", "found True", "integer"),
        ("groups.0.ranks", [0, "1"], "groups[0].ranks[1]", "found '1'", "integer"),
        ("groups.0.ranks", [0, 1.5], "groups[0].ranks[1]", "found 1.5", "integer"),
        ("groups.0.bytes", -1, "groups[0].bytes", "found -1", "greater than or equal to 0"),
        ("groups.0.bytes", math.nan, "groups[0].bytes", "found nan", "finite"),
        ("groups.0.bytes", math.inf, "groups[0].bytes", "found inf", "finite"),
        ("groups.0.bytes", 1e300, "groups[0].bytes", "found 1e+300", "less than or equal"),
        ("groups.0.bytes", True, "groups[0].bytes", "found True", "a number, not true"),
        ("groups.0.bytes", KeyError, "groups[0].bytes", "missing", "add it"),
        ("groups.0.algorithm", "nvls", "groups[0].algorithm", "found 'nvls'", "'ring'"),
        (
            "groups.0.algorithm",
            "direct",
            "groups[0].algorithm",
            "all_reduce has no algorithm direct",
            "use one of auto, ring, tree",
        ),
        (
            "groups.1.ranks",
            [0, 1, 2],
            "groups[1].ranks",
            "send_recv names 3 ranks",
            "name the sender and the receiver",
        ),
        ("groups.0.size", 5, "groups[0].size", "unknown key", "x-"),
        ("groups.0.byte", 5, "groups[0].byte", "unknown key", "did you mean 'bytes'?"),
        (
            "requires",
            [{"ranks": [5], "accelerator": "V100"}],
            "requires[0].ranks[0]",
            "rank 5 does not exist",
            "0 to 3",
        ),
        (
            "requires",
            [{"ranks": [0], "accelerator": "V100"}, {"ranks": [0], "accelerator": "H800"}],
            "requires[1]",
            "rank 0 needs 'H800' here and 'V100' in requires[0]",
            "name one accelerator for it",
        ),
        ("requires", [{"ranks": [0]}], "requires[0].accelerator", "missing", "add it"),
    ],
)
def test_a_fault_is_told_with_its_place_and_its_fix(
    path: str, value: Any, place: str, found: str, fix: str
) -> None:
    matching = [p for p in problems(changed(path, value)) if p.place == place]
    assert matching, problems(changed(path, value))
    assert any(found in p.found and fix in p.fix for p in matching), matching


def test_a_long_list_of_faults_is_cut_short_with_their_number() -> None:
    groups = [{"name": f"g{n}", "op": "broadcast", "ranks": [9], "bytes": 1} for n in range(50)]
    with pytest.raises(InvalidInput) as caught:
        PCG.parse(changed("groups", groups))
    assert len(caught.value.problems) == 50
    assert "50 problems" in str(caught.value) and "... and 30 more" in str(caught.value)


def test_requirements_name_an_accelerator_by_rank() -> None:
    pcg = PCG.parse(changed("requires", [{"ranks": [1, 3], "accelerator": "V100"}]))
    assert pcg.required_accelerators() == {1: "V100", 3: "V100"}
    assert PCG.parse(pcg.to_data()) == pcg


def test_a_saved_pcg_is_loaded_as_it_was(tmp_path: Path) -> None:
    pcg = PCG.parse(GOOD)
    pcg.save(tmp_path / "pcg.json")
    assert PCG.load(tmp_path / "pcg.json") == pcg
    assert "requires" not in json.loads((tmp_path / "pcg.json").read_text())


def test_a_wrong_pcg_made_in_python_explains_itself_too() -> None:
    group = Group(name="g", op=Op.BROADCAST, ranks=(0, 7), bytes=1)
    with pytest.raises(InvalidInput, match=r"groups\[0\].ranks\[1\]: rank 7 does not exist"):
        PCG(world_size=2, groups=(group,))


def test_the_time_to_read_a_pcg_of_sixteen_thousand_ranks_does_not_explode() -> None:
    groups = [
        {"name": f"g{n}", "op": "send_recv", "ranks": [n, (n + 1024) % 16384], "bytes": 1.0}
        for n in range(16384)
    ]
    groups += [
        {"name": f"t{n}", "op": "all_gather", "ranks": list(range(8 * n, 8 * n + 8)), "bytes": 1.0}
        for n in range(2048)
    ]
    text = json.dumps({"format": "railweave.pcg/1", "world_size": 16384, "groups": groups})
    start = time.process_time()
    PCG.parse(text)
    assert time.process_time() - start < 15


PLACED: dict[str, Any] = {
    "format": "railweave.placement/1",
    "devices": [["n0", 0], ["n1", 3]],
    "traffic_bytes": {"node": 1.0, "spine": 2.0},
    "lower_bound_bytes": 1.0,
    "gap": 1.0,
    "proved_optimal": False,
}


def test_a_placement_file_survives_saving(tmp_path: Path) -> None:
    placement = Placement.parse(PLACED)
    assert placement.devices == [("n0", 0), ("n1", 3)]
    assert (placement.cross_spine_bytes, placement.gap) == (2.0, 1.0)
    placement.save(tmp_path / "p.json")
    assert Placement.load(tmp_path / "p.json") == placement


def test_the_gap_is_zero_without_traffic_and_without_end_over_a_bound_of_zero() -> None:
    nothing = Placement([("n", 0)], {"node": 1.0, "spine": 0.0}, 0.0, True)
    assert nothing.gap == 0.0
    unbounded = Placement([("n", 0)], {"node": 1.0, "spine": 5.0}, 0.0, False)
    assert unbounded.gap == math.inf
    assert unbounded.to_data()["gap"] is None
    assert Placement.parse(unbounded.to_data()).gap == math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": [["n0"]]}, "devices[0]"),
        ({"devices": [["n0", -1]]}, "devices[0][1]: found -1"),
        ({"devices": [["n0", True]]}, "devices[0][1]: found True"),
        ({"devices": [["n0", 0.5]]}, "devices[0][1]: found 0.5"),
        ({"traffic_bytes": {}}, "traffic_bytes: found {}"),
        ({"traffic_bytes": {"spine": -1}}, "traffic_bytes.spine: found -1"),
        ({"lower_bound_bytes": "x"}, "lower_bound_bytes: found 'x'"),
        ({"proved_optimal": None}, "proved_optimal: found None"),
        ({"format": "railweave.placement/2"}, "this must be 'railweave.placement/1'"),
    ],
)
def test_a_fault_of_a_placement_file_is_told_with_its_place(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        Placement.parse(PLACED | change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("told", "place"),
    [
        ({"kind": "vp"}, "groups[0].kind: found 'vp'"),
        ({"count": -1}, "groups[0].count: found -1"),
        ({"overlap": 1.5}, "groups[0].overlap: found 1.5"),
        ({"overlap": True}, "groups[0].overlap: found True"),
    ],
)
def test_what_a_group_tells_of_itself_is_checked(told: dict[str, Any], place: str) -> None:
    group = {"name": "a", "op": "all_reduce", "ranks": [0, 1], "bytes": 8} | told
    with pytest.raises(InvalidInput) as caught:
        PCG.parse({"format": "railweave.pcg/1", "world_size": 2, "groups": [group]})
    assert place in str(caught.value)


def test_groups_as_arrays_and_as_objects_are_the_same() -> None:
    plain = {"name": "a", "op": "all_reduce", "ranks": [1, 0, 2], "bytes": 8.0, "algorithm": "tree"}
    more = {"name": "b", "op": "send_recv", "ranks": [2, 0], "bytes": 0.5, "algorithm": "auto"}
    more |= {"kind": "pp", "count": 4.0, "overlap": 0.25}
    data = {"format": "railweave.pcg/1", "world_size": 3, "groups": [plain, more]}
    pcg = PCG.parse(data)
    assert pcg.to_data() == data
    folded = PCG.folded(3, pcg.table)
    assert folded == pcg and hash(folded) == hash(pcg)
    assert len(folded.groups) == 2 and folded.groups[1] == pcg.groups[1]
    assert folded.table.taken(np.array([1])).groups() == pcg.groups[1:]
    assert pickle.loads(pickle.dumps(folded)) == pcg
    assert PCG.model_validate_json(folded.model_dump_json()) == pcg
