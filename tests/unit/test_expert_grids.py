"""Jobs whose experts are spread over nodes: sets of experts across sets of their replicas."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import PCG, Cluster, place


def pods(counts: list[int]) -> Cluster:
    nodes = [
        {"name": f"p{p}n{i}", "accelerator": "A", "devices": 1, "domains": {"pod": f"p{p}"}}
        for p, count in enumerate(counts)
        for i in range(count)
    ]
    tiers = [{"name": name, "bandwidth": 1e9, "latency": 1e-6} for name in ("pod", "spine")]
    data = {"format": "railweave.cluster/1", "name": "c", "tiers": tiers, "nodes": nodes}
    return Cluster.parse(data)


def grid(stages: int, replicas: int, experts: int, replica_bytes: float, token_bytes: float) -> PCG:
    """Stages of `replicas` times `experts` nodes: all-to-all along experts, all-reduce along
    replicas and along all, rings of four experts' nodes, and pipelines between stages."""
    each = replicas * experts
    groups: list[dict[str, Any]] = []

    def add(name: str, op: str, ranks: list[int], size: float) -> None:
        groups.append({"name": name, "op": op, "ranks": ranks, "bytes": size})

    for i in range(stages):
        base = i * each
        add(f"dp/{i}", "all_reduce", list(range(base, base + each)), 6.0)
        for r in range(base, base + each, experts):
            add(f"ep/{r}", "all_to_all", list(range(r, r + experts)), token_bytes)
        for e in range(base, base + experts):
            add(f"edp/{e}", "all_reduce", list(range(e, base + each, experts)), replica_bytes)
        for c in range(base, base + each, 4):
            add(f"cp/{c}", "all_reduce", list(range(c, c + 4)), 2.6)
        for n in range(base, base + each if i + 1 < stages else base):
            add(f"pp/{n}", "send_recv", [n, n + each], 0.1)
    data = {"format": "railweave.pcg/1", "world_size": stages * each, "groups": groups}
    return PCG.parse(data)


@pytest.mark.parametrize(
    ("sizes", "replica_bytes", "token_bytes", "rooms"),
    [
        pytest.param(
            (4, 12, 16), 285.0, 56.0, [40] * 16 + [39] * 6 + [38, 28], id="replicas-whole"
        ),
        pytest.param((2, 96, 4), 900.0, 690.0, [20] * 33 + [19] * 7, id="experts-whole"),
    ],
)
def test_the_sets_that_say_most_stay_whole_and_the_bound_says_so(
    sizes: tuple[int, int, int], replica_bytes: float, token_bytes: float, rooms: list[int]
) -> None:
    pcg = grid(*sizes, replica_bytes, token_bytes)
    found = place(pcg, pods(rooms), time_limit_s=0.5)
    assert found.cross_spine_bytes <= 1.15 * found.lower_bound_bytes
