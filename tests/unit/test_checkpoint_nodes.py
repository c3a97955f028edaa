"""Checkpoints on nodes' own disks: losing a node with all it has loses no checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from railweave.agents import processes
from railweave.agents.checkpoint import Checkpointer, CheckpointError, FencedAttempt, fence, latest
from railweave.agents.checkpoint_background import BackgroundSaves
from railweave.agents.checkpoint_keep import Keep, prune
from railweave.agents.checkpoint_nodes import NodeStorage, Peers, node_directory
from railweave.agents.copy_host import CopyHost, key_path
from railweave.agents.copy_server import RECORD_NAME, content_sha256
from railweave.agents.copy_wire import NotTrusted, connect
from waiting import wait_until

JOB, KEY = "job-1", "0123456789abcdef" * 4
URL = "node:///unused/{node}"


class NodesBench:
    """Some nodes with a disk and a copy server each, and one rank on each node."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.raylets = [
            subprocess.Popen(["sleep", "1000"], start_new_session=True) for _ in range(count)
        ]
        self.hosts: list[CopyHost] = []
        for node, raylet in enumerate(self.raylets):
            (folder / f"state-{node}" / "copies").mkdir(parents=True)
            handle = os.pidfd_open(raylet.pid)
            self.hosts.append(CopyHost(folder / f"state-{node}", "127.0.0.1", handle))
        self.addresses = [
            host.grant(JOB, KEY, str(self.disk(node))) for node, host in enumerate(self.hosts)
        ]

    def disk(self, node: int) -> Path:
        return self.folder / f"disk-{node}"

    def peers(self, node: int, readers: tuple[int, ...] | None = None) -> Peers:
        count = len(self.addresses)
        seen = range(count) if readers is None else readers
        return Peers(
            job_id=JOB,
            key_file=str(key_path(self.folder / f"state-{node}", JOB)),
            own=self.addresses[node],
            home=self.addresses[0],
            copy_to=self.addresses[(node + 1) % count],
            writers=tuple(self.addresses),
            readers=tuple(self.addresses[each] for each in seen),
        )

    def storage(self, node: int, **more: tuple[int, ...]) -> NodeStorage:
        return NodeStorage(URL, str(self.disk(node)), self.peers(node, **more), KEY)

    def rank(self, node: int, attempt: int = 1) -> Checkpointer:
        return Checkpointer(self.storage(node), node, len(self.raylets), attempt)

    def write(self, step: int, attempt: int = 1) -> str:
        ranks = [self.rank(node, attempt) for node in range(len(self.raylets))]
        for rank in ranks:
            rank.save(step, b"step %d of rank %d" % (step, rank.rank))
        return ranks[0].commit(step, timeout_s=10)

    def server_pid(self, node: int) -> int:
        record = self.folder / f"state-{node}" / "copies" / RECORD_NAME
        return int(json.loads(record.read_text())["pid"])

    def lose(self, node: int) -> None:
        """The node's power and its disk."""
        pid = self.server_pid(node)
        self.raylets[node].kill()
        self.raylets[node].wait()
        wait_until(lambda: gone(pid), 30, "its copy server has ended with it")
        shutil.rmtree(self.disk(node))

    def close(self) -> None:
        pids = [self.server_pid(node) for node in range(len(self.raylets))]
        for raylet in self.raylets:
            raylet.kill()
            raylet.wait()
        for pid in pids:
            wait_until(lambda pid=pid: gone(pid), 30, "every copy server has ended")


def gone(pid: int) -> bool:
    found = processes.process(pid)
    return found is None or found.state == "Z"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodesBench]:
    bench = NodesBench(tmp_path, 3)
    yield bench
    bench.close()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_losing_any_node_with_its_disk_loses_no_checkpoint(nodes: NodesBench, lost: int) -> None:
    path = nodes.write(5)
    assert path == f"{URL}/step-000000000005.attempt-0001"
    nodes.lose(lost)
    survivor = (lost + 1) % 3
    left = tuple(node for node in range(3) if node != lost)
    storage = nodes.storage(survivor, readers=left)
    fence(storage, 2)
    found = latest(storage, world_size=3)
    assert (found.path, found.passed_over) == (path, ())
    for rank in range(3):
        reader = Checkpointer(storage, rank, 3, 2)
        assert reader.load_from(storage, found) == b"step 5 of rank %d" % rank
    # The neighbour's memory is where the lost shard came from.
    assert not (nodes.disk(survivor) / Path(path).name / f"shard-{lost:06d}.bytes").exists()


def test_a_shard_whose_neighbour_is_gone_is_not_called_safe(nodes: NodesBench) -> None:
    good = nodes.write(1)
    nodes.lose(1)
    rank = nodes.rank(0)
    with pytest.raises(CheckpointError, match=r"no second copy on 127\.0\.0\.1:.*unharmed"):
        rank.save(2, b"x")
    assert not list(nodes.disk(0).glob("step-000000000002*/shard-*"))
    assert latest(nodes.storage(0, readers=(0, 2))).path == good


def test_every_node_keeps_to_the_fence_and_a_removed_checkpoint_is_gone_everywhere(
    nodes: NodesBench,
) -> None:
    for step in (1, 2, 3):
        nodes.write(step)
    prune(nodes.storage(0), Keep(last=1))
    for node in range(3):
        assert [path.name[:17] for path in nodes.disk(node).glob("step-*")] == ["step-000000000003"]
    assert nodes.storage(1).folders() == ["step-000000000003.attempt-0001"]
    fence(nodes.storage(0), 2)
    for node in range(3):
        with pytest.raises(FencedAttempt):
            nodes.rank(node).save(4, b"late")
    nodes.write(4, attempt=2)
    assert latest(nodes.storage(2)).step == 4


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"X")


def test_a_damaged_shard_is_taken_from_its_copy_and_without_one_passed_over(
    nodes: NodesBench,
) -> None:
    good = nodes.write(1)
    bad = nodes.write(2)
    damage(nodes.disk(2) / Path(bad).name / "shard-000002.bytes")
    storage = nodes.storage(2)
    assert latest(storage).path == bad
    assert Checkpointer(storage, 2, 3, 2).load_from(storage, bad) == b"step 2 of rank 2"
    nodes.lose(0)  # which held the copy
    damage(nodes.disk(1) / Path(bad).name / "shard-000001.bytes")
    storage = nodes.storage(2, readers=(1, 2))
    assert Checkpointer(storage, 1, 3, 2).load_from(storage, bad) == b"step 2 of rank 1"
    ((path, reason),) = latest(storage).passed_over
    assert path == bad and "shard 2: checksum differs" in reason
    assert latest(storage).path == good
    with pytest.raises(CheckpointError, match="shard 2: checksum differs"):
        Checkpointer(storage, 2, 3, 2).load_from(storage, bad)


def test_saves_in_the_background_use_the_same_places(
    nodes: NodesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"node://{nodes.folder}/disk-{{node}}"
    running = []
    for node in range(3):
        monkeypatch.setenv("RAILWEAVE_NODE", str(node))
        monkeypatch.setenv("RAILWEAVE_CHECKPOINT_PEERS", nodes.peers(node).to_text())
        saves = BackgroundSaves(Checkpointer(url, node, 3, 1), keep=Keep(last=1))
        running.append(saves)
        saves.save(7, b"rank %d" % node)
    assert [outcome.why for saves in running for outcome in saves.finish(30)] == ["", "", ""]
    for saves in running:
        saves.close()
    # This process is still node 2 by its environment.
    found = latest(url)
    assert found.step == 7
    assert Checkpointer(url, 0, 3, 2).load(found) == b"rank 0"


def test_a_killed_copy_server_comes_back_at_its_address_and_the_next_save_is_safe_again(
    nodes: NodesBench,
) -> None:
    nodes.write(1)
    pid = nodes.server_pid(1)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), 30, "it is dead")
    nodes.hosts[1].tend()
    assert nodes.server_pid(1) != pid
    nodes.write(2)
    nodes.lose(0)
    assert latest(nodes.storage(1, readers=(1, 2))).step == 2


def test_a_job_that_is_over_leaves_nothing_in_memory_and_its_key_opens_nothing(
    nodes: NodesBench,
) -> None:
    nodes.write(1)
    nodes.hosts[1].revoke(JOB)
    host, _, port = nodes.addresses[1].rpartition(":")
    with pytest.raises((NotTrusted, ConnectionError)):
        connect(host, int(port), JOB, KEY, 5)
    nodes.hosts[1].grant(JOB, KEY, str(nodes.disk(1)))

    def names() -> set[str]:
        channel = connect(host, int(port), JOB, KEY, 5)
        channel.send({"op": "list"})
        folders = channel.receive()["folders"]
        channel.close()
        return set(folders["step-000000000001.attempt-0001"])

    wait_until(lambda: "shard-000000.bytes" not in names(), 30, "its neighbour's copy is gone")
    assert "shard-000001.bytes" in names(), "what is on its own disk stays"


@pytest.mark.parametrize(("job", "key"), [(JOB, "f" * 64), ("other", KEY), ("../x", KEY)])
def test_without_the_jobs_key_nothing_is_told_or_taken(
    nodes: NodesBench, job: str, key: str
) -> None:
    nodes.write(1)
    host, _, port = nodes.addresses[0].rpartition(":")
    with pytest.raises((NotTrusted, ConnectionError)):
        connect(host, int(port), job, key, 5)


@pytest.mark.parametrize("name", ["../state-0/x", "/etc/passwd", "a/b/c", "", "A"])
def test_names_that_lead_elsewhere_end_the_connection(nodes: NodesBench, name: str) -> None:
    host, _, port = nodes.addresses[0].rpartition(":")
    channel = connect(host, int(port), JOB, KEY, 5)
    channel.send({"op": "get", "name": name})
    with pytest.raises(ConnectionError):
        channel.receive()
    channel.close()


class Meddler(threading.Thread):
    """Stands between a client and a server and changes one byte after the proof."""

    def __init__(self, target: str, change_at: int) -> None:
        super().__init__(daemon=True)
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.change_at = change_at
        self.server = socket.create_server(("127.0.0.1", 0))
        self.start()

    def run(self) -> None:
        client, _ = self.server.accept()
        with client, socket.create_connection(self.target) as server:
            back = threading.Thread(target=self._pump, args=(server, client, None), daemon=True)
            back.start()
            self._pump(client, server, self.change_at)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, change_at: int | None) -> None:
        seen = 0
        while data := source.recv(65536):
            if change_at is not None and seen <= change_at < seen + len(data):
                at = change_at - seen
                data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            seen += len(data)
            try:
                sink.sendall(data)
            except OSError:
                break
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.mark.parametrize("change_at", [300, 420, 600])
def test_what_is_changed_on_the_way_is_refused(nodes: NodesBench, change_at: int) -> None:
    meddler = Meddler(nodes.addresses[1], change_at)
    host, port = meddler.server.getsockname()
    channel = connect(host, port, JOB, KEY, 5)
    content = b"z" * 400
    folder = "step-000000000001.attempt-0001"
    request = {"op": "put", "name": f"{folder}/shard-000000.bytes", "durable": False}
    with pytest.raises(OSError):
        channel.send({**request, "sha256": content_sha256(content)}, len(content), [content])
        channel.receive()
    channel.close()
    assert folder not in nodes.storage(1).folders()
    meddler.join(10)
    meddler.server.close()


def test_a_place_on_the_nodes_is_refused_where_railweave_did_not_start_the_rank() -> None:
    with pytest.raises(CheckpointError, match="a job that Railweave runs"):
        Checkpointer("node:///nvme/c", 0, 1, 1)
    for place in ("node://host/c", "node:///", "node://"):
        with pytest.raises(ValueError, match="write node:///folder"):
            node_directory(place, "n0")
    assert node_directory("node:///nvme/{node}/c", "../n0") == "/nvme/%2E%2E%2Fn0/c"
