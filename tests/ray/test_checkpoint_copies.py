"""Checkpoints on the nodes' own disks: a node's loss, disk and all, costs the job no checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_bench import Bench
from railweave.agents.checkpoint import Checkpointer, latest
from railweave.scheduler.cli.main import run
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.lifecycle import JobState
from waiting import wait_until

TRAINING = """
from railweave.agents.checkpoint import Checkpointer
from railweave.agents.checkpoint_background import BackgroundSaves
saves = BackgroundSaves(Checkpointer())
if resumed := os.environ["RAILWEAVE_RESUME_FROM"]:
    print("resumed", saves.checkpointer.load(resumed).decode())
saves.save(4 + attempt, b"attempt %d of rank %d" % (attempt, rank))
outcomes = saves.finish(60)
assert not any(outcome.failed for outcome in outcomes), outcomes
if not resumed:
    pathlib.Path(f"saved-{rank}").touch()
    until("never")
"""


@pytest.mark.timeout(300)
def test_a_job_with_node_local_storage_only_resumes_from_the_neighbours_copy(
    cluster: EmbeddedCluster, bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disks = tmp_path / "disks"
    job = bench.submit(TRAINING, checkpoint_dir=f"node://{disks}/{{node}}", max_restarts=1)
    wait_until(
        lambda: (
            all((bench.folder / f"saved-{rank}").exists() for rank in range(4)) or job.state.final
        ),
        90,
        "every rank has saved",
    )
    placement = job.placement
    assert placement is not None, job.explain()
    nodes = list(dict.fromkeys(node for node, _ in placement.devices))
    pods = {node.name: node.domains["pod"] for node in bench.client.cluster().nodes}
    (copies,) = [event for event in job.events() if event.kind == "copies"]
    assert {pods[node] for node in nodes}.isdisjoint(
        pods[other] for other in copies.data["copy_to"].values()
    )

    def told() -> dict[int, int]:
        saved = [event for event in job.events() if event.kind == "checkpoint"]
        assert all(0 < event.data["stall_s"] < 60 for event in saved)
        return {event.attempt or 0: event.data["step"] for event in saved}

    # It would be lost with the node that has to tell of it.
    wait_until(lambda: told() == {1: 5}, 30, "the history tells of the checkpoint")
    # The node of rank 0, which has committed it.
    victim = nodes[0]
    held = {path.name for path in (disks / victim).glob("step-*/shard-*.bytes")}
    assert len(held) == 2
    cluster.kill_node(victim)
    shutil.rmtree(disks / victim)
    assert not held & {path.name for path in disks.glob("*/step-*/shard-*.bytes")}

    assert bench.ends(job, 120) is JobState.SUCCEEDED, job.explain()
    second = job.attempts[1]
    assert victim not in {node for node, _ in second.placement["devices"]}
    assert second.resumed_from.endswith("/{node}/step-000000000005.attempt-0001")
    for rank in range(4):
        assert f"resumed attempt 1 of rank {rank}" in job.logs(rank, attempt=2)

    wait_until(lambda: told() == {1: 5, 2: 6}, 30, "the history tells of both checkpoints")
    assert run(["checkpoints", job.id, "--verify", "--json", "--step", "6"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["step"], row["verified"], row["ranks"]) == (6, True, 4)
    assert run(["checkpoints", job.id, "--restore", str(tmp_path / "out")]) == 0
    restored = latest(tmp_path / "out")
    assert Checkpointer(tmp_path / "out", 1, 4, 2).load(restored) == b"attempt 2 of rank 1"
