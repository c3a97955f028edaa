"""From a placement to what every node is told to start: torchrun's whole environment, per rank.

Pure. The variables are those of torch.distributed.elastic's agent ("Environment Variables" in
torchrun's documentation), so that programs written for torchrun run unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..agents.attempt import NodeLaunch, RankLaunch
from ..agents.checkpoint_pace import MTBF_VARIABLE
from ..agents.fence import RUN_ID_VARIABLE
from ..agents.lookout import NAN_LOSS_VARIABLE
from .hang import TIMEOUT_VARIABLE
from .job import Job
from .records import Device
from .straggler import RATIO_VARIABLE

ROLE = "default"


@dataclass(frozen=True)
class Attempt:
    """What distinguishes one launch of a job from the others.

    restarts: attempts that broke before this one.
    master_addr, master_port: where rank 0 listens, for torch's rendezvous.
    resume_from: a complete checkpoint, or empty to begin anew.
    run_id: the same for all ranks of this launch and for no other; see `agents.fence`.
    mtbf_s: mean time between faults that is expected of the job; None leaves it to the ranks.
    node_env: variables of single nodes' ranks, by node.
    """

    job_id: str
    number: int
    restarts: int
    master_addr: str
    master_port: int
    checkpoint_dir: str
    resume_from: str = ""
    run_id: str = ""
    mtbf_s: float | None = None
    node_env: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def launches(job: Job, attempt: Attempt, devices: Sequence[Device]) -> list[NodeLaunch]:
    """What each node starts, in the order of their lowest rank, which is their GROUP_RANK.

    devices: `(node name, device index)` by rank. On a node, ranks ascend with their local rank, and
    the visible devices stand in the order of local ranks.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, (node, _) in enumerate(devices):
        ranks_of.setdefault(node, []).append(rank)
    common = {
        "OMP_NUM_THREADS": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        **job.env,
        "WORLD_SIZE": str(len(devices)),
        "GROUP_WORLD_SIZE": str(len(ranks_of)),
        "ROLE_NAME": ROLE,
        "ROLE_WORLD_SIZE": str(len(devices)),
        "MASTER_ADDR": attempt.master_addr,
        "MASTER_PORT": str(attempt.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(attempt.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(job.max_restarts),
        "TORCHELASTIC_RUN_ID": attempt.job_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "RAILWEAVE_JOB_ID": attempt.job_id,
        "RAILWEAVE_ATTEMPT": str(attempt.number),
        RUN_ID_VARIABLE: attempt.run_id,
        "RAILWEAVE_CHECKPOINT_DIR": attempt.checkpoint_dir,
        "RAILWEAVE_RESUME_FROM": attempt.resume_from,
    }
    if attempt.mtbf_s is not None:
        common[MTBF_VARIABLE] = f"{attempt.mtbf_s:.0f}"
    if job.hang_timeout_s is not None:
        common[TIMEOUT_VARIABLE] = f"{job.hang_timeout_s:g}"
    if job.nan_loss_limit is not None:
        common[NAN_LOSS_VARIABLE] = str(job.nan_loss_limit)
    if job.straggler_ratio is not None:
        common[RATIO_VARIABLE] = f"{job.straggler_ratio:g}"
    return [
        NodeLaunch(
            job_id=attempt.job_id,
            attempt=attempt.number,
            node=node,
            command=job.entrypoint,
            working_dir=job.working_dir,
            env={
                **common,
                **_node_env(node, group_rank, [devices[rank][1] for rank in ranks]),
                **attempt.node_env.get(node, {}),
            },
            ranks=tuple(
                _rank_launch(rank, local_rank, devices[rank][1])
                for local_rank, rank in enumerate(ranks)
            ),
            grace_s=job.grace_s,
        )
        for group_rank, (node, ranks) in enumerate(ranks_of.items())
    ]


def _node_env(node: str, group_rank: int, devices: list[int]) -> dict[str, str]:
    visible = ",".join(map(str, devices))
    return {
        "LOCAL_WORLD_SIZE": str(len(devices)),
        "GROUP_RANK": str(group_rank),
        "CUDA_VISIBLE_DEVICES": visible,
        "HIP_VISIBLE_DEVICES": visible,
        "RAILWEAVE_NODE": node,
    }


def _rank_launch(rank: int, local_rank: int, device: int) -> RankLaunch:
    env = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "ROLE_RANK": str(rank),
        "RAILWEAVE_DEVICE": str(device),
    }
    return RankLaunch(rank=rank, local_rank=local_rank, device=device, env=env)
