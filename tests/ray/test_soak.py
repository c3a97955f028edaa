"""Many faults over several jobs at once: each job ends with the right result all the same."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from contextlib import suppress
from functools import partial

import pytest
import ray
from job_bench import Bench, all_well, call, rank_pids
from railweave.agents.fleet import NAMESPACE, agent_name
from railweave.scheduler.client import JobHandle
from railweave.scheduler.controller import find_controller
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.messages import Standing
from shared_cluster import restore
from waiting import wait_until

STEPS = 120
JOBS = 3
FAULTS = 40
# Each step folds its number into the state, so a step that is lost or done twice changes the end.
DEED = f"""
import hashlib
from railweave.agents.checkpoint import Checkpointer
checkpoints = Checkpointer()
step, state = 0, b""
if path := os.environ["RAILWEAVE_RESUME_FROM"]:
    stored = checkpoints.load(path)
    step, state = int(stored[:8]), stored[8:]
while step < {STEPS}:
    step += 1
    state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    time.sleep(0.1)
    if step % 10 == 0:
        checkpoints.save(step, b"%08d" % step + state)
        if rank == 0:
            checkpoints.commit(step, timeout_s=120)
pathlib.Path(f"result-{{rank}}").write_text(state.hex())
"""


def expected(rank: int) -> str:
    state = b""
    for step in range(1, STEPS + 1):
        state = hashlib.sha256(state + b"%d of rank %d" % (step, rank)).digest()
    return state.hex()


@pytest.mark.soak
def test_jobs_end_with_the_right_result_whatever_is_killed(
    bench: Bench, cluster: EmbeddedCluster
) -> None:
    chance = random.Random(20)
    done: list[str] = []
    for batch in range(FAULTS // 10):
        jobs = []
        for index in range(JOBS):
            folder = bench.folder / f"{batch}-{index}"
            folder.mkdir()
            jobs.append(
                bench.submit(
                    DEED,
                    devices=2,
                    max_restarts=100,
                    working_dir=folder,
                    checkpoint_dir=folder / "checkpoints",
                )
            )
        for _ in range(10):
            under_way = [job for job in jobs if not job.state.final]
            if not under_way:
                break
            job = chance.choice(under_way)
            wait_until(partial(_runs_or_ended, job), 120, "the job runs")
            fault = chance.choice([_rank, _node, _daemon, _controller, _agent])
            # What was to be killed may have ended by itself (ValueError: Ray knows no such actor).
            with suppress(LookupError, ProcessLookupError, ValueError, ray.exceptions.RayError):
                fault(bench, cluster, job, chance)
                done.append(fault.__name__)
            restore(cluster)
        for index, job in enumerate(jobs):
            assert job.wait(300) is JobState.SUCCEEDED, job.explain()
            for rank in range(2):
                found = (bench.folder / f"{batch}-{index}" / f"result-{rank}").read_text()
                assert found == expected(rank)
        wait_until(lambda: all_well(bench.client), 120, "every node is well")
    assert len(done) > FAULTS // 2 and len(set(done)) == 5, done


def _runs_or_ended(job: JobHandle) -> bool:
    return job.state is JobState.RUNNING or job.state.final


def _rank(bench: Bench, cluster: EmbeddedCluster, job: JobHandle, chance: random.Random) -> None:
    os.kill(chance.choice(sorted(rank_pids(job).values())), signal.SIGKILL)


def _node(bench: Bench, cluster: EmbeddedCluster, job: JobHandle, chance: random.Random) -> None:
    cluster.kill_node(chance.choice(job.attempts[-1].placement["devices"])[0])


def _daemon(bench: Bench, cluster: EmbeddedCluster, job: JobHandle, chance: random.Random) -> None:
    os.kill(bench.client.status().pid, signal.SIGKILL)


def _controller(
    bench: Bench, cluster: EmbeddedCluster, job: JobHandle, chance: random.Random
) -> None:
    standing = Standing.model_validate_json(call(find_controller(job.id), "standing"))
    os.kill(standing.pid, signal.SIGKILL)


def _agent(bench: Bench, cluster: EmbeddedCluster, job: JobHandle, chance: random.Random) -> None:
    agent = ray.get_actor(
        agent_name(chance.choice(job.attempts[-1].placement["devices"])[0]), NAMESPACE
    )
    pid = ray.get(agent.__ray_call__.remote(lambda self: os.getpid()), timeout=30)
    os.kill(pid, signal.SIGKILL)
