"""Hand-worked examples of the traffic accounting."""

from __future__ import annotations

import time

import pytest
from railweave.placement import PCG, Cluster, Evaluator, Group, InvalidInput, Op, evaluate


def cluster(cross_rail: str = "nvlink") -> Cluster:
    """Two pods of two ToRs of two nodes of two devices, two rails: 16 devices."""
    nodes = [
        {
            "name": f"n{number}",
            "accelerator": "A100-80G",
            "devices": 2,
            "domains": {"tor": f"t{number // 2}", "pod": f"p{number // 4}"},
        }
        for number in range(8)
    ]
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "two-pods",
            "tiers": [
                {"name": "tor", "bandwidth": 25e9, "latency": 1e-6},
                {"name": "pod", "bandwidth": 25e9, "latency": 2e-6},
                {"name": "spine", "bandwidth": 25e9, "latency": 3e-6},
            ],
            "rails": 2,
            "cross_rail": cross_rail,
            "nodes": nodes,
        }
    )


IN_ORDER = [(f"n{rank // 2}", rank % 2) for rank in range(16)]


def one_group(op: str, ranks: list[int], size: float, algorithm: str = "auto") -> PCG:
    group = {"name": "g", "op": op, "ranks": ranks, "bytes": size, "algorithm": algorithm}
    return PCG.parse({"format": "railweave.pcg/1", "world_size": 16, "groups": [group]})


def traffic(pcg: PCG, cross_rail: str = "nvlink") -> list[float]:
    return list(evaluate(pcg, cluster(cross_rail), IN_ORDER).traffic_bytes.values())


@pytest.mark.parametrize(
    ("op", "ranks", "size", "algorithm", "expected"),
    [
        # 16 ring edges of 2*15/16*S = 1.875 S: 8 in nodes, 4 in ToRs, 2 in pods, 2 at the spine
        ("all_reduce", list(range(16)), 16.0, "ring", [240.0, 120.0, 60.0, 60.0]),
        ("all_gather", list(range(16)), 16.0, "ring", [120.0, 60.0, 30.0, 30.0]),
        ("reduce_scatter", list(range(16)), 16.0, "auto", [120.0, 60.0, 30.0, 30.0]),
        # two pods: 2(2-1)S at the spine; four ToRs: 6S cross, 4S of it inside pods; and so on
        ("all_reduce", list(range(16)), 1.0, "tree", [16.0, 8.0, 4.0, 2.0]),
        ("broadcast", list(range(16)), 1.0, "auto", [8.0, 4.0, 2.0, 1.0]),
        # of 240 pairs: 16 in nodes, 32 in ToRs, 64 in pods, 128 at the spine
        ("all_to_all", list(range(16)), 16.0, "direct", [16.0, 32.0, 64.0, 128.0]),
        ("send_recv", [0, 1], 5.0, "auto", [5.0, 0.0, 0.0, 0.0]),
        ("send_recv", [0, 2], 5.0, "auto", [0.0, 5.0, 0.0, 0.0]),
        ("send_recv", [7, 0], 5.0, "ring", [0.0, 0.0, 5.0, 0.0]),
        ("send_recv", [0, 15], 5.0, "auto", [0.0, 0.0, 0.0, 5.0]),
        # a ring of two has two directed edges
        ("all_reduce", [0, 8], 10.0, "ring", [0.0, 0.0, 0.0, 20.0]),
        ("all_gather", [0, 1], 10.0, "auto", [10.0, 0.0, 0.0, 0.0]),
    ],
)
def test_an_operation_is_counted_as_worked_by_hand(
    op: str, ranks: list[int], size: float, algorithm: str, expected: list[float]
) -> None:
    assert traffic(one_group(op, ranks, size, algorithm)) == expected


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_a_group_of_one_rank_sends_nothing(op: str) -> None:
    assert traffic(one_group(op, [3], 100.0)) == [0.0, 0.0, 0.0, 0.0]


def test_a_ring_visits_domains_one_after_another_whatever_the_order_of_its_ranks() -> None:
    shuffled = [9, 0, 12, 3, 15, 6, 1, 10, 4, 13, 2, 8, 5, 14, 7, 11]
    ordered = traffic(one_group("all_reduce", list(range(16)), 16.0))
    assert traffic(one_group("all_reduce", shuffled, 16.0)) == ordered


def test_different_rails_meet_at_the_spine_only_where_the_fabric_says_so() -> None:
    pcg = one_group("send_recv", [0, 3], 1.0)  # n0 device 0 to n1 device 1, one ToR
    assert traffic(pcg) == [0.0, 1.0, 0.0, 0.0]
    assert traffic(pcg, "spine") == [0.0, 0.0, 0.0, 1.0]


def test_rails_do_not_matter_inside_a_node() -> None:
    assert traffic(one_group("send_recv", [0, 1], 1.0), "spine") == [1.0, 0.0, 0.0, 0.0]


def test_a_ring_over_mixed_rails_crosses_the_spine_at_every_change_of_rail_between_nodes() -> None:
    # n0/0, n0/1, n1/0, n1/1: two edges inside nodes, n0/1 -> n1/0 and n1/1 -> n0/0 change rail
    pcg = one_group("all_gather", [0, 1, 2, 3], 4.0)
    assert traffic(pcg) == [6.0, 6.0, 0.0, 0.0]
    assert traffic(pcg, "spine") == [6.0, 0.0, 0.0, 6.0]


def test_all_to_all_over_mixed_rails_keeps_only_pairs_of_one_rail_off_the_spine() -> None:
    # 12 pairs: 4 in the two nodes, 4 of one rail in the ToR, 4 of different rails
    pcg = one_group("all_to_all", [0, 1, 2, 3], 4.0)
    assert traffic(pcg, "spine") == [4.0, 4.0, 0.0, 4.0]


def test_trees_and_broadcasts_are_counted_by_domains_whatever_the_rails() -> None:
    for op, algorithm in (("all_reduce", "tree"), ("broadcast", "auto")):
        pcg = one_group(op, list(range(16)), 1.0, algorithm)
        assert traffic(pcg, "spine") == traffic(pcg)


def test_groups_add_up_and_are_listed_one_by_one() -> None:
    pcg = PCG(
        world_size=16,
        groups=(
            Group(name="edge", op=Op.SEND_RECV, ranks=(0, 15), bytes=3.0),
            Group(name="ring", op=Op.ALL_GATHER, ranks=(0, 1), bytes=10.0),
        ),
    )
    evaluation = evaluate(pcg, cluster(), IN_ORDER)
    assert evaluation.traffic_bytes == {"node": 10.0, "tor": 0.0, "pod": 0.0, "spine": 3.0}
    assert evaluation.cross_spine_bytes == 3.0
    assert [(part.name, part.bytes_by_tier["spine"]) for part in evaluation.by_group] == [
        ("edge", 3.0),
        ("ring", 0.0),
    ]


def test_a_cluster_whose_only_tier_is_the_spine_has_two_places_to_meet() -> None:
    flat = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "flat",
            "tiers": [{"name": "spine", "bandwidth": 1e9, "latency": 0}],
            "nodes": [{"name": n, "accelerator": "V100", "devices": 2} for n in ("a", "b")],
        }
    )
    pcg = PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": 4,
            "groups": [{"name": "x", "op": "all_to_all", "ranks": [0, 1, 2, 3], "bytes": 4}],
        }
    )
    devices = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert evaluate(pcg, flat, devices).traffic_bytes == {"node": 4.0, "spine": 8.0}


def test_a_pcg_without_groups_sends_nothing() -> None:
    pcg = PCG(world_size=1, groups=())
    assert evaluate(pcg, cluster(), [("n0", 0)]).cross_spine_bytes == 0.0


def test_busy_and_faulty_nodes_can_be_evaluated() -> None:
    base = cluster()
    faulty = base.with_nodes(
        tuple(node.model_copy(update={"state": "faulty"}) for node in base.nodes)
    )
    pcg = one_group("send_recv", [0, 15], 1.0)
    assert evaluate(pcg, faulty, IN_ORDER) == evaluate(pcg, base, IN_ORDER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({0: ("n01", 0)}, "devices[0]: no node 'n01'; did you mean"),
        ({5: ("n0", 2)}, "devices[5]: device index 2 out of range; n0 has 0 to 1"),
        ({5: ("n0", -1)}, "devices[5]: device index -1 out of range; n0 has 0 to 1"),
        ({5: ("n0", 0)}, "devices[5]: device 0 of n0 already has rank 0"),
        ({5: "n0"}, "devices[5]: found 'n0'; give (node name, device index)"),
        ({5: ("n0", True)}, "devices[5]: found ('n0', True)"),
    ],
)
def test_a_device_that_cannot_be_is_named_with_its_rank(
    change: dict[int, object], message: str
) -> None:
    devices = [change.get(rank, device) for rank, device in enumerate(IN_ORDER)]
    with pytest.raises(InvalidInput) as caught:
        evaluate(one_group("send_recv", [0, 1], 1.0), cluster(), devices)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_too_few_devices_are_refused_with_both_counts() -> None:
    with pytest.raises(InvalidInput, match="15 devices for 16 ranks"):
        evaluate(one_group("send_recv", [0, 1], 1.0), cluster(), IN_ORDER[:-1])


def test_sixteen_thousand_ranks_in_fifty_thousand_groups_take_well_under_a_second() -> None:
    nodes = [
        {
            "name": f"n{number:05}",
            "accelerator": "A100-80G",
            "devices": 8,
            "domains": {"tor": f"t{number // 20:04}", "pod": f"p{number // 400:04}"},
        }
        for number in range(2048)
    ]
    tiers = [{"name": n, "bandwidth": 25e9, "latency": 1e-6} for n in ("tor", "pod", "spine")]
    big = Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "big",
            "tiers": tiers,
            "rails": 8,
            "nodes": nodes,
        }
    )
    world = 16384
    groups = [
        Group(name=f"tp{g}", op=Op.ALL_GATHER, ranks=tuple(range(g, g + 8)), bytes=1e9)
        for g in range(0, world, 8)
    ]
    groups += [
        Group(name=f"dp{g}", op=Op.ALL_REDUCE, ranks=tuple(range(g, world, 1024)), bytes=1e9)
        for g in range(1024)
    ]
    groups += [
        Group(name=f"pp{r}.{k}", op=Op.SEND_RECV, ranks=(r, (r + 1024) % world), bytes=1e6)
        for r in range(world)
        for k in range(3)
    ]
    pcg = PCG(world_size=world, groups=tuple(groups))
    devices = [(f"n{rank // 8:05}", rank % 8) for rank in range(world)]
    fastest = min(_seconds(lambda: evaluate(pcg, big, devices)) for _ in range(3))
    assert fastest < 8
    prepared = Evaluator(pcg, big)
    assert prepared(devices) == evaluate(pcg, big, devices)


def _seconds(action: object) -> float:
    start = time.process_time()
    action()  # type: ignore[operator]
    return time.process_time() - start
