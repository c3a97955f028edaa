"""What `railweave ranks` is told of a job: each rank once, with the reason where it is unknown."""

from __future__ import annotations

import asyncio
from typing import Any

from railweave.agents.attempt import NodePhase, NodeStatus, RankState
from railweave.scheduler.job_ranks import RankView, in_short, most_telling, rank_views
from railweave.scheduler.records import AttemptRecord


def attempt(*devices: tuple[str, int]) -> AttemptRecord:
    values: dict[str, Any] = dict.fromkeys(AttemptRecord.__dataclass_fields__)
    placement = {"devices": [list(device) for device in devices]}
    return AttemptRecord(**values | {"job_id": "job", "number": 3, "placement": placement})


def running(rank: int, step: int | None = None, **more: Any) -> RankView:
    return RankView(rank, "a", rank, "running", step=step, **{"quiet_s": 0.1} | more)


def test_every_rank_is_told_with_what_its_node_says_or_why_it_says_nothing() -> None:
    asked = []

    async def ask(node: str, job_id: str, number: int) -> NodeStatus:
        asked.append((node, job_id, number))
        if node == "away":
            raise LookupError("away is out of reach: no answer")
        ranks = [
            RankState(rank=0, pid=7, started_s=1.0),
            RankState(rank=2, pid=8, exited_s=2.0, signal=9),
            RankState(rank=3, exited_s=2.0, error="no such file"),
            RankState(rank=4, pid=9, exited_s=2.0, exit_code=0),
        ]
        vitals = [
            {"rank": 0, "step": 5, "typical_s": 0.5, "compute_s": 0.4, "loss": 1.5}
            | {"cpu_share": 0.9, "quiet_s": 0.2},
            {"rank": 2, "step": 4, "cpu_share": 0.0, "quiet_s": 9.0},
        ]
        return NodeStatus(
            job_id=job_id, attempt=number, node=node, phase=NodePhase.RUNNING, ranks=tuple(ranks),
            vitals=tuple(vitals),
        )  # fmt: skip

    devices = [("here", 0), ("away", 1), ("here", 1), ("here", 2), ("here", 3), ("here", 4)]
    found = asyncio.run(rank_views(attempt(*devices), ask))
    assert sorted(asked) == [("away", "job", 3), ("here", "job", 3)]
    assert [(each.rank, each.node, each.device) for each in found] == [
        (rank, *device) for rank, device in enumerate(devices)
    ]
    assert [(each.state, each.why) for each in found] == [
        ("running", ""),
        ("unknown", "away is out of reach: no answer"),
        ("failed", "signal 9"),
        ("failed", "no such file"),
        ("ended", ""),
        ("unknown", "its node knows nothing of this attempt"),
    ]
    first, killed = found[0], found[2]
    assert (first.step, first.step_s, first.compute_s, first.loss) == (5, 0.5, 0.4, 1.5)
    assert (first.cpu_share, first.quiet_s) == (0.9, 0.2)
    assert (killed.step, killed.cpu_share, killed.quiet_s) == (4, None, None)


def test_of_many_ranks_those_are_shown_that_tell_most() -> None:
    ranks = [running(rank, 50, compute_s=1.0) for rank in range(1000)]
    ranks[900] = RankView(900, "a", 0, "failed", "exit code 1", 49)
    ranks[800] = running(800, 50, quiet_s=30.0)
    ranks[700] = running(700, 40)
    ranks[600] = running(600, 50, compute_s=2.0)
    ranks[5] = running(5, 49, compute_s=1.0)
    found = most_telling(ranks, 5)
    assert [each.rank for each in found] == [0, 600, 700, 800, 900]
    assert most_telling(ranks[:3], 5) == ranks[:3]


def test_a_line_says_how_all_are() -> None:
    assert in_short([running(0)]) == "1 rank: 1 running"
    ranks = [running(n, 10 + n % 2, step_s=0.5, compute_s=0.2 + 0.2 * (n == 3)) for n in range(4)]
    assert in_short([*ranks, RankView(4, "b", 0, "failed", "signal 9", 8)]) == (
        "5 ranks: 4 running, 1 failed; steps 8 to 11; 0.5 s a step; "
        "rank 3 computes longest, 2.00 of the median"
    )
