"""Where the traffic of a placement comes from, and what stands in the way of one."""

from __future__ import annotations

import pytest
from railweave.placement import Cluster, Model, Parallelism, Workload, build_pcg, evaluate, place
from railweave.placement.constraints import AtMost, Constraints, Pin, Segments, Together
from railweave.placement.explain import explain_infeasible, explain_traffic

TIERS = [{"name": t, "bandwidth": 1e9, "latency": 1e-6} for t in ("rack", "spine")]
MODEL = Model.transformer(hidden=64, layers=4, heads=4, kv_heads=4, ffn=256, vocab=512, sequence=32)
PCG = build_pcg(
    Workload(
        model=MODEL,
        parallelism=Parallelism(tp=2, pp=2, dp=4),
        global_batch=8,
        micro_batch=1,
        sequence=32,
    )
)


def cluster(racks: int, nodes: int, devices: int = 2) -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "small",
            "tiers": TIERS,
            "nodes": [
                {
                    "name": f"r{r}n{n}",
                    "accelerator": "A",
                    "devices": devices,
                    "domains": {"rack": f"r{r}"},
                }
                for r in range(racks)
                for n in range(nodes)
            ],
        }
    )


WHERE = cluster(4, 2)
IN_ORDER = [(node.name, index) for node in WHERE.nodes for index in range(2)]


def test_the_sources_add_up_to_what_the_evaluator_counts_at_every_tier() -> None:
    counted = evaluate(PCG, WHERE, IN_ORDER).traffic_bytes
    for tier, size in counted.items():
        found = explain_traffic(PCG, WHERE, IN_ORDER, tier)
        assert sum(source.bytes for source in found) == pytest.approx(size)
        assert [s.bytes for s in found] == sorted((s.bytes for s in found), reverse=True)


def test_like_groups_of_a_stage_are_told_as_one() -> None:
    found = explain_traffic(PCG, WHERE, IN_ORDER)
    rings = [source for source in found if source.name.startswith("dp/")]
    assert {source.parts for source in rings} == {(0,), (1,)}
    for source in rings:
        assert source.name.endswith(f"/pp{source.parts[0]}/tp*")
        assert source.groups == 2 and source.domains == 2
    [forward] = [source for source in found if source.name.startswith("pp/forward")]
    assert forward.name == "pp/forward/pp0-pp1/dp*/tp*"
    assert forward.parts == (0, 1) and forward.groups == 8
    assert "8 groups, send_recv) of stages 0, 1" in str(forward)
    assert "over up to 2 racks" in str(forward)


def test_a_placement_without_spine_traffic_has_no_sources() -> None:
    roomy = cluster(1, 8)
    assert explain_traffic(PCG, roomy, place(PCG, roomy, 0.2).devices) == []


def test_an_unknown_tier_is_told() -> None:
    with pytest.raises(KeyError, match="the tiers are node, rack, spine"):
        explain_traffic(PCG, WHERE, IN_ORDER, "pod")


def test_nothing_is_in_the_way_of_what_can_be_placed() -> None:
    assert explain_infeasible(PCG, WHERE, Constraints(segments=Segments(ranks=2))) is None


def test_the_constraint_in_the_way_is_named_and_the_nearest_relaxation_offered() -> None:
    want = Constraints(
        at_most=AtMost(nodes=1, tier="rack"),
        segments=Segments(ranks=2),
        excluded_nodes=("r3n1",),
    )
    found = explain_infeasible(PCG, WHERE, want)
    assert found is not None
    # Either is too much even without the other; the segments are not in the way.
    assert found.unmet == [
        "at_most: 1 node in each of 4 domains of rack have 8 free devices at most "
        "and there are 16 ranks",
        "excluded_nodes: 1 node with 2 free devices are excluded, 14 are left for 16 ranks",
    ]
    assert [say for say, _ in found.relaxations] == ["no constraints at_most and excluded_nodes"]
    wider = explain_infeasible(PCG, WHERE, Constraints(at_most=AtMost(nodes=1, tier="rack")))
    assert wider is not None
    assert [say for say, _ in wider.relaxations] == ["at most 2 nodes in one rack"]
    assert str(wider).endswith("It can be placed with: at most 2 nodes in one rack")


def test_constraints_that_only_fail_together_are_all_named() -> None:
    roomy = cluster(2, 8)
    want = Constraints(together=Together(tier="rack"), pinned=(Pin(rank=0, node="r0n0"),))
    assert explain_infeasible(PCG, roomy, want) is None
    apart = Constraints(
        together=Together(tier="rack"),
        pinned=(Pin(rank=0, node="r0n0"), Pin(rank=1, node="r1n0")),
    )
    found = explain_infeasible(PCG, roomy, apart)
    assert found is not None
    assert [sentence.split(":")[0] for sentence in found.unmet] == ["together", "pinned"]
    offered = [say for say, _ in found.relaxations]
    assert offered == ["no constraint together", "rank 0 not pinned to r0n0"]
