"""What every node is told to start, against golden files; torchrun programs run unchanged on it.

After a wanted change: `RAILWEAVE_WRITE_GOLDEN=1 pytest tests/unit/test_launching.py`, and read the
difference.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.attempt import NodeLaunch
from railweave.scheduler.job import SET_BY_US, Job
from railweave.scheduler.launching import Attempt, launches

GOLDEN = Path(__file__).parent / "golden"
FIRST = Attempt(
    "gpt-1a2b3c", 1, 0, "10.0.0.7", 29511, "/shared/gpt", run_id="gpt-1a2b3c/1/77", mtbf_s=45e6
)
THIRD = Attempt(
    "gpt-1a2b3c",
    3,
    2,
    "10.0.0.9",
    29512,
    "s3://bucket/gpt",
    "s3://bucket/gpt/step-000000000010.attempt-0001",
    run_id="gpt-1a2b3c/3/88",
    mtbf_s=7200.4,
)


def job(**more: object) -> Job:
    fields = {
        "name": "gpt",
        "entrypoint": "python train.py --title 'a b; c' $HOME",
        "devices": 4,
        "working_dir": "/home/user/project",
    }
    return Job(**(fields | more))


def check(name: str, found: list[NodeLaunch]) -> None:
    text = json.dumps([launch.model_dump(mode="json") for launch in found], indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("RAILWEAVE_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_two_nodes_with_ranks_in_order() -> None:
    devices = [("n1", 0), ("n1", 1), ("n0", 0), ("n0", 1)]
    check("launch_two_nodes", launches(job(), FIRST, devices))


def test_interleaved_ranks_of_a_resumed_job_keep_their_devices() -> None:
    devices = [("n2", 3), ("n0", 1), ("n2", 0), ("n0", 0)]
    resumed = job(env={"OMP_NUM_THREADS": "8", "WANDB_MODE": "offline"}, grace_s=30, max_restarts=5)
    check("launch_interleaved", launches(resumed, THIRD, devices))


def test_the_command_is_a_list_that_no_shell_touches() -> None:
    (launch,) = launches(job(devices=1), FIRST, [("n0", 0)])
    assert launch.command == ("python", "train.py", "--title", "a b; c", "$HOME")


@given(
    st.lists(
        st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 7)),
        min_size=1,
        max_size=24,
        unique=True,
    )
)
def test_every_rank_finds_its_own_device_where_it_looks(devices: list[tuple[str, int]]) -> None:
    found = launches(job(devices=len(devices)), FIRST, devices)
    seen = {}
    for group_rank, launch in enumerate(found):
        visible = launch.env["CUDA_VISIBLE_DEVICES"].split(",")
        assert launch.env["HIP_VISIBLE_DEVICES"] == launch.env["CUDA_VISIBLE_DEVICES"]
        assert launch.env["GROUP_RANK"] == str(group_rank)
        assert int(launch.env["LOCAL_WORLD_SIZE"]) == len(launch.ranks) == len(visible)
        for local_rank, rank in enumerate(launch.ranks):
            assert rank.env["LOCAL_RANK"] == str(local_rank) == str(rank.local_rank)
            assert rank.env["RANK"] == str(rank.rank)
            assert int(visible[local_rank]) == rank.device == int(rank.env["RAILWEAVE_DEVICE"])
            seen[rank.rank] = (launch.node, rank.device)
    assert [seen[rank] for rank in range(len(devices))] == devices
    assert {launch.env["GROUP_WORLD_SIZE"] for launch in found} == {str(len(found))}


@pytest.mark.parametrize("name", ["launch_two_nodes", "launch_interleaved"])
def test_a_launch_has_the_whole_environment_that_torchrun_gives(name: str) -> None:
    # The keys of worker_env in torch/distributed/elastic/agent/server/local_elastic_agent.py.
    torchrun = {
        "RANK",
        "LOCAL_RANK",
        "GROUP_RANK",
        "ROLE_RANK",
        "ROLE_NAME",
        "LOCAL_WORLD_SIZE",
        "WORLD_SIZE",
        "GROUP_WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
    }
    for launch in json.loads((GOLDEN / f"{name}.json").read_text()):
        for rank in launch["ranks"]:
            given = launch["env"].keys() | rank["env"].keys()
            assert torchrun <= given
            users = {"OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "WANDB_MODE"}
            assert given - users == SET_BY_US - {
                "RAILWEAVE_ATTEMPT_ID",
                "RAILWEAVE_CHECKPOINT_PEERS",
                "RAILWEAVE_HANG_TIMEOUT_S",
                "RAILWEAVE_NAN_LOSS_LIMIT",
                "RAILWEAVE_PROGRESS",
                "RAILWEAVE_STRAGGLER_RATIO",
            }


def test_limits_of_the_jobs_own_reach_its_ranks() -> None:
    limits = {"hang_timeout_s": 90.5, "nan_loss_limit": 0, "straggler_ratio": 1.8}
    limited = job().model_copy(update=limits)
    (found,) = launches(limited, FIRST, [("n0", 0), ("n0", 1), ("n0", 2), ("n0", 3)])
    assert found.env["RAILWEAVE_HANG_TIMEOUT_S"] == "90.5"
    assert found.env["RAILWEAVE_NAN_LOSS_LIMIT"] == "0"
    assert found.env["RAILWEAVE_STRAGGLER_RATIO"] == "1.8"


def test_what_is_told_to_one_node_is_told_to_no_other() -> None:
    attempt = replace(FIRST, node_env={"n0": {"RAILWEAVE_CHECKPOINT_PEERS": "{}"}})
    found = launches(job(), attempt, [("n1", 0), ("n1", 1), ("n0", 0), ("n0", 1)])
    told = {launch.node: "RAILWEAVE_CHECKPOINT_PEERS" in launch.env for launch in found}
    assert told == {"n1": False, "n0": True}
