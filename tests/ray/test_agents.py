"""What agents promise on a real Ray cluster: one a node, quick answers, ranks that outlive them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import ray
from railweave.agents import processes
from railweave.agents.assemble import assemble_cluster
from railweave.agents.attempt import NodeLaunch, NodePhase, Refused
from railweave.agents.fleet import (
    NAMESPACE,
    Fleet,
    NodeAgent,
    agent_name,
    by_domain,
    ensure_agents,
    inventories,
)
from railweave.agents.inventory import DeviceSource
from railweave.agents.probe_fleet import FleetEnds
from railweave.agents.prober import Probed, ProbeSettings, probe
from railweave.placement import InvalidInput
from railweave.placement.inference.measurements import ProbeKind
from railweave.placement.inference.probing import Probing
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.link import node_hangs
from shared_cluster import NODES
from waiting import wait_until

NAMES = ("head", *(node.name for node in NODES))


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agents")


@pytest.fixture(scope="module", autouse=True)
def ended(session_cluster: EmbeddedCluster) -> Iterator[None]:
    """The session's other tests find no agent of this module."""
    ray.init(ignore_reinit_error=True, namespace="railweave", log_to_driver=False)
    yield
    for name in NAMES:
        with suppress(ValueError):
            ray.kill(ray.get_actor(agent_name(name), NAMESPACE), no_restart=True)


def all_alive() -> None:
    """Wait until Ray counts every node once, those that came back too."""
    wait_until(
        lambda: len([n for n in ray.nodes() if n["Alive"]]) == len(NAMES), 60, "all nodes alive"
    )


@pytest.fixture
def fleet(cluster: EmbeddedCluster, state_dir: Path) -> Fleet:
    all_alive()  # Ray may take a node that a test has killed for alive still
    found = ensure_agents(str(state_dir))
    assert found.failures == {}
    return found


def get(call: Any, timeout_s: float = 30.0) -> Any:
    return ray.get(call, timeout=timeout_s)


def probe_all(agents: dict[str, NodeAgent], settings: ProbeSettings, said: list[int]) -> Probed:
    planner = Probing(by_domain(agents, None))
    return probe(planner, FleetEnds(agents), settings, progress=lambda done, _: said.append(done))


def launch_of(agent: NodeAgent, job_id: str, *command: str, ranks: int = 1) -> NodeLaunch:
    return NodeLaunch.model_validate(
        {
            "job_id": job_id,
            "attempt": 1,
            "node": agent.node,
            "command": command,
            "working_dir": "/",
            "env": {"RAILWEAVE_TEST_JOB": job_id},
            "ranks": [{"rank": r, "local_rank": r, "device": r} for r in range(ranks)],
            "grace_s": 0.5,
        }
    )


def ranks_of(job_id: str) -> list[int]:
    entries = processes.having("RAILWEAVE_TEST_JOB", job_id, processes.table().values())
    return sorted(entry.pid for entry in entries if entry.state != "Z")


def agent_pid(agent: NodeAgent) -> int:
    """The process of an agent's worker."""
    return int(get(agent.actor.__ray_call__.remote(lambda _: os.getpid())))


def test_every_node_has_one_agent_that_sits_on_it_and_is_found_again(
    fleet: Fleet, state_dir: Path
) -> None:
    assert sorted(fleet.agents) == sorted(NAMES)
    beats = {name: get(agent.actor.ping.remote()) for name, agent in fleet.agents.items()}
    for name, agent in fleet.agents.items():
        assert (beats[name].node, beats[name].node_id) == (name, agent.node_id)
        assert abs(beats[name].now_s - time.time()) < 30
    again = ensure_agents(str(state_dir))
    assert {n: a.actor._actor_id for n, a in again.agents.items()} == {
        n: a.actor._actor_id for n, a in fleet.agents.items()
    }


def test_probes_labels_and_inventories_become_the_cluster_that_was_built(fleet: Fleet) -> None:
    found = inventories(fleet.agents)
    assert {i.node: len(i.devices) for i in found} == {
        "head": 0,
        **{node.name: node.devices for node in NODES},
    }
    assert all(i.device_source is DeviceSource.DECLARED for i in found if i.devices)
    said: list[int] = []
    settings = ProbeSettings(transfer_bytes=2**20, transfer_s=0.2, pings=10)
    probed = probe_all(fleet.agents, settings, said)
    assert [each.lost for each in probed.measurements if each.lost] == []
    trips = {each.pair for each in probed.measurements if each.kind is ProbeKind.LATENCY}
    assert len(trips) == len(NAMES) * (len(NAMES) - 1) // 2
    assert said[0] == 0 and said[-1] == probed.rounds
    assembled = assemble_cluster(found, probed.measurements, fleet.labels)
    built = assembled.cluster
    assert [tier.name for tier in built.tiers] == ["pod", "spine"]
    assert all(tier.bandwidth > 1e6 and 0 < tier.latency < 0.1 for tier in built.tiers)
    assert {n.name: n.domains["pod"] for n in built.nodes} == {
        node.name: node.domains["pod"] for node in NODES
    }
    assert assembled.notes == ()


def test_ranks_run_through_the_agent_and_know_nothing_of_ray(fleet: Fleet) -> None:
    agent = fleet.agents["a0"]
    script = "env; echo whole"
    get(agent.actor.launch.remote(launch_of(agent, "through", "sh", "-c", script, ranks=2)))
    status = get(agent.actor.status.remote("through", 1, 10**6, 20.0))
    assert status.phase is NodePhase.ENDED
    text = get(agent.actor.read_log.remote("through", 1, 1)).text
    assert text.endswith("whole\n")
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert not [name for name in names if name.startswith("RAY_")]
    assert "CUDA_VISIBLE_DEVICES" not in names
    with pytest.raises(Refused, match="with other settings"):
        get(agent.actor.launch.remote(launch_of(agent, "through", "true")))
    assert "through" in {status.job_id for status in get(agent.actor.attempts.remote())}


def test_long_polls_do_not_hold_up_a_sign_of_life(fleet: Fleet) -> None:
    agent = fleet.agents["a1"]
    get(agent.actor.launch.remote(launch_of(agent, "polled", "sleep", "1000")))
    status = get(agent.actor.status.remote("polled", 1))
    polls = [agent.actor.status.remote("polled", 1, status.seq, 60.0) for _ in range(100)]
    assert get(agent.actor.ping.remote(), 5.0).attempts == (("polled", 1),)
    assert get(agent.actor.stop.remote("polled", 1, 1.0)).survivors == ()
    assert all(poll.seq > status.seq for poll in get(polls))
    assert get(agent.actor.status.remote("polled", 1)).phase is NodePhase.STOPPED
    assert get(agent.actor.ping.remote()).attempts == ()


def test_ranks_do_not_notice_that_their_agent_is_killed(fleet: Fleet) -> None:
    agent = fleet.agents["b0"]
    get(agent.actor.launch.remote(launch_of(agent, "lasting", "sleep", "1000", ranks=2)))
    before = ranks_of("lasting")
    assert len(before) == 2
    os.kill(agent_pid(agent), signal.SIGKILL)

    def answers() -> bool:
        try:
            return get(agent.actor.ping.remote(), 5.0).attempts == (("lasting", 1),)
        except (ray.exceptions.RayError, TimeoutError):
            return False

    wait_until(answers, 30, "the agent is back and holds the attempt")
    assert ranks_of("lasting") == before
    report = get(agent.actor.stop.remote("lasting", 1, 5.0))
    assert (report.killed, report.survivors) == (2, ())
    assert ranks_of("lasting") == []


def test_a_node_that_hangs_is_told_from_one_that_died(cluster: EmbeddedCluster) -> None:
    node_id = next(n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeName"] == "b0")
    cluster.stop_node("b0")
    assert asyncio.run(node_hangs(node_id))
    cluster.resume_node("b0")
    cluster.kill_node("b0")
    assert not asyncio.run(node_hangs(node_id))


def test_ranks_end_when_their_raylet_dies(cluster: EmbeddedCluster, fleet: Fleet) -> None:
    agent = fleet.agents["spare"]
    get(agent.actor.launch.remote(launch_of(agent, "orphaned", "sleep", "1000", ranks=2)))
    found = processes.process(agent_pid(agent))
    assert found
    os.kill(found.parent_pid, signal.SIGKILL)
    wait_until(lambda: not ranks_of("orphaned"), 30, "the ranks are gone")
    cluster.kill_node("spare")


def test_a_node_that_comes_back_gets_a_new_agent_that_knows_its_past(
    cluster: EmbeddedCluster, fleet: Fleet, state_dir: Path
) -> None:
    before = fleet.agents["b1"]
    launch = launch_of(before, "interrupted", "sleep", "1000")
    get(before.actor.launch.remote(launch))
    cluster.kill_node("b1")
    assert ranks_of("interrupted") == []
    cluster.add_node(next(node for node in NODES if node.name == "b1"))
    all_alive()
    began = time.monotonic()
    found = ensure_agents(str(state_dir))
    assert time.monotonic() - began < 90
    assert found.failures == {}
    after = found.agents["b1"]
    assert after.node_id != before.node_id
    assert get(after.actor.ping.remote()).node_id == after.node_id
    status = get(after.actor.status.remote("interrupted", 1))
    assert status.phase is NodePhase.STOPPED
    assert status.ranks[0].failed


def test_the_state_folder_must_be_the_same_place_for_every_process(
    cluster: EmbeddedCluster,
) -> None:
    with pytest.raises(InvalidInput, match="give an absolute path"):
        ensure_agents("state")


def test_ports_and_checkpoints_are_answered_by_the_node(fleet: Fleet, tmp_path: Path) -> None:
    agent = fleet.agents["a0"]
    answers = get([agent.actor.free_port.remote() for _ in range(20)])
    assert {answer["host"] for answer in answers} == {agent.address}
    assert len({answer["port"] for answer in answers}) == 20
    nothing = get(agent.actor.latest_checkpoint.remote(str(tmp_path / "none")))
    assert nothing == {"step": None, "path": None, "passed_over": []}


def test_a_pair_that_cannot_be_probed_is_named_and_holds_up_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railweave.agents.prober._ANSWER_S", 1.0)
    chosen = {name: fleet.agents[name] for name in ("a0", "a1", "b0")}
    settings = ProbeSettings(transfer_bytes=2**18, transfer_s=0.1, pings=3, connect_s=0.5)
    hanging = agent_pid(chosen["b0"])
    os.kill(hanging, signal.SIGSTOP)
    try:
        found = probe_all(chosen, settings, []).measurements
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert {each.pair for each in found if each.lost is None} == {("a0", "a1")}
    assert {each.pair for each in found if each.lost} == {("a0", "b0"), ("a1", "b0")}


def test_the_interpreter_of_a_jobs_command_is_the_one_railweave_runs_on(fleet: Fleet) -> None:
    agent = fleet.agents["a0"]
    code = "import sys; print(sys.executable)"
    get(agent.actor.launch.remote(launch_of(agent, "interpreter", "python", "-c", code)))
    get(agent.actor.status.remote("interpreter", 1, 10**6, 20.0))
    text = get(agent.actor.read_log.remote("interpreter", 1, 0)).text
    assert os.path.dirname(text.strip()) == os.path.dirname(sys.executable)
