"""A job that may shrink goes on without a lost node and is whole again once the node is back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from job_bench import Bench
from railweave.scheduler.client import JobHandle
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from shared_cluster import NODES
from waiting import wait_until

TRAINING = """
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.notes import note
world, resumed = int(os.environ["WORLD_SIZE"]), os.environ["RAILWEAVE_RESUME_FROM"]
step = int(resumed.rpartition("step-")[2][:12]) if resumed else 0
print(f"goes on after step {step} with {world} ranks")
checkpoints = Checkpointer()
def save(step):
    checkpoints.save(step, b"rank %d of %d" % (rank, world))
    if rank == 0:
        checkpoints.commit(step, timeout_s=120)
        note("checkpoint", f"step {step} is saved", step=step)
        pathlib.Path(f"saved-{step}").touch()
if world == 10 and step:
    sys.exit(0)
save(step + 1)
if world < 10:
    until("save-again")
    save(step + 2)
until("never")
"""


@pytest.mark.timeout(400)
def test_a_job_shrinks_while_a_node_is_away_and_grows_after_a_checkpoint_once_it_is_back(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    job = bench.submit(TRAINING, devices=10, min_data_parallel=6, max_restarts=3)
    wait_until(
        lambda: (bench.folder / "saved-1").exists() or job.state.final, 120, "step 1 is saved"
    )
    assert job.placement is not None, job.explain()
    victim = job.placement.devices[-1][0]
    cluster.kill_node(victim)
    wait_until(
        lambda: (bench.folder / "saved-2").exists() or job.state.final, 150, "step 2 is saved"
    )
    assert len(job.attempts) == 2, job.explain()
    placed = job.attempts[1].placement["devices"]
    assert len(placed) == 8 and victim not in {node for node, _ in placed}
    # Where the nodes of this cluster were back soon before, waiting is tried first.
    *waited, shrunk = [event for event in job.events() if event.kind == "decision"]
    assert {event.data["choice"] for event in waited} <= {"wait"}
    assert (shrunk.data["choice"], shrunk.data["devices"]) == ("shrink", 8)
    costs = {choice: cost for choice, _, cost in shrunk.data["options"]}
    assert costs["shrink"] < costs["wait"]

    cluster.add_node(next(node for node in NODES if node.name == victim))

    def grows() -> bool:
        decided = [event for event in job.events() if event.kind == "decision"]
        return decided[-1].data["choice"] == "grow" or job.state.final

    wait_until(grows, 120, "it is decided to grow")
    assert "resize" not in bench.kinds(job)  # what was done since the last checkpoint is kept
    bench.touch("save-again")
    assert bench.ends(job, 150) is JobState.SUCCEEDED, job.explain()
    first, second, third = job.attempts
    assert [len(each.placement["devices"]) for each in (first, second, third)] == [10, 8, 10]
    assert "step-000000000001." in second.resumed_from
    assert "step-000000000003." in third.resumed_from
    assert job.logs(9, attempt=3).splitlines()[-1] == "goes on after step 3 with 10 ranks"
    assert second.cause is None and job.record.life.faults == 1
    (resize,) = [event for event in job.events() if event.kind == "resize"]
    assert resize.message == "grows from 8 to 10 devices"
    assert resize.data["horizon_s"] > resize.data["start_s"] > 0


SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
SIZES = ("--batch", "12", "--micro-batches", "1", "--hidden", "32", "--seq", "32", "--dropout", "0")


def losses(text: str) -> dict[int, float]:
    found = re.findall(r"^step=(\d+) .*hex=(\S+)", text, re.M)
    return {int(step): float.fromhex(loss) for step, loss in found}


def log(job: JobHandle, attempt: int) -> str:
    try:
        return job.logs(rank=0, attempt=attempt)
    except LookupError:
        return ""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_training_shrinks_and_grows_through_a_checkpoint_that_is_resharded(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    others = bench.submit("until('never')", devices=6, name="others")
    bench.until(others, JobState.RUNNING, 120)
    options = [*SIZES, "--dp", "auto", "--save-every", "6", "--steps", "100000"]
    job = bench.submit(
        "",
        entrypoint=["python", str(SCRIPT), *options, "--step-delay-s", "0.1"],
        devices=4,
        min_data_parallel=2,
        working_dir=str(SCRIPT.parent),
    )
    found: dict[int, float] = {}

    def trains_on(attempt: int, beyond: int) -> None:
        """Wait until an attempt has done more steps, and keep the losses of all of its steps."""

        def done() -> bool:
            assert not job.state.final, job.explain()
            return max(losses(log(job, attempt)), default=0) > beyond

        wait_until(done, 240, f"attempt {attempt} is beyond step {beyond}")
        for step, loss in losses(log(job, attempt)).items():
            assert loss == pytest.approx(found.setdefault(step, loss), rel=1e-5)

    trains_on(1, 8)
    assert job.placement is not None
    victim = job.placement.devices[-1][0]
    cluster.kill_node(victim)
    trains_on(2, 14)
    cluster.add_node(next(node for node in NODES if node.name == victim))
    wait_until(lambda: len(job.attempts) > 2, 240, "it has grown")
    trains_on(2, 14)
    trains_on(3, max(found) + 6)
    sizes = [len(each.placement["devices"]) for each in job.attempts]
    told = [re.search(r"^goes on with dp=(\d)", log(job, number), re.M) for number in (2, 3)]
    assert sizes == [4, 2, 4] and [each and each[1] for each in told] == ["2", "4"]
    job.cancel()

    # One process that nothing befalls learns the same, step by step.
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("RAILWEAVE_", "RAY_"))}
    alone = subprocess.run(
        [sys.executable, str(SCRIPT), *SIZES, "--steps", str(max(found))],
        env=plain,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    expected = losses(alone.stdout)
    assert sorted(found) == list(range(1, max(found) + 1))
    assert found == {step: pytest.approx(expected[step], rel=1e-4) for step in found}
