"""The embedded cluster's promises, on real Ray nodes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import ray
from railweave.agents import processes
from railweave.placement import InvalidInput
from railweave.scheduler import embedded
from railweave.scheduler.embedded import EmbeddedCluster, EmbeddedClusterError, EmbeddedNode
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from shared_cluster import NODES
from waiting import wait_until

HEAD_ONLY = """
import sys
from pathlib import Path
from railweave.scheduler.embedded import EmbeddedCluster
with EmbeddedCluster([], state_dir=sys.argv[1]) as cluster:
    if sys.argv[2] == "detach":
        cluster.detach(Path(sys.argv[1]) / "embedded.json")
        raise SystemExit
    print(cluster.address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def driver(cluster: EmbeddedCluster) -> None:
    ray.init(ignore_reinit_error=True, namespace="railweave", log_to_driver=False)


def alive() -> dict[str, dict[str, object]]:
    return {node["NodeName"]: node for node in ray.nodes() if node["Alive"]}


@pytest.mark.usefixtures("driver")
def test_nodes_carry_their_name_domains_devices_and_an_address_of_their_own() -> None:
    found = alive()
    assert set(found) == {"head", *(node.name for node in NODES)}
    for node in NODES:
        labels, resources = found[node.name]["Labels"], found[node.name]["Resources"]
        assert isinstance(labels, dict) and isinstance(resources, dict)
        assert labels["railweave.io/node"] == node.name
        assert labels["railweave.io/accelerator"] == "declared"
        assert labels["domain.railweave.io/pod"] == node.domains["pod"]
        assert resources["railweave_device"] == 2
    assert "railweave_device" not in found["head"]["Resources"]  # type: ignore[operator]
    assert len({node["NodeManagerAddress"] for node in found.values()}) == len(found)


def test_the_token_is_only_in_a_file_that_its_owner_alone_can_read(
    cluster: EmbeddedCluster,
) -> None:
    path = Path(cluster.environment()["RAY_AUTH_TOKEN_PATH"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_bytes().strip()
    assert len(token) >= 32
    for pid in processes.table():
        try:
            assert token not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert token not in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
    for log in cluster.state_dir.glob("*.log"):
        assert token not in log.read_bytes()


def test_a_client_without_the_token_is_refused(cluster: EmbeddedCluster) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    code = (
        "from ray._raylet import GcsClient\n"
        f"GcsClient({cluster.address!r}).get_all_node_info(timeout=5)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "AuthenticationError" in done.stderr or "InvalidAuthToken" in done.stderr


@pytest.mark.usefixtures("driver")
def test_power_loss_takes_what_workers_started_and_ray_sees_it_within_seconds(
    cluster: EmbeddedCluster,
) -> None:
    @ray.remote(num_cpus=0)
    class Starter:
        def start(self) -> tuple[int, int]:
            detached = subprocess.Popen(["sleep", "600"], start_new_session=True)
            return os.getpid(), detached.pid

    node = NodeAffinitySchedulingStrategy(str(alive()["b0"]["NodeID"]), soft=False)
    starter = Starter.options(scheduling_strategy=node).remote()
    pids = ray.get(starter.start.remote(), timeout=60)
    started = [processes.process(pid) for pid in pids]
    assert cluster.kill_node("b0") >= 6  # ray start, raylet, its two agents, the worker, the sleep
    killed_at = time.monotonic()
    assert [processes.process(entry.pid) for entry in started if entry] == [None, None]
    wait_until(lambda: "b0" not in alive(), 30, "Ray counts b0 as dead")
    assert time.monotonic() - killed_at < 30  # Ray takes 64 s where no socket breaks
    assert set(alive()) == {"head", "a0", "a1", "b1", "spare"}
    cluster.add_node(next(node for node in NODES if node.name == "b0"))
    assert "b0" in alive()


def test_a_node_is_up_however_long_its_agents_take(
    cluster: EmbeddedCluster, nothing_left: Path
) -> None:
    before = processes.table()
    stopped: dict[int, processes.Process] = {}
    over = threading.Event()

    def stop_agents() -> None:
        # As soon as they appear, as on a machine that has no time for them.
        while not over.wait(0.005):
            new = processes.table()
            for pid in new.keys() - before.keys() - stopped.keys():
                if is_agent(pid, nothing_left):
                    stopped[pid] = new[pid]
                    processes.send_signal(new[pid], signal.SIGSTOP)

    stopping = threading.Thread(target=stop_agents)
    stopping.start()
    try:
        cluster.add_node(EmbeddedNode("crowded", 1))
        wait_until(lambda: len(stopped) >= 2, 60, "both of its agents have been stopped")
    finally:
        over.set()
        stopping.join()
        for agent in stopped.values():
            processes.send_signal(agent, signal.SIGCONT)
    assert cluster.ended_nodes() == ()


def is_agent(pid: int, folder: Path) -> bool:
    """Whether a process is one of Ray's agents of a node of the cluster below a folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    agent = any(word.endswith(("dashboard/agent.py", "agent/main.py")) for word in words[1:4])
    return agent and any(str(folder) in word for word in words)


def test_a_node_that_does_not_come_up_shows_its_last_lines_and_what_to_do(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the plasma store has no room >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(embedded.sys, "executable", str(broken))
    with pytest.raises(EmbeddedClusterError) as caught:
        cluster.add_node(EmbeddedNode("broken", 1))
    assert "the plasma store has no room" in str(caught.value)
    assert "broken ended while it started" in str(caught.value)
    assert "Free memory or start fewer nodes" in str(caught.value)
    assert "broken" not in cluster.node_names


def test_unknown_and_taken_names_are_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(EmbeddedClusterError, match="no node 'x' is running; running: head, "):
        cluster.kill_node("x")
    with pytest.raises(EmbeddedClusterError, match="a0 runs already"):
        cluster.add_node(NODES[0])


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([EmbeddedNode("a", 1), EmbeddedNode("a", 1)], "nodes[1]: the name 'a' twice"),
        ([EmbeddedNode("head", 1)], "the name 'head' twice"),
        ([EmbeddedNode("a b", 1)], "name 'a b'"),
        ([EmbeddedNode("a", 1, domains={"pod": "p 0"})], "domain at tier pod 'p 0'"),
        ([EmbeddedNode("a", 1, domains={"p=d": "p0"})], "tier 'p=d'"),
        ([EmbeddedNode("a", -1)], "-1 devices"),
    ],
)
def test_nodes_that_ray_would_refuse_are_refused_before_anything_starts(
    nodes: list[EmbeddedNode], words: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        EmbeddedCluster(nodes)
    assert words in str(caught.value)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_owner_that_is_killed_leaves_nothing(nothing_left: Path, how: signal.Signals) -> None:
    state_dir = nothing_left / f"owner-{how.name}"
    owner = subprocess.Popen(
        [sys.executable, "-c", HEAD_ONLY, str(state_dir), "stay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert owner.stdin is not None and owner.stdout is not None
    with owner.stdin, owner.stdout:
        if how is not signal.SIGINT:  # Ctrl-C in the middle of starting
            assert owner.stdout.readline()
        else:
            wait_until(lambda: list(state_dir.glob("head*.log")), 90, "the head is starting")
        started = processes.below([owner.pid], processes.table())
        assert len(started) >= 3
        owner.send_signal(how)
        owner.wait(30)
    wait_until(
        lambda: all(processes.process(entry.pid) is None for entry in started),
        30,
        "every process of the cluster is gone",
    )


def test_a_detached_cluster_is_found_and_ended_by_another_process(nothing_left: Path) -> None:
    state_dir = nothing_left / "detached"
    record = state_dir / "embedded.json"
    subprocess.run([sys.executable, "-c", HEAD_ONLY, str(state_dir), "detach"], check=True)
    found = EmbeddedCluster.attach(record)
    assert found is not None
    assert found.environment()["RAY_AUTH_TOKEN_PATH"] == str(state_dir / "ray-token")
    environment = os.environ | found.environment()
    code = "import ray; ray.init(); print(len(ray.nodes()))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
    found.stop()
    assert EmbeddedCluster.attach(record) is None


def test_no_record_is_no_cluster(tmp_path: Path) -> None:
    assert EmbeddedCluster.attach(tmp_path / "none.json") is None
    (tmp_path / "torn.json").write_text('{"format": "railw')
    assert EmbeddedCluster.attach(tmp_path / "torn.json") is None
