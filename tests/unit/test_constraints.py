"""Side constraints of a placement: each is kept, and told when it cannot be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, Infeasible, InvalidInput, Placement, evaluate, place
from railweave.placement.constraints import (
    AtMost,
    Balanced,
    Constraints,
    Pin,
    Segments,
    Together,
)

TIERS = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "pod", "spine")]


def cluster(pods: int = 2, racks: int = 2, nodes: int = 2, devices: int = 2) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "tiers": TIERS,
            "nodes": [
                {
                    "name": f"p{p}r{r}n{n}",
                    "accelerator": "A",
                    "devices": devices,
                    "domains": {"rack": f"p{p}r{r}", "pod": f"p{p}"},
                }
                for p in range(pods)
                for r in range(racks)
                for n in range(nodes)
            ],
        }
    )


def ring(ranks: int) -> PCG:
    group = {"name": "dp", "op": "all_reduce", "ranks": list(range(ranks)), "bytes": 1e9}
    return PCG.parse({"format": "railweave.pcg/1", "world_size": ranks, "groups": [group]})


def grid(stages: int, replicas: int, tensor: int = 8) -> PCG:
    groups: list[dict[str, Any]] = []

    def rank(s: int, d: int, t: int) -> int:
        return (s * replicas + d) * tensor + t

    for s in range(stages):
        for d in range(replicas):
            ranks = [rank(s, d, t) for t in range(tensor)]
            groups.append({"name": f"tp{s}/{d}", "op": "all_reduce", "ranks": ranks, "bytes": 9e9})
            for t in range(tensor if s + 1 < stages else 0):
                ends = [rank(s, d, t), rank(s + 1, d, t)]
                name = f"pp{s}/{d}/{t}"
                groups.append({"name": name, "op": "send_recv", "ranks": ends, "bytes": 1e8})
        for t in range(tensor):
            ranks = [rank(s, d, t) for d in range(replicas)]
            groups.append({"name": f"dp{s}/{t}", "op": "all_reduce", "ranks": ranks, "bytes": 1e9})
    world = stages * replicas * tensor
    return PCG.parse({"format": "railweave.pcg/1", "world_size": world, "groups": groups})


def counts(found: Placement, where: Cluster, tier: str) -> Counter[str]:
    domains = {node.name: node.domains.get(tier, node.name) for node in where.nodes}
    return Counter(domains[name] for name, _ in found.devices)


def test_all_ranks_are_in_one_domain_where_that_is_required() -> None:
    found = place(ring(4), cluster(), constraints=Constraints(together=Together(tier="rack")))
    assert len(counts(found, cluster(), "rack")) == 1
    with pytest.raises(Infeasible) as caught:
        place(ring(6), cluster(), constraints=Constraints(together=Together(tier="rack")))
    told = str(caught.value)
    assert "6 ranks need as many devices in one rack and the most that is free in one is 4" in told
    assert "It can be placed with: together in one pod" in told


def test_a_preference_to_be_together_widens_as_far_as_it_must_and_says_so() -> None:
    wish = Constraints(together=Together(tier="rack", required=False))
    found = place(ring(6), cluster(), constraints=wish)
    assert len(counts(found, cluster(), "pod")) == 1
    assert found.notes == ["together in one rack was preferred and cannot be; widened to pod"]
    wide = place(ring(10), cluster(), constraints=wish)
    assert wide.notes[-1].endswith("widened to spine")
    near = place(ring(4), cluster(), constraints=wish)
    assert near.notes == [] and len(counts(near, cluster(), "rack")) == 1


def test_no_domain_holds_more_nodes_than_allowed() -> None:
    most = Constraints(at_most=AtMost(nodes=1, tier="rack"))
    found = place(ring(6), cluster(), constraints=most)
    nodes = {name for name, _ in found.devices}
    assert max(Counter(name[:4] for name in nodes).values()) == 1
    with pytest.raises(Infeasible, match="at_most: 1 node in each of 4 domains of rack have 8"):
        place(ring(10), cluster(), constraints=most)


def test_slices_are_balanced_over_domains() -> None:
    found = place(ring(8), cluster(), constraints=Constraints(balanced=Balanced(tier="rack")))
    assert len(set(counts(found, cluster(), "rack").values())) == 1
    four = Constraints(balanced=Balanced(tier="rack", domains=4))
    found = place(ring(8), cluster(), constraints=four)
    assert sorted(counts(found, cluster(), "rack").values()) == [2, 2, 2, 2]
    with pytest.raises(Infeasible, match="not divisible by 4 domains of rack") as caught:
        place(ring(6), cluster(), constraints=four)
    assert "balanced over 3 domains of rack" in str(caught.value)


def test_segments_of_consecutive_ranks_stay_in_a_node_or_a_domain() -> None:
    for tier, length in (("node", 2), ("rack", 3), ("rack", 4), ("pod", 8)):
        want = Constraints(segments=Segments(ranks=length, tier=tier))
        found = place(ring(8), cluster(), constraints=want)
        assert want.broken(cluster(), found.devices) == []
    wide = Constraints(segments=Segments(ranks=8, tier="rack"))
    with pytest.raises(Infeasible, match="room for 0 whole ones") as caught:
        place(ring(8), cluster(), constraints=wide)
    assert "segments of 8 ranks, each in one pod" in str(caught.value)


def test_pinned_ranks_are_where_they_were_pinned() -> None:
    pins = (Pin(rank=3, node="p1r1n1", device=1), Pin(rank=0, node="p0r0n1"))
    found = place(ring(4), cluster(), constraints=Constraints(pinned=pins))
    assert found.devices[3] == ("p1r1n1", 1) and found.devices[0][0] == "p0r0n1"
    assert found.proved_optimal


def test_a_pin_on_a_device_that_is_not_free_is_told() -> None:
    data = cluster().to_data()
    data["nodes"][0]["free_devices"] = [0]
    pins = Constraints(pinned=(Pin(rank=1, node="p0r0n0", device=1),))
    with pytest.raises(Infeasible, match="device 1 of p0r0n0, which is not free") as caught:
        place(ring(4), Cluster.parse(data), constraints=pins)
    assert "rank 1 not pinned to p0r0n0" in str(caught.value)


def test_excluded_nodes_are_not_used() -> None:
    names = tuple(node.name for node in cluster().nodes[:4])
    found = place(ring(8), cluster(), constraints=Constraints(excluded_nodes=names))
    assert not {name for name, _ in found.devices} & set(names)
    with pytest.raises(Infeasible) as caught:
        place(ring(9), cluster(), constraints=Constraints(excluded_nodes=names))
    assert "4 nodes with 8 free devices are excluded, 8 are left for 9 ranks" in str(caught.value)
    assert "p0r0n0 not excluded" in str(caught.value)


def test_only_whole_nodes_are_used_where_that_is_asked() -> None:
    data = cluster().to_data()
    data["nodes"][0]["free_devices"] = [1]
    data["nodes"][3]["free_devices"] = [0]
    where = Cluster.parse(data)
    found = place(ring(6), where, constraints=Constraints(whole_nodes=True))
    assert not {name for name, _ in found.devices} & {"p0r0n0", "p0r1n1"}
    with pytest.raises(Infeasible, match="6 nodes are wholly free, with 12 devices for 13 ranks"):
        place(ring(13), where, constraints=Constraints(whole_nodes=True))


def test_spares_are_kept_free_near_the_job() -> None:
    found = place(ring(6), cluster(), constraints=Constraints(spares=1))
    pod = next(iter(counts(found, cluster(), "pod")))
    used = {name for name, _ in found.devices}
    assert len(found.spares) == 1 and found.spares[0].startswith(pod)
    assert not used & set(found.spares)
    assert Placement.parse(found.to_data()).spares == found.spares
    with pytest.raises(Infeasible, match="spares: 3 to be kept of 8 wholly free nodes") as caught:
        place(ring(12), cluster(), constraints=Constraints(spares=3))
    assert "2 spares" in str(caught.value)


def test_constraints_that_name_what_does_not_exist_are_refused() -> None:
    wrong = Constraints(
        together=Together(tier="rak"),
        pinned=(Pin(rank=9, node="p0r0n9"), Pin(rank=1, node="p0r0n0", device=5)),
        excluded_nodes=("nope",),
    )
    with pytest.raises(InvalidInput) as caught:
        place(ring(4), cluster(), constraints=wrong)
    told = str(caught.value)
    for part in (
        "together.tier: no tier 'rak'; did you mean 'rack'?",
        "pinned[0].rank: rank 9 does not exist",
        "pinned[0].node: no node 'p0r0n9'",
        "pinned[1].device: device index 5 out of range",
        "excluded_nodes[0]: no node 'nope'",
    ):
        assert part in told


def test_constraints_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput, match="pinned twice"):
        Constraints(pinned=(Pin(rank=0, node="a"), Pin(rank=0, node="b")))
    with pytest.raises(InvalidInput, match="is excluded"):
        Constraints(pinned=(Pin(rank=0, node="a"),), excluded_nodes=("a",))
    with pytest.raises(InvalidInput, match="every rank a device of its own"):
        Constraints(pinned=(Pin(rank=0, node="a", device=0), Pin(rank=1, node="a", device=0)))
    with pytest.raises(InvalidInput, match="unknown key"):
        Constraints(spare=1)


LARGE = cluster(pods=3, racks=4, nodes=5, devices=8)


@pytest.mark.parametrize(
    "want",
    [
        Constraints(together=Together(tier="pod")),
        Constraints(at_most=AtMost(nodes=2, tier="rack")),
        Constraints(at_most=AtMost(nodes=6, tier="pod")),
        Constraints(balanced=Balanced(tier="pod", domains=2)),
        Constraints(segments=Segments(ranks=32, tier="rack")),
        Constraints(segments=Segments(ranks=8)),
        Constraints(pinned=(Pin(rank=0, node="p2r3n4", device=0), Pin(rank=9, node="p0r0n0"))),
        Constraints(excluded_nodes=("p0r0n0", "p1r1n1"), whole_nodes=True, spares=3),
        Constraints(
            at_most=AtMost(nodes=4, tier="rack"),
            segments=Segments(ranks=32, tier="rack"),
            spares=1,
        ),
    ],
    ids=lambda want: "+".join(sorted(want.model_fields_set)),
)
def test_large_jobs_keep_every_constraint(want: Constraints) -> None:
    pcg = grid(4, 4)
    found = place(pcg, LARGE, time_limit_s=0.3, constraints=want)
    assert want.broken(LARGE, found.devices) == []
    assert found.traffic_bytes == evaluate(pcg, LARGE, found.devices).traffic_bytes
    assert found.lower_bound_bytes <= found.cross_spine_bytes
    assert len(found.spares) == want.spares


def test_the_order_of_nodes_and_groups_does_not_decide() -> None:
    apart = Constraints(at_most=AtMost(nodes=1, tier="rack"), spares=1)
    for pcg, where in ((ring(5), cluster()), (grid(2, 4), LARGE)):
        turned = where.model_copy(update={"nodes": where.nodes[::-1]})
        mixed = pcg.model_copy(update={"groups": pcg.groups[::-1]})
        for want in (None, apart):
            first = place(pcg, where, time_limit_s=0.3, constraints=want)
            again = place(mixed, turned, time_limit_s=0.3, constraints=want)
            assert again.devices == first.devices and again.spares == first.spares
