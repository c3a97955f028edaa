"""A job and a cluster as arrays for the search by time, in its own reading of the time model."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..collectives import Pattern, exchange
from ..jobs.index import ANY_KIND, Fabric, Floats, Ints
from ..pcg import PCG
from .link_rates import LinkRates

_NUMBER = re.compile(r"\d+")
MOST_LOADS = 1 << 24
"""Loads (phases times links) that are kept at most."""
_LEAST_INCREMENTAL = 12
"""Rings and chains of more members than this are changed where a member goes, not anew."""


class Net(NamedTuple):
    """Free devices (slots) in ring order, so that every domain is a range of them.

    low, high: `[level, slot]`, the range of its domain. node: the node of a slot, numbered over
    nodes with slots. same: the slot before it on its node and rail, or -1.
    Links are numbered: ports (two a slot: out, in), NICs (two a node and rail), uplinks (two a
    domain and rail). uplink: `[level, slot]`, the first link of its domain, or -1 for none.
    link_low, link_high: the slots behind each link. The rates are as in LinkRates.
    aligned: 1 where rails meet at the last level only.
    """

    node: Ints
    rail: Ints
    kind: Ints
    same: Ints
    low: Ints
    high: Ints
    uplink: Ints
    uplink_s: Floats
    port_s: Floats
    nic_s: Floats
    wait_s: Floats
    link_low: Ints
    link_high: Ints
    first_nic: int
    rails: int
    first_network: int
    aligned: int


class Job(NamedTuple):
    """Groups that may leave a node, and what stays inside.

    Group g has members `member[start[g]:start[g + 1]]`, in ring order of no meaning except for
    single edges. waiting: its class of equal phase and steps. grown: 1 where it is changed member
    by member. of_start, of_group: groups by rank.
    still_*: by rank, what it exchanges inside its unit: phase, bytes out and in.
    """

    pattern: Ints
    ahead: Floats
    back: Floats
    phase: Ints
    waiting: Ints
    grown: Ints
    start: Ints
    member: Ints
    of_start: Ints
    of_group: Ints
    still_start: Ints
    still_phase: Ints
    still_out: Floats
    still_in: Floats
    class_phase: Ints
    class_steps: Ints
    class_still: Ints
    kind: Ints
    phases: int


class Timed(NamedTuple):
    """Both, with the slots' numbers in the fabric."""

    net: Net
    job: Job
    slots: Ints


def net_of(fabric: Fabric) -> tuple[Net, Ints]:
    """The links among the free devices of a fabric, and the fabric's slot of each of ours."""
    cluster = fabric.cluster
    rates = LinkRates.of(cluster)
    order = np.lexsort((fabric.slot_device, fabric.ring_position[fabric.slot_node]))
    at = fabric.slot_node[order]
    count, levels = len(order), rates.last + 1
    low = np.zeros((levels, count), dtype=np.int64)
    high = np.full((levels, count), count, dtype=np.int64)
    for level in range(levels - 1):
        label = rates.domain[level, at]
        edges = np.flatnonzero(np.diff(label, prepend=-1) != 0)
        run = np.searchsorted(edges, np.arange(count), side="right") - 1
        low[level] = edges[run]
        high[level] = np.append(edges[1:], count)[run]
    _, node = np.unique(low[0], return_inverse=True)
    rails = cluster.rails
    rail = fabric.slot_device[order] % rails
    same = np.full(count, -1, dtype=np.int64)
    seen: dict[tuple[int, int], int] = {}
    for slot, lane in enumerate(zip(node.tolist(), rail.tolist(), strict=True)):
        same[slot] = seen.get(lane, -1)
        seen[lane] = slot
    nodes = int(node.max(initial=-1)) + 1
    starts = np.flatnonzero(np.diff(node, prepend=-1) != 0)
    link_low = [np.repeat(np.arange(count), 2), np.repeat(starts, 2 * rails)]
    link_high = [link_low[0] + 1, np.repeat(high[0, starts], 2 * rails)]
    first_nic = 2 * count
    links = first_nic + 2 * nodes * rails
    uplink = np.full((levels, count), -1, dtype=np.int64)
    uplink_s = np.zeros((levels, count))
    for level, table in enumerate(rates.uplink_s_per_byte):
        if not len(table):
            continue
        firsts, which = np.unique(low[level], return_inverse=True)
        uplink[level] = links + 2 * rails * which
        uplink_s[level] = table[rates.domain[level, at]]
        link_low.append(np.repeat(firsts, 2 * rails))
        link_high.append(np.repeat(high[level, firsts], 2 * rails))
        links += 2 * rails * len(firsts)
    net = Net(
        node=node.astype(np.int64),
        rail=rail,
        kind=fabric.kind[at],
        same=same,
        low=low,
        high=high,
        uplink=uplink,
        uplink_s=uplink_s,
        port_s=rates.port_s_per_byte[at],
        nic_s=rates.nic_s_per_byte,
        wait_s=rates.latency_s,
        link_low=np.concatenate(link_low),
        link_high=np.concatenate(link_high),
        first_nic=first_nic,
        rails=rails,
        first_network=rates.first_network,
        aligned=int(fabric.rail is not None),
    )
    return net, order


def job_of(pcg: PCG, fabric: Fabric, unit_of: Ints) -> Job:
    """The groups of a PCG; those inside one of the units, which stay in a node, apart."""
    phases: dict[tuple[str, str], int] = {}
    classes: dict[tuple[int, int], int] = {}
    still_class: set[int] = set()
    rows: list[tuple[int, float, float, int, int, int]] = []
    members: list[tuple[int, ...]] = []
    still: dict[tuple[int, int], list[float]] = {}
    for group in pcg.groups:
        phase = phases.setdefault((_NUMBER.sub("*", group.name), group.op.value), len(phases))
        each = exchange(group)
        if each.edge_bytes == 0 or len(group.ranks) == 1:
            continue
        waiting = classes.setdefault((phase, each.steps), len(classes))
        units = unit_of[list(group.ranks)] if len(group.ranks) > 2 else None
        first, last = unit_of[group.ranks[0]], unit_of[group.ranks[-1]]
        if first == last and (units is None or (units == first).all()):
            still_class.add(waiting)
            for position, rank in enumerate(group.ranks):
                out, into = _inside(each.pattern, each.edge_bytes, each.back_bytes, group.ranks)
                if each.pattern is Pattern.ONE_EDGE:
                    out, into = (out, 0.0) if position == 0 else (0.0, into)
                sums = still.setdefault((rank, phase), [0.0, 0.0])
                sums[0] += out
                sums[1] += into
            continue
        grown = (
            each.pattern in (Pattern.RING, Pattern.CHAIN)
            and len(group.ranks) > _LEAST_INCREMENTAL
            and (fabric.rail is None or each.pattern is Pattern.CHAIN)
        )
        rows.append((each.pattern, each.edge_bytes, each.back_bytes, phase, waiting, int(grown)))
        members.append(group.ranks)
    sizes = np.fromiter((len(m) for m in members), dtype=np.int64, count=len(members))
    member = np.fromiter(chain.from_iterable(members), dtype=np.int64, count=int(sizes.sum()))
    owner = np.repeat(np.arange(len(members)), sizes)
    by_rank = np.argsort(member, kind="stable")
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    keys = sorted(still)
    holders = np.array([k[0] for k in keys], dtype=np.int64)
    kind = np.full(pcg.world_size, ANY_KIND, dtype=np.int64)
    number = {name: index for index, name in enumerate(fabric.kinds)}
    for need in pcg.requires:
        kind[list(need.ranks)] = number[need.accelerator]
    return Job(
        pattern=np.array(columns[0], dtype=np.int64),
        ahead=np.array(columns[1], dtype=np.float64),
        back=np.array(columns[2], dtype=np.float64),
        phase=np.array(columns[3], dtype=np.int64),
        waiting=np.array(columns[4], dtype=np.int64),
        grown=np.array(columns[5], dtype=np.int64),
        start=_starts(sizes),
        member=member,
        of_start=_starts(np.bincount(member, minlength=pcg.world_size)),
        of_group=owner[by_rank],
        still_start=_starts(np.bincount(holders, minlength=pcg.world_size)),
        still_phase=np.array([k[1] for k in keys], dtype=np.int64),
        still_out=np.array([still[k][0] for k in keys], dtype=np.float64),
        still_in=np.array([still[k][1] for k in keys], dtype=np.float64),
        class_phase=np.array([k[0] for k in classes], dtype=np.int64),
        class_steps=np.array([k[1] for k in classes], dtype=np.int64),
        class_still=np.array([int(c in still_class) for c in range(len(classes))], dtype=np.int64),
        kind=kind,
        phases=len(phases),
    )


def _inside(
    pattern: Pattern, ahead: float, back: float, ranks: tuple[int, ...]
) -> tuple[float, float]:
    """Bytes out and in of each member of a group that lies in one node."""
    n = len(ranks)
    if pattern is Pattern.ALL_PAIRS:
        return ahead * (n - 1), ahead * (n - 1)
    if pattern is Pattern.CHAIN:
        return (ahead + back) * (n - 1) / n, (ahead + back) * (n - 1) / n
    return ahead, ahead


def _starts(counts: Ints) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]).astype(np.int64)
