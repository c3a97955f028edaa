"""What the emulated fabric promises: real paths, the rates asked for, faults, and no remains."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from waiting import wait_until

from fabric import namespaces
from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.hosts import TESTS, Crew, start
from fabric.topology import Plan


def said_on(fabric: Fabric, host: str, *command: str) -> str:
    """What a command prints on a host."""
    process = start(fabric, host, command, output=subprocess.PIPE)
    return process.communicate(timeout=20)[0]


def reaches(fabric: Fabric, host: str, address: str, wait_s: float = 5.0) -> bool:
    """Whether a host gets through to an address where nothing listens: it is refused there."""
    code = (
        "import socket, sys; s = socket.socket(); s.settimeout(float(sys.argv[2]))\n"
        "try: print(s.connect_ex((sys.argv[1], 9)))\n"
        "except OSError as e: print(e.errno)"
    )
    said = said_on(fabric, host, sys.executable, "-I", "-S", "-c", code, address, str(wait_s))
    return said.strip() == "111"


def test_hosts_reach_each_other_over_every_spine_and_a_hash_decides(fabric: Fabric) -> None:
    source, sink = (fabric.hosts[name].address for name in ("h0-0", "h1-3"))
    uplinks = set()
    for port in range(50000, 50016):
        shown = namespaces.command(
            f"ip -n {fabric.leaf(0)} -o route get {sink} from {source} iif br0 "
            f"ipproto tcp sport {port} dport 80".split()
        )
        uplinks.add(re.search(r"dev (\S+)", shown)[1])  # type: ignore[index]
    assert uplinks == {"up0", "up1"}
    assert reaches(fabric, "h0-0", sink)
    assert reaches(fabric, "h0-0", fabric.hosts["h0-1"].address)


def test_a_dead_wire_takes_its_routes_with_it_and_comes_back(
    fabric: Fabric, faults: Faults
) -> None:
    def uplinks(switch: int) -> set[str]:
        shown = namespaces.command(["ip", "-n", fabric.leaf(switch), "route"])
        return set(re.findall(r"dev (up\d) weight", shown)) or set(
            re.findall(r"10\.77\.[01]\.0/24 via \S+ dev (up\d)", shown)
        )

    with faults.wire_down(0, 1):
        assert uplinks(0) == uplinks(1) == {"up0"}
        assert reaches(fabric, "h0-0", fabric.hosts["h1-0"].address)
    assert uplinks(0) == uplinks(1) == {"up0", "up1"}
    with faults.wire_down(0, 1, converged=False):
        assert uplinks(1) == {"up0", "up1"}
    assert reaches(fabric, "h0-0", fabric.hosts["h1-0"].address)


def test_a_partition_says_nothing_and_heals(fabric: Fabric, faults: Faults) -> None:
    with faults.partition([0], [1]):
        assert not reaches(fabric, "h0-0", fabric.hosts["h1-0"].address, 0.3)
        assert reaches(fabric, "h0-0", fabric.hosts["h0-1"].address)
    assert reaches(fabric, "h0-0", fabric.hosts["h1-0"].address)


def test_a_wire_that_loses_everything_carries_nothing(fabric: Fabric, faults: Faults) -> None:
    address = fabric.hosts["h1-0"].address
    with faults.wire_lossy(0, 0, 1.0), faults.wire_lossy(0, 1, 1.0):
        assert not reaches(fabric, "h0-0", address, 0.3)
    assert reaches(fabric, "h0-0", address)


def test_power_loss_ends_everything_on_a_host_and_pulls_its_cables(
    fabric: Fabric, faults: Faults
) -> None:
    machine = start(fabric, "h0-2", ["sleep", "1000"], machine=True)
    plain = start(fabric, "h0-2", ["sleep", "1000"])
    inside = fabric.namespace("h0-2")
    wait_until(lambda: len(namespaces.inside(inside)) >= 3, 30, "all run on the host")
    with faults.power_loss("h0-2"):
        assert machine.wait(5) == plain.wait(5) == -signal.SIGKILL
        assert namespaces.inside(inside) == []
        assert not reaches(fabric, "h0-0", fabric.hosts["h0-2"].address, 0.3)
    assert reaches(fabric, "h0-0", fabric.hosts["h0-2"].address)


def test_a_machine_sees_only_its_own_processes_and_has_its_own_name(fabric: Fabric) -> None:
    process = start(
        fabric, "h0-3", ["sh", "-c", "hostname; echo $$"], machine=True, output=subprocess.PIPE
    )
    assert process.communicate(timeout=10)[0].split() == ["h0-3", "1"]


def test_a_crew_runs_on_its_hosts_and_ends_with_its_maker(fabric: Fabric) -> None:
    towards = fabric.plan.gateway(0)
    given = {"h0-0": ["one", towards], "h1-1": ["two", towards]}
    with Crew(fabric, "fabric.echo", given) as crew:
        assert crew.each(2) == {
            "h0-0": f"one {fabric.hosts['h0-0'].address}",
            "h1-1": f"two {fabric.hosts['h1-1'].address}",
        }
        assert len(namespaces.inside(fabric.namespace("h0-0"))) == 1
    wait_until(lambda: not namespaces.inside(fabric.namespace("h0-0")), 30, "the crew is gone")


def test_eight_leaves_of_eight_hosts_come_up_in_seconds_and_leave_nothing() -> None:
    began = sum(os.times()[:4])
    plan = Plan(leaves=8, spines=4, hosts_per_leaf=8, host_mbit=20, spine_mbit=10)
    with Fabric(plan) as large:
        cpu_s = sum(os.times()[:4]) - began
        assert reaches(large, "h0-0", large.hosts["h7-7"].address)
        marker = large.marker
        assert len([n for n in os.listdir(namespaces.FOLDER) if n.startswith(marker)]) == 76
    assert cpu_s < 10
    assert not [n for n in os.listdir(namespaces.FOLDER) if n.startswith(marker)]


def test_what_a_killed_run_left_is_removed_by_the_next_and_nothing_else(fabric: Fabric) -> None:
    code = (
        "from fabric.fabric import Fabric\nfrom fabric.topology import Plan\n"
        "from fabric.hosts import start\nimport time\n"
        "made = Fabric(Plan(leaves=1, spines=1, hosts_per_leaf=1)).__enter__()\n"
        "start(made, 'h0-0', ['sleep', '1000'])\n"
        "print(made.marker, flush=True)\ntime.sleep(1000)"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert run.stdout
    with run.stdout:
        marker = run.stdout.readline().strip()
    assert marker.startswith(f"rwf-{run.pid}-")
    assert marker not in namespaces.remove_abandoned()
    run.kill()
    run.wait()
    assert marker in namespaces.remove_abandoned()
    left = [name for name in os.listdir(namespaces.FOLDER) if name.startswith(marker)]
    assert left == []
    assert reaches(fabric, "h0-0", fabric.hosts["h1-0"].address)


@pytest.mark.parametrize("wrong", [{"leaves": 0}, {"hosts_per_leaf": 241}, {"subnet": 255}])
def test_a_plan_without_room_for_its_addresses_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="addresses are enough"):
        Plan(**wrong)  # type: ignore[arg-type]


def test_the_example_of_the_page_brings_a_fabric_up() -> None:
    page = (TESTS.parent / "docs" / "fabric.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/fabric.md", "exec"), {})
