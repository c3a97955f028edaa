"""What agents find wrong with their nodes, and what the daemon makes of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import NodeBench, node_bench
from railweave.agents import troubles as troubles_module
from railweave.agents.agent import Agent
from railweave.agents.device_health import LOOK_S, DeviceCounters, DeviceWatch, counted, of_xid
from railweave.agents.troubles import JUMP_S, ClockWatch, DiskWatch, Kind, Trouble, Troubles
from railweave.agents.xid import Blame, xid
from railweave.scheduler.core import Core
from railweave.scheduler.node_troubles import NodeTroubles
from railweave.scheduler.quarantine import Why
from railweave.scheduler.settings import Settings
from railweave.scheduler.standings import Standings
from railweave.scheduler.store import Store
from waiting import wait_until


class NvmlError(Exception):
    """What the driver refuses."""


class Driver:
    """pynvml's functions over a record of two devices that a test changes."""

    NVMLError = NvmlError
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_NVLINK_MAX_LINKS = 18
    nvmlEventTypeXidCriticalError = 8

    def __init__(self) -> None:
        self.uncorrected = [0, 3]
        self.links = [[1, 1, 0], [1, 1, 1]]
        self.remapped = [(0, 0, 0, 0), None]
        self.lost: set[int] = set()
        self.events: deque[SimpleNamespace] = deque()
        self.registered: list[int] = []

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:
        self.registered.append(handle)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> SimpleNamespace:
        if not self.events:
            raise NvmlError("Timeout")
        return self.events.popleft()

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        if handle in self.lost:
            raise NvmlError("GPU is lost")
        return f"GPU-{handle}"

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        return self.uncorrected[handle]

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:
        found = self.remapped[handle]
        if found is None:
            raise NvmlError("Not Supported")
        return found

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= len(self.links[handle]):
            raise NvmlError("Invalid Argument")
        return self.links[handle][link]


def kinds(found: list[Trouble]) -> list[tuple[Kind, int | None]]:
    return [(each.kind, each.device) for each in found]


def test_errors_from_before_are_no_news_and_each_new_one_is_told_once() -> None:
    driver = Driver()
    watch = DeviceWatch(driver)
    assert driver.registered == [0, 1]
    now = 100.0
    assert watch.look(now) == []
    driver.uncorrected[1] += 2
    driver.links[0][1] = 0
    assert watch.look(now + LOOK_S / 2) == []  # counters are read from time to time only
    ecc, link = sorted(watch.look(now + LOOK_S), key=lambda each: -(each.device or 0))
    assert (ecc.kind, ecc.device) == (Kind.DEVICE_ERROR, 1)
    assert "2 more uncorrected ECC errors (5 in all)" in ecc.message
    assert (link.device, "NVLink 1" in link.message) == (0, True)
    driver.remapped[0] = (0, 1, 0, 1)
    assert kinds(watch.look(now + 2 * LOOK_S)) == [(Kind.DEVICE_ERROR, 0)]
    driver.lost.add(1)
    (gone,) = watch.look(now + 3 * LOOK_S)
    assert gone.device == 1 and "GPU is lost" in gone.message
    assert watch.look(now + 4 * LOOK_S) == []


def test_an_xid_blames_the_device_or_the_program_by_its_number() -> None:
    driver = Driver()
    watch = DeviceWatch(driver)
    driver.events.extend(
        SimpleNamespace(device=device, eventData=number)
        for device, number in [(0, 79), (1, 31), (1, 9999)]
    )
    fallen, fault, unknown = watch.look(0.0)
    assert (fallen.kind, fallen.device) == (Kind.DEVICE_ERROR, 0)
    assert fallen.message == "device 0 reports Xid 79: the device has fallen off the bus"
    assert (fault.kind, fault.device) == (Kind.DEVICE_WARNING, 1)
    assert (unknown.kind, unknown.data) == (
        Kind.DEVICE_WARNING,
        {"xid": 9999, "blame": "unknown"},
    )


@given(st.integers(0, 10_000))
def test_every_xid_has_a_meaning_and_only_known_ones_condemn_a_device(number: int) -> None:
    known = xid(number)
    assert known.number == number and known.meaning
    condemned = of_xid(0, number, 0.0).kind is Kind.DEVICE_ERROR
    assert condemned == (known.blame is Blame.DEVICE)


COUNTERS = st.builds(
    DeviceCounters,
    uncorrected=st.none() | st.integers(0, 5),
    remap_failed=st.none() | st.booleans(),
    links=st.frozensets(st.integers(0, 3)),
)


@given(COUNTERS, COUNTERS)
def test_only_what_got_worse_is_an_error(before: DeviceCounters, now: DeviceCounters) -> None:
    assert counted(0, now, now, 0.0) == []
    worse = [
        before.uncorrected is not None and (now.uncorrected or 0) > before.uncorrected,
        bool(now.remap_failed) and before.remap_failed is False,
        bool(before.links - now.links),
    ]
    assert len(counted(0, before, now, 0.0)) == sum(worse)


def test_a_machine_without_a_driver_says_nothing() -> None:
    class NoDriver(Driver):
        def nvmlInit(self) -> None:
            raise NvmlError("Driver Not Loaded")

    watch = DeviceWatch(NoDriver())
    assert watch.look(0.0) == []
    watch.close()


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(-1e6, 1e6)), max_size=20))
def test_a_clock_that_is_set_is_told_with_its_jump_and_one_that_is_slewed_is_not(
    looks: list[tuple[float, float]],
) -> None:
    wall_s, still_s = 1.7e9, 100.0
    watch = ClockWatch(wall_s, still_s)
    for passed_s, jump_s in looks:
        still_s += passed_s
        wall_s += passed_s * 1.0005 + jump_s
        found = watch.look(wall_s, still_s)
        if found is not None:
            assert found.data["jump_s"] == pytest.approx(jump_s, abs=0.01)
            assert ("forwards" in found.message) == (jump_s > 0)
        elif abs(jump_s) > JUMP_S + 0.01:
            raise AssertionError(f"a jump of {jump_s} s was not told")


def test_a_disk_without_room_is_told_once_until_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = tmp_path.stat().st_size
    disk = SimpleNamespace(total=100 * 2**30, free=50 * 2**30)
    monkeypatch.setattr(troubles_module.shutil, "disk_usage", lambda folder: disk)
    watch = DiskWatch(tmp_path)
    assert size >= 0 and watch.look(0.0) is None
    disk.free = 100 * 2**20
    found = watch.look(0.0)
    assert found is not None and "100 MiB left of 100.0 GiB" in found.message
    assert watch.look(0.0) is None
    disk.free = 50 * 2**30
    assert watch.look(0.0) is None
    disk.free = 0
    assert watch.look(0.0) is not None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as found:
        yield found


def test_an_agents_signs_of_life_carry_what_its_driver_reports(bench: NodeBench) -> None:
    driver = Driver()
    agent = Agent(
        node="n0",
        node_id="id-0",
        address="127.0.0.1",
        state_dir=str(bench.folder / "agent"),
        raylet_pid=bench.raylet.pid,
        resources={},
        labels={},
        nvml=driver,
    )
    try:
        driver.events.append(SimpleNamespace(device=1, eventData=48))
        (told,) = wait_until(lambda: asyncio.run(agent.ping()).troubles, 30, "the agent tells")
        source, number, fields = told
        assert source.startswith(f"{os.getpid()}-") and number == 1
        assert Trouble.model_validate(fields).message.endswith("double bit ECC error")
    finally:
        agent.close()


class Records:
    """A daemon's core over a real store."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "store.db")
        self.store.take_epoch(0.0, "test")
        self.core = Core(Settings(state_dir=str(folder)), self.store)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events()]


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    found = Records(tmp_path)
    yield found
    found.store.close()


def new(troubles: NodeTroubles, told: Iterable[tuple[str, int, dict[str, Any]]]) -> list[Trouble]:
    """What of all that n0's agent tells is new."""
    found: list[Trouble] = []
    troubles.take("n0", told, lambda trouble, _: found.append(trouble))
    return found


def test_a_trouble_is_in_the_history_once_also_over_a_daemons_restart(records: Records) -> None:
    told = Troubles()
    told.add(of_xid(3, 79, 5.0))
    first = NodeTroubles(records.core)
    (taken,) = new(first, told.told())
    assert (taken.kind, taken.device) == (Kind.DEVICE_ERROR, 3)
    assert new(first, told.told()) == []
    told.add(Trouble(kind=Kind.CLOCK_JUMP, message="its clock was set", since_s=6.0))
    again = NodeTroubles(records.core)
    (jump,) = new(again, told.told())
    assert jump.kind is Kind.CLOCK_JUMP
    assert records.kinds().count("device_error") == records.kinds().count("clock_jump") == 1
    # Another agent's numbers are its own, and a kind of a newer version has no name yet.
    newer = ("other", 1, {"kind": "melted", "message": "it melted", "since_s": 1.0})
    assert new(again, [newer])[0].kind is Kind.UNKNOWN


def test_a_broken_device_counts_once_also_where_the_daemon_is_killed_while_it_is_told(
    records: Records,
) -> None:
    told = Troubles()
    told.add(Trouble(kind=Kind.DEVICE_ERROR, message="Xid 79", device=3, since_s=5.0))

    class Killed(Exception):
        pass

    def hold(trouble: Trouble, origin: str) -> None:
        Standings(records.core).fault("n0", Why.DEVICE, trouble.message, 8, origin=origin)

    def hold_and_die(trouble: Trouble, origin: str) -> None:
        hold(trouble, origin)
        raise Killed

    with pytest.raises(Killed):
        NodeTroubles(records.core).take("n0", told.told(), hold_and_die)
    NodeTroubles(records.core).take("n0", told.told(), hold)
    (found,) = Standings(records.core).records({"n0"})
    assert len(found.faults) == 1 and found.out is Why.DEVICE
    assert records.kinds().count("device_error") == 1


def test_a_clock_that_is_set_neither_shortens_nor_stretches_how_long_a_node_is_out(
    records: Records,
) -> None:
    standings = Standings(records.core)
    standings.fault("n0", Why.DEVICE, "device 0 broke", nodes=2)
    before = records.store.quarantined()["n0"].until_s
    assert before is not None and before > time.time()
    standings.shift(-3600.0)
    assert records.store.quarantined()["n0"].until_s == pytest.approx(before - 3600.0)


def test_no_cap_keeps_a_node_with_a_broken_device_in_use(records: Records) -> None:
    standings = Standings(records.core)
    for node in ("n0", "n1", "n2"):
        standings.fault(node, Why.DEVICE, "device 0 broke", nodes=3)
    assert set(records.store.quarantined()) == {"n0", "n1", "n2"}
