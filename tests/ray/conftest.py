"""One real Ray cluster for all tests of the session, mended after each; nothing left after all."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_bench import Bench, all_used
from railweave.agents import processes
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import EmbeddedCluster, EmbeddedNode
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.service import start_daemon, stop_daemon
from shared_cluster import NODES, restore
from waiting import wait_until

MARK = "RAILWEAVE_TEST_SESSION"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.ray)
    # The daemon of these stays until the end; others start their own, or want none.
    items.sort(key=lambda item: "daemon" in getattr(item, "fixturenames", ()))


def _network_namespaces() -> set[str]:
    """Those that this process has made: their names hold its pid."""
    folder = Path("/run/netns")
    names = os.listdir(folder) if folder.is_dir() else []
    return {name for name in names if name.startswith(f"rwf-{os.getpid()}-")}


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[Path]:
    """After the session no process, Ray session, directory or network namespace of it is left.

    Everything started by the session carries a mark in its environment and has its temporary
    files below the directory given here, so that what others run meanwhile does not count.
    """
    mark = uuid.uuid4().hex
    directory = Path(tempfile.mkdtemp(prefix="rwt-", dir="/tmp"))
    kept = {name: os.environ.get(name) for name in ("TMPDIR", MARK, "RAILWEAVE_HOME")}
    kept_tempdir, tempfile.tempdir = tempfile.tempdir, str(directory)
    os.environ |= {
        "TMPDIR": str(directory),
        MARK: mark,
        "RAILWEAVE_HOME": str(directory / "home"),
    }
    namespaces = _network_namespaces()
    ray_sessions = Path("/tmp/ray")
    had_ray_sessions = ray_sessions.exists()

    def left() -> list[str]:
        entries = processes.having(MARK, mark, processes.table().values())
        others = [e for e in entries if e.pid != os.getpid() and e.state != "Z"]
        return [_describe(entry) for entry in others]

    yield directory
    try:
        wait_until(lambda: not left(), 30, "no process of the session is left")
    except AssertionError:
        raise AssertionError("left running: " + "; ".join(left())) from None
    assert [path.name for path in directory.glob("rw-*")] == []
    assert list(directory.glob("**/session_*")) == []
    assert had_ray_sessions or not ray_sessions.exists(), "a Ray session outside of the cluster"
    assert _network_namespaces() <= namespaces
    shutil.rmtree(directory)
    tempfile.tempdir = kept_tempdir
    for name, value in kept.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def _describe(entry: processes.Process) -> str:
    try:
        command = Path(f"/proc/{entry.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        command = "?"
    return f"{entry.pid} {command[:160]}"


@pytest.fixture(scope="session")
def session_cluster(nothing_left: Path) -> Iterator[EmbeddedCluster]:
    """The session's cluster; tests take `cluster`, which mends it."""
    import ray

    with EmbeddedCluster(NODES, state_dir=nothing_left / "cluster") as started:
        started.use()
        yield started
        ray.shutdown()


@pytest.fixture
def cluster(session_cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """The shared cluster with all of its nodes; those a test stops or kills come back after it."""
    yield session_cluster
    restore(session_cluster)


@pytest.fixture(scope="session")
def daemon(session_cluster: EmbeddedCluster) -> Iterator[Client]:
    state_dir = session_cluster.state_dir / "daemon"
    start_daemon(state_dir, probation_s=0.5, silent_s=20.0, reprobe={"every_s": 0})
    with Client() as client:
        yield client
    stop_daemon()


@pytest.fixture
def bench(cluster: EmbeddedCluster, daemon: Client, tmp_path: Path) -> Iterator[Bench]:
    wait_until(lambda: all_used(daemon), 90, "every node is well")
    bench = Bench(daemon, tmp_path)
    yield bench
    for record in daemon.jobs([state for state in JobState if not state.final]):
        daemon.job(record.job_id).cancel()
        daemon.job(record.job_id).wait(60)
    assert bench.alive() == []
    import ray

    groups = ray.util.placement_group_table().values()
    assert [group["name"] for group in groups if group["state"] != "REMOVED"] == []


@pytest.fixture
def durable(nothing_left: Path) -> Iterator[EmbeddedCluster]:
    """A cluster of its own whose control store is on the disk, with a daemon."""
    import ray

    kept = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    nodes = [EmbeddedNode("a0", 3), EmbeddedNode("a1", 3)]
    try:
        state_dir = nothing_left / "durable-head"
        with EmbeddedCluster(nodes, state_dir=state_dir, durable=True) as cluster:
            ray.shutdown()
            cluster.use()
            start_daemon(state_dir / "daemon", probation_s=0.5, silent_s=20.0)
            yield cluster
            stop_daemon()
    finally:
        for name in [name for name in os.environ if name.startswith("RAY_")]:
            del os.environ[name]
        os.environ.update(kept)
