"""Where the traffic of a placement comes from, and what stands in the way of one."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import (
    Cluster,
    Infeasible,
    InvalidInput,
    Model,
    Parallelism,
    Workload,
    build_pcg,
    evaluate,
    place,
)
from railweave.placement.constraints import (
    AtMost,
    Balanced,
    Constraints,
    Pin,
    SameKind,
    Segments,
    Together,
)
from railweave.placement.constraints_file import parse_constraints
from railweave.placement.explain import explain_infeasible, explain_traffic
from railweave.placement.group import Kind

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
    with pytest.raises(InvalidInput, match="no tier 'pod'; the tiers are node, rack, spine"):
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


def two_kinds(of_first: int, of_second: int) -> Cluster:
    """Nodes of 2 devices, one rack, of kind A and then of kind B."""
    alike = cluster(1, of_first + of_second)
    nodes = tuple(
        node.model_copy(update={"accelerator": "A" if i < of_first else "B"})
        for i, node in enumerate(alike.nodes)
    )
    return alike.with_nodes(nodes)


def test_kinds_without_room_are_told_with_what_is_free_and_what_can_be_had() -> None:
    want, where = Constraints(same_kind=SameKind(per="job")), two_kinds(6, 4)
    found = explain_infeasible(PCG, where, want)
    assert found is not None
    assert found.unmet == [
        "same_kind: the whole job on one kind: 16 ranks, and 12 A, 8 B devices are free"
    ]
    # Without the embedding's gradients no collective joins the two stages, of 8 ranks each.
    groups = tuple(group for group in PCG.groups if group.kind is not Kind.EMBEDDING)
    stages = PCG.model_copy(update={"groups": groups})
    found = explain_infeasible(stages, where, want)
    assert found is not None
    [(say, weaker)] = found.relaxations
    assert say == "each group on one kind" and weaker.same_kind == SameKind(per="group")
    assert place(stages, where, 0.1, constraints=weaker)
    with pytest.raises(Infeasible, match=r"12 A, 8 B devices are free.*each group on one kind"):
        place(stages, where, 0.1, constraints=want)
    assert explain_infeasible(PCG, two_kinds(8, 4), want) is None


def test_what_can_be_had_instead_keeps_the_kinds_and_the_rules_asked_for() -> None:
    asked = {"same_kind": SameKind(per="job"), "split_tensor_groups": True}
    want, where = Constraints(spares=3, **asked), two_kinds(9, 1)
    found = explain_infeasible(PCG, where, want)
    assert found is not None and found.relaxations
    for say, weaker in found.relaxations:
        assert weaker == want.model_copy(update={"spares": 2}), say
        assert place(PCG, where, 0.1, constraints=weaker).spares


def test_a_job_too_large_on_any_kinds_is_told_before_its_kinds_are_sought() -> None:
    huge = PCG.model_copy(update={"world_size": 100_000_000})
    want = Constraints(same_kind=SameKind(per="job"))
    with pytest.raises(Infeasible, match="100000000 ranks need as many devices and 16 are free"):
        place(huge, WHERE, constraints=want)


@pytest.mark.parametrize(
    "want",
    [
        Constraints(spares=100_000_000),
        Constraints(segments=Segments(ranks=100_000_000)),
        Constraints(balanced=Balanced(tier="rack", domains=100_000_000)),
    ],
)
def test_numbers_far_too_large_are_answered_with_what_can_be_had(want: Constraints) -> None:
    found = explain_infeasible(PCG, cluster(4, 3), want)
    assert found is not None
    for _, weaker in found.relaxations:
        assert explain_infeasible(PCG, cluster(4, 3), weaker) is None


@pytest.mark.parametrize(
    "asked",
    [
        {"spares": 10**30},
        {"at_most": {"nodes": 10**30, "tier": "rack"}},
        {"balanced": {"tier": "rack", "domains": 10**30}},
        {"segments": {"ranks": 10**30}},
    ],
)
def test_numbers_that_no_job_can_need_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="100000000"):
        parse_constraints({"format": "railweave.constraints/1", **asked})
