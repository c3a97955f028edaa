"""Whether a rank is steadily slower than its peers, by the compute times that ranks report. Pure.

Ranks that meet in every step all take as long as the slowest, so steps alone never show who that
is: only the time that each computes by itself does.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

from ..agents.attempt import NodeStatus, Vitals
from .fault import Fault, FaultKind, after_step

RATIO_VARIABLE = "RAILWEAVE_STRAGGLER_RATIO"
"""Environment variable of the ranks that carries the job's setting to its controller."""
LEAST_STEPS = 10
"""Of how many steps the compute time must be known; the median is over the last 20."""
_LEAST_S = 1e-3


def straggler(
    nodes: Collection[str], statuses: Mapping[str, NodeStatus], ratio: float, now_s: float
) -> Fault | None:
    """The fault of an attempt with a rank whose steps take `ratio` times those of its peers.

    Compared are medians of the last steps: of a rank, and over all others. None where fewer than
    two ranks report compute times, or one that does has not done enough steps.
    """
    ranks: list[tuple[str, Vitals, float]] = []
    for node in nodes:
        if node not in statuses:
            return None
        for each in statuses[node].rank_vitals():
            if each.compute_s is not None:
                if each.compute_steps < LEAST_STEPS:
                    return None
                ranks.append((node, each, each.compute_s))
    if len(ranks) < 2:
        return None
    slowest = max(range(len(ranks)), key=lambda index: ranks[index][2])
    node, vitals, own_s = ranks[slowest]
    peers_s = statistics.median(s for index, (_, _, s) in enumerate(ranks) if index != slowest)
    if own_s < max(ratio * peers_s, peers_s + _LEAST_S):
        return None
    return Fault(
        kind=FaultKind.STRAGGLER,
        message=(
            f"rank {vitals.rank} on node {node} computes {own_s:.3g} s a step, its "
            f"{len(ranks) - 1} peers {peers_s:.3g} s (medians of up to 20 steps)"
            f"{after_step(vitals.step)}; look for heat, a throttled clock or other work on the "
            "node; where the work of the ranks differs, raise straggler_ratio"
        ),
        seen_s=now_s,
        node=node,
        node_at_fault=True,
        rank=vitals.rank,
        step=vitals.step,
    )
