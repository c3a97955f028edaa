"""Seconds of communication that no placement of a job can do with less of."""

from __future__ import annotations

import numpy as np

from ..collectives import Exchange, Pattern, exchange
from ..jobs.index import Fabric
from ..pcg import PCG, Group
from ..timed.link_rates import LinkRates
from ..timed.link_time import phases_of

SAFETY = 1e-9
"""Relative room for rounding below the sum."""


def least_seconds(pcg: PCG, fabric: Fabric, spine_bytes: float) -> float:
    """A lower bound on the predicted seconds of a job on the free devices of a fabric.

    Of each phase the most that one of its groups needs alone: over the fastest links that reach as
    far as the group has to for want of room nearer by, spread over as many devices or rails as a
    node has; and as many steps. Together the phases take no less than `spine_bytes`, which must
    cross the spine in any placement, need on all links into it at once (not where rails meet only
    at the spine, as those bytes are counted for one channel).
    """
    if not len(fabric.slot_node):
        return 0.0
    rates = LinkRates.of(fabric.cluster)
    nodes = fabric.domain.shape[1]
    free = np.bincount(fabric.slot_node, minlength=nodes)
    spread = max(int(free.max()), fabric.cluster.rails)
    roomiest = [
        int(np.bincount(rates.domain[level], weights=free).max()) for level in range(rates.last + 1)
    ]
    used = np.flatnonzero(free)
    port = rates.port_s_per_byte[used].min(axis=0)
    fastest = [
        float(port[level] if level < rates.first_network else rates.nic_s_per_byte[level])
        for level in range(rates.last + 1)
    ]
    transfer, waits = 0.0, 0.0
    for groups in phases_of(pcg).values():
        longest, slowest = 0.0, 0.0
        # Most groups of a phase are alike, and one of each sort is enough.
        alike = {_sort(pcg.groups[index]): pcg.groups[index] for index in groups}
        for group in alike.values():
            each, n = exchange(group), len(group.ranks)
            if n == 1 or each.edge_bytes == 0:
                continue
            level = next(at for at, room in enumerate(roomiest) if room >= n)
            slowest = max(slowest, each.steps * float(rates.latency_s[level:].min()))
            longest = max(longest, _alone(each, n, level, spread, roomiest[0], fastest))
        transfer += longest
        waits += slowest
    if fabric.rail is None:
        transfer = max(transfer, spine_bytes * _spine_s_per_byte(rates, used, fabric))
    return (transfer + waits) * (1 - SAFETY)


def _sort(group: Group) -> tuple[str, str, int, float]:
    return group.op.value, group.algorithm.value, len(group.ranks), group.bytes


def _alone(
    each: Exchange, n: int, level: int, spread: int, room: int, fastest: list[float]
) -> float:
    """Seconds that a group needs on its busiest link at least, when it has to reach a level."""
    near = min(fastest[level:])
    if each.pattern is Pattern.ONE_EDGE:
        return each.edge_bytes * near
    beyond = min(fastest[max(1, level) :])
    if each.pattern is Pattern.ALL_PAIRS:
        # m members of a node send to n - m others; the least is at either end of what m can be.
        most = min(n - 1, room)
        apart = each.edge_bytes * min(n - 1, most * (n - most)) / spread * beyond
        return apart if level > 0 else min(apart, each.edge_bytes * (n - 1) * fastest[0])
    apart = each.edge_bytes / spread * beyond
    if level > 0:
        return apart
    inside = each.edge_bytes
    if each.pattern is Pattern.CHAIN:
        inside = (each.edge_bytes + each.back_bytes) * (n - 1) / n
    return min(apart, inside * fastest[0])


def _spine_s_per_byte(
    rates: LinkRates, used: np.ndarray[tuple[int], np.dtype[np.int64]], fabric: Fabric
) -> float:
    """Seconds a byte over all links that lead into the last tier together."""
    below = rates.last - 1
    rails = fabric.cluster.rails
    if len(rates.uplink_s_per_byte[below]):
        domains = np.unique(rates.domain[below, used])
        lanes = rails if below >= rates.first_network else 1
        return 1.0 / float((lanes / rates.uplink_s_per_byte[below][domains]).sum())
    if rates.last >= rates.first_network:
        return float(rates.nic_s_per_byte[rates.last]) / (rails * len(used))
    return 1.0 / float((1.0 / rates.port_s_per_byte[fabric.slot_node, rates.last]).sum())
