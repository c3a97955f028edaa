"""The main promise: training that loses a node ends as if nothing had happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from job_bench import Bench
from railweave.scheduler import Client, Job, JobState
from railweave.scheduler.client import JobHandle
from railweave.scheduler.embedded import EmbeddedCluster
from waiting import wait_until

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
# Four ranks, since each costs seconds of a core to start. Pipelines are resumed in test_train_gpt.
SIZES = ("--tp", "2", "--dp", "2", "--batch", "8", "--hidden", "32", "--seq", "32")
STEPS, SAVE_EVERY = 24, 6


def train(client: Client, name: str) -> JobHandle:
    options = [*SIZES, "--steps", str(STEPS), "--save-every", str(SAVE_EVERY)]
    return client.submit(
        Job(
            name=name,
            entrypoint=["python", str(SCRIPT), *options],
            devices=4,
            working_dir=str(SCRIPT.parent),
            grace_s=1.0,
        )
    )


def log(job: JobHandle, attempt: int) -> str:
    try:
        return job.logs(rank=0, attempt=attempt)
    except LookupError:
        return ""


def losses(text: str) -> dict[int, str]:
    """The exact loss of each step, as hexadecimal floating point."""
    return {int(step): loss for step, loss in re.findall(r"^step=(\d+) .*hex=(\S+)", text, re.M)}


def weights(text: str) -> str:
    found = re.search(rf"^done step={STEPS} weights_sha256=(\w{{64}})", text, re.M)
    assert found is not None, text
    return found[1]


@pytest.mark.timeout(400)
def test_training_that_loses_a_node_ends_with_the_very_same_loss_and_weights(
    cluster: EmbeddedCluster, bench: Bench
) -> None:
    unbroken = train(bench.client, "unbroken")
    assert unbroken.wait(180) is JobState.SUCCEEDED, unbroken.explain()
    expected = log(unbroken, 1)
    assert list(losses(expected)) == list(range(1, STEPS + 1))

    broken = train(bench.client, "broken")
    wait_until(
        lambda: max(losses(log(broken, 1)), default=0) > SAVE_EVERY + 1,
        120,
        "training is beyond its first checkpoint",
    )
    placement = broken.placement
    assert placement is not None
    victim = placement.devices[-1][0]
    cluster.kill_node(victim)
    assert broken.wait(180) is JobState.SUCCEEDED, broken.explain()

    first, second = broken.attempts
    assert first.cause is not None and victim in first.cause["message"]
    assert second.resumed_from != ""
    assert victim not in {node for node, _ in second.placement["devices"]}
    resumed = losses(log(broken, 2))
    assert min(resumed) > SAVE_EVERY and min(resumed) % SAVE_EVERY == 1
    assert resumed == {step: losses(expected)[step] for step in resumed}
    assert max(resumed) == STEPS
    assert weights(log(broken, 2)) == weights(expected)
