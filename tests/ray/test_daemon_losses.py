"""What the daemon does when a node, an agent, a controller or itself is lost: jobs go on."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import ray
from job_bench import Bench, call, kill, rank_pids
from railweave.agents import processes
from railweave.agents.fleet import NAMESPACE, agent_name
from railweave.scheduler.controller import ensure_controller, find_controller
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.messages import Standing
from railweave.scheduler.store import FencedOff, Store
from waiting import wait_until

CHECKPOINTING = """
from railweave.agents.checkpoint import Checkpointer
checkpoints = Checkpointer()
if attempt == 1:
    checkpoints.save(5, b"five %d" % rank)
    if rank == 0:
        checkpoints.commit(5, timeout_s=60)
    if rank != 1:
        checkpoints.save(6, b"six %d" % rank)
    print("saved")
    pathlib.Path(f"saved-{rank}").touch()
    until("never")
print("resumed with", checkpoints.load(os.environ["RAILWEAVE_RESUME_FROM"]).decode())
"""


def test_a_lost_node_is_set_aside_and_the_job_resumes_elsewhere_from_its_last_whole_checkpoint(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    job = bench.submit(CHECKPOINTING, devices=8)
    for rank in range(8):
        saved = bench.folder / f"saved-{rank}"
        wait_until(saved.exists, 60, f"rank {rank} has saved")
    before = job.placement
    assert before is not None
    victim = before.devices[0][0]
    killed_s = time.time()
    cluster.kill_node(victim)
    assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    after = job.placement
    assert after is not None
    assert victim not in {node for node, _ in after.devices}
    for rank in range(8):
        assert f"resumed with five {rank}" in job.logs(rank)
    first, second = job.attempts
    assert (first.cause or {})["kind"] == "node_lost"
    assert (first.cause or {})["node"] == victim
    assert second.resumed_from.endswith("step-000000000005.attempt-0001")
    moved = sum(old != new for old, new in zip(before.devices, after.devices, strict=True))
    assert second.moved_ranks == moved >= 2
    (resume,) = [e for e in job.events() if e.kind == "resume" and e.attempt == 2]
    assert "none from rank 1" in resume.message
    assert first.fault_seen_s is not None and second.running_s is not None
    assert first.fault_seen_s - killed_s < 15
    assert second.running_s - killed_s < 60
    (node,) = [node for node in bench.client.status().nodes if node.name == victim]
    assert node.state == "away" and node.free == 0
    quarantined = [e for e in bench.client.events() if e.kind == "quarantined"]
    assert quarantined[-1].data["node"] == victim


def test_a_killed_daemon_comes_back_and_the_job_does_not_notice(bench: Bench) -> None:
    job = bench.submit("until('go')")
    waiting = bench.submit("pass", devices=10)
    bench.until(job, JobState.RUNNING)
    pids, epoch = rank_pids(job), bench.client.status().epoch
    before = job.events()
    kill(bench.client.status().pid)
    assert job.state is JobState.RUNNING, job.explain()
    assert bench.client.status().epoch == epoch + 1
    assert rank_pids(job) == pids
    assert job.events()[: len(before)] == before
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED
    assert len(job.attempts) == 1
    assert bench.ends(waiting) is JobState.SUCCEEDED


def test_a_daemon_killed_after_every_step_neither_loses_nor_repeats_one(bench: Bench) -> None:
    deed = """
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    until("fail")
    sys.exit(1)
until("go")
"""
    job = bench.submit(deed, max_restarts=1)
    seq = 0
    begun = ("submitted", "launch", "preflight", "resume", "launched", "running")
    for kind in (*begun, "fault", "verdict", "stopped", "launched"):
        # An attempt that was called off because its daemon died is followed by another one.
        found = wait_until(
            lambda: [e for e in job.events(seq) if e.kind == kind],  # noqa: B023
            # The first repair of a new installation compiles its loops, in a daemon that is killed.
            150,
            f"{kind} after event {seq}",
        )
        seq = found[0].seq
        kill(bench.client.status().pid)
        if kind == "running":
            bench.touch("fail")
    bench.until(job, JobState.RUNNING)
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    started = [e.attempt for e in job.events() if e.kind == "running"]
    assert len(started) == len(set(started)) == 2
    # A daemon that has just begun waits until it has heard of the nodes that ran the job.
    moved = [e.data["moved_ranks"] for e in job.events() if e.kind == "launch"]
    assert set(moved[1:]) == {0}
    for kind in ("fault", "verdict", "stopped"):
        assert [e.attempt for e in job.events() if e.kind == kind] == started[:1]
    for attempt in started:
        for rank in range(4):
            assert job.logs(rank, attempt).splitlines() == [f"rank {rank} of attempt {attempt}"]


def test_a_job_that_ends_while_the_daemon_is_dead_is_still_told(bench: Bench) -> None:
    job = bench.submit("until('go')")
    bench.until(job, JobState.RUNNING)
    pid = bench.client.status().pid
    os.kill(pid, signal.SIGSTOP)
    try:
        bench.touch("go")
        wait_until(lambda: bench.alive() == [], 30, "the ranks have ended")
    finally:
        kill(pid)
    assert bench.ends(job) is JobState.SUCCEEDED
    assert len(job.attempts) == 1


def test_a_killed_controller_is_replaced_and_the_ranks_run_on(bench: Bench) -> None:
    job = bench.submit("until('go')")
    bench.until(job, JobState.RUNNING)
    pids = rank_pids(job)
    standing = Standing.model_validate_json(call(find_controller(job.id), "standing"))
    kill(standing.pid)
    wait_until(lambda: "adopted" in bench.kinds(job), 30, "a new controller has the attempt")
    assert rank_pids(job) == pids
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED
    assert len(job.attempts) == 1


def test_a_killed_agent_finds_its_ranks_again(bench: Bench) -> None:
    job = bench.submit("until('go')")
    bench.until(job, JobState.RUNNING)
    pids = rank_pids(job)
    assert job.placement is not None
    agent = ray.get_actor(agent_name(job.placement.devices[0][0]), NAMESPACE)
    kill(ray.get(agent.__ray_call__.remote(lambda self: os.getpid()), timeout=30))
    wait_until(lambda: _answers(agent), 60, "the agent is back")
    assert rank_pids(job) == pids
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED
    assert len(job.attempts) == 1


def _answers(actor: Any) -> bool:
    try:
        call(actor, "ping")
    except ray.exceptions.RayError:
        return False
    return True


def test_a_killed_rank_brings_the_job_into_recovery(bench: Bench) -> None:
    job = bench.submit("if attempt == 1: until('never')")
    bench.until(job, JobState.RUNNING)
    os.kill(rank_pids(job)[3], signal.SIGKILL)
    assert bench.ends(job) is JobState.SUCCEEDED
    assert (job.attempts[0].cause or {})["message"].startswith("rank 3 on node")
    assert "SIGKILL" in (job.attempts[0].cause or {})["message"]


def test_a_fenced_daemon_acts_no_more_and_the_next_one_clears_up(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    other = Store.open(cluster.state_dir / "daemon" / "railweave.db")
    other.take_epoch(time.time(), "another daemon")
    wait_until(lambda: _refused(bench), 30, "the daemon notices that it is fenced off")
    other.close()
    ray.util.placement_group([{"CPU": 1}], name="railweave/ghost-1/1", lifetime="detached")
    ensure_controller("ghost-1")
    kill(bench.client.status().pid)
    wait_until(lambda: not bench.client.status().fenced, 60, "the next daemon has the store")

    def ghosts() -> list[str]:
        names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
        groups = ray.util.placement_group_table().values()
        names += [group["name"] for group in groups if group["state"] != "REMOVED"]
        return [name for name in names if "ghost" in name]

    wait_until(lambda: not ghosts(), 60, "reservations and controllers of nobody are gone")
    assert bench.ends(bench.submit("pass", devices=1)) is JobState.SUCCEEDED


def _refused(bench: Bench) -> bool:
    with pytest.raises(FencedOff, match="another daemon has taken over"):
        bench.submit("pass", devices=1)
    return bool(bench.client.status().fenced)


def test_an_agent_that_falls_silent_counts_as_lost_and_its_ranks_are_ended_when_it_returns(
    bench: Bench,
) -> None:
    job = bench.submit("if attempt == 1: until('never')\nuntil('go')")
    bench.until(job, JobState.RUNNING)
    assert job.placement is not None
    node = job.placement.devices[0][0]
    pids = rank_pids(job)
    agent = ray.get_actor(agent_name(node), NAMESPACE)
    pid = ray.get(agent.__ray_call__.remote(lambda self: os.getpid()), timeout=30)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: len(job.attempts) == 2, 60, "the job is placed again")
        bench.until(job, JobState.RUNNING)
        assert job.placement is not None
        assert node not in {where for where, _ in job.placement.devices}
        silent = [
            rank
            for rank, (where, _) in enumerate(job.attempts[0].placement["devices"])
            if where == node
        ]
        assert all(processes.process(pids[rank]) for rank in silent)
        cause = job.attempts[0].cause or {}
        assert (cause["kind"], cause["node"]) == ("node_hung", node)
        assert "the machine itself answers" in cause["message"]
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: "leftover" in bench.kinds(job), 60, "the ranks left there are ended")
    assert not any(processes.process(pids[rank]) for rank in silent)
    bench.touch("go")
    assert bench.ends(job) is JobState.SUCCEEDED
