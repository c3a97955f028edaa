"""How the ranks of a job look at this moment, gathered from the agents of its nodes."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ..agents.attempt import NodePhase, NodeStatus, RankState, Vitals
from ..placement.drawing.svg import plural
from .records import AttemptRecord

Ask = Callable[[str, str, int], Awaitable[NodeStatus]]
"""The status of a job's attempt on a node. Raises LookupError saying why there is none."""
_AT_ONCE = 64
_QUIET_S = 10.0


@dataclass(frozen=True)
class RankView:
    """A rank as its node sees it.

    state: running, ended, failed or unknown; why: what it failed with, or why its node cannot tell.
    step, loss: as it last reported; step_s: a typical step; compute_s: of that its own computing,
    both in seconds. cpu_share: of one core, in the last second. quiet_s: since it showed any life.
    """

    rank: int
    node: str
    device: int
    state: str
    why: str = ""
    step: int | None = None
    step_s: float | None = None
    compute_s: float | None = None
    loss: float | None = None
    cpu_share: float | None = None
    quiet_s: float | None = None


async def rank_views(attempt: AttemptRecord, ask: Ask) -> list[RankView]:
    """Every rank of an attempt, by rank. A node that does not answer leaves its ranks unknown."""
    devices: list[tuple[str, int]] = [tuple(each) for each in attempt.placement["devices"]]
    nodes = sorted({node for node, _ in devices})
    free = asyncio.Semaphore(_AT_ONCE)

    async def one(node: str) -> NodeStatus | str:
        async with free:
            try:
                return await ask(node, attempt.job_id, attempt.number)
            except LookupError as error:
                return str(error.args[0])

    answers = dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))
    return [_view(rank, *device, answers[device[0]]) for rank, device in enumerate(devices)]


def _view(rank: int, node: str, device: int, answer: NodeStatus | str) -> RankView:
    if isinstance(answer, str):
        return RankView(rank, node, device, "unknown", answer)
    state = next((each for each in answer.ranks if each.rank == rank), None)
    if state is None:
        why = "its node knows nothing of this attempt"
        return RankView(rank, node, device, "unknown", answer.reason or why)
    seen = next((each for each in answer.rank_vitals() if each.rank == rank), Vitals(rank=rank))
    running = state.exited_s is None and not state.error
    running = running and answer.phase in (NodePhase.STARTING, NodePhase.RUNNING)
    return RankView(
        rank,
        node,
        device,
        state="running" if running else "failed" if state.failed else "ended",
        why=_why(state) if state.failed else answer.reason,
        step=seen.step,
        step_s=seen.typical_s,
        compute_s=seen.compute_s,
        loss=seen.loss,
        cpu_share=seen.cpu_share if running else None,
        quiet_s=seen.quiet_s if running else None,
    )


def _why(state: RankState) -> str:
    if state.error:
        return state.error
    return f"signal {state.signal}" if state.signal is not None else f"exit code {state.exit_code}"


def most_telling(ranks: Sequence[RankView], count: int) -> list[RankView]:
    """At most `count` ranks by rank: of those not running, quiet, behind or slow, as many as go."""
    ahead = max((each.step for each in ranks if each.step is not None), default=0)

    def key(each: RankView) -> tuple[bool, bool, int, float, int]:
        behind = -1 if each.step is None else each.step
        quiet = each.state == "running" and (each.quiet_s or 0.0) > _QUIET_S
        # Ranks that wait for each other are apart by a step and mean nothing by it.
        late = behind if behind < ahead - 1 else ahead
        return (each.state == "running", not quiet, late, -(each.compute_s or 0.0), each.rank)

    return sorted(sorted(ranks, key=key)[:count], key=lambda each: each.rank)


def in_short(ranks: Sequence[RankView]) -> str:
    """All ranks in one line of text: how many in which state, their steps, the slowest."""
    states = [each.state for each in ranks]
    parts = [
        f"{plural(len(ranks), 'rank')}: "
        + ", ".join(
            f"{states.count(state)} {state}"
            for state in ("running", "ended", "failed", "unknown")
            if state in states
        )
    ]
    steps = [each.step for each in ranks if each.step is not None]
    if steps:
        least, most = min(steps), max(steps)
        parts.append(f"step {most}" if least == most else f"steps {least} to {most}")
    typical = [each.step_s for each in ranks if each.step_s is not None]
    if typical:
        parts.append(f"{statistics.median(typical):.3g} s a step")
    computing = [(each.compute_s, each.rank) for each in ranks if each.compute_s is not None]
    if len(computing) > 1:
        slowest_s, rank = max(computing)
        usual_s = statistics.median(own for own, _ in computing)
        if usual_s > 0:
            parts.append(f"rank {rank} computes longest, {slowest_s / usual_s:.2f} of the median")
    return "; ".join(parts)
