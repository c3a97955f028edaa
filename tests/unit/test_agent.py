"""What an agent promises without Ray: quick signs of life, ports, checkpoints, names of nodes."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from node_bench import NodeBench, node_bench
from railweave.agents.agent import Agent, node_folder
from railweave.agents.attempt import NodePhase
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.fleet import node_names
from railweave.agents.netprobe import Budget
from railweave.agents.probe_end import ProbeOrder


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as found:
        yield found


@pytest.fixture
def agent(bench: NodeBench) -> Iterator[Agent]:
    """An agent that shares its node's state with the bench, which ends what is left."""
    bench.state_dir = node_folder(bench.folder / "agent", "n0")
    found = Agent(
        node="n0",
        node_id="id-0",
        address="127.0.0.1",
        state_dir=str(bench.folder / "agent"),
        raylet_pid=bench.raylet.pid,
        resources={"railweave_device": 4.0},
        labels={},
    )
    yield found
    for job_id, attempt in asyncio.run(found.ping()).attempts:
        asyncio.run(found.stop(job_id, attempt, 0.0))
    found.close()


def test_a_sign_of_life_does_not_wait_for_hundreds_of_long_polls(
    bench: NodeBench, agent: Agent
) -> None:
    async def run() -> float:
        status = await agent.launch(bench.launch_of("sleep", "1000").model_dump())
        polls = [asyncio.create_task(agent.status("job", 1, status.seq, 60.0)) for _ in range(200)]
        await asyncio.sleep(0)
        began = time.monotonic()
        beat = await agent.ping()
        took_s = time.monotonic() - began
        assert beat.attempts == (("job", 1),)
        assert (await agent.stop("job", 1, 5.0)).survivors == ()
        assert all(poll.seq > status.seq for poll in await asyncio.gather(*polls))
        return took_s

    assert asyncio.run(run()) < 30  # half of what the polls wait


def test_an_attempt_that_ended_by_itself_is_not_held_for_long(
    bench: NodeBench, agent: Agent
) -> None:
    async def run() -> None:
        await agent.launch(bench.launch_of("true"))
        give_up = time.monotonic() + 20
        while (await agent.ping()).attempts:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.02)
        (status,) = await agent.attempts()
        assert status.phase is NodePhase.ENDED

    asyncio.run(run())


def test_ports_are_free_and_not_given_twice(agent: Agent) -> None:
    async def run() -> list[dict[str, Any]]:
        return await asyncio.gather(*(agent.free_port() for _ in range(50)))

    answers = asyncio.run(run())
    assert len({answer["port"] for answer in answers}) == 50
    with socket.create_server((answers[0]["host"], answers[0]["port"])):
        pass


def test_two_agents_probe_each_other(agent: Agent) -> None:
    async def run() -> None:
        budget = Budget(transfer_bytes=2**18, transfer_s=0.2, pings=3)
        order = ProbeOrder(budget=budget)
        opening = await agent.probe_listen(order)
        found = await agent.probe_connect(opening, order)
        assert [path.measured and path.measured.pings for path in found.paths] == [3]
        assert len((await agent.inventory()).devices) == 4

    asyncio.run(run())


def test_the_newest_checkpoint_is_told_with_those_passed_over(agent: Agent, tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    for attempt, step in ((1, 10), (1, 20)):
        writer = Checkpointer(folder, rank=0, world_size=1, attempt=attempt)
        writer.save(step, b"state")
        writer.commit(step, timeout_s=10)
    before = asyncio.run(agent.latest_checkpoint(folder, 2, 1))
    assert before["step"] == 20
    shard = next(p for p in Path(before["path"]).iterdir() if p.stat().st_size == 5)
    shard.write_bytes(b"torn!")
    found = asyncio.run(agent.latest_checkpoint(folder, 2, 1))
    assert found["step"] == 10
    ((path, reason),) = found["passed_over"]
    assert path == before["path"]
    assert reason


def test_each_node_has_a_folder_of_its_own_on_a_shared_disk(tmp_path: Path) -> None:
    folders = [node_folder(tmp_path, name) for name in ("a", "b", "a/b", "..", "rack 1: a")]
    assert len(set(folders)) == len(folders)
    assert all(folder.parent == tmp_path / "nodes" for folder in folders)
    assert all(os.path.normpath(folder) == str(folder) for folder in folders)


def ray_node(node_id: str, host: str, name: str = "", **labels: str) -> dict[str, Any]:
    return {
        "NodeID": node_id,
        "Alive": True,
        "NodeName": name or "10.0.0.1",
        "NodeManagerAddress": "10.0.0.1",
        "NodeManagerHostname": host,
        "Labels": {f"railweave.io/{key}": value for key, value in labels.items()},
    }


def test_a_node_is_named_by_its_label_then_by_ray_then_by_its_host() -> None:
    nodes = [
        ray_node("1" * 56, "h1", "r1", node="n1"),
        ray_node("2" * 56, "h2", "r2"),
        ray_node("3" * 56, "h3"),
        {**ray_node("4" * 56, "h4"), "Alive": False},
    ]
    assert list(node_names(nodes).values()) == ["n1", "r2", "h3"]


def test_no_two_nodes_have_one_name() -> None:
    nodes = [ray_node("1" * 56, "vm"), ray_node("2" * 56, "vm"), ray_node("3" * 56, "other")]
    assert list(node_names(nodes).values()) == ["vm-11111111", "vm-22222222", "other"]
