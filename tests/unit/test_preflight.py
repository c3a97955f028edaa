"""The check before a start: what a node finds of itself, and who is blamed for failed transfers."""

from __future__ import annotations

import resource
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents import preflight, self_test
from railweave.agents.device_use import read_device_use
from railweave.agents.preflight import check_node
from railweave.agents.processes import own_children
from railweave.scheduler.suspects import (
    Pair,
    blamed,
    rounds_of_neighbours,
    undecided,
    witness_pairs,
)


class NvmlError(Exception):
    """What the driver refuses."""


class Driver:
    """The functions of pynvml that tell who uses a device."""

    NVMLError = NvmlError

    def __init__(self, **used: tuple[int, list[int]]) -> None:
        self.used = {int(name[1:]): found for name, found in used.items()}

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index not in self.used:
            raise NvmlError("Invalid Argument")
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 * 2**30, free=self.used[handle][0] * 2**30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.used[handle][1]]


def test_a_node_that_is_well_says_how_long_it_took(tmp_path: Path) -> None:
    found = check_node("n0", tmp_path, [0, 1], 60.0)
    assert (found.node, found.wrong) == ("n0", "")
    assert found.compute_s and found.disk_s and found.compute_s > 0 < found.disk_s
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_no_more_is_found(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        found = check_node("n0", tmp_path, [], 60.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.wrong == "its disk fails: [Errno 27] File too large" and found.compute_s
    assert "No such file" in check_node("n0", tmp_path / "gone", [], 60.0).wrong
    assert list(tmp_path.iterdir()) == []


def test_a_test_that_hangs_is_ended_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(
        "import time, pathlib, sys\npathlib.Path(sys.argv[1], 'up').touch()\ntime.sleep(1000)\n"
    )
    monkeypatch.setattr(preflight, "_SELF_TEST", script)
    before = set(own_children())
    found = check_node("n0", tmp_path, [], 1.0)
    assert found.wrong == "its test of itself was not over within 1 s"
    assert set(own_children()) <= before
    script.write_text("raise SystemExit('no such thing')")
    assert "code 1: no such thing" in check_node("n0", tmp_path, [], 60.0).wrong


@pytest.mark.parametrize("change", [(0, 0, 1), (17, 3, -1), (39, 39, 10**6)])
def test_one_wrong_number_in_a_product_is_found(
    change: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    self_test.compute()
    row, column, by = change
    counted = iter(range(10**9))
    times = self_test._times
    # The products of the big matrix come first, row by row, each of as many terms.
    wrong = (row * self_test._SIZE + column) * self_test._SIZE
    monkeypatch.setattr(
        self_test, "_times", lambda a, b: times(a, b) + (by if next(counted) == wrong else 0)
    )
    with pytest.raises(self_test.Wrong, match="wrong product"):
        self_test.compute()


def test_a_disk_that_gives_back_other_bytes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path)[:-1] + b"\0")
    with pytest.raises(self_test.Wrong, match="gives back other bytes"):
        for _ in range(8):  # the last byte may be the right one by chance
            self_test.use_disk(tmp_path)


def test_devices_in_use_are_named_with_who_uses_them(tmp_path: Path) -> None:
    driver = Driver(d0=(79, []), d1=(12, [4711]), d2=(30, []))
    assert [use.free for use in read_device_use([0, 1, 2, 7], driver)] == [
        True,
        False,
        False,
        False,
    ]
    found = check_node("n0", tmp_path, [0, 1, 2], 60.0, driver)
    assert found.wrong == (
        "device 1 has 12.0 of 80.0 GiB of memory free, process 4711 uses it; "
        "device 2 has 30.0 of 80.0 GiB of memory free"
    )
    assert read_device_use([0], SimpleNamespace(nvmlInit=lambda: 1 / 0)) == []


NODES = [f"n{number}" for number in range(9)]


@given(st.integers(0, 9))
def test_neighbours_meet_in_two_rounds_and_nobody_is_in_two_pairs_of_one(count: int) -> None:
    rounds = rounds_of_neighbours(NODES[:count])
    assert len(rounds) == min(2, max(0, count - 1))
    for pairs in rounds:
        ends = [node for pair in pairs for node in pair]
        assert len(ends) == len(set(ends))
    pairs = [pair for found in rounds for pair in found]
    assert sorted(pairs) == list(pairwise(NODES[:count]))


def tried(nodes: list[str], bad: set[str], witnesses: list[str]) -> dict[Pair, bool]:
    """Results of all transfers where those with a bad node fail."""
    results: dict[Pair, bool] = {}
    for pairs in rounds_of_neighbours(nodes):
        results |= {pair: not bad & set(pair) for pair in pairs}
    for pair in witness_pairs(undecided(results), witnesses):
        results[pair] = not bad & set(pair)
    return results


@given(count=st.integers(2, 7), data=st.data())
def test_where_there_are_bad_nodes_one_is_blamed_and_never_one_that_is_well(
    count: int, data: Any
) -> None:
    nodes = NODES[:count]
    bad = data.draw(st.sets(st.sampled_from(nodes)))
    witnesses = [f"w{number}" for number in range(count)]
    found = set(blamed(tried(nodes, bad, witnesses), nodes))
    assert found <= bad and bool(found) == bool(bad)


def test_of_two_nodes_without_a_witness_both_are_suspected() -> None:
    results = tried(NODES[:2], {"n1"}, [])
    assert undecided(results) == ["n0", "n1"] == blamed(results, NODES)
    assert blamed(tried(NODES[:3], {"n2"}, []), NODES) == ["n2"]
    assert blamed({}, NODES) == []
